"""One more run of each arm for a job that has no verdict yet, and whether that is a further look at
its question.

A run that is added before a candidate of the job has trained is like one that was submitted: nobody
has seen anything of the gap. Later everybody can see how the gap runs and what is forecast of it,
so that who adds a run decides by what they saw. That is what a look is: the added runs take one of
those that the policy registered beforehand, and the verdict has the level of these looks whether or
not runs are added. Where none is left, or nobody counts them, runs that are added late are refused.
Each added run says so in the verdict, and a note of the job says who added it.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.wording import count
from server.database import clock, tables
from server.database.states import EARLY_STOP, JOB_ENDED, RUN_ENDED
from server.database.tables import Job, Run, RunState
from server.errors import ConflictError
from server.jobs import ledger, lifecycle, statements
from server.jobs.notes import add_note
from server.records import Body
from training.command import ENGINE as COMMAND

_MOST_REPLICATES = 64  # of `training.spec.ArmSpec`


@frozen
class AddedRunRequest(Body):
    """`runs`: how many runs the job has, as the sender knows it, so that a repeated request adds
    nothing; null: whatever it has.
    """

    runs: int | None = None


def refusal(job: Job) -> str | None:
    """Why no run can be added to a job, whoever asks, as the end of a sentence; None if one can."""
    if job.status in JOB_ENDED:
        return f"it is {job.status}; POST :again makes a new job of one that has ended"
    if not job.is_judged or job.looked_at is not None:
        return "it is no comparison with a job file: its runs are not planned"
    if job.named is not None:
        return (
            "its baseline is a promoted one, whose runs are fixed; submit a job with more "
            "replicates"
        )
    if all(run.state in RUN_ENDED for run in job.runs):
        return "all its runs have ended, and it is judged just now"
    baseline, *candidates = ([run.state in RUN_ENDED for run in arm.runs] for arm in job.arms)
    if all(baseline) and any(map(all, candidates)):  # `server.jobs.conclude.settled`
        return "all runs of a candidate have ended, and its verdict is known"
    if any(run.code == EARLY_STOP for run in job.runs):
        return "the live rules have stopped a run of it"
    if max(len(arm.runs) for arm in job.arms) >= _MOST_REPLICATES:
        return f"an arm has at most {_MOST_REPLICATES} runs"
    return None


def is_seen(job: Job) -> bool:
    """Whether anybody could have seen something of a gap: a candidate of the job has trained,
    reused curves apart.
    """
    return any(
        run.steps_done > 0 and run.reused_from is None for run in job.runs if run.arm.position
    )


def meaning(job: Job) -> str:
    """What adding a run would mean now, in a sentence; "" where it would be refused."""
    if refusal(job) is not None:
        return ""
    if not is_seen(job):
        return "No candidate has trained yet, so it counts as one that was submitted."
    left = ledger.looks_left(job)
    if not left:
        return ""
    return f"Candidates have trained, so it takes a registered look: {count(left, 'look')} left."


def add_runs(session: Session, job_id: str, request: AddedRunRequest, who: str) -> Job:
    """Add a run to each arm of an open job. Notify the workers after the commit.

    ConflictError where no run can be added, LookError where a candidate has trained and no
    registered look is left.
    """
    job, _ = statements.lock_job_with_runs(session, job_id)
    runs = job.runs  # read again under the job's lock: another request may have added some before
    if request.runs not in (None, len(runs)):
        raise ConflictError(
            f"job {job_id} has {count(len(runs), 'run')}, and {request.runs} were expected; look "
            "at it again"
        )
    now = clock.now(session)
    why_not = refusal(job) or (
        "it is judged just now" if (job.judging_until or 0.0) > now else None
    )
    if why_not is not None:
        raise ConflictError(f"no run can be added to job {job_id}: {why_not}")
    seen = is_seen(job)
    if seen:
        ledger.take_another(session, job)
    spec = job.spec
    job.spec = {
        **spec,
        "baseline": _with_one_more(spec["baseline"]),
        "candidates": [_with_one_more(candidate) for candidate in spec["candidates"]],
    }
    replicate = 1 + max(run.replicate for run in runs)  # above that of each short rerun, too
    waiting: RunState = "awaiting_data" if job.capability == "external" else "queued"
    like = job.runs[0]
    for position, arm in enumerate(job.arms, len(runs)):
        columns = {
            "position": position,
            "replicate": replicate,
            "state": waiting,
            "created_at": now,
            "planned_steps": job.planned_steps,
        }
        # as `JobSpec.run_of` has it
        seed = like.seed + replicate if job.engine == COMMAND else like.seed
        same = {"seed": seed, "capability": job.capability, "priority": like.priority}
        job.runs.append(Run(id=tables.new_id("r"), arm_id=arm.id, **columns, **same))
    when = "after candidates had trained" if seen else "before a candidate had trained"
    look = f", as look {job.look}" if seen else ""
    add_note(session, job_id, who, f"Added a run to each arm (replicate {replicate}) {when}{look}.")
    lifecycle.tell_changed(session, job)
    session.flush()
    session.expire(job, ["arms", "runs"])
    for arm in job.arms:
        session.expire(arm, ["runs"])
    return job


def _with_one_more(arm: Mapping[str, Any]) -> dict[str, Any]:
    return {**arm, "replicates": arm.get("replicates", 1) + 1}
