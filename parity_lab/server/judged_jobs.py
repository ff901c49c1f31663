"""The job that a question of the lab is about, and its candidate: what can be asked of which."""

from parity_lab.answer_lines import nats_words
from server.database.states import JOB_ENDED
from server.database.tables import Arm, Job, Verdict
from server.errors import ConflictError, InvalidError
from server.jobs.evaluations import check_takes_runs
from server.jobs.fingerprint import job_spec
from training.spec import JobSpec


def judged_candidate(job: Job, name: str | None, missing: str) -> tuple[Arm, Verdict]:
    """A candidate as by `candidate_of`, and its verdict. ConflictError for an open job, and without
    a verdict, with what is `missing`.
    """
    check_ended(job)
    arm = candidate_of(job, name)
    verdict = next((row for row in job.verdicts if row.candidate == arm.name), None)
    if verdict is None:
        raise ConflictError(
            f"candidate {arm.name} of job {job.id} has no verdict, {missing}; train the job again"
        )
    return arm, verdict


def candidate_of(job: Job, name: str | None) -> Arm:
    """A candidate of a job by its name, or its only one. Raises InvalidError for an unknown name,
    and without a name among several.
    """
    candidates = [arm for arm in job.arms if arm.role == "candidate"]
    names = " or ".join(f"--candidate {arm.name}" for arm in candidates)
    if name is None and len(candidates) != 1:
        raise InvalidError(f"job {job.id} has {len(candidates)} candidates; add {names}")
    arm = next((arm for arm in candidates if name in (None, arm.name)), None)
    if arm is None:
        raise InvalidError(f"job {job.id} has no candidate {name!r}; use {names}")
    return arm


def check_ended(job: Job) -> None:
    """Raises ConflictError for a job that is still open, and for one without runs."""
    check_takes_runs(job, "name a job that trained its arms")
    if job.status not in JOB_ENDED:
        raise ConflictError(
            f"job {job.id} is {job.status}, expected one that has ended; wait for its verdict"
        )


def gap_words(verdict: Verdict) -> str | None:
    """The gap of a verdict with its interval; None where it was not measured."""
    if verdict.gap is None or verdict.ci_low is None or verdict.ci_high is None:
        return None
    return nats_words(verdict.gap, verdict.ci_low, verdict.ci_high)


def readable_spec(job: Job) -> JobSpec:
    """The specification of a job. Raises ConflictError for one that this version cannot read."""
    try:
        return job_spec(job)
    except ValueError as error:
        raise ConflictError(
            f"this version cannot read the specification of job {job.id}; train it again"
        ) from error
