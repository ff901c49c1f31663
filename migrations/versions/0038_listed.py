"""One index for the lists of jobs: a text in the name or the model, and how many jobs have each
answer.

Revision ID: 0038
Revises: 0037
"""

from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("jobs_as_listed", "jobs", ["id", "status", "answer", "name", "model"])
    op.drop_index("jobs_by_state", "jobs")
    op.drop_index("jobs_by_name", "jobs")


def downgrade() -> None:
    op.create_index("jobs_by_name", "jobs", ["id", "name"])
    op.create_index("jobs_by_state", "jobs", ["id", "status", "answer"])
    op.drop_index("jobs_as_listed", "jobs")
