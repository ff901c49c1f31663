"""what a job asks.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("config_hash", sa.String(length=64), nullable=True))
        batch_op.add_column(sa.Column("revision", sa.String(length=255), nullable=True))
        batch_op.create_index(batch_op.f("ix_jobs_config_hash"), ["config_hash"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_jobs_config_hash"))
        batch_op.drop_column("revision")
        batch_op.drop_column("config_hash")
