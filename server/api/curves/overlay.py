"""The curves of all arms of a job in one response, for one seed and replicate, on the same bucket
edges.
"""

import math
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Query, Response
from numpy.typing import NDArray
from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judged_loss import JUDGED_LOSS
from server.curves.overlay import RAW_VALUES, Line, RecordedColumn, overlay
from server.curves.training_time import TrainingTime, seconds_of
from server.database.lookups import find_job
from server.database.metrics import chunk_tables, store
from server.database.tables import Run
from server.jobs.evaluations import check_has_runs
from server.records import from_attributes
from server.web.context import Context, InContext
from server.web.limits import LARGEST
from server.web.requests.entity_tags import UNCHANGED, Tags
from server.web.requests.query import FirstStep, LastStep, Spacing

router = APIRouter(prefix="/api/v1", tags=["curves"])

_SECONDS = "step_seconds"
_KEPT = chunk_tables.SEALED_STEPS  # keep the seconds of one step in this many
OverlayKind = Literal["train", "validation"]
_RunNumber = Annotated[
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

    Up to 20,000 steps, or `raw_values` of all arms together, are returned without reduction
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
        check_has_runs(job, "columns of steps")
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
    name: Annotated[str, Query(max_length=200, description="column")] = JUDGED_LOSS,
    arms: Annotated[
        str, Query(max_length=5000, description="arms, comma-separated; default: all")
    ] = "",
    kind: Annotated[OverlayKind, Query(description="which records")] = "train",
    seed: _RunNumber = None,
    replicate: _RunNumber = None,
    first_step: FirstStep = 0,
    last_step: LastStep = None,
    points: Annotated[int, Query(ge=1, le=20_000, description="largest number of buckets")] = 2000,
    seconds: Annotated[bool, Query(description="include the seconds of training")] = False,
    spacing: Spacing = "linear",
    raw_values: Annotated[
        int,
        Query(
            ge=0,
            le=RAW_VALUES,
            description="largest number of values, of all arms together, that come without "
            "reduction; a chart of several jobs shares it among them",
        ),
    ] = RAW_VALUES,
) -> Response:
    """The curves of a job's arms for one chart. For display only; the verdict reads every step of
    its window.
    """
    with context.database.read() as session:
        job = find_job(session, job_id)
        check_has_runs(job, "curves over steps")
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
            raw_values,
        )
        headers = tags.check(job, "overlay", *question)
        first = (job.arms[0].runs or job.runs)[0]  # forks, and an analysis, are no runs of an arm
        pair = (
            first.seed if seed is None else seed,
            first.replicate if replicate is None else replicate,
        )
        chosen = {name for name in arms.split(",") if name}
        shown = [arm for arm in job.arms if not chosen or arm.name in chosen]
        runs = [run for arm in shown for run in arm.runs if (run.seed, run.replicate) == pair]
        runs = [run for run in runs if name in store.names(session, run.id, kind)]
        last = math.inf if last_step is None else last_step
        recorded = [
            _recorded(context, session, run, name, kind, first_step, last, seconds=seconds)
            for run in runs
        ]
        names = [(run.arm.name, run.id) for run in runs]
    chart = overlay(recorded, points, log=spacing == "log", raw_values=raw_values)
    document = from_attributes(
        OverlayDocument,
        chart,
        name=name,
        kind=kind,
        seed=pair[0],
        replicate=pair[1],
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
) -> RecordedColumn:
    steps, table = store.read_range(session, run.id, kind, first_step, last_step, [name])
    return RecordedColumn(
        steps=steps,
        values=table[name],
        seconds=_seconds(context, session, run, steps) if seconds and len(steps) else None,
    )


def _seconds(
    context: Context, session: Session, run: Run, at_steps: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    """Seconds of training up to each of these steps, counted from the run's first step; None if
    unknown.

    The first request for a run sums over all its steps and caches the seconds of some of them.
    """
    key = ("clock", run.id, run.attempt_number)
    clock = context.cache.get(key, TrainingTime) or TrainingTime(
        steps=np.empty(0, np.int64), passed=np.empty(0)
    )
    after = clock.before(int(at_steps[0]))
    first, last = (after[0] + 1 if after else 0), int(at_steps[-1])
    steps, table = store.read_range(session, run.id, "train", first, last, [_SECONDS])
    if after is None and not np.isfinite(table[_SECONDS]).any():
        return None
    passed = seconds_of(steps, table[_SECONDS], after)
    if len(steps) >= _KEPT:
        context.cache.put(key, clock.updated(steps, passed, _KEPT))
    if after is not None:
        steps, passed = np.append(after[0], steps), np.append(after[1], passed)
    return passed[np.maximum(np.searchsorted(steps, at_steps, side="right") - 1, 0)]
