"""Several jobs at once: side by side, and how the gap of one candidate moved over the commits of a
gate or of a baseline.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response
from sqlalchemy import select
from sqlalchemy.orm import Session, selectinload

from parity.canonical_json import canonical_json
from parity.frozen import frozen
from parity.inert import cell
from parity.judging.gap.moves import Move, Point, VerdictGroup, moves, point_of
from parity.wording import count, interval_words, level_percent, short_commit, signed
from server.api.lists import JobSummary, VerdictWord, Wanted, job_summaries
from server.database.clock import time_text
from server.database.states import JOB_ENDED
from server.database.tables import Arm, Job, JobStatus, Verdict, is_id
from server.errors import InvalidError, NotFoundError
from server.jobs.verdict_rows import VerdictSummary, verdict_summary
from server.records import of
from server.web.auth import InContext

# Do verdicts of several jobs answer the same question? What has to be equal, by the word that names
# it where it differs.

_LAYERS = ("layer_policy", "keep_first", "keep_last", "projections")
_NOT_OF_THE_ARITHMETIC = ("name", "replicates")
# Parts of the policy that do not change what is measured, or that have a word of their own.
_NOT_OF_THE_POLICY = ("margin", "profile", "looks", "question", "early_stop")


def facts(job: Job, judge: str | None) -> dict[str, Any]:
    """What was compared and how, without the candidate; `judge` is the version that gave the
    verdicts. What is unknown is left out.
    """
    spec: dict[str, Any] = job.spec
    known: dict[str, Any] = {
        "judge": judge,
        "hardware": job.device_class and [job.device_class, job.devices],
    }
    return {
        "engine": job.engine,
        "model": (spec.get("model"), spec.get("family"), spec.get("maxtext")),
        "data": spec.get("data"),
        "schedule": spec.get("schedule"),
        "layers": [spec.get(key) for key in _LAYERS],
        "baseline": _arithmetic(spec["baseline"]),
        "policy": {
            key: value for key, value in job.policy.items() if key not in _NOT_OF_THE_POLICY
        },
        "margin": (job.policy.get("margin"), job.policy.get("profile")),
        **{name: value for name, value in known.items() if value is not None},
    }


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """The words of the facts, known of both, in which two jobs differ; empty where their gaps can
    be compared.
    """
    return [name for name, value in first.items() if name in second and second[name] != value]


def _arithmetic(requested: Mapping[str, Any]) -> dict[str, Any]:
    """An arm's recipe with its switches and overrides, whatever the arm is called."""
    return {key: value for key, value in requested.items() if key not in _NOT_OF_THE_ARITHMETIC}


# Several jobs side by side: a row per job, a column per recipe (or name) of a candidate, and what
# keeps rows from being compared.

MOST_JOBS = 30
Columns = Literal["recipe", "name"]


@frozen
class MatrixCell:
    """The verdicts of a job in one column: more than one where several of its candidates have this
    recipe; none where it has none.
    """

    column: str
    verdicts: list[VerdictSummary]
    waiting: list[str]


@frozen
class MatrixRow:
    """A job of the matrix. `differs` names what differs from the first job, so that gaps cannot be
    compared with its; empty: nothing.
    """

    job: JobSummary
    differs: list[str]
    cells: list[MatrixCell]


@frozen
class Matrix:
    """Jobs by recipes or names of candidates; `comparable` is true where no row differs from the
    first.
    """

    by: Columns
    columns: list[str]
    rows: list[MatrixRow]
    comparable: bool


def matrix(session: Session, ids: Sequence[str], by: Columns) -> Matrix:
    """The matrix of these jobs, in this order. InvalidError for no or too many jobs, NotFoundError
    for an unknown one.
    """
    wanted = list(dict.fromkeys(ids))
    if not 1 <= len(wanted) <= MOST_JOBS:
        raise InvalidError(f"{len(wanted)} jobs are selected; expected 1 to {MOST_JOBS}")
    known = [each for each in wanted if is_id("j", each)]
    options = (selectinload(Job.arms), selectinload(Job.verdicts))
    jobs = {
        job.id: job
        for job in session.scalars(select(Job).options(*options).where(Job.id.in_(known)))
    }
    missing = [each for each in wanted if each not in jobs]
    if missing:
        raise NotFoundError(
            f"job {missing[0]!r:.80} does not exist; `parity status` lists the jobs"
        )
    columns = list(
        dict.fromkeys(_column(arm, by) for each in wanted for arm in jobs[each].arms[1:])
    )
    summaries = job_summaries(session, wanted)
    judged = {each: facts(jobs[each], _judge(jobs[each])) for each in wanted}
    rows = [
        MatrixRow(
            job=summary,
            differs=differences(judged[wanted[0]], judged[summary.id]),
            cells=[_cell(jobs[summary.id], column, by) for column in columns],
        )
        for summary in summaries
    ]
    return Matrix(
        by=by, columns=columns, rows=rows, comparable=not any(row.differs for row in rows)
    )


def _column(arm: Arm, by: Columns) -> str:
    if by == "recipe":
        return arm.stated_recipe or arm.recipe
    return arm.name


def _cell(job: Job, column: str, by: Columns) -> MatrixCell:
    verdicts = {row.candidate: row for row in job.verdicts}
    own = [arm.name for arm in job.arms[1:] if _column(arm, by) == column]
    return MatrixCell(
        column=column,
        verdicts=[verdict_summary(verdicts[name]) for name in own if name in verdicts],
        waiting=[name for name in own if name not in verdicts],
    )


def _judge(job: Job) -> str | None:
    """The version of the judge that gave the job's verdicts; None before."""
    return json.loads(job.verdicts[0].document)["engine_version"] if job.verdicts else None


# How the gap of one candidate moved over the commits or days of a gate (jobs of one name) or of a
# promoted baseline.
#
# A failed job, and a verdict without a gap, are points without a gap: they are shown, and never
# bridged without saying so. Which commit moved the gap is decided by `parity.judging.gap.moves`,
# against run-to-run noise.

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
    session: Session, wanted: Wanted, gate: str, candidate: str | None, by: By, limit: int
) -> Trend:
    """The trend of a candidate (default: the first of the newest job) over the newest `limit` ended
    jobs that match.

    InvalidError unless a gate or a baseline is named, NotFoundError where no job matches.
    """
    if bool(gate) == bool(wanted.baseline):
        raise InvalidError(
            "a trend is that of one gate or of one baseline; name the jobs (gate) or the promoted "
            "baseline (baseline)"
        )
    named = [Job.name == gate] if gate else []
    newest = (
        select(Job)
        .where(*wanted.conditions(), *named, Job.status.in_(JOB_ENDED))
        .order_by(Job.id.desc())
        .limit(limit + 1)
    )
    options = (selectinload(Job.arms), selectinload(Job.verdicts), selectinload(Job.runs))
    jobs = session.scalars(newest.options(*options)).all()
    if not jobs:
        which = f"is named {gate!r}" if gate else f"names the baseline {wanted.baseline!r}"
        raise NotFoundError(f"no job that has ended {which}; `parity status` lists the jobs")
    candidates = list(dict.fromkeys(arm.name for job in jobs[:limit] for arm in job.arms[1:]))
    chosen = candidate or candidates[0]
    if chosen not in candidates:
        raise NotFoundError(
            f"no job of this trend has a candidate {chosen!r:.80}; expected one of "
            f"{', '.join(candidates)}"
        )
    entries = [
        _Entry.of(job, arm, by)
        for job in reversed(jobs[:limit])
        for arm in job.arms[1:]
        if arm.name == chosen
    ]
    pairs = _moves(entries, by)
    return Trend(
        gate=gate or None,
        baseline=wanted.baseline or None,
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
    def of(cls, job: Job, arm: Arm, by: By) -> _Entry:
        verdict = next((row for row in job.verdicts if row.candidate == arm.name), None)
        document = json.loads(verdict.document) if verdict else None
        compared = {
            **facts(job, document and document["engine_version"]),
            "recipe": _arithmetic(arm.requested),
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
    elif entry.measured is None:
        missing = f"no gap was measured: {verdict.code}"
    judged = verdict or Verdict()  # an empty row has no numbers
    return of(
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
    return [of(TrendMove, each, sentence=_sentence(each, by)) for each in pairs]


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


# Several jobs at once over REST: side by side, and the trend of a gate or a baseline.

router = APIRouter(prefix="/api/v1", tags=["jobs"])


@router.get("/jobs:compare")
def compare(
    context: InContext,
    job: Annotated[
        list[str],
        Query(min_length=1, max_length=MOST_JOBS, description="id of a job; repeat it for several"),
    ],
    by: Annotated[
        Columns, Query(description="what makes two candidates one column: the recipe, or the name")
    ] = "recipe",
) -> Matrix:
    """Jobs side by side: a row per job, a column per recipe, and what keeps rows from being
    compared.
    """
    with context.database.read() as session:
        return matrix(session, job, by)


def _history(
    context: InContext,
    filters: Annotated[Wanted, Depends()],
    gate: Annotated[
        str,
        Query(
            max_length=200, description="the exact name of the jobs; leave it out for a baseline"
        ),
    ] = "",
    candidate: Annotated[
        str | None,
        Query(max_length=200, description="candidate; default: the first of the newest job"),
    ] = None,
    by: Annotated[By, Query(description="what one group of the history is")] = "commit",
    limit: Annotated[
        int, Query(ge=1, le=MOST_POINTS, description="at most this many jobs, the newest")
    ] = 50,
) -> Trend:
    with context.database.read() as session:
        return trend(session, filters, gate.strip(), candidate, by, limit)


History = Annotated[Trend, Depends(_history)]


@router.get("/trend")
def show(history: History) -> Trend:
    """The gap of one candidate over the commits or days of a gate or a baseline, and which of them
    moved it beyond run-to-run noise.
    """
    return history


@router.get("/trend.csv", response_class=Response, responses={200: {"content": {"text/csv": {}}}})
def table(history: History) -> Response:
    """A trend as CSV: a line per job, oldest first, with the columns of TrendPoint; an empty cell
    where there is no value.
    """
    text = io.StringIO()
    rows = csv.DictWriter(
        text, [field.name for field in dataclasses.fields(TrendPoint)], lineterminator="\n"
    )
    rows.writeheader()
    for point in history.points:
        values = dataclasses.asdict(point) | {"differs": "; ".join(point.differs)}
        rows.writerow(
            {
                name: cell(value) if isinstance(value, str) else value
                for name, value in values.items()
            }
        )
    return Response(text.getvalue(), media_type="text/csv")
