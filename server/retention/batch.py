"""One deletion of retention: some rows of one kind, in one short transaction."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeVar

from sqlalchemy import CursorResult, Delete
from sqlalchemy.orm import Session

from parity.frozen import frozen
from server.settings import Settings

ROWS_AT_ONCE = 2000
DAY = 86_400.0

Kind = Literal["attempt", "curve", "job", "events", "keys", "deliveries", "workers", "sessions"]
Item = TypeVar("Item")


@frozen
class DeletionBatch:
    """What may be deleted now, and why: of run or job `of` ("": of several).

    `delete` is called in a transaction of its own, maybe much later than the plan was made: it
    checks again, and returns the number of rows that it deleted. `size_bytes` counts recorded
    values only, without the database's own overhead.
    """

    what: Kind
    rows: int
    why: str
    delete: Callable[[Session], int]
    of: str = ""
    size_bytes: int = 0


@frozen
class Cutoffs:
    """The times (unix seconds) before which things are old; None: they are kept."""

    events: float
    keys: float
    curves: float | None
    jobs: float | None


def cutoffs(settings: Settings, now: float) -> Cutoffs:
    """What is old at a time, by the settings."""
    curves, jobs = settings.retention_days, settings.retention_job_days
    return Cutoffs(
        events=now - settings.retention_event_days * DAY,
        keys=now - settings.retention_key_days * DAY,
        curves=None if curves is None else now - curves * DAY,
        jobs=None if jobs is None else now - jobs * DAY,
    )


def run_delete(statement: Delete, session: Session) -> int:
    """Delete rows in the database; returns their number."""
    result = session.execute(statement.execution_options(synchronize_session=False))
    if not isinstance(result, CursorResult):
        return 0
    return result.rowcount


def slices(items: Sequence[Item], size: int = ROWS_AT_ONCE) -> Iterator[Sequence[Item]]:
    """A sequence in parts of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
