"""Runs one MaxText process, without a shell and in the caller's process group, so that killing the
group kills it too.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from training.engines.maxtext_follow import LOG_LINES, MaxTextLog
from training.environment.maxtext_errors import (
    AbortedError,
    CrashedError,
    EndedEarlyError,
    HungError,
    MaxTextError,
    TooLittleMemoryError,
)
from training.environment.maxtext_options import Hardware
from training.environment.parent_death import ends_with_parent
from training.environment.processes import (
    COORDINATOR,
    LOCAL_DEVICES,
    Processes,
    WrapperError,
    local_devices,
)
from training.frozen import frozen

LOOK_SECONDS = 0.2
_TOLD_TO_STOP, _OUT_OF_DATA = (
    "termination signal",
    "run out of training data",
)  # in MaxText's own sentences


@frozen
class SilenceLimit:
    """How many seconds a process may write no line before it counts as hung, what to call when it
    writes one, and what at every look.
    """

    seconds: float
    alive: Callable[[], None] = lambda: None
    look: Callable[[], None] = lambda: None


class Silence:
    """Measures how long a process has written no line into its log."""

    def __init__(self, log: MaxTextLog, patience: SilenceLimit) -> None:
        self._log, self._patience = log, patience
        self._lines = 0
        self._since = time.monotonic()

    def broken(self) -> None:
        """Restart the clock after another sign of life than a log line."""
        self._since = time.monotonic()

    def check(self, doing: str, *, transient: bool) -> None:
        """Call this at every look at the log. Raises HungError after too long a silence.

        `doing` completes the error's sentence; `transient` is whether another attempt may succeed.
        """
        self._patience.look()
        if self._log.lines_read > self._lines:
            self._lines, self._since = self._log.lines_read, time.monotonic()
            self._patience.alive()
        if time.monotonic() - self._since > self._patience.seconds:
            message = (
                f"MaxText wrote nothing for {self._patience.seconds:g} s {doing} and was killed as "
                "hung"
            )
            raise HungError(
                f"{message}; the last lines of its log:\n{self._log.end()}", transient=transient
            )


@contextmanager
def running(
    command: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts the process with its output in `log`; kills it when the block ends, or when this
    process dies (Linux).
    """
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
    command: Sequence[str],
    file: Path,
    environment: Mapping[str, str],
    patience: SilenceLimit,
    doing: str,
    *,
    transient: bool,
) -> MaxTextLog:
    """Runs a process in the folder of `file` until it ends with status 0, and returns its log,
    which `file` holds.

    Raises HungError if it wrote nothing for too long, and the error of `failure` for any other
    status. `doing` completes the error's sentence; `transient` is whether another attempt may
    succeed after a silence.
    """
    log = MaxTextLog(file, sys.stderr)
    silence = Silence(log, patience)
    with running(command, file.parent, file, environment) as process:
        while process.poll() is None:
            time.sleep(LOOK_SECONDS)
            list(log.steps())
            silence.check(f"while it {doing}", transient=transient)
    list(log.steps())
    if process.returncode != 0:
        raise failure(process.returncode, log, f"while it {doing}", progressed=False)
    return log


def process_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment for MaxText: the training process's own, without Google Cloud."""
    return {**environment, "DECOUPLE_GCLOUD": "TRUE", "PYTHONUNBUFFERED": "1"}


def meeting_place(
    environment: Mapping[str, str], process: Processes, hardware: Hardware
) -> dict[str, str]:
    """Returns the environment in which MaxText's processes find each other.

    On GPUs jax finds out, by Slurm's or Open MPI's variables, how many there are; on processors
    MaxText reads variables of its own, and meets at port 1234. Raises WrapperError if the
    coordinator's address is missing.
    """
    if process.count == 1:
        return dict(environment)
    host, _, port = process.coordinator.rpartition(":")
    if not host or not port.isdecimal():
        raise WrapperError(
            f"{COORDINATOR} is {process.coordinator!r}, expected host:port of the first of "
            f"{process.count} processes of MaxText"
        )
    if hardware == "cpu":
        return {
            **environment,
            "JAX_COORDINATOR_ADDRESS": host,
            "JAX_PROCESS_COUNT": str(process.count),
            "PROCESSES_IN_JOB": str(process.count),
            "JOB_INDEX": "0",
            "JOB_COMPLETION_INDEX": str(process.number),
        }
    chosen = local_devices(environment)
    devices = {} if chosen is None else {LOCAL_DEVICES: ",".join(map(str, chosen))}
    return {"JAX_COORDINATOR_ADDRESS": process.coordinator, **environment, **devices}


def early_end(log: MaxTextLog, after: str, *, has_steps: bool, progressed: bool) -> MaxTextError:
    """Returns the error for a process that ended with status 0 before its last step.

    MaxText ends so where its data end, where reading them fails, and where it is told to stop; only
    the first is the end of a run, which the judge can read. `has_steps`: a step of the run is
    recorded; `progressed`: by this process, so another attempt may succeed.
    """
    end = f"the last {LOG_LINES} lines of its log:\n{log.end()}"
    why = f": {log.stopped_because}" if log.stopped_because else ""
    if _TOLD_TO_STOP in why:
        return CrashedError(f"MaxText was told to stop {after}{why}; {end}", transient=True)
    if why and _OUT_OF_DATA not in why:
        return CrashedError(f"MaxText stopped {after}{why}; {end}", transient=progressed)
    ended = f"MaxText ended with status 0 {after}{why or '; did its data end?'}"
    if not has_steps:
        return CrashedError(f"{ended}; {end}")
    return EndedEarlyError(
        f"{ended}. The run is judged as of its last step; to reach the plan, use more data, raise "
        f"maxtext.num_epoch, or plan fewer steps; {end}"
    )


def failure(status: int, log: MaxTextLog, after: str, *, progressed: bool) -> MaxTextError:
    """Returns the error for a process that ended with a status other than 0, with the end of its
    log.

    `progressed`: it had trained steps, so another attempt may succeed.
    """
    end = f"the last {LOG_LINES} lines of its log:\n{log.end()}"
    if log.out_of_memory:
        return TooLittleMemoryError(
            f"MaxText ran out of memory {after}; reduce data.batch_size or the model, or shard it "
            f"further; {end}"
        )
    if status < 0:
        hint = ""
        if status == -signal.SIGKILL:
            hint = (
                " (from outside, for example by the kernel if memory ran out; in that case reduce "
                "data.batch_size or the model)"
            )
        kind = AbortedError if status == -signal.SIGABRT else CrashedError
        return kind(f"MaxText was killed by signal {-status}{hint} {after}; {end}", transient=True)
    return CrashedError(
        f"MaxText ended with status {status} {after}{log.error()}; {end}", transient=progressed
    )
