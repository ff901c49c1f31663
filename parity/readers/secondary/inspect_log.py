"""Statistics by layer from the log of Transformer Engine's debug tool (nvdlfw-inspect), which a run
with `LogFp8TensorStats`, `LogNvfp4TensorStats` or `LogTensorStats` writes.

    … - INFO - layers.3.mlp.fc1_gradient_nvfp4_underflows%   iteration=000400   value=7.2500

The name is layer, tensor and statistic; a file is one rank's, and the worst rank counts. Of each
series the median over the last fifth of its steps counts. `underflows%` becomes the share of the
values that become zero, `scale_inv_min` and `scale_inv_max` the octaves between the scales of the
blocks, `cur_amax` the amax. The log has four decimals, so a signal to noise is computed only where
the mean square error has at least three digits in them.

The assumption that can fail: the names of layers, which the user gives, end in no word for a
tensor. Versions differ in whether underflows% of FP8 counts values that were zero before.

Source: nvdlfw-inspect 0.2.2, logging.py; Transformer Engine, debug/features/utils/stats_buffer.py
and stats_computation.py.
"""

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from parity.judging.verdict.advice import AMAX, SCALE_OCTAVES, UNDERFLOW, LayerSnr
from parity.readers.errors import ReadError
from parity.readers.files.text import read_text

FOLDER = "nvdlfw_inspect_statistics_logs"
_LINE = re.compile(r"(\S+)\s+iteration=(\d+)\s+value=(\S+)")
_NAME = re.compile(r"(.+)_(activation|gradient|weight|output|wgrad|dgrad)_(\S+)")
_STATISTIC = re.compile(
    r"(?:(?P<format>\w+?)_)??(?P<statistic>underflows%|mse|scale_inv_min|scale_inv_max)"
    r"(?P<columnwise>_columnwise)?"
)
_PLAIN = ("cur_amax", "mean", "std")
_LEAST_MSE = 0.01
_LATE_SHARE = 0.2
_EXPECTED = (
    "expected underflows%, or mse with mean and std: add them to `stats` of LogFp8TensorStats, "
    "LogNvfp4TensorStats and LogTensorStats"
)

_Series = Mapping[tuple[str, str, str], float]


def is_inspect_log(text: str) -> bool:
    """Whether a file with this text is a log of the debug tool."""
    return _LINE.search(text) is not None


def read_inspect_logs(name: str) -> LayerSnr:
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
    worst: dict[tuple[str, ...], float] = {}
    for file in files:
        for key, value in _of_rank(_late(read_text(file), file)).items():
            is_snr = len(key) == 2
            worst[key] = (min if is_snr else max)(worst.get(key, value), value)
    if not any(len(key) == 2 or key[2] == UNDERFLOW for key in worst):
        raise ReadError(f"{name}: it has neither underflow nor noise of a layer; {_EXPECTED}")
    return worst


def _late(text: str, name: str) -> _Series:
    """Each series' median over the last fifth of its steps, by layer, tensor and statistic."""
    series: defaultdict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
    for number, line in enumerate(text.splitlines(), 1):
        if not (found := _LINE.search(line)) or not (parts := _NAME.fullmatch(found[1])):
            continue
        try:
            series[parts[1], parts[2], parts[3]][int(found[2])] = float(found[3])
        except ValueError:
            raise ReadError(
                f"{name}, line {number}: value is {found[3]!r}; expected a number"
            ) from None
    late = {}
    for key, values in series.items():
        steps = sorted(values)[-max(1, round(_LATE_SHARE * len(values))) :]
        finite = [values[step] for step in steps if math.isfinite(values[step])]
        if finite:
            late[key] = median(finite)
    return late


def _of_rank(late: _Series) -> LayerSnr:
    """What the series of one rank say of its layers, by layer, operand and statistic."""
    told: dict[tuple[str, ...], float] = {}
    for (layer, tensor, statistic), value in late.items():
        if not (parts := _STATISTIC.fullmatch(statistic)):
            continue
        words = (tensor, parts["format"], parts["columnwise"] and "columnwise")
        operand = " ".join(word for word in words if word)
        plain = [late.get((layer, tensor, name)) for name in _PLAIN]
        amax, mean, deviation = plain
        if parts["statistic"] == "underflows%":
            told[layer, operand, UNDERFLOW] = value / 100
            if amax is not None:
                told[layer, operand, AMAX] = amax
        elif parts["statistic"] == "scale_inv_max":
            least = late.get((layer, tensor, statistic.replace("_max", "_min")), 0.0)
            if least > 0:
                told[layer, operand, SCALE_OCTAVES] = math.log2(value / least)
        elif (
            parts["statistic"] == "mse"
            and value >= _LEAST_MSE
            and mean is not None
            and deviation is not None
        ):
            told[layer, operand] = 10 * math.log10((mean**2 + deviation**2) / value)
    return told
