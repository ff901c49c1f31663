"""Goldens: the curves of trusted runs, by name and version.

Revision ID: 0043
Revises: 0042
"""

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "goldens",
        sa.Column("id", sa.String(255), primary_key=True),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("recipe", sa.String(255), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("steps", sa.BigInteger, nullable=False),
        sa.Column("answer", sa.String(255)),
        sa.Column("gap_pct", sa.Float(53), nullable=False),
        sa.Column("accepted", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("owner", sa.String(255)),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("removed_at", sa.Float(53)),
        sa.Column("removed_by", sa.String(255)),
        sa.Column("remove_reason", sa.Text),
        sa.UniqueConstraint("name", "version"),
    )


def downgrade() -> None:
    op.drop_table("goldens")
