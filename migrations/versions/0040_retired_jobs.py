"""`parity search` is gone: its tables go, and its jobs stay, but nothing continues them.

Lost: the plan of each search, the assignment that it confirmed, which job was a step of which
search, and what each step evaluated. Kept: every job, with its curves and what its forks measured.
A confirmation is an ordinary job: an open one goes on and is judged. Forks and pilots, which are
never judged, become runs of kind `retired`; open ones are cancelled, because nothing would read
what they measure.

Going down makes the tables again, without a row; the runs stay `retired`.

Revision ID: 0040
Revises: 0039
"""

import time

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None

_MESSAGE = "it was a step of a search, which this version does not continue"
_OPEN_JOB = ("queued", "running")
_OPEN_RUN = ("awaiting_data", "queued", "running")
_STEPS = sa.table("search_steps", sa.column("job_id"))
_JOBS = sa.table("jobs", *map(sa.column, ("id", "status", "message", "finished_at")))
_RUNS = sa.table(
    "runs",
    *map(sa.column, ("id", "job_id", "kind", "state", "message", "finished_at")),
    sa.column("lease_expires_at"),
)
_ATTEMPTS = sa.table("attempts", *map(sa.column, ("run_id", "state", "ended_at")))
_TEXT, _REAL = sa.String(255), sa.Float(precision=53)


def upgrade() -> None:
    _retire()
    op.drop_table("search_steps")
    op.drop_table("searches")


def downgrade() -> None:
    op.create_table(
        "searches",
        sa.Column("id", _TEXT, primary_key=True),
        sa.Column("base_id", _TEXT, sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("candidate", _TEXT, nullable=False),
        sa.Column("question", _TEXT, nullable=False),
        sa.Column("setup", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("assignment", _TEXT),
        sa.Column("message", sa.Text()),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("max_run_seconds", _REAL),
        sa.Column("submitted_by", _TEXT),
        sa.Column("created_at", _REAL, nullable=False),
        sa.Column("finished_at", _REAL),
    )
    for column in ("base_id", "question", "state"):
        op.create_index(f"ix_searches_{column}", "searches", [column])
    op.create_table(
        "search_steps",
        sa.Column("search_id", _TEXT, sa.ForeignKey("searches.id"), primary_key=True),
        sa.Column("number", sa.BigInteger(), primary_key=True),
        sa.Column("job_id", _TEXT, sa.ForeignKey("jobs.id"), nullable=False, unique=True),
        sa.Column("evaluations", sa.JSON(), nullable=False),
        sa.Column("results", sa.JSON(none_as_null=True)),
        sa.Column("cost", _REAL, nullable=False),
        sa.Column("created_at", _REAL, nullable=False),
    )


def _retire() -> None:
    """End what is open, and mark every run that was never judged."""
    connection, now = op.get_bind(), time.time()
    unjudged = sa.and_(
        _RUNS.c.job_id.in_(sa.select(_STEPS.c.job_id)), _RUNS.c.kind.in_(("why", "pilot"))
    )
    runs, jobs = (sa.select(column).where(unjudged) for column in (_RUNS.c.id, _RUNS.c.job_id))
    connection.execute(
        _ATTEMPTS.update()
        .where(_ATTEMPTS.c.run_id.in_(runs), _ATTEMPTS.c.state == "running")
        .values(state="cancelled", ended_at=now)
    )
    connection.execute(
        _JOBS.update()
        .where(_JOBS.c.id.in_(jobs), _JOBS.c.status.in_(_OPEN_JOB))
        .values(status="cancelled", message=_MESSAGE, finished_at=now)
    )
    connection.execute(
        _RUNS.update()
        .where(unjudged, _RUNS.c.state.in_(_OPEN_RUN))
        .values(state="cancelled", message=_MESSAGE, finished_at=now, lease_expires_at=None)
    )
    connection.execute(_RUNS.update().where(unjudged).values(kind="retired"))
