"""How the gap of one candidate moved over the commits or days of a gate (jobs of one name) or of a
promoted baseline.

A failed job, and a verdict without a gap, are points without a gap: they are shown, and never
bridged without saying so. Which commit moved the gap is decided by `parity.judging.gap.moves`,
against run-to-run noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session, selectinload

from parity.canonical_json import canonical_json
from parity.frozen import frozen
from parity.judging.gap.moves import Move, Point, VerdictGroup, moves, point_of
from parity.wording import count, interval_words, level_percent, short_commit, signed
from server.database.clock import time_text
from server.database.states import JOB_ENDED
from server.database.tables import Arm, Job, JobStatus, Verdict
from server.documents.comparability import arithmetic, differences, facts
from server.documents.job_lists.filters import JobFilters, VerdictWord
from server.errors import InvalidError, NotFoundError
from server.records import from_attributes

By = Literal["commit", "day"]
_JOB = "job "  # how the group of a job without a revision begins, which is no commit
MOST_POINTS = 200


@frozen
class TrendPoint:
    """One job: its commit or day (`group`), the verdict and the gap with its interval and margin in
    nats, each or None.

    `why_missing` is the reason why there is no gap; `differs` what differs from the newest job, so
    that its gap is not compared.
    """

    job: str
    group: str
    revision: str | None
    submitted_at: str
    status: JobStatus
    verdict: VerdictWord | None
    gap_nats: float | None
    ci_low: float | None
    ci_high: float | None
    margin_nats: float | None
    gap_rel: float | None
    why_missing: str | None
    differs: list[str]


@frozen
class TrendMove(Move):
    """The difference between a commit (or day) and the measured one before it, nats, with its
    interval at `confidence`.

    `what`: `worse` or `better` where run-to-run noise does not explain it, else `none`, or `not
    compared`. `skipped` have no gap.
    """

    sentence: str


@frozen
class Trend:
    """The history of a candidate's gap, oldest first, the answer in a sentence, and every pair of
    neighbours that was compared.
    """

    gate: str | None
    baseline: str | None
    candidate: str
    candidates: list[str]
    by: By
    answer: str
    points: list[TrendPoint]
    moves: list[TrendMove]
    older: bool


def trend(
    session: Session, filters: JobFilters, gate: str, candidate: str | None, by: By, limit: int
) -> Trend:
    """The trend of a candidate (default: the first of the newest job) over the newest `limit` ended
    jobs that match.

    InvalidError unless a gate or a baseline is named, NotFoundError where no job matches.
    """
    if bool(gate) == bool(filters.baseline):
        raise InvalidError(
            "a trend is that of one gate or of one baseline; name the jobs (gate) or the promoted "
            "baseline (baseline)"
        )
    named = [Job.name == gate] if gate else []
    newest = (
        select(Job)
        .where(*filters.conditions(), *named, Job.status.in_(JOB_ENDED))
        .order_by(Job.id.desc())
        .limit(limit + 1)
    )
    options = (selectinload(Job.arms), selectinload(Job.verdicts), selectinload(Job.runs))
    jobs = session.scalars(newest.options(*options)).all()
    if not jobs:
        which = f"is named {gate!r}" if gate else f"names the baseline {filters.baseline!r}"
        raise NotFoundError(f"no job that has ended {which}; `parity status` lists the jobs")
    candidates = list(dict.fromkeys(arm.name for job in jobs[:limit] for arm in job.arms[1:]))
    chosen = candidate or candidates[0]
    if chosen not in candidates:
        raise NotFoundError(
            f"no job of this trend has a candidate {chosen!r:.80}; expected one of "
            f"{', '.join(candidates)}"
        )
    entries = [
        _Entry.from_job(job, arm, by)
        for job in reversed(jobs[:limit])
        for arm in job.arms[1:]
        if arm.name == chosen
    ]
    pairs = _moves(entries, by)
    return Trend(
        gate=gate or None,
        baseline=filters.baseline or None,
        candidate=chosen,
        candidates=candidates,
        by=by,
        answer=_answer(
            pairs, by if by == "day" or any(entry.job.revision for entry in entries) else "job"
        ),
        points=[_point(entry, entries[-1]) for entry in entries],
        moves=pairs,
        older=len(jobs) > limit,
    )


@frozen
class _Entry:
    """A job with the verdict on one of its candidates, and what has to be equal for a comparison of
    gaps.

    `group` is its commit or day; without a revision a job is a group of its own, "job
    j0000000000001".
    """

    job: Job
    verdict: Verdict | None
    group: str
    facts: Mapping[str, Any]
    measured: Point | None

    @classmethod
    def from_job(cls, job: Job, arm: Arm, by: By) -> _Entry:
        verdict = next((row for row in job.verdicts if row.candidate == arm.name), None)
        # a trend is of losses in training, whatever jobs of held-out losses are called
        is_read = verdict is not None and not job.has_evaluations
        document = verdict.read_document() if verdict and is_read else None
        compared = {
            **facts(job, document and document["engine_version"]),
            "recipe": arithmetic(arm.requested),
        }
        compared.pop("margin")  # it is drawn; the gap does not depend on it
        question = hashlib.sha256(canonical_json(compared).encode()).hexdigest()
        baseline = ",".join(
            sorted(run.reused_from or run.id for run in job.arms[0].runs if run.state == "finished")
        )
        return cls(
            job=job,
            verdict=verdict,
            group=time_text(job.created_at)[:10]
            if by == "day"
            else job.revision or f"{_JOB}{job.id}",
            facts=compared,
            measured=point_of(document, baseline, question) if document else None,
        )


def _point(entry: _Entry, newest: _Entry) -> TrendPoint:
    job, verdict = entry.job, entry.verdict
    missing = None
    if verdict is None:
        missing = job.message or f"the job {job.status} without a verdict"
    elif job.has_evaluations:
        missing = "its losses are of held-out data, and a trend compares those of training"
    elif entry.measured is None:
        missing = f"no gap was measured: {verdict.code}"
    # an empty row has no numbers
    judged = Verdict() if verdict is None or job.has_evaluations else verdict
    return from_attributes(
        TrendPoint,
        judged,
        job=job.id,
        group=entry.group,
        revision=job.revision,
        submitted_at=time_text(job.created_at),
        status=job.status,
        verdict=judged.outcome,
        gap_nats=judged.gap,
        margin_nats=judged.margin,
        why_missing=missing,
        differs=differences(newest.facts, entry.facts) if verdict else [],
    )


def _moves(entries: Sequence[_Entry], by: By) -> list[TrendMove]:
    groups: dict[str, list[Point]] = {}
    for entry in entries:
        groups.setdefault(entry.group, []).extend([entry.measured] if entry.measured else [])
    pairs = moves([VerdictGroup(name=name, points=points) for name, points in groups.items()])
    return [from_attributes(TrendMove, move, sentence=_sentence(move, by)) for move in pairs]


def _sentence(move: Any, by: By) -> str:
    pair = f"{short(move.before)} to {short(move.after)}"
    if move.what == "not compared":
        return f"{pair}: not compared, because the jobs answer different questions."
    numbers = (
        f"{signed(move.difference, 4)} nats ({level_percent(move.confidence)} CI "
        f"{interval_words(move.lo, move.hi, 4)})"
    )
    if move.what == "none":
        return f"{pair}: {numbers}, no more than run-to-run noise explains."
    between = f"; {count(len(move.skipped), by)} between them without a gap" if move.skipped else ""
    return f"{short(move.after)} is {move.what} than {short(move.before)} by {numbers}{between}."


def _answer(pairs: Sequence[TrendMove], by: str) -> str:
    """The commits (days, or jobs where none has a revision) that moved the gap, or that none
    did.
    """
    compared = [move for move in pairs if move.what != "not compared"]
    if not compared:
        return (
            f"Nothing to compare yet: fewer than two neighbouring {by}s with a gap answer the same "
            "question."
        )
    moved = [move for move in compared if move.what != "none"]
    if not moved:
        return (
            f"No {by} changed the gap beyond run-to-run noise "
            f"({count(len(compared), 'difference')} compared, "
            f"{level_percent(compared[0].confidence)} intervals)."
        )
    words = []
    for move in moved:
        interval = interval_words(move.lo or 0.0, move.hi or 0.0, 4)
        numbers = (
            f"{signed(move.difference or 0.0, 4)} nats, {level_percent(move.confidence)} CI "
            f"{interval}"
        )
        if move.skipped:
            place = f"between {short(move.before)} and {short(move.after)}"
            last = f"; {count(len(move.skipped), by)} between them without a gap"
        else:
            place = f"at {short(move.after)}"
            last = f"; last before it: {short(move.before)}"
        words.append(f"The gap got {move.what} {place} ({numbers}{last}).")
    return " ".join(words)


def short(group: str) -> str:
    """A group as people write it: a commit in short, a job's id whole."""
    if group.startswith(_JOB):
        return group
    return short_commit(group)
