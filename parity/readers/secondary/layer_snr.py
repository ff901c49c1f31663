"""Quantization SNR by layer: CSV or JSON, as a training run exports it.

CSV:   layer,operand,snr_db, a row a layer and operand (fprop, wgrad, x, ...); with a `step` column
       the last step of each counts
JSON:  a list of such rows, or {"layer": {"operand": 12.3}}, or {"layer": 12.3}
log:   of Transformer Engine's debug tool, or the folder of such logs (`inspect_log`)
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parity.judging.verdict.advice import LayerSnr
from parity.readers.errors import ReadError
from parity.readers.files.text import read_text
from parity.readers.secondary.inspect_log import is_inspect_log, read_inspect_logs
from parity.readers.secondary.value_rows import rows_of

ANY_OPERAND = "all"
_EXPECTED = "expected the columns layer, operand, snr_db"


def read_layer_snr(name: str) -> LayerSnr:
    """SNR in dB by (layer, operand); raises ReadError with the file, the row and what was expected.
    NaN and infinity are kept.
    """
    text = None if Path(name).is_dir() else read_text(name)
    if text is None or is_inspect_log(text):
        return read_inspect_logs(name)
    latest: dict[tuple[str, ...], tuple[float, float]] = {}
    for number, row in rows_of(text, name, _layer_rows):
        where = f"{name}, row {number}"
        layer = row.get("layer")
        if layer in (None, ""):
            raise ReadError(f"{where}: no layer; {_EXPECTED}")
        operand = str(row.get("operand") or ANY_OPERAND)
        step = _snr(row["step"], "step", where) if row.get("step") not in (None, "") else 0.0
        snr = _snr(row.get("snr_db"), "snr_db", where)
        key = str(layer), operand
        if key not in latest or step >= latest[key][0]:
            latest[key] = step, snr
    if not latest:
        raise ReadError(f"{name}: no layer; {_EXPECTED}")
    return {key: snr for key, (_, snr) in latest.items()}


def _layer_rows(document: Mapping[str, Any]) -> list[Any]:
    rows: list[Any] = []
    for layer, value in document.items():
        operands = value if isinstance(value, dict) else {ANY_OPERAND: value}
        rows += [
            {"layer": layer, "operand": operand, "snr_db": snr} for operand, snr in operands.items()
        ]
    return rows


def _snr(value: object, key: str, where: str) -> float:
    try:
        if isinstance(value, bool) or value is None:
            return math.nan
        return float(str(value))
    except ValueError:
        raise ReadError(f"{where}: {key} is {value!r}; expected a number") from None
