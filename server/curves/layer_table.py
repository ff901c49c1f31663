"""The statistics by layer of one run as a table for a heat map: layers in model order, steps in
buckets.

The database has columns `layer/operand/statistic` in chunks of kind `layers` on watched steps,
and columns `layer` of kind `layer_grad_norm`. A bucket shows the mean of its finite values; NaN
marks an operand that is not quantized.
"""

import re

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from parity.frozen import frozen
from server.curves.buckets import cut, reduce_ranges
from server.database.metrics import store
from server.json_numbers import Number, number
from training.step_values import PROJECTIONS

GRAD_NORM = "grad_norm"
LAYERS = "layers"
"""The kind of their chunks."""
_NORM_KIND = "layer_grad_norm"


@frozen
class Columns:
    """What a run has recorded by layer: layers in model order, operands and statistics in
    alphabetical order.

    `statistics` are those of any operand, `of_operand` those of each.
    """

    layers: list[str]
    operands: list[str]
    statistics: list[str]
    of_operand: dict[str, list[str]]
    has_norms: bool


@frozen
class LayerTable:
    """Values by (layer, bucket); the string nan, inf or -inf if a bucket has no finite value.

    `low` and `high` are the finite extremes, `usual_low` and `usual_high` the ends of the middle 96
    % of the finite values: a scale between them shows differences that one extreme bucket would
    flatten.
    """

    layers: list[str]
    first_step: list[int]
    last_step: list[int]
    values: list[list[Number]]
    low: float | None
    high: float | None
    usual_low: float | None
    usual_high: float | None
    steps_in_range: int


def recorded(session: Session, run_id: str) -> Columns:
    """The layers, operands and statistics that a run has recorded."""
    parts = [name.rsplit("/", 2) for name in store.names(session, run_id, LAYERS)]
    parts = [part for part in parts if len(part) == 3]
    norms = store.names(session, run_id, _NORM_KIND)
    operands = sorted({part[1] for part in parts})
    return Columns(
        layers=sorted({part[0] for part in parts} | set(norms), key=_model_order),
        operands=operands,
        statistics=sorted({part[2] for part in parts}),
        of_operand={
            operand: sorted({part[2] for part in parts if part[1] == operand})
            for operand in operands
        },
        has_norms=bool(norms),
    )


@frozen
class HeatMapCells:
    """What a heat map shows: a statistic of an operand of every layer, from a first to a last step,
    in at most so many buckets.

    `grad_norm` has no operand.
    """

    statistic: str
    operand: str
    first_step: int
    last_step: float
    buckets: int


def layer_table(
    session: Session, run_id: str, cells: HeatMapCells, minus: str | None = None
) -> LayerTable:
    """The values of a run; with `minus`, less those of that run, of the layers and steps that both
    have recorded.
    """
    if cells.statistic == GRAD_NORM:
        kind, ending = _NORM_KIND, ""
    else:
        kind, ending = LAYERS, f"/{cells.operand}/{cells.statistic}"
    runs = [run_id, *([minus] if minus else [])]
    both = set[str].intersection(*({*store.names(session, run, kind)} for run in runs))
    layers = sorted(
        (name.removesuffix(ending) for name in both if name.endswith(ending)), key=_model_order
    )
    columns = [layer + ending for layer in layers]
    read = [
        store.read_range(session, run, kind, cells.first_step, cells.last_step, columns)
        for run in runs
    ]
    steps, table = _steps_with_numbers(*(_difference(*read) if minus else read[0]))
    edges = np.unique(
        np.linspace(0, len(steps), min(cells.buckets, len(steps)) + 1).astype(np.int64)
    )
    starts, ends = edges[:-1], edges[1:]
    grid = np.array([_values(table[name], starts) for name in columns]).reshape(
        len(columns), len(starts)
    )
    finite = grid[np.isfinite(grid)]
    usual = np.quantile(finite, [0.02, 0.98]).tolist() if len(finite) else (None, None)
    return LayerTable(
        layers=layers,
        first_step=steps[starts].tolist() if len(steps) else [],
        last_step=steps[ends - 1].tolist() if len(steps) else [],
        values=[[number(float(f"{value:.5g}")) for value in row] for row in grid.tolist()],
        low=float(finite.min()) if len(finite) else None,
        high=float(finite.max()) if len(finite) else None,
        usual_low=usual[0],
        usual_high=usual[1],
        steps_in_range=len(steps),
    )


_Read = tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]]


def _difference(minuend: _Read, subtrahend: _Read) -> _Read:
    """The first less the second, at the steps of both; NaN where either is not finite, because
    infinity less infinity says nothing.
    """
    steps, at, at_other = np.intersect1d(
        minuend[0], subtrahend[0], assume_unique=True, return_indices=True
    )
    table = {}
    for name, values in minuend[1].items():
        first, second = values[at], subtrahend[1][name][at_other]
        finite = np.isfinite(first) & np.isfinite(second)
        table[name] = np.where(
            finite, np.where(finite, first, 0.0) - np.where(finite, second, 0.0), np.nan
        )
    return steps, table


def _steps_with_numbers(
    steps: NDArray[np.int64], table: dict[str, NDArray[np.float64]]
) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]]:
    """The steps at which a layer has a number, if there are any: gradients are compared on fewer
    steps than statistics are recorded.
    """
    if not table:
        return steps, table
    has_number = ~np.all([np.isnan(column) for column in table.values()], axis=0)
    if has_number.any():
        return steps[has_number], {name: column[has_number] for name, column in table.items()}
    return steps, table


def _values(values: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean (b,) of the finite values from each start (b,) to the next; else infinity if the range
    has one, else NaN.
    """
    buckets = cut(values, starts)
    infinite = reduce_ranges(np.add, np.where(np.isinf(values), values, 0.0), starts, 0.0)
    return np.where(
        buckets.count > 0, buckets.mean(values), np.where(infinite != 0.0, infinite, np.nan)
    )


def _model_order(layer: str) -> tuple[list[tuple[int, int, str]], str]:
    """Blocks by number, projections in the order of the forward pass, everything else by name."""
    return [_part_order(part) for part in re.split(r"[./]", layer)], layer


def _part_order(part: str) -> tuple[int, int, str]:
    if part.isdigit():
        return 0, int(part), ""
    if part in PROJECTIONS:
        return 1, PROJECTIONS.index(part), ""
    return 2, 0, part
