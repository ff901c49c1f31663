"""looks at a question: which look a job is, and the question of each candidate.

Revision ID: 0018
Revises: 0017
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("look", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("look_candidates", sa.BigInteger(), nullable=True))
    with op.batch_alter_table("arms", schema=None) as batch_op:
        batch_op.add_column(sa.Column("question", sa.String(length=64), nullable=True))
        batch_op.create_index(batch_op.f("ix_arms_question"), ["question"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("arms", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_arms_question"))
        batch_op.drop_column("question")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_column("look_candidates")
        batch_op.drop_column("look")
