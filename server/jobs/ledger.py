"""Which look at its question is a job? The ledger of the looks that are registered and used.

The question of a candidate is what its verdict answers: recipe, model, data, schedule, baseline,
and the name that the policy gives it. Replicates, seeds, reruns and what is recorded besides are no
part of it, nor is the margin: with other margins, 1.0 and 1.001 %, or more runs the same question
is judged again. The word for a code revision is no part of it either, but for engine external:
other code is another trainer on the record (`_may_be_other_code`). What else the policy says is
registered by the first job, with its candidates; a later one that says something else is refused. A
look is used by every job that has a verdict or may still get one; a failed or a cancelled job gives
it back. Engine external has no model or data on record, so a ledger has only a question with a name
(`policy.question`) there, and what a gate asks.

A question that did not pass is not asked again in other words. `Arm.asked` is what all ways to ask
it share: not the engine, the word for it, or the revision. A job in other words is a look in the
ledger of the newest one that did not pass, whoever asks. Under engine external the code is known by
the revision alone, and belongs to the repository of the token, else to who submits: there another
full commit id is other code, and any other word is none. An operator can register a new question
(`server.jobs.answers`).

A question has a new ledger once its newest answer is out of date. `Arm.question` has two halves:
the question, and the job whose answer the ledger renews. So the newest job of all ledgers of a
question is found, whatever its name and replicates are.
"""

import hashlib
import posixpath
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session

from parity.judging.codes import BY_CODE
from server.database.locks import hold_lock
from server.database.tables import Arm, Job, NewQuestion, Verdict
from server.errors import LookError
from server.json_digest import digest
from training.later_recipe import for_digest

_QUESTION_PARTS = (
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
_ARM_LABELS = ("name", "replicates")
_MARGIN = ("margin", "profile")
_NEW = (
    "have an operator register a new question, if the verdict is not the reason: parity "
    "new-question JOB --reason TEXT"
)
# what a run records besides changes no loss
_RECORDED = {"validation_every": 0, "statistics_every": 0}
_MAY_CHANGE = (*_MARGIN, "question", "early_stop")
QUESTION_DIGITS = 32  # hexadecimal digits: 128 bits of SHA-256
_JOBS_LOOKED_AT = 200
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_COUNTED = (Job.look.is_not(None), Job.status.in_(("queued", "running", "concluded")))


def register(
    session: Session,
    job: Job,
    outdated: Callable[[Job], bool] = lambda _newest: False,
    *,
    repository: str | None = None,
    by_gate: bool = False,
) -> None:
    """Count a new job's look at its question. `outdated`: whether the question's newest job is out
    of date, so that a new ledger begins.

    `repository` is that of the token, whose gates share the questions of engine external;
    `by_gate`: whether a gate asks. Raises LookError for a look that was not registered, a look
    after a pass, another registration, and a candidate that was added.
    """
    candidates = job.arms[1:]
    for arm in candidates:
        arm.asked = asked_digest(job, arm, repository)
    if job.engine == "external" and not by_gate and not _visible_name(job.policy.get("question")):
        return
    digests = {arm.id: digest(_question(job, arm) | _scope(job, repository)) for arm in candidates}
    _hold(session, [*digests.values(), *(arm.asked or "" for arm in candidates)])
    newest = _newest(session, job, digests.values())
    renewed = newest is not None and (
        outdated(newest) or _begins_a_ledger(newest, job) or is_renewed(session, newest)
    )
    for arm in candidates:
        arm.question = _ledger_question(arm, digests[arm.id], newest, renewed=renewed)
    by_question = {arm.question or "": arm.name for arm in candidates}
    earlier = _other_looks(session, job, by_question)
    job.look, job.look_candidates = 1, len(candidates)
    if not earlier:
        return
    first = earlier[0]
    _check_candidates(first, by_question)
    _check_policy(first, job)
    _check_open(
        session,
        [other for other in earlier if not _passed_at_another_margin(other, job)],
        by_question,
    )
    job.look = 1 + max(other.look or 1 for other in earlier)
    job.look_candidates = max(first.look_candidates or 1, len(candidates))
    looks = job.read_policy().looks
    if job.look > looks:
        used = ", ".join(f"job {other.id} ({_outcome(other, by_question)})" for other in earlier)
        raise LookError(
            f"this question registered {'one look' if looks == 1 else f'{looks} looks'}, used by "
            f"{used}. Judging again until it is decided raises false passes. Register more looks "
            f"before the first one (policy.looks), or {_NEW}"
        )


def looks_left(job: Job) -> int:
    """How many of the registered looks come after that of a job; 0 where nobody counts them."""
    if job.look is None:
        return 0
    return max(0, job.read_policy().looks - job.look)


def take_another(session: Session, job: Job) -> None:
    """Count a further look of an open job, to which runs are added when something could be seen.
    LookError where none is left.
    """
    by_question = {arm.question: arm.name for arm in job.arms[1:] if arm.question}
    _hold(session, by_question)
    before, looks = job.look, job.read_policy().looks
    if before is None or not by_question:
        raise LookError(
            f"candidates of job {job.id} have trained, so that adding a run is a further look, and "
            "nobody counts its looks. Add runs before that, or name the question and register "
            "looks beforehand (policy.question, policy.looks)"
        )
    number = 1 + max(
        [before, *(other.look or 1 for other in _other_looks(session, job, by_question))]
    )
    if number > looks:
        raise LookError(
            f"candidates of job {job.id} have trained, so that adding a run is a further look, and "
            f"this question registered {'one look' if looks == 1 else f'{looks} looks'}. Judging "
            "with more runs because of what was seen raises false passes. Add runs before a "
            "candidate trains, or register more looks before the first one (policy.looks)"
        )
    job.look = number


def _hold(session: Session, questions: Collection[str]) -> None:
    """Lock these questions, whichever of their ledgers is meant."""
    for question in sorted({whole[:QUESTION_DIGITS] for whole in questions}):
        hold_lock(session, f"question {question}")


def _begins_a_ledger(newest: Job, job: Job) -> bool:
    """Whether other words begin a ledger: not after a verdict that is no pass.

    A commit that changes neither trainer nor data, which `outdated` knows, another engine or
    another word for the question would be another chance for a candidate that did not pass. While
    the newest job is open nobody knows; what several of them answer counts together
    (`server.jobs.answers`).
    """
    other_revision = newest.revision != job.revision and job.engine != "external"
    in_other_words = other_revision or newest.engine != job.engine or _word(newest) != _word(job)
    # a further look follows one that did not
    may_pass = has_passed(newest) if newest.status == "concluded" else newest.look == 1
    return in_other_words and may_pass


def _word(job: Job) -> str | None:
    return _visible_name(job.policy.get("question"))


def is_renewed(session: Session, job: Job) -> bool:
    """Whether an operator has registered a new question since a job was made, for one that it
    asks.
    """
    asked = _asks_the_same(job)
    return asked is not None and (
        session.scalar(
            select(NewQuestion.id)
            .join(Arm, Arm.job_id == NewQuestion.job_id)
            .where(asked, NewQuestion.created_at >= job.created_at)
            .limit(1)
        )
        is not None
    )


def _asks_the_same(job: Job, digests: Collection[str] = ()) -> ColumnElement[bool] | None:
    """Whether an arm (of a query) asks what a candidate of this job asks, in whichever words; None
    for a job that asks nothing here.

    `digests` are questions that the job has not got yet.
    """
    halves = {
        question[:QUESTION_DIGITS]
        for question in (*digests, *(arm.question for arm in job.arms if arm.question))
    }
    ways = [and_(Arm.question >= half, Arm.question < half + "g") for half in sorted(halves)]
    if asked := sorted({arm.asked for arm in job.arms if arm.asked}):
        ways.append(Arm.asked.in_(asked))
    return or_(*ways) if ways else None


def same_question(session: Session, job: Job, *conditions: ColumnElement[bool]) -> Iterator[Job]:
    """The other jobs that ask what a job asks, in whichever words and whatever their code is,
    newest first.
    """
    asked = _asks_the_same(job)
    if asked is None:
        return iter(())
    return _jobs(session, job, asked, *conditions)


def _jobs(
    session: Session, job: Job, asked: ColumnElement[bool], *conditions: ColumnElement[bool]
) -> Iterator[Job]:
    same = select(Job).where(
        Job.id.in_(select(Arm.job_id).where(asked)), Job.id != job.id, *conditions
    )
    return iter(session.scalars(same.order_by(Job.id.desc()).limit(_JOBS_LOOKED_AT)))


def is_other_code(one: Job, other: Job) -> bool:
    """Whether two jobs of a user's own trainer are of two commits, by their full ids: any other
    word may name the same code.
    """
    codes = [_commit(job) for job in (one, other)]
    return "external" in (one.engine, other.engine) and None not in codes and codes[0] != codes[1]


def _commit(job: Job) -> str | None:
    revision = (job.revision or "").lower()
    return revision if _COMMIT.fullmatch(revision) else None


def has_passed(job: Job) -> bool:
    """Whether a job has a verdict, and each is a pass."""
    return job.status == "concluded" and all(
        verdict.read_outcome() == "pass" for verdict in job.verdicts
    )


def _newest(session: Session, job: Job, digests: Collection[str]) -> Job | None:
    """The newest counted job on one of these questions, in whichever ledger and words, that is not
    of other code.
    """
    asked = _asks_the_same(job, digests)
    if asked is None:
        return None
    return next(
        (other for other in _jobs(session, job, asked, *_COUNTED) if not is_other_code(other, job)),
        None,
    )


def _ledger_question(arm: Arm, question: str, newest: Job | None, *, renewed: bool) -> str:
    """`Arm.question` in the ledger that renews the question's newest job, or in the ledger of that
    job.
    """
    if newest is None:
        return question
    if renewed:
        return (
            question[:QUESTION_DIGITS]
            + hashlib.sha256(newest.id.encode()).hexdigest()[:QUESTION_DIGITS]
        )
    ledgers = {arm.question[:QUESTION_DIGITS]: arm.question for arm in newest.arms if arm.question}
    reworded = {
        other.asked: other.question for other in newest.arms if other.question and other.asked
    }
    return ledgers.get(question[:QUESTION_DIGITS]) or reworded.get(arm.asked or "") or question


def _question(job: Job, arm: Arm) -> dict[str, Any]:
    """What the verdict on one candidate answers."""
    spec: dict[str, Any] = job.spec
    data = spec.get("data", {})
    path = data.get("path")
    asked = (job.arms[0].requested, arm.requested)
    baseline, candidate = (
        {key: value for key, value in for_digest(arm_spec).items() if key not in _ARM_LABELS}
        for arm_spec in asked
    )
    return {
        **{key: spec.get(key) for key in _QUESTION_PARTS},
        **({"command": spec["command"]} if "command" in spec else {}),
        # one spelling of its path
        "data": data | {"path": posixpath.normpath(path)} if path else data,
        "schedule": {
            key: value
            for key, value in spec.get("schedule", {}).items()
            if key != "gradients_every"
        }
        | _RECORDED,
        "baseline": baseline,
        "candidate": candidate,
        "promoted": job.baseline_id,
        # a user's own trainer is known by it alone
        "revision": job.revision if job.engine == "external" else None,
        "renews": None,  # as in the digests of earlier versions
        **dict.fromkeys(_MARGIN),
        "question": _visible_name(job.policy.get("question")),
    }


def _asked(job: Job, arm: Arm, repository: str | None) -> dict[str, Any]:
    """What all ways to ask a candidate's question share."""
    shared = _question(job, arm)
    for words in ("engine", "question", "revision"):
        del shared[words]
    return shared if job.engine != "external" else shared | _trained_by(job, repository)


def asked_digest(job: Job, arm: Arm, repository: str | None = None) -> str:
    """`Arm.asked` of a candidate; `repository` counts for engine external alone."""
    return digest(_asked(job, arm, repository))[:QUESTION_DIGITS]


def _scope(job: Job, repository: str | None) -> dict[str, Any]:
    """What a question of engine external has in addition where nobody named it: who trains."""
    if job.engine != "external" or (_word(job) and repository is None):
        return {}
    return _trained_by(job, repository)


def _trained_by(job: Job, repository: str | None) -> dict[str, Any]:
    return {
        "trained by": f"repository {repository}" if repository else [job.submitted_by, job.name]
    }


def _visible_name(name: str | None) -> str | None:
    """A name without what a reader does not see: names that look alike are one name."""
    if not name:
        return name
    visible = "".join(
        character
        for character in unicodedata.normalize("NFKC", name)
        if unicodedata.category(character) != "Cf"
    )
    return " ".join(visible.split())


def _other_looks(session: Session, job: Job, by_question: Collection[str]) -> Sequence[Job]:
    """The other jobs that have used a look at one of these questions, by their look."""
    same = select(Job).where(
        Job.id.in_(select(Arm.job_id).where(Arm.question.in_(list(by_question)))),
        *_COUNTED,
        Job.id != job.id,
    )
    return sorted(session.scalars(same), key=lambda other: (other.look or 0, other.id))


def _check_candidates(first: Job, by_question: dict[str, str]) -> None:
    registered = {arm.question for arm in first.arms}
    added = [name for question, name in by_question.items() if question not in registered]
    if added:
        looked_at = ", ".join(arm.name for arm in first.arms if arm.question in by_question)
        raise LookError(
            f"candidate {added[0]} was added after the first look at {looked_at} (job {first.id}); "
            "candidates share the error, so they are "
            f"registered together. Submit {added[0]} in a job of its own, or {_NEW}"
        )


def _check_policy(first: Job, job: Job) -> None:
    then, now = ({**of.policy, "family": of.spec.get("family")} for of in (first, job))
    for key in sorted({*then, *now} - {*_MAY_CHANGE}):
        if then.get(key) != now.get(key):
            raise LookError(
                f"{key} is {_shown(now.get(key))}, and the same question is registered with "
                f"{_shown(then.get(key))} (job {first.id}). "
                f"Keep the policy between looks, or {_NEW}"
            )


def _check_open(session: Session, earlier: Sequence[Job], by_question: dict[str, str]) -> None:
    """Refuse a look at a candidate that has passed, or that has failed by something else than its
    gap, such as a divergence.
    """
    # Not filtered by outcome: a fail that was rewritten would be left out, and not be read.
    given = select(Verdict).where(Verdict.job_id.in_([job.id for job in earlier]))
    for verdict in session.scalars(given.order_by(Verdict.id)):
        if verdict.read_outcome() not in ("pass", "fail"):
            continue
        for job in earlier:
            question = next(
                (
                    arm.question
                    for arm in job.arms
                    if job.id == verdict.job_id and arm.name == verdict.candidate
                ),
                None,
            )
            code = verdict.read_document()["codes"][0]
            entry = BY_CODE.get(code)
            if (
                question is None
                or question not in by_question
                or (verdict.outcome == "fail" and entry and entry.more_runs_can_undo)
            ):
                continue
            why = "has passed; a look after a pass can only take it back"
            if verdict.outcome == "fail":
                why = f"has failed by {code}, which further runs do not undo"
            raise LookError(
                f"candidate {by_question[question]} {why} (job {job.id}). Leave it out, or {_NEW}"
            )


def _passed_at_another_margin(earlier: Job, job: Job) -> bool:
    """Whether a job has passed by another margin, so that a look at this one is no look that can
    only take a pass back.
    """
    other = any(earlier.policy.get(key) != job.policy.get(key) for key in _MARGIN)
    return other and all(verdict.read_outcome() == "pass" for verdict in earlier.verdicts)


def _outcome(job: Job, by_question: Collection[str]) -> str:
    names = {arm.name for arm in job.arms if arm.question in by_question}
    outcomes = dict.fromkeys(
        verdict.read_outcome() for verdict in job.verdicts if verdict.candidate in names
    )
    return ", ".join(outcomes) or job.status


def _shown(value: object) -> str:
    return "none" if value is None else str(value)
