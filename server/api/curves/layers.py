"""Statistics of the layers of a run against the step, over REST, for a heat map."""

import itertools
import math
from typing import Annotated

from fastapi import APIRouter, Query

from parity.frozen import frozen
from parity.judging.verdict.layer_statistics import SNR, UNDERFLOW
from server.curves.layer_table import (
    GRAD_NORM,
    Columns,
    HeatMapCells,
    LayerTable,
    layer_table,
    recorded,
)
from server.database.lookups import find_run
from server.errors import InvalidError
from server.web.context import InContext
from server.web.requests.entity_tags import UNCHANGED, Tags
from server.web.requests.query import FirstStep, LastStep

router = APIRouter(prefix="/api/v1", tags=["curves"])


@frozen
class LayersDocument:
    """One statistic by layer and step, and the names of the others. `statistic` is null if the run
    has no statistics by layer.

    Of an emulated run, shares, signal to noise and scales are those of the share of rows that the
    statistic `seen_share` has (a quarter of most tensors); amax and nonfinite are those of all.

    `minus` is the run whose values were subtracted; null where none were, because none were asked
    for or that run has none of them.
    """

    run: str
    minus: str | None
    statistic: str | None
    operand: str | None
    recorded: Columns
    table: LayerTable | None


@router.get("/runs/{run_id}/layers", responses=UNCHANGED)
def layers(
    run_id: str,
    context: InContext,
    tags: Tags,
    statistic: Annotated[
        str | None,
        Query(
            max_length=100,
            description="default: snr_db, else underflow_share, else the first that is recorded; "
            "grad_norm has no operand",
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
            usual = next((name for name in (SNR, UNDERFLOW) if name in names), None)
            chosen = _one_of("statistic", usual if statistic is None else statistic, names)
            of = None if chosen == GRAD_NORM else of
            cells = HeatMapCells(
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
    """The operands that have the statistic (default: signal to noise, else underflow); all of them
    if none has.
    """
    for usual in (SNR, UNDERFLOW) if statistic is None else (statistic,):
        if having := [name for name in there.operands if usual in there.of_operand[name]]:
            return having
    return there.operands


def _one_of(name: str, value: str | None, choices: list[str]) -> str:
    if value is not None and value not in choices:
        raise InvalidError(f"{name} has {value!r}, expected one of {', '.join(choices)}")
    return choices[0] if value is None else value
