"""Sends events of jobs, and the progress of their runs, to open pages: one poller thread per
process reads the database.

Polling a cursor cannot lose an event, while LISTEN/NOTIFY and Redis pub/sub can. Two queries per
period serve all subscribers. A subscriber that stops reading is dropped and reconnects with its
Last-Event-ID. Each gets the newest progress when it connects.
"""

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select
from starlette.concurrency import run_in_threadpool

from server.concurrency.repeating import Repeating
from server.database.events import EVENTS_AT_ONCE, after
from server.database.run_progress import RunProgress
from server.database.run_progress import progress as progress_of
from server.database.sessions import Database
from server.database.tables import Event, Job

_QUEUE_LIMIT = 1000


@dataclass(eq=False)
class _Subscriber:
    job_id: str
    loop: asyncio.AbstractEventLoop
    rows: asyncio.Queue[Sequence[Event | RunProgress] | None] = field(
        default_factory=lambda: asyncio.Queue(_QUEUE_LIMIT)
    )
    closed: bool = False

    def put(self, rows: Sequence[Event | RunProgress] | None) -> None:
        """Runs on the event loop. None ends the stream; a full queue also ends it, because a lost
        event would be worse.
        """
        if self.closed:
            return
        if rows is None or self.rows.full():
            self.closed = True
            while not self.rows.empty():
                self.rows.get_nowait()
            rows = None
        self.rows.put_nowait(rows)


class Broadcast(Repeating):
    """The poller and its subscribers."""

    def __init__(self, database: Database, period_seconds: float = 0.25) -> None:
        super().__init__(
            "events", self._publish, period_seconds, "events could not be read; open pages wait"
        )
        self._database = database
        self._lock = threading.Lock()
        self._subscribers: set[_Subscriber] = set()
        self._seen: dict[str, int] = {}
        self._progress: dict[str, dict[str, RunProgress]] = {}

    def close(self) -> None:
        """Stop the poller and end every stream."""
        with self._lock:
            for subscriber in self._subscribers:
                subscriber.loop.call_soon_threadsafe(subscriber.put, None)
        super().close()

    async def follow(
        self, job_id: str, after: int, idle_seconds: float = math.inf
    ) -> AsyncIterator[Event | RunProgress | None]:
        """Every event of a job with a number above `after`, in order: first the recorded ones, then
        new ones; and progress in between.

        Yields None after `idle_seconds` without any. Pages that follow the same job get the same
        objects.
        """
        subscriber = _Subscriber(job_id, asyncio.get_running_loop())
        with self._lock:
            self._subscribers.add(subscriber)
            # of a job that nobody followed, the poller sends it
            newest = [*self._progress.get(job_id, {}).values()]
        cursor = after
        try:
            async for event in self._recorded(job_id, cursor):
                yield event
                cursor = event.sequence
            for progress in newest:
                yield progress
            while True:
                try:
                    async with asyncio.timeout(
                        idle_seconds if math.isfinite(idle_seconds) else None
                    ):
                        rows = await subscriber.rows.get()
                except TimeoutError:
                    yield None
                    continue
                if rows is None:
                    return
                for row in rows:
                    if isinstance(row, RunProgress):
                        yield row
                        continue
                    # Event numbers have no gaps: a jump means events written between our query and
                    # the poller's first one.
                    if row.sequence > cursor + 1:
                        async for event in self._recorded(job_id, cursor):
                            yield event
                            cursor = event.sequence
                    if row.sequence > cursor:
                        yield row
                        cursor = row.sequence
        finally:
            with self._lock:
                self._subscribers.discard(subscriber)

    async def _recorded(self, job_id: str, sequence: int) -> AsyncIterator[Event]:
        """All recorded events above a number, read in batches."""
        more = True
        while more:
            rows = await run_in_threadpool(self._after, job_id, sequence)
            for event in rows:
                yield event
                sequence = event.sequence
            more = len(rows) == EVENTS_AT_ONCE

    def _after(self, job_id: str, sequence: int) -> Sequence[Event]:
        with self._database.read() as session:
            return after(session, job_id, sequence)

    def _publish(self) -> None:
        with self._lock:
            watched = {subscriber.job_id for subscriber in self._subscribers}
            for table in (self._seen, self._progress):
                for gone in table.keys() - watched:
                    del table[gone]
        if not watched:
            return
        with self._database.read() as session:
            # Read before the events: what a page gets last of a run is its end.
            progress = progress_of(session, watched)
            numbers = session.execute(
                select(Job.id, Job.event_sequence).where(Job.id.in_(watched))
            ).all()
            rows: dict[str, Sequence[Event]] = {}
            for job_id, newest in numbers:
                seen = self._seen.setdefault(job_id, max(0, newest - 1))
                if newest > seen:
                    rows[job_id] = after(session, job_id, seen)
        for job_id in watched:
            self._send(job_id, [*self._changed(job_id, progress), *rows.get(job_id, ())])

    def _changed(self, job_id: str, progress: Sequence[RunProgress]) -> list[RunProgress]:
        """The progress of a job's runs since the last look."""
        by_run = {run.run_id: run for run in progress if run.job_id == job_id}
        with self._lock:
            before = self._progress.get(job_id, {})
            self._progress[job_id] = by_run
        return [
            run
            for run_id, run in by_run.items()
            if run_id not in before or before[run_id].recorded_at != run.recorded_at
        ]

    def _send(self, job_id: str, rows: Sequence[Event | RunProgress]) -> None:
        if not rows:
            return
        if isinstance(rows[-1], Event):
            self._seen[job_id] = rows[-1].sequence
        with self._lock:
            subscribers = [
                subscriber for subscriber in self._subscribers if subscriber.job_id == job_id
            ]
        by_loop: dict[asyncio.AbstractEventLoop, list[_Subscriber]] = {}
        for subscriber in subscribers:
            by_loop.setdefault(subscriber.loop, []).append(subscriber)
        # Each loop is woken once for all its pages: a thousand wake-ups, each a system call, would
        # slow down the loop's own work.
        for loop, those in by_loop.items():
            loop.call_soon_threadsafe(_put, those, rows)


def _put(subscribers: Sequence[_Subscriber], rows: Sequence[Event | RunProgress]) -> None:
    for subscriber in subscribers:
        subscriber.put(rows)
