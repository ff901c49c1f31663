"""One MaxText process: started without a shell in the caller's process group, so that whoever kills the group kills it too."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from training.engines.maxtext_errors import CrashedError, HungError, MaxTextError, TooLittleMemoryError
from training.engines.maxtext_follow import LOG_LINES, Log
from training.launched import COORDINATOR, LauncherError, Processes
from training.parent_death import ends_with_parent

LOOK_SECONDS = 0.2


@contextmanager
def running(command: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The process, its output in `log`; it is gone when the block ends, and when this process dies (Linux)."""
    folder.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        process = subprocess.Popen(
            ends_with_parent(command, signal.SIGKILL),
            cwd=folder,
            env=process_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def run_to_its_end(
    command: Sequence[str], folder: Path, file: Path, environment: Mapping[str, str], silence_seconds: float, doing: str, *, transient: bool
) -> Log:
    """The log (in `file`) of a process that did what it was started for and ended with status 0.

    Raises HungError when it wrote nothing for so long, and what `failure` says of any other end; `doing` completes the sentence,
    `transient` is whether another attempt is worth it after a silence.
    """
    log = Log(file, sys.stderr)
    heard, lines = time.monotonic(), 0
    with running(command, folder, file, environment) as process:
        while process.poll() is None:
            time.sleep(LOOK_SECONDS)
            list(log.steps())
            if log.lines_read > lines:
                heard, lines = time.monotonic(), log.lines_read
            if time.monotonic() - heard > silence_seconds:
                raise HungError(f"MaxText wrote nothing for {silence_seconds:g} s while it {doing}", transient=transient)
    list(log.steps())
    if process.returncode != 0:
        raise failure(process.returncode, log, f"while it {doing}", progressed=False)
    return log


def process_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of MaxText: the training process's own, and no Google Cloud."""
    return {**environment, "DECOUPLE_GCLOUD": "TRUE", "PYTHONUNBUFFERED": "1"}


def meeting_place(environment: Mapping[str, str], own: Processes) -> dict[str, str]:
    """The environment in which MaxText's processes find each other (hardware: gpu_multiprocess); raises LauncherError without a place."""
    if own.count == 1:
        return dict(environment)
    host, _, port = own.coordinator.rpartition(":")
    if not host or not port.isdecimal():
        raise LauncherError(f"{COORDINATOR} is {own.coordinator!r}, expected host:port of the first of {own.count} processes of MaxText")
    told = {"JAX_COORDINATOR_IP": host, "JAX_COORDINATOR_PORT": port, "NNODES": str(own.count), "NODE_RANK": str(own.number)}
    return {**environment, **told}


def failure(status: int, log: Log, after: str, *, progressed: bool) -> MaxTextError:
    """Why a process ended with a status other than 0, with the end of its log. What went well for a while is worth another attempt."""
    end = f"the last {LOG_LINES} lines of its log:\n{log.end()}"
    if log.out_of_memory:
        return TooLittleMemoryError(f"MaxText ran out of memory {after}; reduce data.batch_size or the model, or shard it further; {end}")
    if status < 0:
        hint = " (from outside; the kernel does so when memory runs out)" if status == -signal.SIGKILL else ""
        return CrashedError(f"MaxText was killed by signal {-status}{hint} {after}; {end}", transient=True)
    return CrashedError(f"MaxText ended with status {status} {after}; {end}", transient=progressed)
