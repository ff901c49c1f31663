"""searches: what a search for the fastest policy starts from, and its steps.

Revision ID: 0022
Revises: 0021
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "searches",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("base_id", sa.String(length=255), nullable=False),
        sa.Column("candidate", sa.String(length=255), nullable=False),
        sa.Column("question", sa.String(length=255), nullable=False),
        sa.Column("setup", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("policy", sa.String(length=255), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("max_run_seconds", sa.Float(precision=53), nullable=True),
        sa.Column("submitted_by", sa.String(length=255), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("finished_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["base_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    for column in ("base_id", "question", "state"):
        op.create_index(op.f(f"ix_searches_{column}"), "searches", [column], unique=False)
    op.create_table(
        "search_steps",
        sa.Column("search_id", sa.String(length=255), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("evaluations", sa.JSON(), nullable=False),
        sa.Column("results", sa.JSON(), nullable=True),
        sa.Column("cost", sa.Float(precision=53), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["search_id"], ["searches.id"]),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("search_id", "number"),
        sa.UniqueConstraint("job_id"),
    )


def downgrade() -> None:
    op.drop_table("search_steps")
    op.drop_table("searches")
