"""principals of tokens, and tokens of attempts.

Revision ID: 0016
Revises: 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tokens", sa.Column("principal", sa.String(length=255), nullable=True))
    op.execute("update tokens set principal = id")
    with op.batch_alter_table("tokens", schema=None) as batch_op:
        batch_op.alter_column("principal", existing_type=sa.String(length=255), nullable=False)
    op.add_column("attempts", sa.Column("token_digest", sa.String(length=64), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.drop_column("token_digest")
    with op.batch_alter_table("tokens", schema=None) as batch_op:
        batch_op.drop_column("principal")
