"""analyses: what a job of kind why explains, and the results of its measurements.

Revision ID: 0021
Revises: 0020
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "analyses",
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("explains", sa.String(length=255), nullable=False),
        sa.Column("candidate", sa.String(length=255), nullable=False),
        sa.Column("against", sa.String(length=32), nullable=False),
        sa.Column("setup", sa.JSON(), nullable=False),
        sa.Column("answer", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.ForeignKeyConstraint(["explains"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_index(op.f("ix_analyses_explains"), "analyses", ["explains"], unique=False)
    op.create_table(
        "analysis_results",
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"]),
        sa.PrimaryKeyConstraint("run_id", "key"),
    )


def downgrade() -> None:
    op.drop_table("analysis_results")
    op.drop_index(op.f("ix_analyses_explains"), table_name="analyses")
    op.drop_table("analyses")
