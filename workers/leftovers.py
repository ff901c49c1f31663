"""Training processes that outlive their worker: a watcher for each, a record of each, and the next
worker that ends them.

A record (`processes/RUN-ATTEMPT.json` in the state folder) names the process and its worker, each
by process id and start time, and the place where these ids are valid. It is removed with the
process. Linux only.
"""

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from workers import watcher
from workers.watcher import Process

_log = logging.getLogger(__name__)


@contextmanager
def watched(pid: int, attempt: str, folder: Path, seconds: float, log: IO[str]) -> Iterator[None]:
    """Record a training process that leads its group, and end it if this worker dies within the
    block.

    `seconds` are between SIGTERM and SIGKILL. The end of the block removes the record; end the
    process before.
    """
    process, worker = (
        watcher.running(pid) if sys.platform == "linux" else None,
        watcher.running(os.getpid()),
    )
    if process is None or worker is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / f"{attempt}.json"
    record.write_text(
        json.dumps({**_place(), "process": process, "worker": worker}), encoding="utf-8"
    )
    command = [
        sys.executable,
        "-I",
        "-S",
        watcher.__file__,
        str(pid),
        str(process.started),
        str(seconds),
        str(record.resolve()),
    ]
    with subprocess.Popen(
        command,
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=log,
        start_new_session=True,
    ) as watcher_process:
        try:
            yield
        finally:
            watcher_process.kill()
            record.unlink(missing_ok=True)


def reap(folder: Path, seconds: float) -> list[str]:
    """End the processes of attempts whose worker is gone; returns these attempts. `seconds` as in
    `watched`.

    A process whose start time is not the recorded one is another one, and is left alone.
    """
    if sys.platform != "linux":
        return []
    reaped = []
    for record in sorted(folder.glob("*.json")):
        attempt, here = record.stem, _place()
        try:
            content = json.loads(record.read_text(encoding="utf-8"))
            host, process, worker = (
                content["host"],
                Process(*content["process"]),
                Process(*content["worker"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            # Left by a worker that was killed while it wrote this; such a process is new, and ends
            # when its input closes.
            _log.warning("%s is not readable and was removed: %r", record, error)
            record.unlink(missing_ok=True)
            continue
        except FileNotFoundError:  # removed meanwhile, by its watcher
            continue
        if host != here["host"] or (_is_place(content, here) and watcher.lives(worker)):
            continue
        # The ids of an earlier boot, or of a container that is gone, mean nothing any more.
        if _is_place(content, here) and watcher.lives(process):
            _log.warning(
                "attempt %s: its worker (process %d) is gone; ending its training process %d",
                attempt,
                worker.pid,
                process.pid,
            )
            if not watcher.end(process, seconds):
                _log.error(
                    "attempt %s: process %d cannot be ended; it may still hold its device",
                    attempt,
                    process.pid,
                )
                continue
            reaped.append(attempt)
        record.unlink(missing_ok=True)
    return reaped


def _place() -> dict[str, str]:
    """Where this process's ids are valid: this host since its boot, within one namespace of ids."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return {
        "host": socket.gethostname(),
        "boot": boot,
        "ids": str(Path("/proc/self/ns/pid").readlink()),
    }


def _is_place(content: Mapping[str, Any], here: Mapping[str, str]) -> bool:
    return all(content.get(name) == value for name, value in here.items())
