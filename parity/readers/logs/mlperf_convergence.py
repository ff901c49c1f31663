"""How far a run of an MLPerf benchmark trained until it reached its target: the events of one
result file, and the reference convergence points of a benchmark.

A run converges at its last evaluation before `run_stop` with status `success`, counted in samples
(`samples_count`; in older rounds `epoch_num`, which is epochs there). Reference points are the
JSON files `rcps_BENCHMARK.json`, one list of such numbers for each global batch size.

Source: mlperf_logging/rcp_checker and mlperf_logging/mllog (mlcommons/logging).
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path

from parity.frozen import frozen
from parity.readers.columns.number import plain_number
from parity.readers.errors import ReadError
from parity.readers.files.text import read_text
from parity.readers.logs.mlperf import (
    BENCHMARKS_IN_NATS,
    mlperf_events,
    position_name,
    result_files,
)

_EVALUATION = "eval_accuracy"
_PRECISIONS = ("lowest_numerical_precision_linear", "lowest_numerical_precision_in_linear")


@frozen
class ConvergenceRun:
    """One run: what its log states, None where it does not, and how far it trained.

    `samples`: at its last evaluation; `last_gap`: since the evaluation before, or since the start;
    both in samples, or epochs. `status`: of `run_stop`; None where the log has no end.
    `missed_target`: the last loss (nats) and the target, of a run that succeeded above it.
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
    missed_target: tuple[float, float] | None


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
    places: list[float] = [0.0]
    loss = status = None
    for number, event in mlperf_events(text, str(path)):
        key, value, about = event.get("key"), event.get("value"), event.get("metadata")
        about = about if isinstance(about, dict) else {}
        if not isinstance(key, str):
            continue
        if key == _EVALUATION:
            place = plain_number(about.get(position))
            if place is None or not places[-1] < place < math.inf:
                raise ReadError(
                    f"{path}, line {number}: an evaluation at {position} {about.get(position)!r}; "
                    f"expected more than {places[-1]:g}, where the one before it was"
                )
            places.append(place)
            loss = plain_number(value)
        elif key == "run_stop":
            status = str(about.get("status"))
            break
        elif value is not None:
            stated.setdefault(key, value)
    return ConvergenceRun(
        path=path,
        benchmark=_text(stated, "submission_benchmark"),
        organization=_text(stated, "submission_org"),
        system=_text(stated, "submission_platform"),
        batch_size=_whole(stated.get("global_batch_size")),
        seed=_text(stated, "seed"),
        precision=_text(stated, *_PRECISIONS),
        status=status,
        samples=places[-1] if len(places) > 1 else None,
        last_gap=places[-1] - places[-2] if len(places) > 1 else 0.0,
        missed_target=_missed_target(stated, status, loss),
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
                batch_size=int(record["BS"]),
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


def _positive(value: object) -> float:
    number = plain_number(value)
    if number is None or not 0.0 < number < math.inf:
        raise ValueError(f"{value!r} in `Epochs to converge`")
    return number


def _text(stated: dict[str, object], *keys: str) -> str | None:
    found = next((str(stated[key]) for key in keys if key in stated), None)
    return found or None


def _whole(value: object) -> int | None:
    number = plain_number(value)
    return int(number) if number is not None and number == int(number) else None


def _missed_target(
    stated: dict[str, object], status: str | None, loss: float | None
) -> tuple[float, float] | None:
    """Only where lower is better is it known which side of the target is right."""
    target = plain_number(stated.get("target_accuracy"))
    if (
        status != "success"
        or target is None
        or stated.get("submission_benchmark") not in BENCHMARKS_IN_NATS
        or (loss is not None and loss <= target)
    ):
        return None
    return (float("nan") if loss is None else loss), target


def missing_numbers(runs: Sequence[ConvergenceRun]) -> list[int]:
    """Numbers that the names of files skip: of `result_0.txt` and `result_2.txt` it is 1."""
    digits = ["".join(filter(str.isdigit, run.path.stem.rpartition("_")[2])) for run in runs]
    numbers = sorted({int(text) for text in digits if text})
    if len(numbers) < len(runs):
        return []
    return sorted({*range(min(1, numbers[0]), numbers[-1])} - {*numbers})
