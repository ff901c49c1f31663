"""Webhooks are in the settings: the database has which events each one receives, and no URL or
secret. No gap chart is stored.

Revision ID: 0026
Revises: 0025
"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

TEXT_255, INTEGER, REAL = sa.String(length=255), sa.BigInteger(), sa.Float(precision=53)


def upgrade() -> None:
    # Made again, not changed: registered webhooks and their deliveries end here, because nothing
    # has their URLs and secrets any more.
    replace(sa.Column("job_id", TEXT_255, sa.ForeignKey("jobs.id"), nullable=False))
    op.drop_table("gap_charts")


def downgrade() -> None:
    replace(
        sa.Column("job_id", TEXT_255, sa.ForeignKey("jobs.id")),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhooks.id"], ondelete="CASCADE"),
        of_webhooks=(
            sa.Column("url", sa.Text(), nullable=False),
            sa.Column("secret", TEXT_255, nullable=False),
            sa.Column("created_at", REAL, nullable=False),
        ),
    )
    op.create_index("ix_webhook_deliveries_webhook_id", "webhook_deliveries", ["webhook_id"])
    op.create_table(
        "gap_charts",
        sa.Column("job_id", TEXT_255, sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("made_from", sa.String(length=64), nullable=False),
        sa.Column("steps", INTEGER, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
    )


def replace(
    *of_deliveries: sa.schema.SchemaItem, of_webhooks: tuple[sa.schema.SchemaItem, ...] = ()
) -> None:
    op.drop_table("webhook_deliveries")
    op.drop_table("webhooks")
    op.create_table(
        "webhooks",
        sa.Column("id", TEXT_255, primary_key=True),
        sa.Column("events", sa.JSON(), nullable=False),
        *of_webhooks,
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", TEXT_255, primary_key=True),
        sa.Column("webhook_id", TEXT_255, nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("attempts", INTEGER, nullable=False),
        sa.Column("status", INTEGER),
        sa.Column("message", sa.Text()),
        sa.Column("created_at", REAL, nullable=False),
        sa.Column("attempted_at", REAL),
        sa.Column("next_attempt_at", REAL, nullable=False),
        *of_deliveries,
    )
    op.create_index("webhook_deliveries_by_due", "webhook_deliveries", ["state", "next_attempt_at"])
