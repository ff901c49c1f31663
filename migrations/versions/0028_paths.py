"""The path of each verdict, its gap as of steps on the way to its end; what a list shows: the lead
of each verdict, and each job's answer.

Revision ID: 0028
Revises: 0027
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


# A job's answer is that of its safest candidate.
_ANSWERS = """
UPDATE jobs SET answer = CASE
  WHEN EXISTS (SELECT 1 FROM verdicts WHERE job_id = jobs.id AND outcome = 'pass') THEN 'pass'
  WHEN EXISTS (SELECT 1 FROM verdicts WHERE job_id = jobs.id AND outcome = 'inconclusive') THEN 'inconclusive'
  ELSE 'fail' END
WHERE EXISTS (SELECT 1 FROM verdicts WHERE job_id = jobs.id)
"""  # noqa: E501


def upgrade() -> None:
    op.add_column("verdicts", sa.Column("path", sa.Text()))
    op.add_column("verdicts", sa.Column("lead", sa.Text()))
    op.add_column("jobs", sa.Column("answer", sa.String(32)))
    op.execute(_ANSWERS)
    op.create_index("jobs_by_answer", "jobs", ["answer", "id"])
    op.create_index("jobs_by_state", "jobs", ["id", "status", "answer"])


def downgrade() -> None:
    op.drop_index("jobs_by_state", "jobs")
    op.drop_index("jobs_by_answer", "jobs")
    op.drop_column("jobs", "answer")
    op.drop_column("verdicts", "lead")
    op.drop_column("verdicts", "path")
