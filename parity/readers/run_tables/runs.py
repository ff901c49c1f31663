"""The arms of a table and the runs of each, with their seeds and what they ran on.

Nothing is guessed about runs. They are sorted by name in natural order (run 2 before run 10), so
the order of the rows affects only the order of the arms.
"""

import dataclasses
import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence

from parity.frozen import frozen
from parity.judging.curves.context import HOST
from parity.judging.curves.curve import Curve
from parity.readers.columns.names import listed
from parity.readers.errors import ReadError
from parity.readers.run_tables.cells import TableCells
from parity.readers.run_tables.known_columns import CONDITIONS, is_size
from parity.readers.run_tables.layout import RunTable

MAX_ARMS = 20


@frozen
class TableRun:
    """The rows of one run, in the order of the file."""

    arm: str
    name: tuple[str, ...]
    rows: Sequence[int]

    @property
    def label(self) -> str:
        return "/".join(self.name) or self.arm


def runs_by_arm(
    cells: TableCells,
    layout: RunTable,
    names: Sequence[str],
    curve_of_run: Callable[[TableRun], Curve],
) -> dict[str, list[Curve]]:
    """The runs of each arm, in natural order."""
    arms: dict[str, list[Curve]] = {arm: [] for arm in names}
    runs = runs_of(cells, layout)
    seeds = _seeds(cells, layout, runs)
    for run, seed in sorted(
        zip(runs, seeds, strict=True),
        key=lambda run_and_seed: (_natural(run_and_seed[0].name), run_and_seed[0].name),
    ):
        replicate = sum(curve.seed == seed for curve in arms[run.arm])
        curve = curve_of_run(run)
        stated, context = layout.seed is not None, {**curve.context, **_context(cells, run, layout)}
        arms[run.arm].append(
            dataclasses.replace(
                curve, seed=seed, seed_stated=stated, replicate=replicate, context=context
            )
        )
    return arms


def arms_of(cells: TableCells, layout: RunTable) -> list[str]:
    """The values of the arm column in order of appearance; raises ReadError where they cannot be
    arms.
    """
    arms = list(dict.fromkeys(cells.full_texts(layout.arm, "the name of an arm")))
    if len(arms) == 1:
        raise ReadError(
            f"{cells.source}: the column {layout.arm!r} has one value, {arms[0]!r}; expected a "
            "baseline and at least one candidate; name the column that differs between the arms"
        )
    if len(arms) > MAX_ARMS:
        raise ReadError(
            f"{cells.source}: the column {layout.arm!r} has {len(arms):,} values "
            f"({listed(arms[:3])}, ...); expected 2 to {MAX_ARMS} arms; "
            "name a column with one value per arm"
        )
    return arms


def runs_of(cells: TableCells, layout: RunTable) -> list[TableRun]:
    """The runs with their rows; raises ReadError for two runs with one label in an arm."""
    arms = cells.texts(layout.arm)
    names = [cells.full_texts(column, "the name of a run") for column in layout.run]
    rows: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for row, (arm, *name) in enumerate(zip(arms, *names, strict=True)):
        rows.setdefault((arm, tuple(name)), []).append(row)
    runs = [TableRun(arm=arm, name=name, rows=run_rows) for (arm, name), run_rows in rows.items()]
    for (arm, label), number in Counter((run.arm, run.label) for run in runs).items():
        if number > 1:
            raise ReadError(
                f"{cells.source}: {number} runs of {arm} are called {label!r}; expected one name "
                "per run; rename one of them"
            )
    return runs


def refuse_sizes_of_runs(cells: TableCells, columns: Sequence[str]) -> None:
    """Raise ReadError where one of the columns names two sizes of a model."""
    for column in columns:
        if is_size(column) and len(set(cells.texts(column))) > 1:
            raise ReadError(
                f"{cells.source}: the column {column!r} names the size of a model, and runs of two "
                "sizes are no reruns of each other; `parity compare` compares each size on its own "
                f"with --size-by {shlex.quote(column)}"
            )


def only_value(cells: TableCells, run: TableRun, column: str, *, may_be_empty: bool = False) -> str:
    """A column's one value in a run; raises ReadError where a row has another value, or none."""
    first = cells.text(run.rows[0], column)
    for row in run.rows:
        value = cells.text(row, column)
        if not value and not may_be_empty:
            raise ReadError(
                f"{cells.where(row)}: the column {column!r} is empty; expected a value in every row"
            )
        if value != first:
            raise ReadError(
                f"{cells.where(row)}: run {run.label} of {run.arm} has {first!r} and {value!r} in "
                f"the column {column!r}; "
                f"expected one value per run; if these are two runs, add {column} to --run-by"
            )
    return first


def _seeds(cells: TableCells, layout: RunTable, runs: Sequence[TableRun]) -> list[int]:
    """The seed of each run: whole numbers as they are, other values numbered in their natural
    order; 0 without a column of seeds.
    """
    if layout.seed is None:
        return [0] * len(runs)
    cells.full_texts(layout.seed, "the seed of the run")
    values = [only_value(cells, run, layout.seed) for run in runs]
    if all(re.fullmatch(r"[0-9]{1,15}", value) for value in values):
        return [int(value) for value in values]
    numbers = {
        value: number
        for number, value in enumerate(sorted(set(values), key=lambda value: _natural((value,))))
    }
    return [numbers[value] for value in values]


def _context(cells: TableCells, run: TableRun, layout: RunTable) -> dict[str, str]:
    """What a run ran on: the kept columns, and the well-known conditions that have one value
    in it.
    """
    context = {column: only_value(cells, run, column) for column in layout.keep}
    for column in cells.names:
        key = column.strip().lower()
        if key in CONDITIONS and column not in (layout.arm, *layout.keep):
            values = {cells.text(row, column) for row in run.rows}
            if len(values) == 1 and "" not in values:
                context.setdefault(HOST if key == "hostname" else key, values.pop())
    return context


def _natural(name: Sequence[str]) -> list[list[tuple[int, str]]]:
    """A key that sorts names with numbers in them by the numbers."""
    return [[_sort_key(part) for part in re.split("([0-9]+)", text)] for text in name]


def _sort_key(part: str) -> tuple[int, str]:
    digits = part.lstrip("0")
    if re.fullmatch("[0-9]+", part):
        return len(digits), digits
    return -1, part
