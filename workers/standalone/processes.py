"""Child processes of the stack: started with a log, watched, and ended with this process."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from parity.frozen import frozen
from server.settings import CHECKOUT
from training.environment.parent_death import ends_with_parent

_GRACE_SECONDS = 10.0
_LOG_LINES, _LOG_BYTES = 15, 64 * 2**10  # of a log's end
_COMPUTED_SECONDS = 0.2  # of processor time: less is what an idle process uses in a minute
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
        return f"{self.name} ended with status {status}; the end of {self.log}:\n{self.log_end()}"

    def log_end(self) -> str:
        """The last lines of the log."""
        with self.log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _LOG_BYTES))
            text = stream.read().decode("utf-8", errors="replace")
        return "\n".join(text.splitlines()[-_LOG_LINES:])

    def activity(self) -> tuple[int, int]:
        """The size of the log and the processor time of the process and its children, which change
        while it does something; the time in steps that an idle process takes a minute for.
        """
        seconds = _session_ticks(self.process.pid) / os.sysconf("SC_CLK_TCK")
        return self.log.stat().st_size, int(seconds / _COMPUTED_SECONDS)

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


def _session_ticks(session: int) -> int:
    """The processor time of a session's processes and of their children that have ended, in clock
    ticks; 0 where there is no /proc.
    """
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            # from the third field on (proc(5)); the second, a name, may contain blanks
            fields = stat.read_bytes().rpartition(b")")[2].split()
            if int(fields[3]) == session:
                ticks += sum(map(int, fields[11:15]))
    return ticks
