"""Slurm, by its own programs: `sbatch`, `squeue`, `scontrol release`, `scancel`. Nothing here needs
slurmdbd.

Measured on Slurm 22.05: `squeue` leaves ended jobs out unless it is asked for all states, and
forgets them after MinJobAge. `scancel` of an unknown id succeeds. `sbatch` carries the caller's
environment to the node unless it is told `--export=NIL`, and may have submitted a job although it
ended with an error, so a key is looked for before each try.
"""

import os
import pwd
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.commands.schedulers import (
    LOG,
    SCRIPT,
    JobRefusedError,
    JobState,
    ScheduledJob,
    SchedulerUnreachableError,
    called,
    sentence,
)

_ENDED_STATES = (
    "boot_fail",
    "cancelled",
    "completed",
    "deadline",
    "failed",
    "node_fail",
    "out_of_memory",
    "revoked",
    "special_exit",
    "timeout",
)
# In what sbatch says where it may take the job later: the user has as many jobs as they may, or its
# controller is away or too busy.
_FULL = ("maxsubmit", "maximum job", "queue is full")
_AWAY = (
    *(
        "unable to contact",
        "connection",
        "timed out",
        "timeout",
        "communication",
        "zero bytes",
        "transport endpoint",
        "not responding",
    ),
    *("authentication", "configuration source", "temporarily", "try again", "slurmctld"),
)


class Slurm:
    """The Slurm that this machine is set up for; `options` are the launcher's, for `sbatch`."""

    place = "slurm"
    keeps_ended, forgets = False, True

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options: Sequence[str] = options["options"]
        self._user = pwd.getpwuid(os.getuid()).pw_name

    def submit(self, key: str, folder: Path) -> str:
        """Submit the script of a folder, held; returns the job's id."""
        ours = (
            "--parsable",
            "--hold",
            "--export=NIL",
            f"--job-name={key}",
            f"--chdir={folder}",
            f"--output={folder / LOG}",
        )
        status, out, errors = _called(
            "sbatch", *ours, "--open-mode=append", *self._options, str(folder / SCRIPT)
        )
        job_id = out.strip().partition(";")[0]  # a name of the cluster may follow
        if status == 0 and job_id.isdecimal():
            return job_id
        said = sentence(errors or out)
        is_full = any(word in said.lower() for word in _FULL)
        if is_full or _is_away(said):
            raise SchedulerUnreachableError(_said("sbatch", said), is_full=is_full)
        raise JobRefusedError(f"Slurm did not take the job: {said}")

    def jobs(self, key: str = "") -> list[ScheduledJob]:
        """Our jobs in any state, or those of one name."""
        named = [f"--name={key}"] if key else []
        status, out, errors = _called(
            "squeue",
            "--noheader",
            "--states=all",
            f"--user={self._user}",
            *named,
            "--format=%i|%T|%r|%j",
        )
        if status:
            raise SchedulerUnreachableError(_said("squeue", errors or out))
        return [_job(line) for line in out.splitlines() if line.count("|") >= 3]

    def release(self, job_id: str) -> None:
        """Let a held job start."""
        status, out, errors = _called("scontrol", "release", job_id)
        if status and _is_away(errors + out):
            raise SchedulerUnreachableError(_said("scontrol", errors or out))

    def cancel(self, job_id: str) -> None:
        """End a job."""
        status, out, errors = _called("scancel", job_id)
        if status and _is_away(errors + out):
            raise SchedulerUnreachableError(_said("scancel", errors or out))


def _said(program: str, text: str) -> str:
    return f"{program}: {sentence(text).removeprefix(f'{program}: ').removeprefix('error: ')}"


def _is_away(said: str) -> bool:
    return any(word in said.lower() for word in _AWAY)


def _called(*command: str) -> tuple[int, str, str]:
    variables = {"SLURM_CONF": os.environ["SLURM_CONF"]} if "SLURM_CONF" in os.environ else {}
    return called(command, more=variables)


def _job(line: str) -> ScheduledJob:
    job_id, slurms, reason, key = (part.strip() for part in line.split("|", 3))
    said = slurms if reason in ("", "None") else f"{slurms} ({reason})"
    return ScheduledJob(id=job_id, key=key, state=_state(slurms.lower(), reason), said=said)


def _state(slurms: str, reason: str) -> JobState:
    if slurms in _ENDED_STATES:
        return "ended"
    if slurms == "preempted":
        return "preempted"
    if slurms == "pending":
        # an administrator's hold is not ours to release
        return "held" if reason == "JobHeldUser" else "waiting"
    if slurms.startswith("requeue"):
        return "waiting"
    return "running"
