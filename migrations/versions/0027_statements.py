"""What owners state of external runs; open jobs that take runs without a job file; runs whose
planned steps nobody stated.

Revision ID: 0027
Revises: 0026
"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

TEXT_255 = sa.String(length=255)


def upgrade() -> None:
    op.create_table(
        "statements",
        sa.Column("id", TEXT_255, primary_key=True),
        sa.Column("job_id", TEXT_255, sa.ForeignKey("jobs.id"), nullable=False, index=True),
        sa.Column("fact", sa.String(length=32), nullable=False),
        sa.Column("arm", sa.String(length=64), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.Column("who", TEXT_255, nullable=False),
        sa.Column("is_late", sa.Boolean(), nullable=False),
        sa.Column("is_informed", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.UniqueConstraint("job_id", "fact", "arm"),
    )
    planned(nullable=True)
    op.add_column("runs", sa.Column("asked_by", sa.JSON()))
    op.add_column("runs", sa.Column("has_seed", sa.Boolean()))
    op.add_column("jobs", sa.Column("looked_at", sa.BigInteger()))
    op.add_column(
        "jobs", sa.Column("is_open", sa.Boolean(), nullable=False, server_default=sa.false())
    )


def downgrade() -> None:
    op.drop_column("jobs", "is_open")
    op.drop_column("jobs", "looked_at")
    op.drop_column("runs", "has_seed")
    op.drop_column("runs", "asked_by")
    op.execute("UPDATE runs SET planned_steps = steps_done WHERE planned_steps IS NULL")
    planned(nullable=False)
    op.drop_table("statements")


def planned(*, nullable: bool) -> None:
    """Change whether `runs.planned_steps` can be null. On SQLite the column is replaced: replacing
    the table would delete its chunks.
    """
    if op.get_bind().dialect.name != "sqlite":
        op.alter_column("runs", "planned_steps", existing_type=sa.BigInteger(), nullable=nullable)
        return
    op.add_column(
        "runs",
        sa.Column(
            "planned", sa.BigInteger(), nullable=nullable, server_default=None if nullable else "0"
        ),
    )
    op.execute("UPDATE runs SET planned = planned_steps")
    op.drop_column("runs", "planned_steps")
    op.alter_column("runs", "planned", new_column_name="planned_steps")
