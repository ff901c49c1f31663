"""Whether asking again is a new question: what trains, the data or the reruns have changed since a
job was judged, or half a day has passed.

A question that is not new needs a look that the policy registered (`server.jobs.ledger`).
"""

import time
from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from parity.judging.noise.noise_table import NoiseTable, read_noise_table
from server.database.tables import Job, Worker
from server.jobs import answers, applied_statements
from server.jobs.baselines import controls_now
from server.jobs.data_digests import changed_since
from server.jobs.imported_noise import named_noise_table
from server.jobs.ledger import has_passed
from server.jobs.noise_tables import borrowed_noise_table, family_of
from server.jobs.workers import changed, other_machine, would_train

# a gate that asks for a newer verdict than this asks the same question again, which is a further
# look
RENEWED_AFTER_DAYS = 0.5
_DAY = 86_400.0


def is_new_question(session: Session, job: Job, lease_seconds: float) -> bool:
    """Whether the comparison is not simply made again until it passes: its trainer or data changed,
    or half a day has passed after anything but a fail, which stays one.

    A trainer of which nothing is known, or that only some of the workers have, may be the same, and
    so may reruns that arrived: that is enough only after a pass, since judging again can then only
    take it back.
    """
    workers = would_train(session, job, lease_seconds)
    outdated = why_outdated(session, job, RENEWED_AFTER_DAYS, workers)
    if has_passed(job) and (outdated or judged_with_other_reruns(session, job)):
        return True
    if outdated is None:
        return False
    if _outdated_by_age(job, RENEWED_AFTER_DAYS) is not None and not answers.failed(job):
        return True
    manifests = run_manifests(job)
    return (
        _has_another_trainer(job, manifests, workers)
        or _data_changed(session, job, manifests) is not None
    )


def why_outdated(
    session: Session, job: Job, max_age_days: float, workers: Sequence[Worker]
) -> str | None:
    """Why these workers would not train a job as it was trained, or why it is too old; None if it
    can be reused.
    """
    if (why := _outdated_by_age(job, max_age_days)) is not None:
        return why
    manifests = run_manifests(job)
    return _trainer_changed(job, manifests, workers) or _data_changed(session, job, manifests)


def judged_with_other_reruns(session: Session, job: Job) -> str | None:
    """Why a job would be judged with other reruns now than it was: controls of its baseline, groups
    of its family, or groups on record.
    """
    if job.status != "concluded":
        return None
    if job.named is not None and sorted(job.controls or ()) != (
        controls := controls_now(job, job.named)
    ):
        return (
            f"it was judged with {len(job.controls or ())} controls of its baseline, which has "
            f"{len(controls)} now, not all the same"
        )
    family = applied_statements.family(job, late=False)
    now: NoiseTable | None
    if family:
        now = named_noise_table(session, family)
    else:
        now = borrowed_noise_table(session, job, family_of(job))
    if (now.csv() if now else None) == job.noise_table:
        return None
    then = len(read_noise_table(job.noise_table).rows) if job.noise_table else 0
    return (
        f"it was judged with {then} groups of reruns on record, and there are "
        f"{len(now.rows) if now else 0} now, not all the same"
    )


def run_manifests(job: Job) -> list[Mapping[str, str]]:
    """What each run of a job that began recorded of trainer, machine and data."""
    return [run.manifest or {} for run in job.runs if run.manifest or run.state == "finished"]


def _outdated_by_age(job: Job, max_age_days: float) -> str | None:
    age_days = (time.time() - (job.finished_at or 0.0)) / _DAY
    if job.status != "concluded" or age_days <= max_age_days:
        return None
    return f"its verdict is {age_days:.1f} days old, expected at most {max_age_days:g}"


def _has_another_trainer(
    job: Job, manifests: Sequence[Mapping[str, str]], workers: Sequence[Worker]
) -> bool:
    """Whether none of these workers has the trainer of one of these runs."""
    if job.capability == "external":
        return False
    trainers = [worker for worker in workers if worker.device.get("trainer")]
    stated = [then for then in manifests if then]
    return bool(trainers and stated) and all(
        changed(worker, then) for worker in trainers for then in stated
    )


def _trainer_changed(
    job: Job, manifests: Sequence[Mapping[str, str]], workers: Sequence[Worker]
) -> str | None:
    """The difference between the trainer and machine of these runs and those of the workers that
    would train them now, or None.
    """
    if job.capability == "external" or not manifests:
        # a user's own trainer is identified by the revision; a run that has not begun cannot differ
        return None
    if not workers:
        return "no registered worker would train it, so a change of the trainer cannot be ruled out"
    reasons = (
        reason for worker in workers for then in manifests if (reason := changed(worker, then))
    )
    return next(reasons, None) or other_machine(workers, job)


def _data_changed(session: Session, job: Job, manifests: Sequence[Mapping[str, str]]) -> str | None:
    return changed_since(session, job, {manifest.get("data_digest") for manifest in manifests})
