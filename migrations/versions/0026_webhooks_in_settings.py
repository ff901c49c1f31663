"""Webhooks are in the settings: the database has which events each one receives, and no URL or secret.

Revision ID: 0026
Revises: 0025
"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Made again, not changed: registered webhooks and their deliveries end here, because nothing has their URLs and secrets any more.
    _replace(
        webhooks=[sa.Column("events", sa.JSON(), nullable=False)],
        job=sa.Column("job_id", sa.String(length=255), nullable=False),
        keys=[],
    )


def downgrade() -> None:
    _replace(
        webhooks=[
            sa.Column("url", sa.Text(), nullable=False),
            sa.Column("events", sa.JSON(), nullable=False),
            sa.Column("secret", sa.String(length=255), nullable=False),
            sa.Column("created_at", sa.Float(precision=53), nullable=False),
        ],
        job=sa.Column("job_id", sa.String(length=255), nullable=True),
        keys=[sa.ForeignKeyConstraint(["webhook_id"], ["webhooks.id"], ondelete="CASCADE")],
    )
    op.create_index("ix_webhook_deliveries_webhook_id", "webhook_deliveries", ["webhook_id"], unique=False)


def _replace(webhooks: list[sa.Column[str]], job: sa.Column[str], keys: list[sa.ForeignKeyConstraint]) -> None:
    op.drop_table("webhook_deliveries")
    op.drop_table("webhooks")
    op.create_table("webhooks", sa.Column("id", sa.String(length=255), primary_key=True), *webhooks)
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.String(length=255), primary_key=True),
        sa.Column("webhook_id", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        job,
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.BigInteger(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("attempted_at", sa.Float(precision=53), nullable=True),
        sa.Column("next_attempt_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        *keys,
    )
    op.create_index("webhook_deliveries_by_due", "webhook_deliveries", ["state", "next_attempt_at"], unique=False)
