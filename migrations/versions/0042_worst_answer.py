"""A job's answer is the worst of its candidates' verdicts, as its exit code is, and no longer that
of the safest one; its lead is kept for lists.

Revision ID: 0042
Revises: 0041
"""

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None

_WORST_FIRST = ("fail", "inconclusive", "pass")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("lead", sa.String(255)))
    _answer_with(_WORST_FIRST)


def downgrade() -> None:
    with op.batch_alter_table("jobs") as table:
        table.drop_column("lead")
    _answer_with(_WORST_FIRST[::-1])


def _answer_with(order: tuple[str, ...]) -> None:
    """Set each judged job's answer to the first of these states that one of its verdicts has."""
    jobs = sa.table("jobs", sa.column("id"), sa.column("answer"))
    verdicts = sa.table("verdicts", sa.column("job_id"), sa.column("outcome"))
    for state in reversed(order):  # the first one is set last
        having = sa.select(verdicts.c.job_id).where(verdicts.c.outcome == state)
        op.get_bind().execute(
            sa.update(jobs)
            .where(jobs.c.id.in_(having), jobs.c.answer.is_not(None))
            .values(answer=state)
        )
