"""Work of a request in a thread, for which it waits a limited time."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from anyio import move_on_after
from starlette.concurrency import run_in_threadpool

from server.errors import BusyError
from server.web import limits

Given = ParamSpec("Given")
Result = TypeVar("Result")


async def in_thread(
    work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs
) -> Result:
    """What a function returns that runs in a thread. BusyError if none was free in time; what has
    begun is never broken off.
    """
    with move_on_after(limits.THREAD_SECONDS):
        return await run_in_threadpool(work, *given, **named)
    raise BusyError(
        f"the request waited {limits.THREAD_SECONDS:g} s for its turn; retry in a few seconds"
    )
