"""forks: runs that start from a checkpoint of another run, and which checkpoints are kept.

Revision ID: 0020
Revises: 0019
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("forked_from", sa.String(length=255), nullable=True))
        batch_op.add_column(sa.Column("fork_step", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("fork_draw", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("kept_checkpoints", sa.JSON(), nullable=True))
        batch_op.create_index(batch_op.f("ix_runs_forked_from"), ["forked_from"], unique=False)
        batch_op.create_foreign_key("fk_runs_forked_from_runs", "runs", ["forked_from"], ["id"])


def downgrade() -> None:
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_constraint("fk_runs_forked_from_runs", type_="foreignkey")
        batch_op.drop_index(batch_op.f("ix_runs_forked_from"))
        batch_op.drop_column("kept_checkpoints")
        batch_op.drop_column("fork_draw")
        batch_op.drop_column("fork_step")
        batch_op.drop_column("forked_from")
