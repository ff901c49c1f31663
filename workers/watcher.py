"""Ends a training process whose worker is gone, also one that is stopped or hangs in a driver:
SIGTERM, then SIGKILL.

A worker starts this file next to each training process, as a small process of its own that imports
only the standard library:

    python -I -S watcher.py PID START_TIME SECONDS RECORD

It is in a session of its own, so that killing the worker's group does not reach it. Its standard
input is a pipe whose other end only the worker holds; when the pipe closes, the worker is gone.
Linux only.
"""

import errno
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_CLOSE_SECONDS = 1.0  # for a process that ends by itself when its input closes
_KILL_SECONDS = 5.0  # for the kernel to end a killed process
_LOOK_SECONDS = 0.05


class Process(NamedTuple):
    """A process by its id and its start time (clock ticks since boot): an id alone may be another
    process's tomorrow.
    """

    pid: int
    started: int


def running(pid: int) -> Process | None:
    """The process that has this id now; None if there is none, or only its exit status is left."""
    fields = _fields(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return Process(pid, int(fields[19]))


def lives(process: Process) -> bool:
    """Whether this very process still runs."""
    return running(process.pid) == process


def end(leader: Process, seconds: float) -> bool:
    """End a process and its group: SIGTERM, and after `seconds` SIGKILL; False if the kernel has
    not ended them after 5 s more.

    Only processes that were seen in the group while `leader` itself led it are signalled, each by
    its start time.
    """
    group = _group(leader)
    for process in group:
        _send(process, signal.SIGTERM)
    if _ended(group, seconds):
        return True
    group = list(dict.fromkeys([*group, *_group(leader)]))
    for process in group:
        _send(process, signal.SIGKILL)
    return _ended(group, _KILL_SECONDS)


def main() -> int:
    """Wait for the worker's end, and then end the process of the command line; exits 0 if it is
    gone.
    """
    leader, seconds, record = (
        Process(int(sys.argv[1]), int(sys.argv[2])),
        float(sys.argv[3]),
        Path(sys.argv[4]),
    )
    # A service manager that stops a worker signals all of its processes; this one has to survive
    # the worker.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 1):
        pass
    if not _ended([leader], _CLOSE_SECONDS):
        sys.stderr.write(
            "the worker is gone and this process did not end by itself: it gets SIGTERM, then "
            "SIGKILL\n"
        )
        if not end(leader, seconds):
            return 1
    record.unlink(missing_ok=True)
    return 0


def _group(leader: Process) -> list[Process]:
    """The processes of a group, its leader first; none if the leader has ended."""
    if not lives(leader):
        return []
    numbers = [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208
    members = [
        member
        for number in numbers
        if number != leader.pid and (member := _member(number, leader.pid))
    ]
    if not lives(leader):
        return []
    return [leader, *members]


def _member(pid: int, group: int) -> Process | None:
    fields = _fields(pid)
    if fields and fields[0] not in "ZX" and int(fields[2]) == group:
        return Process(pid, int(fields[19]))
    return None


def _fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on (proc(5)); the second, a name, may contain
    blanks and brackets.
    """
    # Not cmdline or environ: reading those waits for a process that hangs in a driver.
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode("ascii").split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _send(process: Process, number: signal.Signals) -> None:
    """Signal this very process. The handle is opened first, so that the id cannot pass to another
    one after the check.
    """
    with suppress(ProcessLookupError, PermissionError):
        try:
            handle = os.pidfd_open(process.pid)
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            if lives(process):  # a kernel before 5.3
                os.kill(process.pid, number)
            return
        try:
            if lives(process):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def _ended(processes: Sequence[Process], seconds: float) -> bool:
    """Wait until all have ended; False if one still lives after `seconds`."""
    deadline = time.monotonic() + seconds
    while any(lives(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


if __name__ == "__main__":
    sys.exit(main())
