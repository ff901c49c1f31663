"""gap charts: the chart of a job's candidates over all steps, so that a page need not read every curve.

Revision ID: 0023
Revises: 0022
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "gap_charts",
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("made_from", sa.String(length=64), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("job_id"),
    )


def downgrade() -> None:
    op.drop_table("gap_charts")
