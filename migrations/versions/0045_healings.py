"""Healings: the latest step from which a candidate may go on with a safer recipe.

Going down takes them and what they answered. Their forks stay, as runs of kind `retired`; open ones
are cancelled.

Revision ID: 0045
Revises: 0044
"""

import time

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None

_MESSAGE = "it was a fork of a healing, which this version does not know"
_OPEN_JOB = ("queued", "running")
_OPEN_RUN = ("awaiting_data", "queued", "running")
_HEALINGS = sa.table("healings", sa.column("job_id"))
_JOBS = sa.table("jobs", *map(sa.column, ("id", "status", "message", "finished_at")))
_RUNS = sa.table(
    "runs",
    *map(sa.column, ("id", "kind", "state", "message", "finished_at", "lease_expires_at")),
)
_ATTEMPTS = sa.table("attempts", *map(sa.column, ("run_id", "state", "ended_at")))


def upgrade() -> None:
    op.create_table(
        "healings",
        sa.Column("job_id", sa.String(255), sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("heals", sa.String(255), sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("candidate", sa.String(255), nullable=False),
        sa.Column("setup", sa.JSON(), nullable=False),
        sa.Column("answer", sa.JSON(none_as_null=True)),
    )
    op.create_index("ix_healings_heals", "healings", ["heals"])


def downgrade() -> None:
    _retire()
    op.drop_index("ix_healings_heals", "healings")
    op.drop_table("healings")


def _retire() -> None:
    """End what is open, and mark every fork."""
    connection, now = op.get_bind(), time.time()
    forks = _RUNS.c.kind == "heal"
    connection.execute(
        _ATTEMPTS.update()
        .where(
            _ATTEMPTS.c.run_id.in_(sa.select(_RUNS.c.id).where(forks)),
            _ATTEMPTS.c.state == "running",
        )
        .values(state="cancelled", ended_at=now)
    )
    connection.execute(
        _JOBS.update()
        .where(_JOBS.c.id.in_(sa.select(_HEALINGS.c.job_id)), _JOBS.c.status.in_(_OPEN_JOB))
        .values(status="cancelled", message=_MESSAGE, finished_at=now)
    )
    connection.execute(
        _RUNS.update()
        .where(forks, _RUNS.c.state.in_(_OPEN_RUN))
        .values(state="cancelled", message=_MESSAGE, finished_at=now, lease_expires_at=None)
    )
    connection.execute(_RUNS.update().where(forks).values(kind="retired"))
