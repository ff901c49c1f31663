"""The start of the stack, step by step: what is waited for, since when, and when to give up.

A start waits as long as something moves: the part writes its log or computes. It ends when a
process has ended, or when nothing has moved for a stated time.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.markup import escape

from parity.frozen import frozen
from workers.standalone.processes import StackPart, StartError

STILL_SECONDS = 60.0
GPU_STILL_SECONDS = 300.0  # CUDA starts in the driver, which may show nothing for minutes
_LOOK_SECONDS = 0.1
_ACTIVITY_SECONDS = 1.0  # between two looks at all processes of a part
_REPEAT_SECONDS = 10.0  # between two lines about one step, where there is no terminal


@frozen
class Missing:
    """What a part still lacks, as the end of "waiting until …"; `answers`: it is running, and what
    it does while it is asked counts as no progress.
    """

    what: str
    answers: bool = False


class StartStep:
    """One step of the start, shown while it lasts: on a terminal by a line that counts the seconds,
    elsewhere by a line at its begin and every ten seconds.
    """

    def __init__(self, name: str, what: str, since: float) -> None:
        self.name, self.what, self.since = name, what, since

    def line(self) -> str:
        """What is waited for, and since when."""
        return f"{self.name}: waiting until {self.what}, for {time.monotonic() - self.since:.0f} s"


@contextmanager
def step(
    console: Console,
    name: str,
    what: str,
    since: float | None = None,
    repeat_seconds: float = _REPEAT_SECONDS,
) -> Iterator[StartStep]:
    """Show a step while the block runs, and how long it took if it succeeds; `since`: when its part
    was started, if that was earlier. The block may change `what`.
    """
    shown = StartStep(name, what, time.monotonic() if since is None else since)
    over = threading.Event()
    on_terminal = console.is_terminal
    if not on_terminal:
        _print(console, f"{name}: waiting until {what}")

    with console.status(escape(shown.line())) if on_terminal else nullcontext() as status:

        def repeat() -> None:
            while not over.wait(1.0 if status else repeat_seconds):
                if status:
                    status.update(escape(shown.line()))
                else:
                    _print(console, shown.line())

        ticker = threading.Thread(target=repeat, name="start-step", daemon=True)
        ticker.start()
        try:
            yield shown
        finally:
            over.set()
            ticker.join()
    _print(console, f"{name}: ready after {time.monotonic() - shown.since:.1f} s")


def wait_until_ready(
    part: StackPart,
    missing: Callable[[], Missing | None],
    shown: StartStep,
    others: Sequence[StackPart] = (),
    still_seconds: float = STILL_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until a part lacks nothing. StartError, with the end of the log, if it or one of the
    others has ended, or if nothing has moved for `still_seconds`.
    """
    seen: object = None
    moved = looked = clock()
    activity = part.activity()
    while (lack := missing()) is not None:
        for started in (part, *others):
            if ended := started.end_reason():
                raise StartError(ended)
        shown.what = lack.what
        now = clock()
        if now - looked >= _ACTIVITY_SECONDS:
            activity, looked = part.activity(), now
        mark = lack if lack.answers else (lack, activity)
        if mark != seen:
            seen, moved = mark, now
        elif now - moved >= still_seconds:
            still = (
                "that did not change"
                if lack.answers
                else "it neither computed nor wrote to its log"
            )
            raise StartError(
                f"{part.name} is not ready: waiting until "
                f"{lack.what}; for {still_seconds:g} s {still}; the end of {part.log}:\n"
                f"{part.log_end()}"
            )
        time.sleep(_LOOK_SECONDS)


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
