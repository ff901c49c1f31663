"""Statistics by layer, which a training run exports: quantization SNR as CSV or JSON, or a log.

CSV:   layer,operand,snr_db, a row a layer and operand (fprop, wgrad, x, ...), maybe with a column
       `step`; without one all rows are of step 0
JSON:  a list of such rows, or {"layer": {"operand": 12.3}}, or {"layer": 12.3}
log:   of Transformer Engine's debug tool, or the folder of such logs (`inspect_log`)
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from parity.judging.curves.curve import MAX_STEP
from parity.judging.verdict.layer_statistics import SNR, LayerColumns
from parity.readers.errors import ReadError
from parity.readers.files.text import read_text
from parity.readers.secondary.inspect_log import is_inspect_log, read_inspect_logs
from parity.readers.secondary.value_rows import rows_of

ANY_OPERAND = "all"
_EXPECTED = "expected the columns layer, operand, snr_db"


def read_layer_table(name: str) -> LayerColumns:
    """The statistics by layer and step; raises ReadError with the file, the row and what was
    expected. NaN and infinity are kept.
    """
    text = None if Path(name).is_dir() else read_text(name)
    if text is None or is_inspect_log(text):
        return read_inspect_logs(name)
    columns: defaultdict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
    for number, row in rows_of(text, name, _layer_rows):
        where = f"{name}, row {number}"
        layer = row.get("layer")
        if layer in (None, ""):
            raise ReadError(f"{where}: no layer; {_EXPECTED}")
        operand = str(row.get("operand") or ANY_OPERAND)
        step = _step(row["step"], where) if row.get("step") not in (None, "") else 0
        columns[str(layer), operand, SNR][step] = _number(row.get("snr_db"), where)
    if not columns:
        raise ReadError(f"{name}: no layer; {_EXPECTED}")
    steps = sorted({step for values in columns.values() for step in values})
    return LayerColumns(
        steps=np.array(steps, np.int64),
        columns={
            column: np.array([values.get(step, math.nan) for step in steps], np.float64)
            for column, values in columns.items()
        },
    )


def _layer_rows(document: Mapping[str, Any]) -> list[Any]:
    rows: list[Any] = []
    for layer, value in document.items():
        operands = value if isinstance(value, dict) else {ANY_OPERAND: value}
        rows += [
            {"layer": layer, "operand": operand, "snr_db": snr} for operand, snr in operands.items()
        ]
    return rows


def _number(value: object, where: str) -> float:
    try:
        if isinstance(value, bool) or value is None:
            return math.nan
        return float(str(value))
    except ValueError:
        raise ReadError(f"{where}: snr_db is {value!r}; expected a number") from None


def _step(value: object, where: str) -> int:
    try:
        step = float(str(value))
    except ValueError:
        step = math.nan
    if not (0 <= step <= MAX_STEP and step.is_integer()):
        raise ReadError(f"{where}: step is {value!r}; expected a whole number from 0 to {MAX_STEP}")
    return int(step)
