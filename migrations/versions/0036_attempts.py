"""An epoch of a run is the number of its attempt: to every reader, an epoch is a pass over data.

Revision ID: 0036
Revises: 0035
"""

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

_TABLES = ("runs", "attempts", "chunks", "chunk_columns")


def upgrade() -> None:
    _rename("epoch", "attempt_number")


def downgrade() -> None:
    _rename("attempt_number", "epoch")


def _rename(old: str, new: str) -> None:
    for table in _TABLES:
        op.alter_column(table, old, new_column_name=new)
