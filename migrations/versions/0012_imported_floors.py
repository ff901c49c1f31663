"""groups of reruns that were imported from a table.

Revision ID: 0012
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "imported_groups",
        sa.Column("family", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("cells", sa.JSON(), nullable=False),
        sa.Column("imported_by", sa.String(length=255), nullable=False),
        sa.Column("imported_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("family", "name"),
    )


def downgrade() -> None:
    op.drop_table("imported_groups")
