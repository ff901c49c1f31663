"""The repository that a token is for, whose gates have a pinned policy.

Revision ID: 0029
Revises: 0028
"""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tokens", sa.Column("repository", sa.String(255)))


def downgrade() -> None:
    op.drop_column("tokens", "repository")
