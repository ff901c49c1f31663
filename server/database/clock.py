"""One clock for all leases: the database's own, so that a machine whose clock is wrong or jumps neither loses nor keeps a run.

On SQLite all writers are on one machine, and its clock is the database's. A clock that jumps ahead there ends every lease
at once: the runs are given back, the old trainers are fenced, and nothing is lost but time.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import overload

from sqlalchemy import func, select
from sqlalchemy.orm import Session


def now(session: Session) -> float:
    """Seconds since 1970 by the database's clock."""
    if session.get_bind().dialect.name == "sqlite":
        return time.time()
    return float(session.scalar(select(func.extract("epoch", func.clock_timestamp()))) or 0.0)


@overload
def time_text(seconds: float) -> str: ...
@overload
def time_text(seconds: None) -> None: ...
@overload
def time_text(seconds: float | None) -> str | None: ...
def time_text(seconds: float | None) -> str | None:
    """An instant as RFC 3339 text in UTC; None stays None."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
