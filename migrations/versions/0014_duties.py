"""duties that one process at a time does for all, a row that readiness checks write, and indexes of open jobs and ended runs.

Revision ID: 0014
Revises: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    duties = op.create_table(
        "duties",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_index("ix_jobs_status", "jobs", ["status"])
    op.create_index("ix_runs_finished_at", "runs", ["finished_at"])
    op.bulk_insert(duties, [{"name": name, "holder": "", "expires_at": 0.0} for name in ("readiness", "housekeeping")])


def downgrade() -> None:
    op.drop_index("ix_runs_finished_at", "runs")
    op.drop_index("ix_jobs_status", "jobs")
    op.drop_table("duties")
