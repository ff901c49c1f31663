"""one row a column of a chunk.

Revision ID: 0004
Revises: 0003
"""

from typing import Any

import numpy as np
import sqlalchemy as sa
import zstandard
from alembic import op

from server.database import codec

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_KEY = ("run_id", "kind", "epoch", "first_step")


def _chunks() -> sa.TableClause:
    plain: list[sa.ColumnClause[Any]] = [sa.column(name) for name in (*_KEY, "last_step", "count")]
    return sa.table("chunks", *plain, sa.column("columns", sa.JSON()), sa.column("payload", sa.LargeBinary()))


def _columns() -> sa.TableClause:
    return sa.table("chunk_columns", *(sa.column(name) for name in (*_KEY, "name")), sa.column("payload", sa.LargeBinary()))


def upgrade() -> None:
    op.create_table(
        "chunk_columns",
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(_KEY, [f"chunks.{name}" for name in _KEY], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint(*_KEY, "name"),
    )
    connection, old, new = op.get_bind(), _chunks(), _columns()
    keys = connection.execute(sa.select(*(old.c[name] for name in _KEY))).all()
    for key in keys:
        chunk = connection.execute(sa.select(old).where(*(old.c[name] == value for name, value in zip(_KEY, key, strict=True)))).one()
        table = np.frombuffer(zstandard.decompress(chunk.payload), np.float64).reshape(len(chunk.columns), -1)
        rows = [
            dict(zip(_KEY, key, strict=True)) | {"name": name, "payload": codec.encode(values)}
            for name, values in zip(chunk.columns, table, strict=True)
        ]
        connection.execute(sa.insert(new), rows)
    with op.batch_alter_table("chunks", schema=None) as batch_op:
        batch_op.drop_column("payload")


def downgrade() -> None:
    with op.batch_alter_table("chunks", schema=None) as batch_op:
        batch_op.add_column(sa.Column("payload", sa.LargeBinary(), nullable=False, server_default=""))
    connection, old, new = op.get_bind(), _chunks(), _columns()
    for chunk in connection.execute(sa.select(*(column for column in old.c if column.name != "payload"))).all():
        key = {name: getattr(chunk, name) for name in _KEY}
        stored = sa.select(new.c.name, new.c.payload).where(*(new.c[name] == value for name, value in key.items()))
        values = {row.name: codec.decode(row.payload) for row in connection.execute(stored)}
        steps = chunk.first_step + (chunk.last_step - chunk.first_step) // max(chunk[5] - 1, 1) * np.arange(chunk[5], dtype=np.float64)
        table = np.stack([values.get(name, steps) for name in chunk.columns])
        payload = zstandard.compress(table.tobytes(), 3)
        connection.execute(sa.update(old).where(*(old.c[name] == value for name, value in key.items())).values(payload=payload))
    with op.batch_alter_table("chunks", schema=None) as batch_op:
        batch_op.alter_column("payload", server_default=None)
    op.drop_table("chunk_columns")
