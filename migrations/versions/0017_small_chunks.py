"""small chunks in one row, without a summary that nothing reads; when a run's newest steps were recorded; indexes of jobs.

Revision ID: 0017
Revises: 0016
"""

import numpy as np
import sqlalchemy as sa
from alembic import op

from server.database import codec

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_KEY = ("run_id", "kind", "epoch", "first_step")
_CHUNKS_AT_ONCE = 1000


def upgrade() -> None:
    with op.batch_alter_table("chunks", schema=None) as batch_op:
        batch_op.add_column(sa.Column("payload", sa.LargeBinary(), nullable=True))
        batch_op.drop_column("summary")
    op.add_column("runs", sa.Column("recorded_at", sa.Float(precision=53), nullable=True))
    op.create_index("jobs_by_claim", "jobs", ["capability", "status", "device_class", "threads", "devices"])
    op.create_index("jobs_by_status", "jobs", ["status", "id"])
    op.create_index("jobs_by_name", "jobs", ["id", "name"])
    op.drop_index("ix_jobs_status", "jobs")


def downgrade() -> None:
    op.create_index("ix_jobs_status", "jobs", ["status"])
    op.drop_index("jobs_by_name", "jobs")
    op.drop_index("jobs_by_status", "jobs")
    op.drop_index("jobs_by_claim", "jobs")
    connection = op.get_bind()
    while _unpack(connection):
        pass
    op.drop_column("runs", "recorded_at")
    with op.batch_alter_table("chunks", schema=None) as batch_op:
        batch_op.add_column(sa.Column("summary", sa.JSON(), nullable=False, server_default="{}"))
        batch_op.drop_column("payload")
    with op.batch_alter_table("chunks", schema=None) as batch_op:
        batch_op.alter_column("summary", server_default=None)


def _unpack(connection: sa.Connection) -> bool:
    """Write the columns of some packed chunks as rows; False if there is none."""
    plain = (sa.column(name) for name in (*_KEY, "count"))
    chunks = sa.table("chunks", *plain, sa.column("columns", sa.JSON()), sa.column("payload", sa.LargeBinary()))
    columns = sa.table("chunk_columns", *(sa.column(name) for name in (*_KEY, "name")), sa.column("payload", sa.LargeBinary()))
    packed = connection.execute(sa.select(chunks).where(chunks.c.payload.is_not(None)).limit(_CHUNKS_AT_ONCE)).mappings().all()
    for chunk in packed:
        key = {name: chunk[name] for name in _KEY}
        table = codec.decode(chunk["payload"]).reshape(-1, chunk["count"])
        stored = [name for name in chunk["columns"] if name != "step" or len(table) == len(chunk["columns"])]
        values = zip(stored, map(np.ascontiguousarray, table), strict=True)
        rows = [key | {"name": name, "payload": codec.encode(column)} for name, column in values]
        if rows:
            connection.execute(sa.insert(columns), rows)
        own = (chunks.c[name] == value for name, value in key.items())
        connection.execute(sa.update(chunks).where(*own).values(payload=None))
    return bool(packed)
