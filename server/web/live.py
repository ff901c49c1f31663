"""Events and progress for open pages: one poller thread per process, and streams that end when a
client does not read.
"""

import asyncio
import math
import threading
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import Request
from sqlalchemy import select
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from parity.frozen import frozen
from server.concurrency.repeating import Repeating
from server.database.events import AT_ONCE as EVENTS_AT_ONCE
from server.database.events import after
from server.database.run_progress import Progress
from server.database.run_progress import progress as progress_of
from server.database.sessions import Database
from server.database.tables import Event, Job
from server.errors import TooManyError, UnavailableError

# Responses that are made while the client reads them: limited in number for each sender, and cut
# when the client stops reading.

IDLE_SECONDS = 30.0
"""A client that has not made room for the next part for so long is disconnected."""


@frozen
class Share:
    """How many streams of one kind one sender may read at once from one process, and all senders
    together.
    """

    what: str
    each: int
    in_all: int


EXPORTS = Share(what="exports", each=16, in_all=64)
PAGES = Share(what="event streams", each=1000, in_all=3000)
"""A team may share one principal, and an open page costs little; more than the files that a process
may open are refused by the system.
"""


class OpenStreams:
    """How many streams every sender reads at the moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: Counter[tuple[str, str]] = Counter()

    def enter(self, share: Share, sender: str) -> None:
        """Count one more; TooManyError if the sender has its share already, UnavailableError if all
        together have theirs.
        """
        remedy = "read or close one, then retry"
        with self._lock:
            own, whole = self._open[share.what, sender], self._open[share.what, ""]
            if own >= share.each:
                raise TooManyError(
                    f"{own:,} {share.what} are open; expected at most {share.each:,} at once: "
                    f"{remedy}"
                )
            if whole >= share.in_all:
                raise UnavailableError(
                    f"{whole:,} {share.what} are open, the most that this server sends at once; "
                    "retry in a moment"
                )
            self._open.update(((share.what, sender), (share.what, "")))

    def leave(self, share: Share, sender: str) -> None:
        """Count one less."""
        with self._lock:
            for key in ((share.what, sender), (share.what, "")):
                self._open[key] -= 1
                if not self._open[key]:
                    del self._open[key]


class _Limited(Response):
    """A response that is sent as its client reads it. If the client stops reading, the connection
    is cut before the body's end.
    """

    def _limit(self, request: Request, share: Share) -> None:
        self._share, self._sender = share, str(request.state.sender)
        self._streams: OpenStreams = request.app.state.context.streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts; TooManyError or UnavailableError, before anything is sent, if too many
        streams are open.
        """

        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(IDLE_SECONDS):
                await send(message)

        self._streams.enter(self._share, self._sender)
        try:
            await super().__call__(scope, receive, send_in_time)
        except (ClientDisconnect, TimeoutError):
            return
        finally:
            self._streams.leave(self._share, self._sender)


class Stream(_Limited, StreamingResponse):
    """A response that is made while its client reads it."""

    def __init__(
        self,
        request: Request,
        share: Share,
        parts: Iterable[bytes] | AsyncIterable[bytes],
        **more: Any,
    ) -> None:
        """`more`: the media type and the headers."""
        super().__init__(parts, **more)
        self._limit(request, share)


class Download(_Limited, FileResponse):
    """A file of this machine, also in parts (Range); it counts as an export."""

    def __init__(self, request: Request, path: Path) -> None:
        super().__init__(path, filename=path.name, media_type="application/octet-stream")
        self._limit(request, EXPORTS)


# Sends events of jobs, and the progress of their runs, to open pages: one poller thread per process
# reads the database.
#
# Polling a cursor cannot lose an event, while LISTEN/NOTIFY and Redis pub/sub can. Two queries per
# period serve all subscribers. A subscriber that stops reading is dropped and reconnects with its
# Last-Event-ID. Each gets the newest progress when it connects.

_QUEUE_LIMIT = 1000


@dataclass(eq=False)
class _Subscriber:
    job_id: str
    loop: asyncio.AbstractEventLoop
    rows: asyncio.Queue[Sequence[Event | Progress] | None] = field(
        default_factory=lambda: asyncio.Queue(_QUEUE_LIMIT)
    )
    closed: bool = False

    def put(self, rows: Sequence[Event | Progress] | None) -> None:
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
        self._progress: dict[str, dict[str, Progress]] = {}

    def close(self) -> None:
        """Stop the poller and end every stream."""
        with self._lock:
            for subscriber in self._subscribers:
                subscriber.loop.call_soon_threadsafe(subscriber.put, None)
        super().close()

    async def follow(
        self, job_id: str, after: int, idle_seconds: float = math.inf
    ) -> AsyncIterator[Event | Progress | None]:
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
                    if isinstance(row, Progress):
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
            for known in (self._seen, self._progress):
                for gone in known.keys() - watched:
                    del known[gone]
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

    def _changed(self, job_id: str, progress: Sequence[Progress]) -> list[Progress]:
        """The progress of a job's runs since the last look."""
        own = {each.run_id: each for each in progress if each.job_id == job_id}
        with self._lock:
            before = self._progress.get(job_id, {})
            self._progress[job_id] = own
        return [
            each
            for run_id, each in own.items()
            if run_id not in before or before[run_id].recorded_at != each.recorded_at
        ]

    def _send(self, job_id: str, rows: Sequence[Event | Progress]) -> None:
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


def _put(subscribers: Sequence[_Subscriber], rows: Sequence[Event | Progress]) -> None:
    for subscriber in subscribers:
        subscriber.put(rows)
