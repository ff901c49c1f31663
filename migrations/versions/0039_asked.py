"""What all ways to ask a question share, and the new questions that operators register.

Revision ID: 0039
Revises: 0038
"""

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("arms", sa.Column("asked", sa.String(32)))
    op.create_index("ix_arms_asked", "arms", ["asked"])
    op.create_table(
        "new_questions",
        sa.Column("id", sa.String(255), primary_key=True),
        sa.Column("job_id", sa.String(255), sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("who", sa.String(255), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
    )
    op.create_index("ix_new_questions_job_id", "new_questions", ["job_id"])


def downgrade() -> None:
    op.drop_table("new_questions")
    op.drop_index("ix_arms_asked", "arms")
    op.drop_column("arms", "asked")
