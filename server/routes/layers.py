"""What a run recorded by layer, as a table of layers and buckets of steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from server.curves.layer_table import GRAD_NORM, Columns, LayerTable, layer_table, recorded
from server.database.lookup import find_run
from server.errors import InvalidError
from server.web.auth import requires
from server.web.context import InContext
from server.web.etags import entity_tag, not_modified, tagged
from server.web.query import UNCHANGED, FirstStep, IfNoneMatch, LastStep

router = APIRouter(prefix="/api/v1", tags=["curves"], dependencies=[Depends(requires("view"))])


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersDocument:
    """One statistic by layer and step, with what else there is; `statistic` is null where the run recorded nothing by layer."""

    run: str
    statistic: str | None
    operand: str | None
    recorded: Columns
    table: LayerTable | None


@router.get("/runs/{run_id}/layers", response_model=LayersDocument, responses=UNCHANGED)
def layers(
    run_id: str,
    context: InContext,
    response: Response,
    statistic: Annotated[str | None, Query(max_length=100, description="default: the first recorded; grad_norm has no operand")] = None,
    operand: Annotated[str | None, Query(max_length=100, description="default: the first recorded")] = None,
    first_step: FirstStep = 0,
    last_step: LastStep = None,
    buckets: Annotated[int, Query(ge=1, le=2000, description="largest number of buckets")] = 200,
    if_none_match: IfNoneMatch = "",
) -> Response | LayersDocument:
    """Quantization statistics (or gradient norms) of every layer against the step, for a heat map."""
    with context.database.read() as session:
        run = find_run(session, run_id)
        tag = entity_tag(run, "layers", statistic, operand, first_step, last_step, buckets)
        if not_modified(tag, if_none_match):
            return Response(status_code=304, headers=tagged(tag))
        there = recorded(session, run_id)
        response.headers.update(tagged(tag))
        if not there.layers:
            return LayersDocument(run=run_id, statistic=None, operand=None, recorded=there, table=None)
        known = [*there.statistics, *([GRAD_NORM] if there.has_norms else [])]
        chosen = _one_of("statistic", statistic, known)
        of = None if chosen == GRAD_NORM else _one_of("operand", operand, there.operands)
        last = math.inf if last_step is None else last_step
        table = layer_table(session, run_id, chosen, of or "", first_step, last, buckets)
    return LayersDocument(run=run_id, statistic=chosen, operand=of, recorded=there, table=table)


def _one_of(name: str, asked: str | None, known: list[str]) -> str:
    if asked is not None and asked not in known:
        raise InvalidError(f"{name} has {asked!r}, expected one of {', '.join(known)}")
    return known[0] if asked is None else asked
