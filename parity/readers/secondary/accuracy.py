"""Accuracy files of downstream evaluations: CSV or JSON, with each item's result or with counts per
task.

CSV, results:  task,correct         one row per item, correct is 1/0 or true/false; an `item` column
               names the item (else the order does)
CSV, counts:   task,accuracy,n      one row a task, accuracy from 0 to 1; or task,correct,n with the
               number of correct items
A column `choices` states how many choices an item of the task has (0: free answers), for tasks that
are not public.
JSON:          a list of such rows, or {"task": {"accuracy": 0.71, "n": 1000}, "other": [1, 0, true,
               ...]} or results_*.json of lm-evaluation-harness (`parity.readers.secondary.lm_eval`)
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from parity.judging.secondary.accuracy import MAX_CHOICES, TaskResult
from parity.readers.errors import ReadError
from parity.readers.files.json_values import json_value
from parity.readers.files.text import read_text
from parity.readers.secondary.lm_eval import is_lm_eval_results, read_lm_eval
from parity.readers.secondary.value_rows import rows_of

_TRUTH = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


def read_accuracy(name: str) -> dict[str, TaskResult]:
    """Results by task from a CSV or JSON file; raises ReadError with the file, the row and what was
    expected.
    """
    text = read_text(name)
    if text.lstrip()[:1] == "{" and is_lm_eval_results(document := json_value(text, name)):
        return read_lm_eval(document, name)
    grouped: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
    for number, row in rows_of(text, name, _task_rows):
        task = row.get("task")
        if task in (None, ""):
            raise ReadError(
                f"{name}, row {number}: no task; expected the columns task, correct (one row per "
                "item) or task, accuracy, n"
            )
        grouped.setdefault(str(task), []).append((number, row))
    if not grouped:
        raise ReadError(f"{name}: no results; expected one row per item or one row per task")
    return {
        task: _task(task_rows, f"{name}, task {task[:40]!r}") for task, task_rows in grouped.items()
    }


def _task_rows(document: Mapping[str, Any]) -> list[Any]:
    rows: list[Any] = []
    for task, value in document.items():
        if isinstance(value, list):
            rows += [{"task": task, "correct": item} for item in value]
        else:
            rows.append({"task": task, **value} if isinstance(value, dict) else value)
    return rows


def _task(rows: Sequence[tuple[int, Mapping[str, Any]]], where: str) -> TaskResult:
    number, first = rows[0]
    if first.get("n") not in (None, ""):
        if len(rows) > 1:
            raise ReadError(
                f"{where}, row {rows[1][0]}: a second row with counts; expected one row per task"
            )
        return _counts(first, f"{where}, row {number}")
    by_item: dict[str, bool] = {}
    for position, (number, row) in enumerate(rows):
        value = row.get("correct")
        truth = _TRUTH.get(str(value).strip().lower())
        if truth is None:
            raise ReadError(
                f"{where}, row {number}: correct is {value!r}; expected 1 or 0 for an item, or a "
                "column n next to the accuracy"
            )
        item = str(position if row.get("item") in (None, "") else row["item"])
        if item in by_item:
            raise ReadError(
                f"{where}, row {number}: item {item!r} occurs twice; expected each item once"
            )
        by_item[item] = truth
    return _result(
        sum(by_item.values()), len(by_item), first, f"{where}, row {rows[0][0]}", by_item
    )


def _result(
    correct: int,
    items: int,
    row: Mapping[str, Any],
    where: str,
    by_item: Mapping[str, bool] | None = None,
) -> TaskResult:
    """The result of a task with the number of choices that its (first) row states."""
    choices = None if row.get("choices") in (None, "") else _number(row, "choices", where)
    if choices is not None and (
        choices != int(choices) or not (choices == 0 or 1 < choices <= MAX_CHOICES)
    ):
        raise ReadError(
            f"{where}: choices is {choices:g}; expected the choices of an item, 2 to "
            f"{MAX_CHOICES:,}, or 0 for free answers"
        )
    return TaskResult(
        correct=correct,
        items=items,
        by_item=by_item or {},
        choices=None if choices is None else int(choices),
    )


def _counts(row: Mapping[str, Any], where: str) -> TaskResult:
    n = _number(row, "n", where)
    if n < 1 or n != int(n):
        raise ReadError(f"{where}: n is {n:g}; expected the number of items, at least 1")
    if row.get("accuracy") not in (None, ""):
        accuracy = _number(row, "accuracy", where)
        if not 0.0 <= accuracy <= 1.0:
            raise ReadError(
                f"{where}: accuracy is {accuracy:g}; expected a share from 0 to 1 (0.71 for 71 %)"
            )
        return _result(round(accuracy * n), int(n), row, where)
    correct = _number(row, "correct", where)
    if not 0 <= correct <= n or correct != int(correct):
        raise ReadError(
            f"{where}: {correct:g} correct of {n:g}; expected a whole number from 0 to n"
        )
    return _result(int(correct), int(n), row, where)


def _number(row: Mapping[str, Any], key: str, where: str) -> float:
    value = row.get(key)
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or isinstance(value, bool):
        raise ReadError(f"{where}: {key} is {value!r}; expected a number")
    return number
