"""Curves over REST: what one run recorded, all arms of a job on the same buckets, and the live gap
of a candidate.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Header, Query, Request, Response
from numpy.typing import NDArray
from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.live.gap_chart import StepRange
from server.curves import buckets as formats
from server.curves.buckets import (
    GRAD_NORM,
    NONFINITE_LISTED,
    SNR,
    Cells,
    Columns,
    LayerTable,
    Line,
    Recorded,
    Series,
    layer_table,
    overlay,
    recorded,
    series,
)
from server.curves.loading import TrainingTime, seconds_of
from server.database.lookups import find_job, find_run
from server.database.metrics import chunk_tables, store
from server.database.metrics.chunk_tables import Columns as Table
from server.database.tables import Arm, Job, Run
from server.errors import InvalidError, NotFoundError
from server.gaps.candidate_gaps import candidate_gaps
from server.gaps.chart_document import GapsDocument, PairDocument, gaps_of, pair_fields
from server.gaps.recorded_extents import Extents, extents, identity, is_current
from server.logs import cut
from server.records import Number, kind_of, number, of
from server.web.auth import Context, InContext
from server.web.limits import LARGEST, MOST_VALUES, check_values
from server.web.live import EXPORTS, Stream
from server.web.requests import UNCHANGED, FirstStep, LastStep, Spacing, Tags

# What one run recorded, over REST: every step (JSON in pages, CSV and Arrow as streams), metrics in
# buckets, statistics by layer.

router = APIRouter(prefix="/api/v1", tags=["curves"])

Kind = Literal["train", "validation", "profile"]
Format = Literal["json", "csv", "arrow"]
_FORMS = {"csv": (formats.csv, formats.CSV), "arrow": (formats.arrow, formats.ARROW)}
_STEPS_A_PAGE, _NONFINITE_A_PAGE = 20_000, 100_000
_Names = Annotated[
    str | None, Query(max_length=20_000, description="columns, comma-separated; default: all")
]


@frozen
class NonFiniteValue:
    """A non-finite value, which JSON cannot represent; it is null in its column."""

    column: str
    step: int
    kind: Literal["nan", "inf", "-inf"]


@frozen
class StepsDocument:
    """Steps in columns of equal length. `next_from` is the first step of the next page, null on the
    last page.
    """

    run: str
    kind: Kind
    steps: list[int]
    columns: dict[str, list[float | None]]
    nonfinite: list[NonFiniteValue]
    next_from: int | None


@frozen
class MetricsDocument:
    """Metrics of one run; all columns have the same bucket edges."""

    run: str
    kind: str
    series: list[Series]


@frozen
class LayersDocument:
    """One statistic by layer and step, and the names of the others. `statistic` is null if the run
    has no statistics by layer.

    `minus` is the run whose values were subtracted; null where none were, because none were asked
    for or that run has none of them.
    """

    run: str
    minus: str | None
    statistic: str | None
    operand: str | None
    recorded: Columns
    table: LayerTable | None


@router.get(
    "/runs/{run_id}/steps",
    response_model=StepsDocument,
    responses={
        200: {"content": {media_type: {} for _, media_type in _FORMS.values()}},
        **UNCHANGED,
    },
)
def steps(
    run_id: str,
    request: Request,
    context: InContext,
    tags: Tags,
    names: _Names = None,
    kind: Annotated[Kind, Query(description="which records")] = "train",
    first_step: FirstStep = 0,
    last_step: LastStep = None,
    limit: Annotated[
        int,
        Query(
            ge=1,
            le=_STEPS_A_PAGE,
            description="steps per page of JSON; fewer where they would be more than 2 million "
            "values",
        ),
    ] = _STEPS_A_PAGE,
    form: Annotated[
        Format | None, Query(alias="format", description="default: the type in Accept, else json")
    ] = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
    accept_encoding: Annotated[str, Header(include_in_schema=False)] = "",
) -> Response | StepsDocument:
    """The recorded curve of a run; the newest attempt wins. CSV and Arrow contain every step of the
    range, JSON one page.
    """
    chosen = form or _accepted(accept)
    last = math.inf if last_step is None else last_step
    with context.database.read() as session:
        run = find_run(session, run_id)
        question = ("steps", chosen, kind, names, first_step, last_step, limit)
        headers = tags.check(run, *question, vary="Accept, Accept-Encoding")
        wanted = _wanted(store.names(session, run_id, kind), names)
        if chosen == "json":
            most = max(1, min(limit, MOST_VALUES // max(1, len(wanted))))
            return _page(
                run_id,
                kind,
                wanted,
                store.tables(session, run_id, kind, first_step, last, wanted),
                most,
            )
        outline = store.outline(session, run_id, kind, first_step, last)
    content, media_type = _FORMS[chosen]
    parts = content(_parts(context, run_id, kind, outline, wanted), wanted)
    headers["Content-Disposition"] = f'attachment; filename="{run_id}-{kind}.{chosen}"'
    if "zstd" in accept_encoding:
        parts, headers["Content-Encoding"] = formats.zstd(parts), "zstd"
    return Stream(request, EXPORTS, parts, media_type=media_type, headers=headers)


@router.get("/runs/{run_id}/metrics", responses=UNCHANGED)
def metrics(
    run_id: str,
    context: InContext,
    tags: Tags,
    names: Annotated[
        str, Query(max_length=20_000, description="columns, comma-separated")
    ] = "lm_loss",
    kind: Annotated[
        str, Query(pattern="^(train|validation)$", description="which records")
    ] = "train",
    first_step: FirstStep = 0,
    last_step: LastStep = None,
    points: Annotated[int, Query(ge=1, le=100_000, description="largest number of buckets")] = 2000,
) -> MetricsDocument:
    """Metrics of a run as min, mean and max of buckets; every step if they fit into `points`.

    422 for more than 2 million buckets of all columns together.
    """
    with context.database.read() as session:
        run = find_run(session, run_id)
        tags.check(run, "metrics", names, kind, first_step, last_step, points)
        wanted = _wanted(store.names(session, run_id, kind), names)
        last = math.inf if last_step is None else last_step
        most = store.most_steps(session, run_id, kind, first_step, last)
        check_values(len(wanted), min(points, most))
        reduced = []
        at_once = max(1, MOST_VALUES // max(1, most))  # a curve may be longer than an answer
        for first in range(0, len(wanted), at_once):
            some = wanted[first : first + at_once]
            steps, columns = store.read_range(session, run_id, kind, first_step, last, some)
            reduced += [series(name, steps, columns[name], points) for name in some]
    return MetricsDocument(run=run_id, kind=kind, series=reduced)


@router.get("/runs/{run_id}/layers", responses=UNCHANGED)
def layers(
    run_id: str,
    context: InContext,
    tags: Tags,
    statistic: Annotated[
        str | None,
        Query(
            max_length=100,
            description="default: snr_db if recorded, else the first; grad_norm has no operand",
        ),
    ] = None,
    operand: Annotated[
        str | None, Query(max_length=100, description="default: the first with a finite value")
    ] = None,
    first_step: FirstStep = 0,
    last_step: LastStep = None,
    buckets: Annotated[int, Query(ge=1, le=2000, description="largest number of buckets")] = 200,
    minus: Annotated[
        str | None,
        Query(max_length=100, description="subtract the values of this run of the same job"),
    ] = None,
) -> LayersDocument:
    """Quantization statistics (or gradient norms) of every layer against the step, or their
    differences to another run, for a heat map.
    """
    with context.database.read() as session:
        run = find_run(session, run_id)
        if minus is not None and find_run(session, minus).job_id != run.job_id:
            raise InvalidError(
                f"minus has {minus!r}, a run of another job; expected a run of job {run.job_id}"
            )
        tags.check(
            run if minus is None else run.job,
            "layers",
            run_id,
            statistic,
            operand,
            first_step,
            last_step,
            buckets,
            minus,
        )
        there = recorded(session, run_id)
        if not there.layers:
            return LayersDocument(
                run=run_id, minus=None, statistic=None, operand=None, recorded=there, table=None
            )
        last = math.inf if last_step is None else last_step
        # A difference if there is one. Without a choice: the first operand whose signal to noise is
        # finite, because one that is not quantized has nothing to show.
        operands: list[str | None] = (
            [operand] if operand is not None else [*_usual_first(there, statistic)] or [None]
        )
        for subtracted, candidate in itertools.product(dict.fromkeys([minus, None]), operands):
            of = _one_of("operand", candidate, there.operands) if there.operands else None
            names = [*there.of_operand.get(of or "", []), *([GRAD_NORM] if there.has_norms else [])]
            usual = SNR if statistic is None and SNR in names else statistic
            chosen = _one_of("statistic", usual, names)
            of = None if chosen == GRAD_NORM else of
            cells = Cells(
                statistic=chosen,
                operand=of or "",
                first_step=first_step,
                last_step=last,
                buckets=buckets,
            )
            table = layer_table(session, run_id, cells, subtracted)
            if table.low is not None:
                break
    return LayersDocument(
        run=run_id, minus=subtracted, statistic=chosen, operand=of, recorded=there, table=table
    )


def _usual_first(there: Columns, statistic: str | None) -> list[str]:
    """The operands that have the statistic (default: signal to noise); all of them if none has."""
    with_it = [
        operand for operand in there.operands if (statistic or SNR) in there.of_operand[operand]
    ]
    return with_it or there.operands


def _one_of(name: str, value: str | None, choices: list[str]) -> str:
    if value is not None and value not in choices:
        raise InvalidError(f"{name} has {value!r}, expected one of {', '.join(choices)}")
    return choices[0] if value is None else value


def _parts(
    context: Context, run_id: str, kind: Kind, outline: store.Outline, names: Sequence[str]
) -> Iterator[Table]:
    """The curve in pieces. No connection is held while the client reads: each range is read in a
    transaction of its own.
    """
    for first, last in outline.ranges:
        with context.database.read() as session:
            parts = [
                *store.tables(session, run_id, kind, first, last, names, outline.newest_attempt)
            ]
        yield from parts


def _page(
    run_id: str, kind: Kind, names: Sequence[str], parts: Iterator[Table], limit: int
) -> StepsDocument:
    read: list[Table] = []
    count = 0
    for part in parts:
        read.append(part)
        count += len(part["step"])
        if count > limit:
            break
    at, table = chunk_tables.joined(read, names)
    # Each of them is listed by itself, which takes more than a number does.
    nonfinite = np.cumsum(
        sum(
            (~np.isfinite(column[:limit]) for column in table.values()),
            np.zeros(min(limit, len(at)), np.int64),
        )
    )
    if len(nonfinite):
        limit = max(1, min(limit, int(np.searchsorted(nonfinite, _NONFINITE_A_PAGE, side="right"))))
    return StepsDocument(
        run=run_id,
        kind=kind,
        steps=at[:limit].tolist(),
        columns={
            name: [value if math.isfinite(value) else None for value in column[:limit].tolist()]
            for name, column in table.items()
        },
        nonfinite=[
            NonFiniteValue(column=name, step=int(at[row]), kind=kind_of(column[row]))
            for name, column in table.items()
            for row in np.flatnonzero(~np.isfinite(column[:limit]))
        ],
        next_from=int(at[limit]) if len(at) > limit else None,
    )


def _accepted(accept: str) -> Format:
    forms: tuple[Format, ...] = ("arrow", "csv")
    return next((form for form in forms if _FORMS[form][1] in accept), "json")


def _wanted(there: Sequence[str], names: str | None) -> list[str]:
    """The columns in a comma-separated list (default: all), each once; InvalidError for one that is
    not recorded (not in `there`).
    """
    wanted = list(there) if names is None else list(dict.fromkeys(names.split(",")))
    known = set(there)
    unknown = next((name for name in wanted if name not in known), None)
    if there and unknown is not None:
        raise InvalidError(f"names has {unknown!r:.80}, expected some of {cut(', '.join(there))}")
    return wanted


# The curves of all arms of a job in one response, for one seed and replicate, on the same bucket
# edges.

_SECONDS = "step_seconds"
_KEPT = chunk_tables.SEALED_STEPS  # keep the seconds of one step in this many
OverlayKind = Literal["train", "validation"]
_OfRuns = Annotated[
    int | None, Query(ge=0, le=LARGEST, description="default: that of the baseline's first run")
]


@frozen
class ArmLine:
    """The run of one arm."""

    arm: str
    run: str
    line: Line


@frozen
class OverlayDocument:
    """One column of the runs of a seed and replicate, from training or validation.

    Arms without such a run, or without the column, are left out.

    Up to 20,000 steps, or 60,000 of all arms together, are returned without reduction
    (`aggregation` none), else buckets with min, mean and max. Values have seven digits.
    """

    name: str
    kind: OverlayKind
    seed: int
    replicate: int
    aggregation: Literal["none", "minmaxmean"]
    steps_in_range: int
    first_step: list[int]
    last_step: list[int]
    arms: list[ArmLine]


@frozen
class ColumnsDocument:
    """The columns that any run of a job has recorded, in alphabetical order, of training steps and
    of validations.
    """

    train: list[str]
    validation: list[str]


_ADAPTER = TypeAdapter(OverlayDocument)


@router.get("/jobs/{job_id}/columns", responses=UNCHANGED)
def columns(job_id: str, context: InContext, tags: Tags) -> ColumnsDocument:
    """What can be charted: the names for `overlay`."""
    with context.database.read() as session:
        job = find_job(session, job_id)
        tags.check(job, "columns")
        recorded = store.names_by_kind(session, [run.id for run in job.runs])
    return ColumnsDocument(
        train=recorded.get("train", []), validation=recorded.get("validation", [])
    )


@router.get("/jobs/{job_id}/overlay", response_model=OverlayDocument, responses=UNCHANGED)
def overlaid(
    job_id: str,
    context: InContext,
    tags: Tags,
    name: Annotated[str, Query(max_length=200, description="column")] = "lm_loss",
    arms: Annotated[
        str, Query(max_length=5000, description="arms, comma-separated; default: all")
    ] = "",
    kind: Annotated[OverlayKind, Query(description="which records")] = "train",
    seed: _OfRuns = None,
    replicate: _OfRuns = None,
    first_step: FirstStep = 0,
    last_step: LastStep = None,
    points: Annotated[int, Query(ge=1, le=20_000, description="largest number of buckets")] = 2000,
    seconds: Annotated[bool, Query(description="include the seconds of training")] = False,
    spacing: Spacing = "linear",
) -> Response:
    """The curves of a job's arms for one chart. For display only; the verdict reads every step of
    its window.
    """
    with context.database.read() as session:
        job = find_job(session, job_id)
        question = (
            name,
            arms,
            kind,
            seed,
            replicate,
            first_step,
            last_step,
            points,
            seconds,
            spacing,
        )
        headers = tags.check(job, "overlay", *question)
        first = (job.arms[0].runs or job.runs)[0]  # forks, and an analysis, are no runs of an arm
        wanted = (
            first.seed if seed is None else seed,
            first.replicate if replicate is None else replicate,
        )
        chosen = {name for name in arms.split(",") if name}
        shown = [arm for arm in job.arms if not chosen or arm.name in chosen]
        runs = [run for arm in shown for run in arm.runs if (run.seed, run.replicate) == wanted]
        runs = [run for run in runs if name in store.names(session, run.id, kind)]
        last = math.inf if last_step is None else last_step
        recorded = [
            _recorded(context, session, run, name, kind, first_step, last, seconds=seconds)
            for run in runs
        ]
        names = [(run.arm.name, run.id) for run in runs]
    chart = overlay(recorded, points, log=spacing == "log")
    document = of(
        OverlayDocument,
        chart,
        name=name,
        kind=kind,
        seed=wanted[0],
        replicate=wanted[1],
        arms=[
            ArmLine(arm=arm, run=run, line=line)
            for (arm, run), line in zip(names, chart.lines, strict=True)
        ],
    )
    # Serialized directly: the framework's own conversion takes five times as long.
    return Response(_ADAPTER.dump_json(document), media_type="application/json", headers=headers)


def _recorded(
    context: Context,
    session: Session,
    run: Run,
    name: str,
    kind: OverlayKind,
    first_step: int,
    last_step: float,
    *,
    seconds: bool,
) -> Recorded:
    steps, table = store.read_range(session, run.id, kind, first_step, last_step, [name])
    return Recorded(
        steps=steps,
        values=table[name],
        seconds=_seconds(context, session, run, steps) if seconds and len(steps) else None,
    )


def _seconds(
    context: Context, session: Session, run: Run, wanted: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    """Seconds of training up to each of these steps, counted from the run's first step; None if
    unknown.

    The first request for a run sums over all its steps and caches the seconds of some of them.
    """
    key = ("clock", run.id, run.attempt_number)
    clock = context.cache.get(key, TrainingTime) or TrainingTime(
        steps=np.empty(0, np.int64), passed=np.empty(0)
    )
    after = clock.before(int(wanted[0]))
    first, last = (after[0] + 1 if after else 0), int(wanted[-1])
    steps, table = store.read_range(session, run.id, "train", first, last, [_SECONDS])
    if after is None and not np.isfinite(table[_SECONDS]).any():
        return None
    passed = seconds_of(steps, table[_SECONDS], after)
    if len(steps) >= _KEPT:
        context.cache.put(key, clock.with_some_of(steps, passed, _KEPT))
    if after is not None:
        steps, passed = np.append(after[0], steps), np.append(after[1], passed)
    return passed[np.maximum(np.searchsorted(steps, wanted, side="right") - 1, 0)]


# The live gap of a candidate against the baseline over REST, in bins.

Candidate = Annotated[str | None, Query(description="candidate arm; default: the first")]


@frozen
class GapDocument(PairDocument):
    """The gap of a candidate against the baseline over the steps that both arms have, in bins.

    `mean`, `low` and `high` are nats (positive = candidate worse); the band is the interval of a
    bin's mean, including run-to-run noise, with the confidence of the interval that decides.
    `window` is the range of steps that the verdict reads. `nonfinite_…` are the first 1,000 steps
    of the range at which a run of the arm has a loss of NaN or infinity; `nonfinite_count` counts
    all of both arms. `spikes_…` are the first 200 steps at which the arm has a spike, according to
    the verdict; none before there is a verdict.
    """

    baseline: str
    first_step: list[int]
    last_step: list[int]
    mean: list[Number]
    low: list[Number]
    high: list[Number]
    planned_steps: int | None


@router.get("/jobs/{job_id}/gap", responses=UNCHANGED)
def gap(
    job_id: str,
    context: InContext,
    tags: Tags,
    candidate: Candidate = None,
    bins: Annotated[int, Query(ge=1, le=4000, description="largest number of bins")] = 200,
    first_step: FirstStep = 0,
    last_step: LastStep = None,
    spacing: Spacing = "linear",
) -> GapDocument:
    """The data of the live gap chart. For display only; the verdict reads every step of its
    window.
    """
    with context.database.read() as session:
        job = find_job(session, job_id)
        tags.check(job, "gap", candidate, bins, first_step, last_step, spacing)
        baseline, chosen = pair_of(job, candidate)
        planned = job.planned_steps
        wanted = StepRange(first=first_step, last=last_step, bins=bins, log=spacing == "log")
        [own] = candidate_gaps(context.cache, session, job, [chosen], wanted)
        binned = own.binned
    return GapDocument(
        **pair_fields(own, int(np.sum(binned.n)), NONFINITE_LISTED),
        baseline=baseline.name,
        first_step=binned.first_step.tolist(),
        last_step=binned.last_step.tolist(),
        mean=[number(value) for value in binned.mean],
        low=[number(value) for value in binned.lo],
        high=[number(value) for value in binned.hi],
        planned_steps=planned,
    )


@router.get("/jobs/{job_id}/gaps", response_model=GapsDocument, responses=UNCHANGED)
def gaps(
    job_id: str,
    context: InContext,
    tags: Tags,
    candidates: Annotated[
        str, Query(max_length=5000, description="candidate arms, comma-separated; default: all")
    ] = "",
    bins: Annotated[int, Query(ge=1, le=1000, description="largest number of bins")] = 150,
    first_step: FirstStep = 0,
    last_step: LastStep = None,
    spacing: Spacing = "linear",
) -> Response:
    """The gaps of candidates for one chart. For display only; the verdict reads every step of its
    window.
    """
    with context.database.read() as session:
        job = find_job(session, job_id)
        names = dict.fromkeys(name for name in candidates.split(",") if name)
        arms = [pair_of(job, name)[1] for name in names] or job.arms[1:]
        headers = tags.check(
            job, "gaps", *(arm.name for arm in arms), bins, first_step, last_step, spacing
        )
        wanted = StepRange(first=first_step, last=last_step, bins=bins, log=spacing == "log")
        content = _computed(context, session, job, arms, wanted)
    return Response(content, media_type="application/json", headers=headers)


@frozen
class _Answer:
    """A response, and what was recorded when it was made."""

    content: bytes
    recorded: Extents


_DOCUMENT = TypeAdapter(GapsDocument)


def _computed(
    context: Context, session: Session, job: Job, arms: Sequence[Arm], wanted: StepRange
) -> bytes:
    """The response from the recorded curves. Reading 90 runs of a million steps takes seconds, so
    it is cached as long as it counts.
    """
    key = (
        "gaps",
        identity(job),
        *(arm.name for arm in arms),
        wanted.bins,
        wanted.first,
        wanted.last,
        wanted.log,
    )
    cached, recorded = context.cache.get(key, _Answer), extents(session, job)
    if cached is None or not is_current(job, cached.recorded, recorded):
        document = gaps_of(context.cache, session, job, arms, wanted, recorded)
        cached = _Answer(content=_DOCUMENT.dump_json(document), recorded=recorded)
        context.cache.put(key, cached)
    return cached.content


def pair_of(job: Job, candidate: str | None) -> tuple[Arm, Arm]:
    """The candidate of this name, after the arm that it is judged against."""
    baseline, *candidates = job.arms
    if not candidates:
        raise NotFoundError(
            f"job {job.id} has one arm so far, {baseline.name}, and no candidate to compare with it"
        )
    name = candidate or candidates[0].name
    chosen = next((arm for arm in candidates if arm.name == name), None)
    if chosen is None:
        raise NotFoundError(
            f"job {job.id} has no candidate {name!r}, expected one of "
            f"{', '.join(arm.name for arm in candidates)}"
        )
    return chosen.judged_against, chosen
