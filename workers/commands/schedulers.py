"""What a scheduler has to do for us, and how its programs are called.

A job is submitted so that it waits (`held`), and its id is on record before it may start. Every job
has a key of ours as its name, by which it is found again. The programs of a scheduler get an
environment of their own, with none of the worker's secrets, and what they say counts, not their
exit status alone: `squeue` ends with 1 for a job that has long ended and for a controller that is
away.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol

from parity.frozen import frozen

# in the folder of a job: what is submitted, and what Slurm itself prints there
SCRIPT, LOG = "job.sh", "scheduler.log"
_SECONDS = 60.0  # Slurm gives up a controller that is away after 9 to 18 s
_KEPT = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR")
_LONGEST_SENTENCE = 500

# What becomes of a job: `held` waits for its release, `waiting` for the scheduler, which may have
# taken it back from a node; the last two are over, and one that was preempted is no crash.
JobState = Literal["held", "waiting", "running", "ended", "preempted"]
OVER = ("ended", "preempted")


@frozen
class ScheduledJob:
    """A job as its scheduler sees it; `said` is that in the scheduler's own words, such as `PENDING
    (Resources)`.
    """

    id: str
    key: str
    state: JobState
    said: str


class SchedulerUnreachableError(Exception):
    """A scheduler that does not answer, or takes no more jobs for now (`is_full`): it is asked
    again, for as long as it takes.
    """

    code = "SCHEDULER_UNREACHABLE"

    def __init__(self, message: str, *, is_full: bool = False) -> None:
        super().__init__(message)
        self.is_full = is_full


class JobRefusedError(Exception):
    """A job that the scheduler will not take."""

    code = "SCHEDULER_REFUSED"


class Scheduler(Protocol):
    """A scheduler of a launcher. Every method raises SchedulerUnreachableError;
    `submit` also JobRefusedError.
    """

    place: str
    """Schedulers of one place have the same jobs, so that one query is enough for all."""
    keeps_ended: bool
    """Whether a job stays there for ever after its end, until it is cancelled."""
    forgets: bool
    """Whether its controller may come back with an older state: jobs that are gone, and held
    again.
    """

    def submit(self, key: str, folder: Path) -> str:
        """Submit the script of a folder so that it is held; returns the job's id."""

    def jobs(self, key: str = "") -> list[ScheduledJob]:
        """Our jobs, in one query; with a key, those of that name alone. One that ended some time
        ago may be missing.
        """

    def release(self, job_id: str) -> None:
        """Let a held job start. Nothing happens to one that may start already, or is gone."""

    def cancel(self, job_id: str) -> None:
        """End a job. Nothing happens to one that has ended, or is gone."""


def called(
    command: Sequence[str], stdin: str = "", more: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """The exit status, output and errors of a scheduler's program; `given` is its input. Raises
    SchedulerUnreachableError where it cannot run.
    """
    environment = (
        {name: os.environ[name] for name in _KEPT if name in os.environ}
        | {"LC_ALL": "C"}
        | dict(more or {})
    )
    try:
        done = subprocess.run(
            command,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SchedulerUnreachableError(f"{command[0]} did not end in {_SECONDS:g} s") from None
    except OSError as error:
        raise SchedulerUnreachableError(
            f"{command[0]} cannot be started ({error.strerror}); it is looked for in the PATH of "
            "the worker"
        ) from None
    return done.returncode, done.stdout, done.stderr


def sentence(text: str) -> str:
    """What a program said, on one line."""
    return " ".join(text.split())[:_LONGEST_SENTENCE] or "it said nothing"


@contextmanager
def best_effort() -> Iterator[None]:
    """Do something now if the scheduler answers; what is left is swept later
    (`workers.submitting`).
    """
    try:
        yield
    except SchedulerUnreachableError:
        return
