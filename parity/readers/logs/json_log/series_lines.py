"""Lines that hold a whole series each, as TensorBoard.dev exports them: the run, the name of the
metric (tag), and the lists of its steps and values.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from parity.readers.columns.columns import RunColumns
from parity.readers.columns.long_table import are_groups
from parity.readers.columns.series import columns_from_series
from parity.readers.columns.several_runs import choose_run
from parity.readers.columns.track import Track
from parity.readers.errors import ReadError
from parity.readers.logs.json_log.compact_values import compact_value

_BEGIN = re.compile(r'\s*\{[^{}\[\]]{0,65536}"points"\s{0,9}:\s{0,9}\{')
_BLANKS = re.compile(r"\s*")


def read_series_lines(
    text: str, source: str, named_columns: Mapping[str, str], run: str | None
) -> RunColumns | None:
    """Columns of one run; None for any other text. What one run trained on and was evaluated on may
    be the runs of two writers.
    """
    if _BEGIN.match(text) is None:
        return None
    by_run: dict[str, dict[str, Track]] = {}
    at = 0
    while at < len(text):
        value, end = compact_value(text, at, source)
        line = text.count("\n", 0, at) + 1
        name, tag, steps, values = _series(value, f"{source}, line {line}")
        by_run.setdefault(name, {}).setdefault(tag, Track()).add_block(steps, values)
        blanks = _BLANKS.match(text, end)
        at = end if blanks is None else blanks.end()
    if run is None and are_groups(by_run):
        series = {
            f"{name}/{tag}": one for name, tags in by_run.items() for tag, one in tags.items()
        }
    else:
        series = by_run[choose_run(by_run, run, source)]
    return columns_from_series(series, series.__getitem__, named_columns, source)


def _series(value: Any, where: str) -> tuple[str, str, Any, Any]:
    """The run and the name of a series, its steps and its values; raises ReadError for an object
    that is none.
    """
    points = value.get("points") if isinstance(value, dict) else None
    if isinstance(points, dict):
        steps, values = (np.asarray(points.get(name, ())) for name in ("steps", "values"))
        is_whole = steps.ndim == values.ndim == 1 and len(steps) == len(values) > 0
        if is_whole and {steps.dtype.kind, values.dtype.kind} <= set("iuf"):
            return str(value.get("run", "")), str(value.get("tag", "")), steps, values
    raise ReadError(
        f"{where}: no series of as many steps as values; expected "
        '{"run": ..., "tag": ..., "points": {"steps": [...], "values": [...]}} on each line'
    )
