"""Results of EleutherAI's lm-evaluation-harness: results_*.json, and by item where samples were
logged (--log_samples).

    results_STAMP.json           {"results": {task: {"acc,none": 0.71, ...}}, "n-samples": {task:
                                 {"effective": 1000}}, ...}
    samples_TASK_STAMP.jsonl     beside it, one row an item and filter: {"doc_id": 0, "doc_hash":
                                 ..., "filter": "none", "acc": 1.0, ...}

A task counts by one metric: exact_match before acc_norm before acc before pass@1, of the filters
"none" before "strict-match" before the others. The tasks of a group (MMLU's 57) count as one, all
items pooled, as long as they have that metric in common. The name of a result says task, metric
and number of shots, so that arms evaluated differently have nothing in common. What is no share of
right answers (perplexities, TruthfulQA's mc2) is left out. Items pair by number and by the hashes
of text and prompt.

Source: lm-evaluation-harness 0.4, loggers/evaluation_tracker.py and result_schema.py.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from parity.judging.secondary.accuracy import TaskResult
from parity.names_once import NameTwiceError
from parity.readers.errors import ReadError
from parity.readers.files.json_values import object_of_values
from parity.readers.files.text import read_text

_METRICS = ("exact_match", "acc_norm", "acc", "pass@1", "pass_at_1")
_FILTERS = ("none", "strict-match")
_WHOLE = 1e-6  # a share of n items times n may miss the whole number by so much of n


def is_lm_eval_results(document: object) -> bool:
    """Whether a JSON document is a results file of the harness."""
    if not isinstance(document, dict) or not isinstance(document.get("results"), dict):
        return False
    return any(name in document for name in ("n-shot", "configs", "n-samples", "lm_eval_version"))


def read_lm_eval(document: Mapping[str, Any], name: str) -> dict[str, TaskResult]:
    """Results by task of a results file; raises ReadError if there is none that counts right
    answers, or files disagree.
    """
    leaves: dict[str, tuple[str, TaskResult]] = {}
    for task, metrics in document["results"].items():
        is_group = document.get("group_subtasks", {}).get(task) or task in document.get(
            "groups", {}
        )
        if not is_group and (leaf := _leaf(document, task, metrics, name)) is not None:
            leaves[task] = leaf
    if not leaves:
        raise ReadError(
            f"{name}: no task with {', '.join(_METRICS)}; expected results of "
            "lm-evaluation-harness that count right answers"
        )
    results: dict[str, TaskResult] = {}
    for task, members in _pools(document, leaves):
        metric = leaves[members[0]][0]
        shots = document.get("n-shot", {}).get(members[0])
        label = f"{task} {metric.removesuffix(',none')}" + (
            f", {shots} shots" if shots is not None else ""
        )
        results[label] = _pooled({member: leaves[member][1] for member in members})
    return results


def _leaf(
    document: Mapping[str, Any], task: str, metrics: Mapping[str, Any], name: str
) -> tuple[str, TaskResult] | None:
    """The metric that counts and its result; None for a task that counts no right answers."""
    metric = next(_preferred(metrics), None)
    if metric is None:
        return None
    share, where = float(metrics[metric]), f"{name}, task {task}"
    samples = _samples(document, task, name)
    if samples is not None:
        by_item = _item_results(samples, metric, where)
        if by_item is None:
            return None
        result = TaskResult(correct=sum(by_item.values()), items=len(by_item), by_item=by_item)
        if abs(result.correct / result.items - share) > _WHOLE:
            raise ReadError(
                f"{where}: {metric} is {share:g}, and its samples have {result.correct} right of "
                f"{result.items}; expected both to agree"
            )
        return metric, result
    counts = document.get("n-samples", {}).get(task)
    if counts is None:
        raise ReadError(
            f"{where}: no n-samples and no samples file; log the samples (--log_samples) or use "
            "lm_eval 0.4.3 or later"
        )
    items = counts.get("effective") if isinstance(counts, dict) else None
    if not isinstance(items, int) or items < 1:
        raise ReadError(
            f"{where}: n-samples is {counts!r}; expected the number of items under `effective`"
        )
    correct = round(share * items)
    if abs(share * items - correct) <= _WHOLE * items:
        return metric, TaskResult(correct=correct, items=items)
    return None


def _preferred(metrics: Mapping[str, Any]) -> Iterator[str]:
    """The keys that hold a share of right answers, the one that counts first."""
    for metric in _METRICS:
        filters = [key.partition(",")[2] for key in metrics if key.partition(",")[0] == metric]
        for part in sorted(
            filters, key=lambda name: _FILTERS.index(name) if name in _FILTERS else len(_FILTERS)
        ):
            key = f"{metric},{part}" if part else metric
            value = metrics.get(key)
            if (
                isinstance(value, (int, float))
                and not isinstance(value, bool)
                and math.isfinite(value)
                and 0 <= value <= 1
            ):
                yield key


def _samples(document: Mapping[str, Any], task: str, name: str) -> list[Any] | None:
    """The rows of a task's samples: inside the document, or from the file of the same stamp beside
    it; None where none were logged.
    """
    if task in document.get("samples", {}):
        return list(document["samples"][task])
    path = Path(name)
    stamp = path.name.partition("results_")[2].removesuffix(".gz").removesuffix(".json")
    if not stamp:
        return None
    for suffix in (".jsonl", ".jsonl.gz"):
        file = path.with_name(f"samples_{task}_{stamp}{suffix}")
        if file.exists():
            lines = enumerate(read_text(str(file)).splitlines(), 1)
            return [_json(line, f"{file}, line {number}") for number, line in lines if line.strip()]
    return None


def _json(line: str, where: str) -> Any:
    try:
        return json.loads(line, object_pairs_hook=object_of_values)
    except NameTwiceError as error:
        raise ReadError(f"{where}: {error}") from None
    except (ValueError, RecursionError):
        raise ReadError(f"{where}: not valid JSON; check the file") from None


def _item_results(rows: Iterable[Any], key: str, where: str) -> dict[str, bool] | None:
    """Right or wrong by item; None where the metric is no right or wrong."""
    metric, _, part = key.partition(",")
    by_item: dict[str, bool] = {}
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or "doc_id" not in row:
            raise ReadError(
                f"{where}, sample {number}: {str(row)[:80]!r}; expected an object with a doc_id"
            )
        if part and row.get("filter", part) != part:
            continue
        value = row.get(metric)
        if isinstance(value, (int, float)) and value not in (0, 1):
            return None
        if not isinstance(value, (int, float)):
            raise ReadError(f"{where}, sample {number}: {metric} is {value!r}; expected 0 or 1")
        item = "-".join(
            str(row[name])[:12] for name in ("doc_id", "doc_hash", "prompt_hash") if name in row
        )
        if item in by_item:
            raise ReadError(
                f"{where}, sample {number}: item {item!r} is there twice; expected each item once "
                "(a file that two runs wrote to?)"
            )
        by_item[item] = bool(value)
    if not by_item:
        raise ReadError(f"{where}: no sample with filter {part!r}; expected one an item")
    return by_item


def _pools(
    document: Mapping[str, Any], leaves: Mapping[str, tuple[str, TaskResult]]
) -> Iterator[tuple[str, list[str]]]:
    """(name, tasks): groups whose tasks have a metric in common, from the outermost, then the tasks
    that are in none.
    """
    groups: Mapping[str, Any] = document.get("group_subtasks", {})
    inner = {part for parts in groups.values() for part in parts}
    pooled: set[str] = set()
    open_groups = [group for group, parts in groups.items() if parts and group not in inner]
    while open_groups:
        group = open_groups.pop(0)
        members = [
            task
            for task in dict.fromkeys(_members(groups, group, ()))
            if task in leaves and task not in pooled
        ]
        if members and len({leaves[task][0] for task in members}) == 1:
            pooled |= set(members)
            yield group, members
        else:
            open_groups += [part for part in groups[group] if groups.get(part)]
    yield from ((task, [task]) for task in leaves if task not in pooled)


def _members(groups: Mapping[str, Any], group: str, above: tuple[str, ...]) -> Iterator[str]:
    for part in groups[group]:
        if groups.get(part) and part not in above:
            yield from _members(groups, part, (*above, group))
        else:
            yield part


def _pooled(parts: Mapping[str, TaskResult]) -> TaskResult:
    """The items of all parts together; by item only where every part is."""
    if len(parts) == 1:
        return next(iter(parts.values()))
    by_item = {}
    if all(part.by_item for part in parts.values()):
        by_item = {
            f"{task}/{item}": right
            for task, part in parts.items()
            for item, right in part.by_item.items()
        }
    correct, items = (
        sum(part.correct for part in parts.values()),
        sum(part.items for part in parts.values()),
    )
    return TaskResult(correct=correct, items=items, by_item=by_item)
