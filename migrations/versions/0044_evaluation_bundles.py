"""Held-out losses that were sent to be judged: a job of engine evaluations has them in place of
runs.

Revision ID: 0044
Revises: 0043
"""

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None

_ENGINE = "evaluations"
_TABLES_WITH_JOBS = (
    "arms",
    "verdicts",
    "events",
    "job_tags",
    "job_notes",
    "new_questions",
    "sign_offs",
    "statements",
    "idempotency_keys",
    "webhook_deliveries",
)


def upgrade() -> None:
    op.create_table(
        "evaluation_bundles",
        sa.Column("job_id", sa.String(255), sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("bundle", sa.LargeBinary(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
    )


def downgrade() -> None:
    """An earlier version can read no job of this engine: they go with what belongs to them."""
    op.drop_table("evaluation_bundles")
    jobs = sa.table("jobs", sa.column("id"), sa.column("engine"))
    chosen = sa.select(jobs.c.id).where(jobs.c.engine == _ENGINE)
    for name in _TABLES_WITH_JOBS:
        table = sa.table(name, sa.column("job_id"))
        op.get_bind().execute(sa.delete(table).where(table.c.job_id.in_(chosen)))
    op.get_bind().execute(sa.delete(jobs).where(jobs.c.engine == _ENGINE))
