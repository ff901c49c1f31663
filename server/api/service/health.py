"""Liveness and readiness over REST."""

from typing import Literal

from anyio.to_thread import run_sync
from fastapi import APIRouter

from parity.frozen import frozen
from server.errors import UnavailableError
from server.readiness import NEEDED
from server.web.context import InContext

router = APIRouter()


@frozen
class Health:
    """The process is running."""

    status: Literal["ok"] = "ok"


@router.get("/healthz", tags=["health"])
async def healthz() -> Health:  # in the event loop: it takes no time, and waits for no thread
    """The process is running."""
    return Health()


@frozen
class Ready:
    """The service works. `degraded` has a sentence for each part without which it works all the
    same, only slower.
    """

    status: Literal["ok", "degraded"]
    degraded: list[str]


@router.get("/readyz", tags=["health"])
async def readyz(context: InContext) -> Ready:
    """The database is migrated and can be written; otherwise, within two seconds, 503 with the
    reason, such as a full disk. Without the broker the service is `degraded`: workers look for work
    by themselves.
    """
    problems = await run_sync(context.readiness.problems, limiter=context.readiness.threads)
    if NEEDED in problems:
        raise UnavailableError("; ".join(problems.values()))
    return Ready(status="degraded" if problems else "ok", degraded=[*problems.values()])
