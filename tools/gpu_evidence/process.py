"""A step's process: its own session and log, a limit, and an end that reaches its children's
children too. Linux only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from training.environment.parent_death import ends_with_parent
from workers import watcher
from workers.watcher import Process

GRACE_SECONDS = 20.0
_LOOK_SECONDS = 0.1


class StepProcess:
    """A running step. Its output goes to a file; it and all that it started end with this
    process.
    """

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str], folder: Path
    ) -> None:
        self._log = log
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                ends_with_parent(command, signal.SIGTERM),
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._began = time.monotonic()

    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.poll()

    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self._began

    def lines(self) -> list[str]:
        """What it has printed so far."""
        return self._log.read_text(encoding="utf-8", errors="replace").splitlines()

    def end(self, grace: float = GRACE_SECONDS) -> None:
        """Stop it: SIGTERM to the process itself, which ends its own children, and after the grace
        SIGKILL to all that is left.

        Children in sessions of their own are found by their parents, before their parents are gone.
        """
        descendants = _descendants(self._process.pid)
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline and (
            self.status() is None or any(map(watcher.lives, descendants))
        ):
            descendants |= _descendants(self._process.pid)
            time.sleep(_LOOK_SECONDS)
        while left := {process for process in descendants if watcher.lives(process)}:
            for process in left:  # an id that was reused has another start time
                descendants |= _descendants(process.pid)
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            if time.monotonic() > deadline + GRACE_SECONDS:
                break  # it hangs in the kernel, in a driver for example
            time.sleep(_LOOK_SECONDS)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LOOK_SECONDS)


def _descendants(pid: int) -> set[Process]:
    """The process with this id and all that it, or a child of it, has started."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdecimal() and (parent := _parent(int(name))) is not None:
            parents.setdefault(parent, []).append(int(name))
    descendants: set[Process] = set()
    waiting = [pid]
    while waiting:
        number = waiting.pop()
        process = watcher.running(number)
        if process is not None and process not in descendants:
            descendants.add(process)
            waiting += parents.get(number, [])
    return descendants


def _parent(pid: int) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        # The second field, a name, may contain blanks and brackets.
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    return None
