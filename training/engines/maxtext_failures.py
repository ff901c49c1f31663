"""Failures of a run's other processes, which its first process reports.

What it answers: which of several processes failed first, and why? MaxText aborts where another of
its processes is gone, so the log of the first one ends in stack traces of that abort, and neither
its signal nor its last lines are the reason.

A process that fails writes a file into the run's folder, and waits: so the first can tell the
record before the wrapper ends all. An abort of its own (SIGABRT) it does not write.

The assumption that can fail: the clocks of the machines differ by less than the time between two
attempts.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from training.environment.maxtext_errors import (
    AbortedError,
    CrashedError,
    MaxTextError,
    TooLittleMemoryError,
)

WAIT_SECONDS = 5.0
_LOOK_SECONDS = 0.2
_KINDS = {kind.code: kind for kind in (CrashedError, TooLittleMemoryError)}


def write(folder: Path, number: int, error: MaxTextError) -> None:
    """Leave the failure of a process for the first one, and give it time to tell of it."""
    if not isinstance(error, AbortedError):
        content = {
            "at": time.time(),
            "code": error.code,
            "message": f"process {number}: {error}",
            "transient": error.transient,
        }
        written = folder / f"failure-{number}.written"
        written.write_text(json.dumps(content), encoding="utf-8")
        written.rename(folder / f"failure-{number}.json")
    time.sleep(WAIT_SECONDS)


@contextmanager
def reported(folder: Path, processes: int) -> Iterator[Callable[[], None]]:
    """Context of the first process: its value raises what another process wrote, to be called at
    every look. A crash of this process ends as the failure that led to it, where one is written; an
    abort waits for it.
    """
    began = time.time()

    def check() -> None:
        if processes > 1 and (failure := _first(folder, began)) is not None:
            raise failure

    try:
        yield check
    except CrashedError as error:
        waits = processes > 1 and isinstance(error, AbortedError)
        deadline = time.monotonic() + (WAIT_SECONDS if waits else 0.0)
        check()
        while time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            check()
        raise


def _first(folder: Path, began: float) -> MaxTextError | None:
    """The first failure that was written since then."""
    failures = [
        json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("failure-*.json")
    ]
    since = [failure for failure in failures if failure["at"] >= began]
    if not since:
        return None
    first = min(since, key=lambda failure: float(failure["at"]))
    return _KINDS[first["code"]](first["message"], transient=first["transient"])
