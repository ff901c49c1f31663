"""Finds an earlier job whose verdict a gate can reuse, and checks that the verdict still holds.

All that decides a verdict is compared when it is asked for. What is known before training is in
`config_hash`: specification, policy, judge, revision, the named baseline with its controls, the
groups of the named family. The rest is looked up: every live worker that could train the job now
must have the trainer of its runs (`training.device`, as registered, never as the caller states),
one of them their machine, the data must be what a worker read last, and the job must
borrow from the groups of reruns of when it was judged. Only what these runs share with other
verdicts, the number of looks and candidates, is left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.wording import short_commit
from server.database.locks import hold_lock
from server.database.lookups import find_job
from server.database.tables import Job
from server.errors import LookError
from server.jobs import answers, requesters
from server.jobs.baselines import NamedBaseline, resolve
from server.jobs.fingerprint import knows_data_by_name
from server.jobs.fits import check_fits
from server.jobs.ledger import has_passed, is_renewed
from server.jobs.new_question import (
    is_new_question,
    judged_with_other_reruns,
    run_manifests,
    why_outdated,
)
from server.jobs.submit import (
    JobSubmission,
    config_hash,
    family_noise_table,
    sent_config_hash,
    submit_job_once,
    submit_registered,
)
from server.jobs.workers import would_train

_JOBS_LOOKED_AT = 20
_SAME_CODE = (
    "revision {0!r} was judged with the same trainer, data and policy and did not pass; another "
    "word for the revision is no registered look"
)
_FAIL_STANDS = (
    "job {0} failed this question, and neither trainer nor data have changed since, so that the "
    "pass of job {1} does not count; if the verdict is not the reason to ask again, have an "
    "operator register a new question: parity new-question {0} --reason TEXT"
)
_UNCHANGED = (
    "its specification and policy are the same, and no change of trainer, data or reruns is known"
)
_NAME_ADVICE = (
    "its data are known by name only, so that other data under the same name would not be seen"
)
_NO_JOB, _WITH_CONTROLS = (
    "no earlier job has this specification, policy and revision",
    ", with the same controls of its baseline and groups of its family",
)
Progress = Literal["running", "concluded", "failed", "cancelled"]  # `running` includes queued


@frozen
class GateSubmission(JobSubmission):
    """A gate's request. The verdict of a concluded job can be reused for `max_age_days`; `fresh`
    always trains a new job.

    `group` is what asks, such as a pull request: what it asked for before is cancelled if nobody
    else wants it. A new job gets the `labels`; an earlier one keeps its own.
    """

    max_age_days: float
    fresh: bool
    group: str = ""


@frozen
class GateAnswer:
    """The job for a gate: a `new` one, or an earlier one, `running` (or queued) or as it ended;
    with the reason in a sentence.

    `earlier` names the other jobs that answered the same question, in whichever words.
    """

    job: Job
    found: Literal["new"] | Progress
    reason: str
    earlier: Sequence[str] = ()


def look_up(session: Session, question: GateSubmission, lease_seconds: float) -> GateAnswer | str:
    """The newest concluded job that answers the request, or why there is none. Reads only."""
    reason: str | None = None
    named = resolve(session, question.choice, question.spec, lease_seconds)
    for job, trained_otherwise, judged_otherwise in _same_question(
        session, question, named, lease_seconds
    ):
        outdated = trained_otherwise or judged_otherwise
        if outdated is None and job.status == "concluded":
            return _standing(
                session,
                GateAnswer(job=job, found="concluded", reason=_unchanged(job)),
                lease_seconds,
            )
        reason = reason or (
            f"job {job.id} is {job.status} and has no verdict yet"
            if outdated is None
            else f"job {job.id} cannot be reused: {outdated}"
        )
    return reason or _why_new(session, question, named)


def answer(
    session: Session,
    question: GateSubmission,
    principal: str,
    key: str | None,
    lease_seconds: float,
) -> GateAnswer:
    """The job for a gate's request: an earlier one if possible, else a new one, queued. `key` makes
    a repeated fresh call safe.
    """
    # two callers with the same request at the same time get one job, and groups change one at a
    # time
    hold_lock(session, "gates")
    reply = _standing(
        session, _answer(session, question, principal, key, lease_seconds), lease_seconds
    )
    requesters.note(reply.job, principal, question.group, is_new=reply.found == "new")
    if question.group:
        requesters.cancel_superseded(session, reply.job, principal, question.group)
    return reply


def standing_fail_of(session: Session, job: Job, lease_seconds: float) -> Job | None:
    """The job whose fail stands against the passes of a job; None where none does, and for a job
    that did not pass.
    """
    if not has_passed(job):
        return None
    return answers.standing_fail(
        session, job, lambda other: is_new_question(session, other, lease_seconds)
    )


def _standing(session: Session, reply: GateAnswer, lease_seconds: float) -> GateAnswer:
    """An answer with the earlier ones to its question: a fail among them that stands takes the
    place of a pass.
    """
    failed = standing_fail_of(session, reply.job, lease_seconds)
    if failed is not None:
        why = _FAIL_STANDS.format(failed.id, reply.job.id)
        reply = replace(reply, job=failed, found="concluded", reason=why)
    return replace(reply, earlier=answers.earlier_answers(session, reply.job))


def note_lookup(session: Session, job_id: str, principal: str) -> None:
    """Remember who was given the verdict of a job by a lookup."""
    hold_lock(session, "gates")
    requesters.note(find_job(session, job_id), principal, "", is_new=False)


def _answer(
    session: Session,
    question: GateSubmission,
    principal: str,
    key: str | None,
    lease_seconds: float,
) -> GateAnswer:
    def outdated(newest: Job) -> bool:
        return is_new_question(session, newest, lease_seconds)

    if question.fresh:
        job, is_new = submit_job_once(session, question, principal, key, lease_seconds, outdated)
        return GateAnswer(
            job=job,
            found="new" if is_new else _progress(job),
            reason="fresh training was requested",
        )
    named = resolve(session, question.choice, question.spec, lease_seconds)
    newest_outdated: str | None = None
    for job, trained_otherwise, judged_otherwise in _same_question(
        session, question, named, lease_seconds
    ):
        why = trained_otherwise or judged_otherwise
        if why is None:
            return GateAnswer(job=job, found=_progress(job), reason=_unchanged(job))
        if _stays(session, question, job, why if why == judged_otherwise else None, lease_seconds):
            return GateAnswer(
                job=job,
                found=_progress(job),
                reason=f"{why}; it did not pass, and judging it again is no registered look",
            )
        newest_outdated = newest_outdated or f"job {job.id} cannot be reused: {why}"
    if (
        newest_outdated is None
        and (earlier := _same_job_at_another_revision(session, question, named, lease_seconds))
        is not None
    ):
        return GateAnswer(
            job=earlier, found="concluded", reason=_SAME_CODE.format(earlier.revision)
        )
    reason = _why_new(session, question, named)
    try:
        job = submit_registered(session, question, principal, named, outdated)
    except LookError as error:
        raise (LookError(f"{error}. {newest_outdated}") if newest_outdated else error) from None
    check_fits(session, job, question.spec, lease_seconds)
    return GateAnswer(job=job, found="new", reason=newest_outdated or reason)


def _stays(
    session: Session,
    question: GateSubmission,
    job: Job,
    judged_otherwise: str | None,
    lease_seconds: float,
) -> bool:
    """Whether a job that did not pass answers though its verdict would be renewed: with other
    reruns, or because it is too old.

    An inconclusive verdict may be too old: only a fail stays one.
    """
    if has_passed(job) or (job.look or 0) < question.policy.looks or is_renewed(session, job):
        return False
    return judged_otherwise is not None or (
        answers.failed(job) and not is_new_question(session, job, lease_seconds)
    )


def _why_new(session: Session, question: GateSubmission, named: NamedBaseline | None) -> str:
    """Why no job is the one that is asked for: only the revision changed, or there is none
    like it.
    """
    live = select(Job).where(
        Job.status.in_(("queued", "running", "concluded")), Job.engine == question.spec.engine
    )
    earlier = next(_but_for_revision(session, question, named, live.order_by(Job.id.desc())), None)
    if earlier is not None:
        return (
            f"revision changed: {short_commit(earlier.revision or 'none')} -> "
            f"{short_commit(question.revision or 'none')}"
        )
    return _NO_JOB + (_WITH_CONTROLS if named is not None or question.spec.family else "")


def _but_for_revision(
    session: Session, question: GateSubmission, named: NamedBaseline | None, jobs: Select[Job]
) -> Iterator[Job]:
    """Those of the first of these jobs that equal what is asked in everything but the word of the
    revision.
    """
    noise_table = family_noise_table(session, question.spec)
    for job in session.scalars(jobs.limit(_JOBS_LOOKED_AT)):
        config = config_hash(question.spec, question.policy, job.revision or "", named, noise_table)
        if (job.revision or "") != question.revision and job.config_hash == sent_config_hash(
            question, config
        ):
            yield job


def _same_job_at_another_revision(
    session: Session, question: GateSubmission, named: NamedBaseline | None, lease_seconds: float
) -> Job | None:
    """A recent job that is the same but for the word of its revision, did not pass, and leaves no
    look: what is asked is its question.

    A fail is recent until what trains or the data change.
    """
    spec, policy = question.spec, question.policy
    if spec.engine == "external":
        return None
    recent = (
        select(Job)
        .where(Job.status == "concluded", Job.engine == spec.engine)
        .order_by(Job.id.desc())
    )
    for job in _but_for_revision(session, question, named, recent):
        is_used = (
            not has_passed(job) and (job.look or 0) >= policy.looks and not is_renewed(session, job)
        )
        if is_used and not is_new_question(session, job, lease_seconds):
            return job
    return None


def _same_question(
    session: Session, question: GateSubmission, named: NamedBaseline | None, lease_seconds: float
) -> Iterator[tuple[Job, str | None, str | None]]:
    """Jobs of this comparison that have a verdict or may get one, newest first, each with the
    reasons why it would be trained or judged otherwise now, or None. Once reruns have arrived since
    one was judged, they have since every earlier one.
    """
    config = config_hash(
        question.spec,
        question.policy,
        question.revision,
        named,
        family_noise_table(session, question.spec),
    )
    digest = sent_config_hash(question, config)
    same = select(Job).where(
        Job.config_hash == digest, Job.status.in_(("queued", "running", "concluded"))
    )
    jobs = session.scalars(same.order_by(Job.id.desc()).limit(_JOBS_LOOKED_AT)).all()
    workers = would_train(session, jobs[0], lease_seconds) if jobs else []
    arrived: str | None = None
    for job in jobs:
        trained_otherwise = why_outdated(session, job, question.max_age_days, workers)
        if trained_otherwise is None and arrived is None:
            arrived = judged_with_other_reruns(session, job)
        yield job, trained_otherwise, arrived if job.status == "concluded" else None


def _unchanged(job: Job) -> str:
    """Why a job answers the gate, with what nobody can know."""
    if any(map(knows_data_by_name, run_manifests(job))):
        return f"{_UNCHANGED}; {_NAME_ADVICE}"
    return _UNCHANGED


def _progress(job: Job) -> Progress:
    if job.status == "queued":
        return "running"
    return job.status
