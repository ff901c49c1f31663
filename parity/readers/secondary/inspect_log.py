"""Statistics by layer from the log of Transformer Engine's debug tool (nvdlfw-inspect), which a run
of a PyTorch trainer with `LogFp8TensorStats`, `LogNvfp4TensorStats` or `LogTensorStats` writes; the
tool knows no JAX.

    … - INFO - layers.3.mlp.fc1_gradient_nvfp4_underflows%   iteration=000400   value=7.2500

The name is layer, tensor and statistic; a file is one rank's, and at each step the worst rank
counts. `underflows%` becomes the share of the values that become zero, `scale_inv_min` and
`scale_inv_max` the octaves between the scales of the blocks, `cur_amax` the amax. The log has four
decimals, so a signal to noise is computed only where the mean square error has at least three
digits in them, and the same step has mean and standard deviation.

The assumption that can fail: the names of layers, which the user gives, end in no word for a
tensor. Versions differ in whether underflows% of FP8 counts values that were zero before.

Source: nvdlfw-inspect 0.2.2, logging.py; Transformer Engine, debug/features/utils/stats_buffer.py
and stats_computation.py.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from parity.judging.verdict.layer_statistics import (
    AMAX,
    SCALE_OCTAVES,
    SNR,
    UNDERFLOW,
    LayerColumns,
)
from parity.readers.errors import ReadError
from parity.readers.files.text import read_text

FOLDER = "nvdlfw_inspect_statistics_logs"
_LINE = re.compile(r"(\S+)\s+iteration=(\d+)\s+value=(\S+)")
_NAME = re.compile(r"(.+)_(activation|gradient|weight|output|wgrad|dgrad)_(\S+)")
_STATISTIC = re.compile(
    r"(?:(?P<format>\w+?)_)??(?P<statistic>underflows%|mse|scale_inv_min|scale_inv_max)"
    r"(?P<columnwise>_columnwise)?"
)
_LEAST_MSE = 0.01
_EXPECTED = (
    "expected underflows%, or mse with mean and std: add them to `stats` of LogFp8TensorStats, "
    "LogNvfp4TensorStats and LogTensorStats"
)

_Values = Mapping[int, float]  # by step
_Columns = dict[tuple[str, str, str], dict[int, float]]  # by layer, operand and statistic


def is_inspect_log(text: str) -> bool:
    """Whether a file with this text is a log of the debug tool."""
    return _LINE.search(text) is not None


def read_inspect_logs(name: str) -> LayerColumns:
    """The statistics of a log, or of all logs of a folder, each of one rank; raises ReadError with
    the file, the line and what was expected.
    """
    folder = Path(name)
    files = [name]
    if folder.is_dir():
        logs = sorted(folder.rglob(f"{FOLDER}/*.log")) or sorted(folder.glob("*.log"))
        if not logs:
            raise ReadError(f"{name}: no log in it; expected {FOLDER}/*.log")
        files = [str(path) for path in logs]
    return inspect_table(name, ((file, read_text(file).splitlines()) for file in files))


def inspect_table(name: str, logs: Iterable[tuple[str, Iterable[str]]]) -> LayerColumns:
    """The statistics of logs, each a file's name and its lines; `name` is that of all of them.
    Raises ReadError.
    """
    worst: _Columns = {}
    for file, lines in logs:
        for key, values in _of_rank(_series(lines, file)).items():
            worse = min if key[2] == SNR else max
            merged = worst.setdefault(key, {})
            for step, value in values.items():
                merged[step] = worse(merged.get(step, value), value)
    if not any(statistic in (SNR, UNDERFLOW) for _, _, statistic in worst):
        raise ReadError(f"{name}: it has neither underflow nor noise of a layer; {_EXPECTED}")
    steps = sorted({step for values in worst.values() for step in values})
    return LayerColumns(
        steps=np.array(steps, np.int64),
        columns={
            key: np.array([values.get(step, math.nan) for step in steps], np.float64)
            for key, values in worst.items()
        },
    )


def _series(
    lines: Iterable[str], name: str
) -> Mapping[tuple[str, str], Mapping[str, dict[int, float]]]:
    """The finite values of one rank by layer and tensor, then by statistic, then by step; of a step
    that is written twice the later.
    """
    series: defaultdict[tuple[str, str], defaultdict[str, dict[int, float]]]
    series = defaultdict(lambda: defaultdict(dict))
    for number, line in enumerate(lines, 1):
        if not (found := _LINE.search(line)) or not (parts := _NAME.fullmatch(found[1])):
            continue
        try:
            value = float(found[3])
        except ValueError:
            raise ReadError(
                f"{name}, line {number}: value is {found[3]!r}; expected a number"
            ) from None
        if math.isfinite(value):
            series[parts[1], parts[2]][parts[3]][int(found[2])] = value
    return series


def _of_rank(series: Mapping[tuple[str, str], Mapping[str, _Values]]) -> _Columns:
    """What the series of one rank say of its layers, by layer, operand and statistic."""
    columns: _Columns = {}
    for (layer, tensor), statistics in series.items():
        for name, values in statistics.items():
            if not (parts := _STATISTIC.fullmatch(name)):
                continue
            words = (tensor, parts["format"], parts["columnwise"] and "columnwise")
            operand = " ".join(word for word in words if word)
            if parts["statistic"] == "underflows%":
                columns[layer, operand, UNDERFLOW] = {
                    step: value / 100 for step, value in values.items()
                }
                amaxes = statistics.get("cur_amax", {})
                columns[layer, operand, AMAX] = {
                    step: amaxes[step] for step in values if step in amaxes
                }
            elif parts["statistic"] == "scale_inv_max":
                columns[layer, operand, SCALE_OCTAVES] = _octaves(
                    statistics.get(name.replace("_max", "_min"), {}), values
                )
            elif parts["statistic"] == "mse":
                columns[layer, operand, SNR] = _snr_db(
                    values, statistics.get("mean", {}), statistics.get("std", {})
                )
    return {key: values for key, values in columns.items() if values}


def _octaves(least: _Values, most: _Values) -> dict[int, float]:
    """The octaves from the smallest scale to the largest, at the steps that have both above 0."""
    return {
        step: math.log2(value / least[step])
        for step, value in most.items()
        if 0.0 < least.get(step, 0.0) <= value
    }


def _snr_db(squares: _Values, mean: _Values, deviation: _Values) -> dict[int, float]:
    """The signal to noise in dB from the mean square error, at the steps whose error has enough
    digits and whose signal is known.
    """
    signal = {
        step: mean[step] ** 2 + deviation[step] ** 2 for step in mean.keys() & deviation.keys()
    }
    return {
        step: 10 * math.log10(signal[step] / error)
        for step, error in squares.items()
        if error >= _LEAST_MSE and signal.get(step, 0.0) > 0.0
    }
