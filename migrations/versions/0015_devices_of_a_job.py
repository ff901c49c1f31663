"""devices of a job.

Revision ID: 0015
Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("devices", sa.BigInteger(), server_default="1", nullable=False))
    devices = "json_extract(spec, '$.devices')" if op.get_bind().dialect.name == "sqlite" else "(spec ->> 'devices')::integer"
    op.execute(f"update jobs set devices = {devices} where {devices} > 1")  # noqa: S608 (two constants)


def downgrade() -> None:
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_column("devices")
