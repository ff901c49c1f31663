"""Long tables: one row per value, with the metric's name and perhaps the run's in columns of their
own.

MLflow's download has `run_id,key,value,step,timestamp`; others call the metric `metric`, `name` or
`tag`, SageMaker and Comet `MetricName`. Such a table has as many loss columns as it has metrics: it
is split by metric, run and context (of Comet: train or validate) before a column is chosen, so that
no metric or run is read as another.

Source: `convertMetricsToCsv` in MLflow's web page (run_id, then the keys of a history entry).
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from parity.frozen import frozen
from parity.readers.columns.columns import RunColumns
from parity.readers.columns.names import (
    HELD_OUT,
    KNOWN_NAMES,
    LOSS,
    STEP,
    first_known_name,
    is_known,
    name_words,
)
from parity.readers.columns.number import MISSING, plain_number, step_number
from parity.readers.columns.series import columns_from_series
from parity.readers.columns.several_runs import RUN_NAMES, choose_run, run_column
from parity.readers.columns.splits import data_group, is_split_column, split_of_rows
from parity.readers.errors import ColumnError, ReadError

METRIC_NAMES = ("key", "metric", "metric_name", "metricname", "tag", "name")
VALUE_NAMES = ("value", "metric_value", "metricvalue", "scalar")
CONTEXT_NAMES = ("runcontext", "run_context")
_STEP_NAMES = (*KNOWN_NAMES[STEP], "iterationnumber", "iteration_number")
Row = tuple[int, Mapping[str, object]]
"""A row with the number of its line."""


@frozen
class Layout:
    """Where a long table keeps the metric's name, its value, the step and, where there are such
    columns, the run and the context of the metric.
    """

    metric: str
    value: str
    step: str
    run: str | None
    context: str | None


def long_layout(
    names: Sequence[str], named_columns: Mapping[str, str], source: str
) -> Layout | None:
    """The layout of a long table, None for any other table, such as one with a loss column next to
    a name and a value.

    Raises ReadError for a long table without a step.
    """
    metric, value = first_known_name(names, METRIC_NAMES), first_known_name(names, VALUE_NAMES)
    has_loss = first_known_name(
        names, [name for name in KNOWN_NAMES[LOSS] if name not in (*VALUE_NAMES, *METRIC_NAMES)]
    ) or named_columns.get(LOSS) in set(names) - {value}
    if metric is None or value is None or has_loss:
        return None
    step = named_columns.get(STEP) or first_known_name(names, _STEP_NAMES)
    if step is None or step not in names:
        raise ColumnError(
            f"{source}: a long table ({metric}, {value}) without a step column; name it with "
            "--column step=NAME",
            names,
        )
    context = first_known_name(names, CONTEXT_NAMES)
    return Layout(metric=metric, value=value, step=step, run=run_column(names), context=context)


def read_long(
    rows: Iterable[Row],
    layout: Layout,
    named_columns: Mapping[str, str],
    source: str,
    run: str | None,
) -> RunColumns:
    """Columns of one run of (line, row) pairs, a metric each; raises ReadError with the line of
    what is wrong.
    """
    if layout.run is not None and run is None:
        rows = list(rows)
        if are_groups({str(row.get(layout.run) or "") for _, row in rows}):
            layout = dataclasses.replace(layout, run=None, context=layout.run)
    if layout.context is None:
        rows = list(rows)
        layout = dataclasses.replace(layout, context=_column_of_split(rows, layout))
    by_run: dict[str, list[Row]] = {}
    for number, row in rows:
        by_run.setdefault(str(row.get(layout.run) if layout.run else ""), []).append((number, row))
    if not by_run:
        raise ReadError(f"{source}: a header but no rows; expected one row per step and metric")
    if run is not None and layout.run is None:
        raise ReadError(
            f"{source}: no column names the run, so there is no run {run!r}; expected one of "
            f"{', '.join(RUN_NAMES)}"
        )
    chosen = choose_run(by_run, run if layout.run else None, source)
    series: dict[str, list[tuple[int, float]]] = {}
    is_split = layout.context is not None and is_split_column(layout.context)
    for number, row in by_run[chosen]:
        where = f"{source}, line {number}"
        metric = str(row.get(layout.metric) or "").strip()
        if not metric:
            raise ReadError(
                f"{where}: no name in the column {layout.metric!r}; expected the name of a metric"
            )
        context = "" if layout.context is None else str(row.get(layout.context) or "").strip()
        if context and layout.context is not None and is_split:
            context = data_group(layout.context, context)
        if context:
            metric = f"{context}/{metric}"
        step = step_number(_number(row.get(layout.step), layout.step, where), where)
        value = row.get(layout.value)
        is_nothing = value is None or str(value).strip().lower() in MISSING
        series.setdefault(metric, []).append(
            (int(step), float("nan") if is_nothing else _number(value, layout.value, where))
        )
    return columns_from_series(series, series.__getitem__, named_columns, source, layout.step)


def _column_of_split(rows: Sequence[Row], layout: Layout) -> str | None:
    """The column by which the values of one metric are those of training and of held-out data."""
    read = (layout.metric, layout.value, layout.step, layout.run)
    names = rows[0][1] if rows else ()
    splits = {
        name: [row.get(name) for _, row in rows]
        for name in names
        if name not in read and is_split_column(name)
    }
    if not splits:
        return None
    metrics = [str(row.get(layout.metric)) for _, row in rows]
    losses = {metric for metric in dict.fromkeys(metrics) if is_known(metric, LOSS)}
    has_loss = np.array([metric in losses for metric in metrics])
    return next(
        (
            name
            for name, cells in splits.items()
            if split_of_rows({name: cells}, has_loss) is not None
        ),
        None,
    )


def are_groups(runs: Collection[str]) -> bool:
    """Whether the runs of a table are what one run trained on and what it was evaluated on, as
    Keras writes them for TensorBoard.
    """
    training = [run for run in runs if not HELD_OUT & name_words(run)]
    return len(runs) > 1 and len(training) == 1 and training[0].lower() in ("train", "training")


def _number(value: object, column: str, where: str) -> float:
    number = plain_number(value)
    if number is None:
        raise ReadError(
            f"{where}: {value!r} in the column {column!r}; expected a number (nan and inf are "
            "allowed)"
        )
    return number
