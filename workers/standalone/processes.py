"""Child processes of the stack: started with a log, watched, and ended with this process."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from parity.frozen import frozen
from server.settings import CHECKOUT
from training.environment.parent_death import ends_with_parent

_GRACE_SECONDS = 10.0
GPUS = Path("/proc/driver/nvidia/gpus")  # a folder for each GPU that NVIDIA's driver serves


class StartError(Exception):
    """A part of the stack did not start, or ended; the message has the part, the reason and the
    remedy.
    """


@frozen
class StackPart:
    """One running process of the stack."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def end_reason(self) -> str | None:
        """A sentence with the last lines of the log if the process has ended; None while it
        runs.
        """
        status = self.process.poll()
        if status is None:
            return None
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
        return f"{self.name} ended with status {status}; the end of {self.log}:\n" + "\n".join(
            lines
        )

    def stop(self) -> None:
        """Stop the process; kill it after ten seconds."""
        with suppress(ProcessLookupError):
            self.process.terminate()
        try:
            self.process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start(
    name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]
) -> StackPart:
    """Start a part in its own session, so that Ctrl-C in the terminal reaches only this process."""
    with log.open("ab") as stream:
        process = subprocess.Popen(
            ends_with_parent(command, signal.SIGTERM),
            cwd=CHECKOUT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return StackPart(name=name, process=process, log=log)


def wait_until(part: StackPart, ready: Callable[[], bool], seconds: float) -> None:
    """Wait until a part is ready; StartError if it ended or took too long."""
    deadline = time.monotonic() + seconds
    while not ready():
        ended = part.end_reason()
        if ended:
            raise StartError(ended)
        if time.monotonic() > deadline:
            raise StartError(
                f"{part.name} was not ready after {seconds:g} s; its log is {part.log}"
            )
        time.sleep(0.05)
