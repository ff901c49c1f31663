"""What every route needs, kept on the application's state by `create_app`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Request

from server.database.engine import Database
from server.limits import Limiter
from server.live import Broadcast
from server.queue import Doorbell
from server.recent import Recent
from server.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The parts of a running service."""

    settings: Settings
    database: Database
    doorbell: Doorbell
    broadcast: Broadcast
    limiter: Limiter
    recent: Recent = field(default_factory=Recent)


def _context(request: Request) -> Context:
    return cast(Context, request.app.state.context)


InContext = Annotated[Context, Depends(_context)]
