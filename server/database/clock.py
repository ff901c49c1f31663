"""One clock for all leases: the database's, so that a wrong clock on a worker neither loses nor
keeps a run.

With SQLite all writers are on one machine and use its clock. If that clock jumps ahead, all
leases end at once: the runs are queued again, the old trainers are fenced, and only time is lost.
If it is put back later, what was taken meanwhile ends far in the future; see `is_over`.
"""

import time
from datetime import UTC, datetime
from typing import overload

from sqlalchemy import ColumnElement, Float, func, literal, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

_FARTHEST_PERIODS, _FARTHEST_SECONDS = 2, 600.0
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


def is_over(
    end: InstrumentedAttribute[float] | InstrumentedAttribute[float | None],
    now: float,
    seconds: float,
) -> ColumnElement[bool]:
    """Whether something that is taken for `seconds` at a time, until `end` (unix seconds), is free
    again.

    Its end has passed, or is so far ahead that the clock was wrong when it was taken: a holder that
    lives has renewed it since, and one that has died would keep it until then. Other processes may
    have longer periods, so anything within ten minutes counts.
    """
    farthest = now + max(_FARTHEST_PERIODS * seconds, _FARTHEST_SECONDS)
    return or_(end < now, end > farthest)


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
