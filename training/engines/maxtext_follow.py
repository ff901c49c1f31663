"""Follows a MaxText process through two files: metrics_file, which has all digits, and its log,
which shows whether a step is missing.

What it answers: which steps has the run done since the last read, and was any of them lost?

MaxText writes the log line of a step before its record in metrics_file, and both one step late.
So if the log is read first and shows step s, the file that is read next must have a record of
every step up to s - 1. MaxText 0.2.5 empties the file whenever it writes a record of step 0,
which each of its evaluations does. A file that shrank is read again from its beginning, and steps
that were lost between two reads are a gap.

The assumption that can fail: the log's wording. If a process logs no steps, `proven` is False and
completeness relies on metrics_file.

Source: MaxText 0.2.5, common/metric_logger.py.
"""

import json
import math
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from training.environment.maxtext_errors import MetricsError, MetricsStoppedError
from training.frozen import frozen
from training.step_values import StepStats

LOG_LINES = 50
_ERROR = re.compile(r"[\w.]+(?:Error|Exception): \S")
_HELD = re.compile(r"Using \(GB\) ([\d.]+) / [\d.]+ \([^)]*\) on ")
# The whole number must match: a line that another line interrupts proves nothing.
_STEP = re.compile(
    r"completed (?:profiler activation/deactivation )?step: (\d+)\b.*?, lm_loss: "
    r"(-?(?:\d+\.\d{3}|nan|inf))(?:,|$)"
)
# Why MaxText ended with status 0 before its last step: its data ended or could not be read, or it
# was told to stop (trainers/pre_train/train.py).
_STOPPED = re.compile(r"Training stopped: (\S.*)")
# What MaxText records of each layer's output with record_internal_nn_metrics, by the names of
# ACTIVATION_STATISTICS.
_ACTIVATIONS = ("activ_mean", "activ_stdev", "activ_fraction_zero")
ACTIVATION_STATISTICS = ("mean", "stdev", "fraction_zero")
_LAG = 100  # steps that the log may be ahead of the record before the record counts as stopped
_ROUNDING = 0.0006  # the log has 3 decimals
_REMEMBERED = 256
_NAN = float("nan")


class Tail:
    """The complete lines that were appended to a file since the last read; a file that was emptied
    is read from its beginning.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._end = b""
        self.shrank = 0

    def lines(self) -> list[bytes]:
        """Returns the new lines without their line ends; an unfinished line waits for the next
        read.
        """
        try:
            with self._path.open("rb") as file:
                if not self._goes_on(file):
                    self._offset, self._end = 0, b""
                    self.shrank += 1
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return []
        complete = new[: new.rfind(b"\n") + 1]
        self._offset += len(complete)
        self._end = (self._end + complete)[-_REMEMBERED:]
        return complete.splitlines()

    def _goes_on(self, file: Any) -> bool:
        """Whether the bytes that were read last are still there: a file may shrink and grow past
        our position between two reads.
        """
        file.seek(self._offset - len(self._end))
        return bool(file.read(len(self._end)) == self._end)


class MaxTextLog:
    """MaxText's log: its steps, its last lines, and a copy of each line on `echo`."""

    def __init__(self, path: Path, echo: TextIO | None = None) -> None:
        self._tail = Tail(path)
        self._echo = echo
        self.last_lines: deque[str] = deque(maxlen=LOG_LINES)
        self.lines_read = 0
        self.out_of_memory = False
        self.held_bytes = math.nan
        self.stopped_because = ""

    def steps(self) -> Iterator[tuple[int, float]]:
        """Yields (step, loss with 3 decimals) for every new line of a step."""
        for raw in self._tail.lines():
            line = raw.decode("utf-8", "replace")
            self.lines_read += 1
            self.last_lines.append(line)
            self.out_of_memory |= "RESOURCE_EXHAUSTED" in line or "Out of memory" in line
            if memory := _HELD.search(line):  # each device's memory, after the parameters were made
                self.held_bytes = max(
                    float(memory[1]) * 2**30,
                    -math.inf if math.isnan(self.held_bytes) else self.held_bytes,
                )
            if stopped := _STOPPED.search(line):
                self.stopped_because = stopped[1]
            if self._echo is not None:
                self._echo.write(line + "\n")
            if match := _STEP.search(line):
                yield int(match[1]), float(match[2])
        if self._echo is not None:
            self._echo.flush()

    def error(self) -> str:
        """Returns ": " and the newest exception in the last lines, or ""."""
        return next((f": {line}" for line in reversed(self.last_lines) if _ERROR.match(line)), "")

    def end(self) -> str:
        """The last lines."""
        return "\n".join(self.last_lines) or "(empty)"


@frozen
class FollowedRun:
    """The plan of the followed run: the first step that it may report, the number of steps, and the
    tokens per step.
    """

    first: int
    steps: int
    tokens_per_step: int


class MaxTextFollower:
    """The steps of one process in order, each once; `gaps` holds the steps that were trained but
    not recorded.
    """

    def __init__(self, metrics: Path, log: MaxTextLog, plan: FollowedRun) -> None:
        self._metrics = Tail(metrics)
        self._log = log
        self._plan = plan
        self._logged: dict[int, float] = {}
        self._lines = 0
        self.shown = plan.first - 1
        self.last = plan.first - 1
        self._begun = False
        self.gaps: list[range] = []

    @property
    def shrank(self) -> int:
        """How often metrics_file was emptied."""
        return self._metrics.shrank

    def steps(self) -> Iterator[StepStats]:
        """Yields the steps that were recorded since the last read.

        Raises MetricsError if the file contains something that MaxText does not write or that
        contradicts the log, and MetricsStoppedError if the log is far ahead of it.
        """
        # before the file: what the log shows must then be in the file
        for step, loss in self._log.steps():
            self._logged[step] = loss
            self.shown = max(self.shown, step)
        for line in self._metrics.lines():
            self._lines += 1
            record = self._record(line)
            if "learning/loss" in record and (stats := self._next(record)) is not None:
                yield stats
        if self.shown > self.last + _LAG:
            raise MetricsStoppedError(
                f"MaxText's log shows step {self.shown} and its metrics_file ends at step "
                f"{self.last}; "
                "check for a full disk, and for another process that writes to the file"
            )

    def unrecorded(self) -> range:
        """The last steps, which the log shows and metrics_file lacks; call it once the process has
        ended.
        """
        return range(self.last + 1, self.shown + 1)

    def proven(self) -> bool:
        """Whether the log has shown every step up to the last recorded one."""
        return self.shown >= self.last

    def _next(self, record: dict[str, Any]) -> StepStats | None:
        step = int(record["step"])
        if self._begun and step <= self.last:
            return None  # read again after the file was emptied
        if not 0 <= step < self._plan.steps:
            raise MetricsError(
                f"metrics_file has step {step}, expected steps from 0 to {self._plan.steps - 1}"
            )
        if step > self.last + 1:
            self.gaps.append(range(self.last + 1, step))
        self._begun, self.last = True, step
        stats = _stats(record, step, self._plan.tokens_per_step)
        self._compare(stats)
        return stats

    def _compare(self, stats: StepStats) -> None:
        logged = self._logged.get(stats.step)
        for step in [step for step in self._logged if step <= stats.step]:
            del self._logged[step]
        if logged is None or not math.isfinite(logged):
            return
        if not abs(stats.lm_loss - logged) <= _ROUNDING + 1e-6 * abs(logged):
            raise MetricsError(
                f"step {stats.step} has lm_loss {stats.lm_loss!r} in metrics_file and {logged} in "
                "the log; does another run write to it?"
            )

    def _record(self, line: bytes) -> dict[str, Any]:
        try:
            record = json.loads(line)
            if float(record["step"]).is_integer():
                return dict(record)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            pass
        raise MetricsError(
            f"line {self._lines} of metrics_file is {line[:80]!r}, expected a JSON object with a "
            "step"
        )


def _stats(record: dict[str, Any], step: int, tokens_per_step: int) -> StepStats:
    """Converts a record to the fields of our own engine; fields that MaxText does not have
    are NaN.
    """

    def number(*names: str) -> float:
        value = next((record[name] for name in names if name in record), _NAN)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise MetricsError(
                f"step {step} of metrics_file has {names[0]} = {value!r}, expected a number"
            )
        return float(value)

    layers = sorted(
        name.partition("/")[2] for name in record if name.startswith(f"{_ACTIVATIONS[0]}/")
    )
    return StepStats(
        step=step,
        loss=number("learning/loss"),
        lm_loss=number("learning/lm_loss", "learning/loss"),
        learning_rate=number("learning/current_learning_rate"),
        grad_norm=number("learning/raw_grad_norm"),
        clipped_grad_norm=number("learning/grad_norm"),
        param_norm=number("learning/param_norm"),
        update_norm=_NAN,
        tokens=(step + 1) * tokens_per_step,
        step_seconds=number("perf/step_time_seconds"),
        data_wait_seconds=_NAN,
        nonfinite_inputs=_NAN,
        layer_grad_norms=(),
        tflops_per_device=number("perf/per_device_tflops_per_sec"),
        layers=tuple(tuple(number(f"{name}/{layer}") for name in _ACTIVATIONS) for layer in layers)
        or None,
    )
