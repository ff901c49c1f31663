"""One clock for all leases: the database's, so that a wrong clock on a worker neither loses nor
keeps a run.

With SQLite all writers are on one machine and use its clock. If that clock jumps ahead, all
leases end at once: the runs are queued again, the old trainers are fenced, and only time is lost.
"""

import time
from datetime import UTC, datetime
from typing import overload

from sqlalchemy import ColumnElement, Float, func, literal, select
from sqlalchemy.orm import Session

POSTGRESQL: ColumnElement[float] = func.extract("epoch", func.clock_timestamp()).cast(Float(53))


def now(session: Session) -> float:
    """Seconds since 1970 by the database's clock."""
    if session.get_bind().dialect.name == "sqlite":
        return time.time()
    return float(session.scalar(select(POSTGRESQL)) or 0.0)


def now_in(session: Session) -> ColumnElement[float]:
    """The same as an expression, for a statement that writes it."""
    if session.get_bind().dialect.name == "sqlite":
        return literal(time.time())
    return POSTGRESQL


@overload
def time_text(seconds: float) -> str: ...
@overload
def time_text(seconds: None) -> None: ...
@overload
def time_text(seconds: float | None) -> str | None: ...
def time_text(seconds: float | None) -> str | None:
    """A time as RFC 3339 text in UTC; None stays None."""
    if seconds is None:
        return None
    return (
        datetime.fromtimestamp(seconds, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
