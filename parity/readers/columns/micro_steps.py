"""Micro batches of one update, where a file counts both: the loss of the update is their mean.

With gradient accumulation a trainer may log each micro batch. Where the update's counter stands
still over several rows and a second one goes on, these rows are one step of the optimizer. Their
mean is not finite where one of them is not, or is blank while others at its place are not.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from parity.judging.curves.curve import BoolArray, FloatArray, IntArray
from parity.readers.columns.columns import RunColumns
from parity.readers.columns.names import LOSS, MICRO_STEP, STEP, VALIDATION
from parity.wording import count

_ALIKE = 0.9  # of the updates have as many micro batches; the first and the last may have fewer


def of_updates(taken: RunColumns) -> RunColumns:
    """The columns with one row an update, and without the counter of micro batches; as they are
    where no update has several rows.
    """
    if MICRO_STEP not in taken.values:
        return taken
    values = {name: column for name, column in taken.values.items() if name != MICRO_STEP}
    plain = dataclasses.replace(taken, values=values)
    steps, micro = taken.values[STEP], taken.values[MICRO_STEP]
    first = _first_rows(steps, micro)
    if len(first) == len(steps):
        return plain
    sizes = np.diff(np.append(first, len(steps)))
    batches = count(int(np.median(sizes)), "micro batch", "micro batches")
    absent = np.zeros(len(steps), dtype=bool) if taken.absent is None else taken.absent
    without = np.add.reduceat(absent.astype(np.int64), first)
    # next to a micro batch that has a loss
    lacks = _by_design(absent & np.repeat(without < sizes, sizes), first, sizes)
    last = np.append(first[1:], len(steps)) - 1
    merged = {name: column[last] for name, column in values.items()}
    merged[LOSS] = _means(values[LOSS], lacks, first)
    if VALIDATION in values:
        merged[VALIDATION] = _last_finite(values[VALIDATION], first, last)
    return dataclasses.replace(
        plain, values=merged, absent=None if taken.absent is None else (without == sizes)
    ).noted(
        f"{taken.names[STEP]!r} counts updates and {taken.names[MICRO_STEP]!r} micro batches: the "
        f"mean of those of an update ({batches}) is its loss"
    )


def distinct_steps(values: Mapping[str, FloatArray]) -> FloatArray:
    """The steps of rows (R,) by quantity; the micro batches of an update lie between it and the
    next one.
    """
    steps = values[STEP]
    if MICRO_STEP not in values:
        return steps
    first = _first_rows(steps, values[MICRO_STEP])
    sizes = np.diff(np.append(first, len(steps)))
    places = np.arange(len(steps)) - np.repeat(first, sizes)
    between: FloatArray = steps + places / np.repeat(sizes, sizes)
    return between


def _first_rows(steps: FloatArray, micro: FloatArray) -> IntArray:
    """The first row of each update, by the counters of updates and micro batches (R,); each row
    where they do not count so.
    """
    goes_on = steps[1:] == steps[:-1]
    first = np.flatnonzero(np.concatenate([[True], ~goes_on])) if len(steps) else np.arange(0)
    sizes = np.diff(np.append(first, len(steps)))
    if (
        not goes_on.any()
        or not (micro[1:] > micro[:-1])[goes_on].all()
        or not _are_alike(sizes[1:-1])
    ):
        return np.arange(len(steps))
    return first


def _are_alike(sizes: IntArray) -> bool:
    return not len(sizes) or float((sizes == np.median(sizes)).mean()) >= _ALIKE


def _by_design(lacks: BoolArray, first: IntArray, sizes: IntArray) -> BoolArray:
    """Which of the rows (R,) that lack a loss do so at a place of the update that has none in
    nearly all updates; another one was blank where it should not be.
    """
    places = np.arange(len(lacks)) - np.repeat(first, sizes)
    rare = np.bincount(places, weights=lacks) < _ALIKE * np.bincount(places)
    found: BoolArray = lacks & ~rare[places]
    return found


def _means(loss: FloatArray, lacks: BoolArray, first: IntArray) -> FloatArray:
    """The means of losses from each of the first rows on, without those that it lacks."""
    with np.errstate(invalid="ignore"):
        sums = np.add.reduceat(np.where(lacks, 0.0, loss), first)
    means: FloatArray = sums / np.add.reduceat((~lacks).astype(np.float64), first)
    return means


def _last_finite(values: FloatArray, first: IntArray, last: IntArray) -> FloatArray:
    """Of each group of rows the last value that is there."""
    found: FloatArray = values[last].copy()
    for at, (begin, end) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        there = values[begin : end + 1]
        there = there[~np.isnan(there)]
        if len(there):
            found[at] = there[-1]
    return found
