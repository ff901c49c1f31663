"""MLPerf training logs: lines `:::MLLOG {...}` with an event each, alone or between a trainer's
other lines, and folders of such files.

    evaluation   `eval_accuracy`; of the language models below a loss in nats (`eval_loss`), of
                 other benchmarks an accuracy
    training     `train_loss` or `reduced_train_loss`, as an event or as a value of `tracked_stats`;
                 the event may hold the learning rate
    position     the samples that were consumed (`samples_count`, in older rounds `epoch_num`); an
                 event without one is left out
    facts        seed, batch size, learning rate and sequence length, as a tracker's config; a
                 precision is shown, never read as a recipe

Steps are samples, because evaluations are placed by samples alone and batch sizes differ between
submissions. No planned length is taken: `max_steps` counts optimizer steps, and a run stops at its
target. Evaluations of one run are few, so compare them as held-out losses.

Source: mlperf_logging/mllog (mlcommons/logging), and the result files of training_results_v5.1
(llama31_8b, llama2_70b_lora).
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from parity.frozen import frozen
from parity.names_once import NameTwiceError
from parity.readers.columns.columns import RunColumns
from parity.readers.columns.names import LOSS
from parity.readers.columns.number import plain_number, step_number
from parity.readers.columns.series import columns_from_series
from parity.readers.errors import NoLossError, ReadError
from parity.readers.files.json_values import object_of_values
from parity.readers.files.text import read_text

MARK = ":::MLLOG "
EVALUATION, SAMPLES, FOLDER = "eval_loss", "samples", "folder"
_ACCURACY = "eval_accuracy"
BENCHMARKS_IN_NATS = ("gpt3", "gpt_oss_20b", "llama2_70b_lora", "llama31_405b", "llama31_8b")
"""Benchmarks whose `eval_accuracy` is a cross-entropy in nats per token."""
_TRAINING = ("train_loss", "reduced_train_loss")
_POSITIONS = ("samples_count", "epoch_num")
_FACTS = {
    "seed": "seed",
    "global_batch_size": "global_batch_size",
    "max_sequence_length": "sequence_length",
    "opt_base_learning_rate": "learning_rate",
    "opt_end_learning_rate": "min_learning_rate",
    "opt_learning_rate_warmup_steps": "warmup_steps",
    "lowest_numerical_precision_linear": "precision",
    "lowest_numerical_precision_in_linear": "precision",
}
"""Events that state a fact, and the key of a config that says the same."""
_SHOWN = {
    "submission_benchmark": "benchmark",
    "submission_org": "organization",
    "submission_platform": "system",
}
_SUFFIXES = (".txt", ".log", ".out")
_BLOCK, _MOST_FILES = 1 << 20, 5000
NamedSeries = dict[str, list[tuple[int, float]]]


@frozen(eq=False)
class MlperfResult:
    """One log: its series of (samples, value) by name, and what it states, by the keys of a
    config.
    """

    series: NamedSeries
    facts: Mapping[str, str]


def is_mlperf(text: str) -> bool:
    """Whether a text has an evaluation or a training loss in an MLPerf event."""
    return MARK in text and any(
        MARK in line and any(f'"{key}"' in line for key in (_ACCURACY, *_TRAINING))
        for line in text.split("\n")
    )


def read_result(text: str, source: str) -> MlperfResult:
    """The events of a log; ReadError with the line of one that is not valid. A last line that is
    cut short is left out.
    """
    series: NamedSeries = {}
    facts: dict[str, str] = {}
    position = position_name(text)
    for number, event in mlperf_events(text, source):
        key, value, about = event.get("key"), event.get("value"), event.get("metadata")
        about = about if isinstance(about, dict) else {}
        fact = {**_FACTS, **_SHOWN}.get(key) if isinstance(key, str) else None
        if fact is not None and isinstance(value, (str, int, float)) and str(value):
            facts.setdefault(fact, str(value))
        values = value if key == "tracked_stats" and isinstance(value, dict) else {key: value}
        losses = {
            name: found
            for name in (_ACCURACY, *_TRAINING)
            if (found := plain_number(values.get(name))) is not None
        }
        place = plain_number(about.get(position))
        if not losses or place is None:
            continue
        at = int(step_number(place, f"{source}, line {number}"))
        for name, loss in losses.items():
            series.setdefault(_TRAINING[0] if name in _TRAINING else name, []).append((at, loss))
        rate = plain_number(about.get("lr", values.get("lr")))
        if rate is not None:
            series.setdefault("learning_rate", []).append((at, rate))
    if facts.get("benchmark") in BENCHMARKS_IN_NATS and _ACCURACY in series:
        series[EVALUATION] = series.pop(_ACCURACY)
    return MlperfResult(series=series, facts=facts)


def read_mlperf(text: str, source: str, named_columns: Mapping[str, str]) -> RunColumns:
    """Columns of one log, with its facts as their config; NoLossError where it has evaluations
    alone and none was named.
    """
    result = read_result(text, source)
    if (
        not {*_TRAINING, named_columns.get(LOSS, "")} & result.series.keys()
        and EVALUATION in result.series
    ):
        raise NoLossError(
            f"{source}: an MLPerf log with evaluations and no training losses; compare those: "
            f"--column {LOSS}={EVALUATION}; all runs of a "
            "folder: parity compare FOLDER --arm-by COLUMN"
        )
    columns = columns_from_series(
        result.series, result.series.__getitem__, named_columns, source, SAMPLES
    )
    facts = {name: value for name, value in result.facts.items() if name in _FACTS.values()}
    return dataclasses.replace(columns, config=facts).noted(
        "an MLPerf log: steps are consumed samples"
    )


def result_files(folder: Path) -> list[Path]:
    """The MLPerf logs in a folder and its subfolders, by name; ReadError for more files than a
    comparison can have.
    """
    found: list[Path] = []
    for path in sorted(folder.rglob("*.*")):
        if path.suffix.casefold() in _SUFFIXES and path.is_file() and _has_event(path):
            found.append(path)
        if len(found) > _MOST_FILES:
            raise ReadError(
                f"{folder}: more than {_MOST_FILES:,} MLPerf logs; name the folder of one benchmark"
            )
    return found


def _has_event(path: Path) -> bool:
    """Whether a file has an event anywhere: much output may stand before the first one."""
    mark, end = MARK.encode(), b""
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            if mark in end + block:
                return True
            end = (end + block)[1 - len(mark) :]
    return False


def rows_of_folder(folder: Path) -> list[dict[str, object]]:
    """The runs in a folder of logs as rows of a table: folder and run, what the log states, and a
    row for each sample count.
    """
    rows: list[dict[str, object]] = []
    for path in result_files(folder):
        result = read_result(read_text(str(path)), str(path))
        place = path.relative_to(folder)
        about = {
            FOLDER: place.parts[0] if len(place.parts) > 1 else ".",
            "run": str(place.with_suffix("")),
            **result.facts,
        }
        at: dict[int, dict[str, float]] = {}
        for name, series in result.series.items():
            for samples, value in series:
                at.setdefault(samples, {})[name] = value
        rows += [{**about, SAMPLES: samples, **values} for samples, values in sorted(at.items())]
    return rows


def position_name(text: str) -> str:
    """What a log counts its evaluations by; one for all, as they may be of two units."""
    return next((name for name in _POSITIONS if f'"{name}"' in text), _POSITIONS[0])


def mlperf_events(text: str, source: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events of a log with the numbers of their lines; ReadError for one that is not valid, but
    for a last line that is cut short.
    """
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        _, mark, rest = line.partition(MARK)
        if not mark:
            continue
        try:
            event, _ = json.JSONDecoder(object_pairs_hook=object_of_values).raw_decode(
                rest.lstrip()
            )
        except NameTwiceError as error:
            raise ReadError(f"{source}, line {number}: {error}") from None
        except (ValueError, RecursionError):
            if number == len(lines):
                return
            raise ReadError(
                f"{source}, line {number}: an MLPerf event that is not valid JSON; remove the line"
            ) from None
        if isinstance(event, dict):
            yield number, event
