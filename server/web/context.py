"""The parts of a running service that every route needs; `create_app` stores them in the
application's state.
"""

from dataclasses import field
from typing import Annotated

from fastapi import Depends, Request

from parity.frozen import frozen
from server.concurrency.cache import Cache
from server.database.sessions import Database
from server.jobs.judge_thread import Judge
from server.queue import WorkerNotifier
from server.readiness import Readiness
from server.settings import Settings
from server.web.broadcast import Broadcast
from server.web.rate_limit import Limiter
from server.web.streams import OpenStreams


@frozen
class Context:
    """The parts of a running service."""

    settings: Settings
    database: Database
    judge: Judge
    notifier: WorkerNotifier
    broadcast: Broadcast
    limiter: Limiter
    readiness: Readiness
    cache: Cache = field(default_factory=Cache)
    streams: OpenStreams = field(default_factory=OpenStreams)


async def _context(request: Request) -> Context:  # FastAPI would call a plain function in a thread
    context: Context = request.app.state.context
    return context


InContext = Annotated[Context, Depends(_context)]
