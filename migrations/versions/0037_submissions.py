"""The jobs of schedulers that train runs, and the name by which a scheduler knows the jobs of this
record.

Revision ID: 0037
Revises: 0036
"""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

_DUTIES = sa.table(
    "duties",
    sa.column("name", sa.String),
    sa.column("holder", sa.String),
    sa.column("expires_at", sa.Float),
)


def upgrade() -> None:
    op.create_table(
        "submissions",
        sa.Column("run_id", sa.String(255), sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("attempt_number", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.String(63), nullable=False, unique=True),
        sa.Column("scheduler", sa.String(32), nullable=False),
        sa.Column("scheduler_id", sa.String(255)),
        sa.Column("launcher", sa.String(255), nullable=False),
        sa.Column("launcher_digest", sa.String(255), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("exit_status", sa.BigInteger()),
        sa.Column("start", sa.BigInteger()),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("started_at", sa.Float(53)),
        sa.Column("earlier_seconds", sa.Float(53), nullable=False),
        sa.Column("ended_at", sa.Float(53)),
    )
    is_open = sa.text("state <> 'ended'")
    op.create_index(
        "submissions_open",
        "submissions",
        ["run_id"],
        unique=True,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
    op.bulk_insert(
        _DUTIES, [{"name": "deployment", "holder": secrets.token_hex(4), "expires_at": 0.0}]
    )


def downgrade() -> None:
    op.drop_table("submissions")
    op.execute(_DUTIES.delete().where(_DUTIES.c.name == "deployment"))
