"""All deletions of retention: the plan, one bounded batch after another, and who does them when.

The elected keeper deletes from the database, a few seconds at a time between its other duties;
every worker deletes from its own disk.
"""

import itertools
import logging
import time
from collections import Counter
from collections.abc import Iterator

from server.concurrency.failures import log_failure
from server.database import clock
from server.database.sessions import Database
from server.retention.batch import DeletionBatch, cutoffs
from server.retention.curves import curve_batches
from server.retention.files import OldFile, old_files
from server.retention.jobs import job_batches, old_jobs
from server.retention.rows import events, others
from server.settings import Settings

_log = logging.getLogger(__name__)

_REST_SECONDS = 3600.0
_SECONDS_AT_ONCE = 2.0


def plan(settings: Settings, database: Database) -> Iterator[DeletionBatch]:
    """Every deletion that the settings ask for now; nothing is deleted, and each step of the
    iteration reads only its own part.

    What is to be deleted is chosen before the first step, and what goes with a job is not listed
    again: a list is what a deletion does. What only these deletions make unneeded is left to the
    next plan.
    """
    with database.read() as session:
        now = clock.now(session)  # the database's clock, because a machine's may jump ahead
    old = cutoffs(settings, now)
    jobs = () if old.jobs is None else old_jobs(database, old.jobs)
    ids = {job.id for job in jobs}
    parts: list[Iterator[DeletionBatch]] = []
    if old.jobs is not None:
        parts.append(job_batches(database, old.jobs, jobs))
    if old.curves is not None:
        parts.append(curve_batches(database, old.curves, ids))
    # a look keeps its events, which go one by one
    gone = {job.id for job in jobs if not job.is_a_look}
    parts += [events(database, old.events, gone), others(database, old.keys, now, ids)]
    return itertools.chain.from_iterable(parts)


def delete_batch(database: Database, batch: DeletionBatch) -> int:
    """Make one deletion in a transaction of its own; returns the number of rows. Safe to repeat,
    and in several workers at once.
    """
    with database.write() as session:
        return batch.delete(session)


class DatabaseRetention:
    """Retention in the database, as the elected worker does it: once an hour, in turns of a few
    seconds.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._rest_until = 0.0
        self._left: Iterator[DeletionBatch] | None = None
        self._deleted: Counter[str] = Counter()

    def work(self) -> None:
        """Delete for at most about two seconds if an hour has passed since the last time; the rest
        waits for the next turn.
        """
        began = time.monotonic()
        if began < self._rest_until:
            return
        self._left = self._left or plan(self._settings, self._database)
        while time.monotonic() - began < _SECONDS_AT_ONCE:
            try:
                batch = next(self._left, None)
            except Exception:
                self._left = None
                raise
            if batch is None:
                self._finish()
                return
            try:
                self._deleted[batch.what] += delete_batch(self._database, batch)
            except Exception as error:  # noqa: BLE001
                log_failure(
                    _log,
                    error,
                    f"retention could not delete {batch.what} {batch.of} and will try again",
                )

    def _finish(self) -> None:
        if deleted := {what: number for what, number in self._deleted.items() if number}:
            _log.info(
                "retention deleted rows: %s",
                ", ".join(f"{number} of {what}" for what, number in deleted.items()),
            )
        self._left, self._deleted = None, Counter()
        self._rest_until = time.monotonic() + _REST_SECONDS


class FileRetention:
    """Retention on this machine's disk: once an hour."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._rest_until = 0.0

    def work(self) -> list[OldFile]:
        """Delete old files if an hour has passed since the last time; returns what was deleted."""
        if time.monotonic() < self._rest_until:
            return []
        old = [*old_files(self._settings, self._database)]
        for one in old:
            one.delete()
        if old:
            _log.info(
                "retention deleted %d files, %d bytes", len(old), sum(one.size_bytes for one in old)
            )
        self._rest_until = time.monotonic() + _REST_SECONDS
        return old
