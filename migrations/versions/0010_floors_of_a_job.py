"""run floors that a job borrowed, and the reruns from which others may.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("floors", sa.Text(), nullable=True))
    op.add_column("jobs", sa.Column("reruns", sa.Text(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_column("reruns")
        batch_op.drop_column("floors")
