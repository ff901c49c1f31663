"""The path of each verdict, its gap as of steps on the way to its end, and its lead, the sentence that a list shows.

Revision ID: 0028
Revises: 0027
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("verdicts", sa.Column("path", sa.Text()))
    op.add_column("verdicts", sa.Column("lead", sa.Text()))


def downgrade() -> None:
    op.drop_column("verdicts", "lead")
    op.drop_column("verdicts", "path")
