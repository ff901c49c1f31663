"""How far a run of an MLPerf benchmark trained until it reached its target: the events of one
result file, and the reference convergence points of a benchmark.

A run converges at its last evaluation before `run_stop` with status `success`, counted in samples
(`samples_count`; in older rounds `epoch_num`, which is epochs there). Reference points are the
JSON files `rcps_BENCHMARK.json`, one list of such numbers for each global batch size.

Source: mlperf_logging/rcp_checker and mlperf_logging/mllog (mlcommons/logging).
"""

import json
import math
from pathlib import Path

from parity.frozen import frozen
from parity.readers.columns.number import plain_number
from parity.readers.errors import ReadError
from parity.readers.files.text import read_text
from parity.readers.logs.mlperf import (
    mlperf_events,
    position_name,
    result_files,
)

_EVALUATION, _START, _END = "eval_accuracy", "run_start", "run_stop"
_PRECISIONS = ("lowest_numerical_precision_linear", "lowest_numerical_precision_in_linear")


@frozen
class ConvergenceRun:
    """One run: what its log states, None where it does not, and how far it trained.

    `samples`: at its last evaluation; `last_gap`: since the evaluation before, or since the start;
    both in samples, or epochs. `evaluations`: their places and values, NaN where one is no number.
    `target`: as stated, NaN where it is no number. `status`: of `run_stop`; None where the log has
    no end. `goes_on`: whether another run begins or ends behind it.
    """

    path: Path
    benchmark: str | None
    organization: str | None
    system: str | None
    batch_size: int | None
    seed: str | None
    precision: str | None
    status: str | None
    samples: float | None
    last_gap: float
    evaluations: tuple[tuple[float, float], ...]
    target: float | None
    goes_on: bool


@frozen
class ReferencePoint:
    """Runs of the reference at one global batch size, each with its samples to the target."""

    name: str
    benchmark: str
    batch_size: int
    precision: str | None
    samples: tuple[float, ...]


def read_convergence_run(path: Path) -> ConvergenceRun:
    """A run from its log; ReadError as for any MLPerf log."""
    text = read_text(str(path))
    position = position_name(text)
    stated: dict[str, object] = {}
    evaluations: list[tuple[float, float]] = []
    last = 0.0
    status: str | None = None
    goes_on = False
    for number, event in mlperf_events(text, str(path)):
        key, value, about = event.get("key"), event.get("value"), event.get("metadata")
        about = about if isinstance(about, dict) else {}
        if not isinstance(key, str):
            continue
        if status is not None:
            goes_on |= key == _START or (key == _END and str(about.get("status")) != status)
        elif key == _EVALUATION:
            place = plain_number(about.get(position))
            if place is None or not last < place < math.inf:
                raise ReadError(
                    f"{path}, line {number}: an evaluation at {position} {about.get(position)!r}; "
                    f"expected more than {last:g}, where the one before it was"
                )
            last = place
            evaluations.append((place, _number(value)))
        elif key == _END:
            status = str(about.get("status"))
        elif value is not None:
            stated.setdefault(key, value)
    before = evaluations[-2][0] if len(evaluations) > 1 else 0.0
    return ConvergenceRun(
        path=path,
        benchmark=_text(stated, "submission_benchmark"),
        organization=_text(stated, "submission_org"),
        system=_text(stated, "submission_platform"),
        batch_size=_whole(stated.get("global_batch_size")),
        seed=_seed(stated.get("seed")),
        precision=_text(stated, *_PRECISIONS),
        status=status,
        samples=last or None,
        last_gap=last - before,
        evaluations=tuple(evaluations),
        target=_number(stated["target_accuracy"]) if "target_accuracy" in stated else None,
        goes_on=goes_on,
    )


def convergence_runs(folder: Path) -> dict[Path, list[ConvergenceRun]]:
    """The runs in a folder and its subfolders, by the folder of their files; ReadError where there
    is none.
    """
    found: dict[Path, list[ConvergenceRun]] = {}
    for path in result_files(folder):
        found.setdefault(path.parent, []).append(read_convergence_run(path))
    if not found:
        raise ReadError(f"{folder}: no MLPerf log; expected files such as result_0.txt")
    return found


def read_reference_points(path: Path) -> list[ReferencePoint]:
    """The reference convergence points of a file; ReadError for any other file."""
    try:
        document = json.loads(read_text(str(path)))
        points = [
            ReferencePoint(
                name=name,
                benchmark=str(record["Benchmark"]),
                batch_size=_batch_size(record["BS"]),
                precision=record.get("Precision"),
                samples=tuple(map(_positive, record["Epochs to converge"])),
            )
            for name, record in document.items()
        ]
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ReadError(
            f"{path}: no reference convergence points ({error}); expected a file such as "
            "rcps_llama31_8b.json, with `Benchmark`, `BS` and `Epochs to converge` in each record"
        ) from None
    benchmarks = {point.benchmark for point in points}
    if len(benchmarks) != 1:
        raise ReadError(
            f"{path}: reference convergence points of {len(benchmarks)} benchmarks; expected one"
        )
    return points


def _batch_size(value: object) -> int:
    number = _whole(value)
    if number is None or number < 1:
        raise ValueError(f"{value!r} in `BS`, which is no whole number above 0")
    return number


def _positive(value: object) -> float:
    number = plain_number(value)
    if number is None or not 0.0 < number < math.inf:
        raise ValueError(f"{value!r} in `Epochs to converge`")
    return number


def _text(stated: dict[str, object], *keys: str) -> str | None:
    found = next((str(stated[key]) for key in keys if key in stated), None)
    return found or None


def _number(value: object) -> float:
    number = plain_number(value)
    return math.nan if number is None else number


def _seed(value: object) -> str | None:
    """A seed as text: 100.0 is the seed 100."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return None if value in (None, "") else str(value)


def _whole(value: object) -> int | None:
    number = plain_number(value)
    return int(number) if number is not None and number.is_integer() else None
