"""Which look at its question is a job? The ledger of the looks that are registered and used.

The question of a candidate is what its verdict answers: recipe, model, data, schedule, baseline, margin, code revision, and the name that
the policy gives it. Replicates, seeds and reruns are no part of it: with more of them the same question is judged again. What else the
policy says is registered by the first job, with its candidates; a later one that says something else is refused.
A look is used by every job that has a verdict or may still get one; a failed or a cancelled job gives it back. Engine external has no
model or data on record, so only a question with a name (`criteria.question`) has a ledger there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from parity import criteria_from_mapping
from parity.judging.multiplicity import FAIL_BY_GAP, Multiplicity
from server.database.locks import hold_lock
from server.database.tables import Arm, Job, Verdict
from server.errors import LookError

_OF_THE_QUESTION = (
    "engine",
    "layer_policy",
    "model",
    "data",
    "schedule",
    "devices",
    "keep_first",
    "keep_last",
    "projections",
    "maxtext",
)
_NOT_OF_AN_ARM = ("name", "replicates")
_IN_THE_DIGEST = ("margin", "profile", "question")
_NEW_NAME = "give the question a new name if the reason for judging again is not the verdict (criteria.question)"
_MAY_CHANGE = (*_IN_THE_DIGEST, "early_stop")


def register(session: Session, job: Job, renews: Job | None = None) -> None:
    """Count a new job's look at its question. `renews` is the job whose answer is out of date, so that the same question is a new one.

    Raises LookError for a look that was not registered, a look after a pass, another registration, and a candidate that was added.
    """
    if job.engine == "external" and not job.criteria.get("question"):
        return
    candidates = [arm for arm in job.arms if arm.role == "candidate"]
    for arm in candidates:
        arm.question = _digest(job, arm, renews)
    by_question = {arm.question or "": arm.name for arm in candidates}
    for question in sorted(by_question):
        hold_lock(session, f"question {question}")
    earlier = _earlier(session, job, by_question)
    job.look, job.look_candidates = 1, len(candidates)
    if not earlier:
        return
    first = earlier[0]
    _check_candidates(first, by_question)
    _check_policy(first, job)
    _check_open(session, earlier, by_question)
    job.look = 1 + max(other.look or 1 for other in earlier)
    job.look_candidates = max(first.look_candidates or 1, len(candidates))
    looks = criteria_from_mapping(job.criteria).looks
    if job.look > looks:
        used = ", ".join(f"job {other.id} ({_outcome(other, by_question)})" for other in earlier)
        raise LookError(
            f"this question registered {'one look' if looks == 1 else f'{looks} looks'}, used by {used}. Judging again until it is decided "
            f"raises false passes. Register more looks before the first one (criteria.looks), or {_NEW_NAME}"
        )


def multiplicity_of(job: Job) -> Multiplicity | None:
    """Which look of how many a job is, and how many candidates share the error; None if its looks are not counted."""
    if job.look is None or job.look_candidates is None:
        return None
    looks = criteria_from_mapping(job.criteria).looks
    return Multiplicity(look=job.look, looks=looks, candidates=job.look_candidates, registered=True)


def _digest(job: Job, arm: Arm, renews: Job | None) -> str:
    """SHA-256 of the question of one candidate."""
    spec: dict[str, Any] = job.spec
    baseline, candidate = ({k: v for k, v in _in_spec(job, each).items() if k not in _NOT_OF_AN_ARM} for each in (job.arms[0], arm))
    question = {
        **{key: spec.get(key) for key in _OF_THE_QUESTION},
        "baseline": baseline,
        "candidate": candidate,
        "promoted": job.baseline_id,
        "revision": job.revision,
        "renews": renews.id if renews else None,
        **{key: job.criteria.get(key) for key in _IN_THE_DIGEST},
    }
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()


def _in_spec(job: Job, arm: Arm) -> dict[str, Any]:
    requested: dict[str, Any] = [job.spec["baseline"], *job.spec["candidates"]][arm.position]
    return requested


def _earlier(session: Session, job: Job, by_question: Collection[str]) -> Sequence[Job]:
    """The jobs that have used a look at one of these questions, oldest first."""
    counted = (Job.look.is_not(None), Job.status.in_(("queued", "running", "concluded")), Job.id != job.id)
    same = select(Job).where(Job.id.in_(select(Arm.job_id).where(Arm.question.in_(list(by_question)))), *counted)
    return sorted(session.scalars(same), key=lambda other: (other.look or 0, other.id))


def _check_candidates(first: Job, by_question: dict[str, str]) -> None:
    registered = {arm.question for arm in first.arms}
    added = [name for question, name in by_question.items() if question not in registered]
    if added:
        looked_at = ", ".join(arm.name for arm in first.arms if arm.question in by_question)
        raise LookError(
            f"candidate {added[0]} was added after the first look at {looked_at} (job {first.id}); candidates share the error, so they are "
            f"registered together. Submit {added[0]} in a job of its own, or {_NEW_NAME}"
        )


def _check_policy(first: Job, job: Job) -> None:
    then, now = ({**of.criteria, "family": of.spec.get("family")} for of in (first, job))
    for key in sorted({*then, *now} - {*_MAY_CHANGE}):
        if then.get(key) != now.get(key):
            raise LookError(
                f"{key} is {_shown(now.get(key))}, and the same question is registered with {_shown(then.get(key))} (job {first.id}). "
                f"Keep the policy between looks, or {_NEW_NAME}"
            )


def _check_open(session: Session, earlier: Sequence[Job], by_question: dict[str, str]) -> None:
    """Refuse a look at a candidate that has passed, or that has failed by something else than its gap, such as a divergence."""
    decided = select(Verdict).where(Verdict.job_id.in_([job.id for job in earlier]), Verdict.outcome.in_(("pass", "fail")))
    for verdict in session.scalars(decided.order_by(Verdict.id)):
        for job in earlier:
            question = next((arm.question for arm in job.arms if job.id == verdict.job_id and arm.name == verdict.candidate), None)
            code = json.loads(verdict.document)["codes"][0]
            if question is None or question not in by_question or (verdict.outcome == "fail" and code == FAIL_BY_GAP):
                continue
            why = "has passed; a look after a pass can only take it back"
            if verdict.outcome == "fail":
                why = f"has failed by {code}, which further runs do not undo"
            raise LookError(f"candidate {by_question[question]} {why} (job {job.id}). Leave it out, or {_NEW_NAME}")


def _outcome(job: Job, by_question: Collection[str]) -> str:
    names = {arm.name for arm in job.arms if arm.question in by_question}
    outcomes = dict.fromkeys(verdict.outcome for verdict in job.verdicts if verdict.candidate in names)
    return ", ".join(outcomes) or job.status


def _shown(value: object) -> str:
    return "none" if value is None else str(value)
