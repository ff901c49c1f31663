"""No stored gap charts: a chart is computed from the curves, and kept in memory.

Revision ID: 0027
Revises: 0026
"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_table("gap_charts")


def downgrade() -> None:
    op.create_table(
        "gap_charts",
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("made_from", sa.String(length=64), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("job_id"),
    )
