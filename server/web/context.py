"""The parts of a running service that every route needs; `create_app` stores them in the application's state."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, cast

from fastapi import Depends, Request

from server.cache import Cache
from server.database.sessions import Database
from server.jobs.judge import Judge
from server.queue import Doorbell
from server.readiness import Readiness
from server.records import frozen
from server.settings import Settings
from server.web.limits import Limiter
from server.web.live import Broadcast
from server.web.streams import OpenStreams


@frozen
class Context:
    """The parts of a running service."""

    settings: Settings
    database: Database
    judge: Judge
    doorbell: Doorbell
    broadcast: Broadcast
    limiter: Limiter
    readiness: Readiness
    cache: Cache = field(default_factory=Cache)
    streams: OpenStreams = field(default_factory=OpenStreams)


async def _context(request: Request) -> Context:  # FastAPI would call a plain function in a thread
    return cast(Context, request.app.state.context)


InContext = Annotated[Context, Depends(_context)]
