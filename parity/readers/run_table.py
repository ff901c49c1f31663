"""Tables of many runs: columns name the arm, the run, the step and the loss of each row; a second
table may hold the times of the runs.
"""

import dataclasses
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.context import HOST
from parity.judging.curves.curve import Curve, FloatArray, curve_from_arrays
from parity.judging.evaluations.gap import PRINTED_STEP
from parity.judging.evaluations.run_times import RunTimes
from parity.readers.absence import columns_of, training_records
from parity.readers.columns import (
    KNOWN_NAMES,
    LOSS,
    STEP,
    ReadError,
    curve_of,
    did_you_mean,
    find_columns,
    is_held_out,
    listed,
    plain_number,
    read_text,
    step_number,
)
from parity.readers.logs import is_json, is_tensorboard_file, json_records
from parity.readers.mlperf import FOLDER, SAMPLES, rows_of_folder
from parity.readers.table import (
    METRIC_NAMES,
    MISSING,
    NPZ,
    RUN_NAMES,
    VALUE_NAMES,
    Row,
    arm_column,
    as_table,
    parquet_cells,
)
from parity.readers.table import SUFFIX as PARQUET

# The cells of a table as they stand in the file, with the line of each: CSV and its relatives, JSON
# lines, a JSON list or Parquet.


@frozen(eq=False)
class Cells:
    """A table's `columns` by name, one cell per row; `lines` numbers the rows, and `place` is what
    is numbered: a line, record or row.
    """

    source: str
    columns: Mapping[str, Sequence[object]]
    lines: Sequence[int]
    place: str

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in the order of the file."""
        return tuple(self.columns)

    def where(self, row: int) -> str:
        """The file and the line of a row, for errors."""
        return f"{self.source}, {self.place} {self.lines[row]}"

    def require(self, column: str, what: str) -> None:
        """Raise ReadError where a column is missing; `what` says what it was named for."""
        if column not in self.columns:
            raise ReadError(
                f"{self.source}: no column {column!r} for {what}; the columns are "
                f"{listed(self.names)}{did_you_mean(column, self.names)}"
            )

    def where_equal(self, column: str, values: Collection[str]) -> "Cells":
        """The rows that have one of the values in a column; raises ReadError where the column is
        missing or no row has one.
        """
        self.require(column, "--where")
        texts = self.texts(column)
        rows = [row for row, text in enumerate(texts) if text in values]
        if not rows:
            there = listed(list(dict.fromkeys(texts)))
            raise ReadError(
                f"{self.source}: no row has {column}={' or '.join(values)}; the column has {there}"
            )
        return self.of_rows(rows)

    def of_rows(self, rows: Sequence[int]) -> "Cells":
        """These rows alone."""
        columns = {name: [cells[row] for row in rows] for name, cells in self.columns.items()}
        return Cells(
            source=self.source,
            columns=columns,
            lines=[self.lines[row] for row in rows],
            place=self.place,
        )

    def text(self, row: int, column: str) -> str:
        """A cell as text, "" for an empty one; a whole number is written without a point."""
        return _text(self.columns[column][row])

    def texts(self, column: str) -> list[str]:
        """A column as text, as `text` gives it."""
        return [_text(value) for value in self.columns[column]]

    def full_texts(self, column: str, what: str) -> list[str]:
        """A column as text; raises ReadError with the line of an empty cell."""
        texts = self.texts(column)
        if "" in texts:
            raise ReadError(
                f"{self.where(texts.index(''))}: the column {column!r} is empty; expected {what} "
                "in every row"
            )
        return texts

    def is_empty(self, row: int, column: str) -> bool:
        """Whether a cell holds nothing; NaN is a value."""
        value = self.columns[column][row]
        return value is None or (isinstance(value, str) and not value.strip())

    def number(self, row: int, column: str) -> float:
        """A cell as a number; raises ReadError with its line where it is not one."""
        value = self.columns[column][row]
        number = plain_number(value)
        if number is None:
            shown = "nothing" if self.is_empty(row, column) else repr(value)
            raise ReadError(
                f"{self.where(row)}: {shown:.60} in the column {column!r}; expected a number (nan "
                "and inf are allowed)"
            )
        return number

    def numbers(self, rows: Sequence[int], column: str) -> FloatArray:
        """The cells of some rows as numbers (n,), NaN for an empty one; raises ReadError with the
        line of any other text.
        """
        values = self.columns[column]
        return np.array(
            [
                np.nan if _text(values[row]).lower() in MISSING else self.number(row, column)
                for row in rows
            ],
            np.float64,
        )


def read_cells(source: str) -> Cells:
    """The cells of a table from a path, a .gz or "-" (stdin). Raises ReadError for a file that is
    not a table with a header.
    """
    if (source.endswith(NPZ) or is_tensorboard_file(source)) and Path(source).is_file():
        raise ReadError(
            f"{source}: not a table of many runs; expected CSV, TSV, JSON lines or Parquet, with a "
            "column for the arm"
        )
    if source.endswith(PARQUET) and Path(source).is_file():
        columns = parquet_cells(source)
        rows = len(next(iter(columns.values()), []))
        cells = Cells(source=source, columns=columns, lines=range(1, rows + 1), place="row")
    elif Path(source).is_dir():
        runs = rows_of_folder(Path(source))
        if not runs:
            raise ReadError(
                f"{source}: a folder without an MLPerf log; expected result files, or a table of "
                "many runs"
            )
        names = dict.fromkeys(name for row in runs for name in row)
        columns = {name: [row.get(name) for row in runs] for name in names}
        cells = Cells(source=source, columns=columns, lines=range(1, len(runs) + 1), place="row")
    else:
        cells = _text_cells(read_text(source), source)
    if not cells.lines:
        raise ReadError(f"{source}: the table has no rows; expected one row per run and evaluation")
    return cells


def _text_cells(text: str, source: str) -> Cells:
    rows: Sequence[Row]
    names: Iterable[str]
    if is_json(text):
        rows, place = json_records(text, source)
        names = dict.fromkeys(key for _, record in rows for key in record)
    else:
        table = as_table(text, source)
        if not table.has_header:
            raise ReadError(
                f"{source}: there is no header line; expected names of columns in line 1"
            )
        names, place = table.first, "line"
        for name in names:
            if table.first.count(name) > 1:
                raise ReadError(
                    f"{source}: {table.first.count(name)} columns are called {name!r}; expected "
                    "one; rename the others"
                )
        rows = table.rows()
    columns = {name: [row.get(name) for _, row in rows] for name in names}
    return Cells(source=source, columns=columns, lines=[number for number, _ in rows], place=place)


def _text(value: object) -> str:
    if value is None or value != value:  # NaN names nothing
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


# Tables of many runs, one row per run and step or evaluation: columns name the arm, the run, the
# step and the loss.
#
# Nothing is guessed about runs: rows of one run that repeat a step are refused, because then the
# columns do not tell its runs apart. Runs are sorted by name in natural order (run 2 before run
# 10), so the order of the rows affects only the order of the arms.

MAX_ARMS = 20
MAX_SIZES = 100
HARDWARE = ("accelerator", "device", "device_class", "gpu")
CONDITIONS = (
    *HARDWARE,
    *(
        "system",
        HOST,
        "hostname",
        "software",
        "software_version",
        "framework",
        "image",
        "driver",
        "engine",
        "code_revision",
    ),
)
"""Columns, in lower case, that name what a run ran on: kept as its context where they have one
value in the whole run.
"""

SIZE_NAMES = (
    *(
        "params",
        "parameters",
        "n_params",
        "num_params",
        "num_parameters",
        "model_params",
        "params_m",
        "params_b",
        "params_millions",
    ),
    *("model_millions", "model_billions", "model_size", "size", "model", "model_name"),
)
"""Columns, in lower case, that name the size of a model: losses of two sizes are never those of one
run, nor of reruns.
"""
# of the trainings of one arm and size in a table of final losses; more rows are those of a curve
_MOST_LENGTHS = 5
_BASELINES = ("baseline", "base", "bf16", "fp32", "f32")

_OPTION = "--{} NAME"
# with two values in what should be one run, rows of two runs are mixed
_NAMES_OF_RUNS = (*RUN_NAMES, "seed")
_SHOWN = 6


@frozen
class RunTable:
    """The columns of a table of many runs: `arm` names the arm of a row, the values of `run`
    together name its run (none: one run an arm).

    `step` and `loss` (nats per token) default to the well-known names. Runs of two arms with one
    value of `seed` share data and initialization. The columns in `keep`, such as the cluster of a
    run, become part of each run's context. `where` selects rows: those with one of the values in
    each of its columns.
    """

    arm: str
    run: tuple[str, ...] = ()
    step: str | None = None
    loss: str | None = None
    seed: str | None = None
    keep: tuple[str, ...] = ()
    where: Mapping[str, Collection[str]] = field(default_factory=dict)


@frozen
class _Run:
    """The rows of one run, in the order of the file."""

    arm: str
    name: tuple[str, ...]
    rows: Sequence[int]

    @property
    def label(self) -> str:
        return "/".join(self.name) or self.arm


def read_run_table(source: str, layout: RunTable) -> dict[str, list[Curve]]:
    """The runs of each arm, arms in order of appearance, from a path or "-" (stdin): CSV, TSV, JSON
    lines, a JSON list or Parquet.

    A run's label is its values of `layout.run`, joined by "/", or its arm's name. Raises ReadError,
    one line, for a missing column, an arm column with one value or more than 20, an empty name, a
    step or loss that is not a number, and a run that repeats a step.
    """
    cells = _selected(source, layout)
    arms = _arms(cells, layout)
    for column in layout.run:
        if is_size(column) and len(set(cells.texts(column))) > 1:
            raise ReadError(
                f"{source}: the column {column!r} names the size of a model, and runs of two sizes "
                "are no reruns of each other; `parity compare` compares each size on its own with "
                f"--size-by {shlex.quote(column)}"
            )
    quantities = _quantities(cells, layout)
    return _runs_by_arm(cells, layout, arms, lambda run: _curve(cells, run, quantities, layout))


def read_sizes(
    source: str, layout: RunTable, size: Sequence[str]
) -> dict[str, dict[str, list[Curve]]]:
    """The final losses of each arm at each size of a model, which the columns in `size` together
    name, in order of appearance.

    Each row is a run of one evaluation at its own step, or a number like one that is typed where
    the table has no column of steps. Raises ReadError as `read_run_table`, and where a run has two
    rows at one size, or there are more than 100 sizes.
    """
    cells = _selected(source, layout)
    arms = _arms(cells, layout)
    texts = []
    for column in size:
        cells.require(column, "the size")
        if column in (layout.arm, layout.loss, *layout.run):
            raise ReadError(
                f"{source}: the column {column!r} was given for the size and for something else; "
                "expected a column for each"
            )
        texts.append(cells.full_texts(column, "the size of the model"))
    wanted = {} if layout.loss is None else {LOSS: layout.loss}
    has_steps = layout.step is not None or any(
        name.strip().lower() in KNOWN_NAMES[STEP] for name in cells.names
    )
    if has_steps:
        loss = _quantities(cells, layout)[LOSS]
    else:
        loss = find_columns([STEP, *cells.names], wanted, source, _OPTION)[LOSS]
    rows: dict[str, list[int]] = {}
    for row, values in enumerate(zip(*texts, strict=True)):
        rows.setdefault(
            ", ".join(f"{column}={value}" for column, value in zip(size, values, strict=True)), []
        ).append(row)
    if len(rows) > MAX_SIZES:
        raise ReadError(
            f"{source}: {listed(size)} {'has' if len(size) == 1 else 'have'} {len(rows):,} values; "
            f"expected at most {MAX_SIZES} sizes; name the columns that name the size of a model"
        )
    sizes: dict[str, dict[str, list[Curve]]] = {}
    for label, own in rows.items():
        part = cells.of_rows(own)
        for run in _runs(part, layout):
            if len(run.rows) > 1:
                _refuse_two_losses(part, run, label, size, loss)
        at_size = [arm for arm in arms if arm in part.texts(layout.arm)]
        if has_steps:
            curve = partial(_curve_at_size, part, layout)
        else:
            curve = partial(_number_of, part, loss=loss)
        sizes[label] = _runs_by_arm(part, layout, at_size, curve)
    return sizes


def _selected(source: str, layout: RunTable) -> Cells:
    """The rows of a table that its layout selects, with the columns that it names."""
    cells = read_cells(source)
    for column, values in layout.where.items():
        cells = cells.where_equal(column, values)
    _check_columns(cells, layout)
    return cells


def _runs_by_arm(
    cells: Cells, layout: RunTable, names: Sequence[str], curve_of_run: Callable[[_Run], Curve]
) -> dict[str, list[Curve]]:
    """The runs of each arm, in natural order."""
    arms: dict[str, list[Curve]] = {arm: [] for arm in names}
    runs = _runs(cells, layout)
    seeds = _seeds(cells, layout, runs)
    for run, seed in sorted(
        zip(runs, seeds, strict=True), key=lambda each: (_natural(each[0].name), each[0].name)
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


def _curve_at_size(cells: Cells, layout: RunTable, run: _Run) -> Curve:
    return _curve(cells, run, _quantities(cells, layout), layout)


def _number_of(cells: Cells, run: _Run, loss: str) -> Curve:
    (row,) = run.rows
    cells.number(row, loss)
    return number_curve(str(cells.columns[loss][row]).strip(), run.label)


def _refuse_two_losses(cells: Cells, run: _Run, label: str, size: Sequence[str], loss: str) -> None:
    """Raise ReadError for two rows of a run at one size, with what tells them apart."""
    first, second = run.rows[:2]
    differ = [
        name
        for name, column in cells.columns.items()
        if name != loss and column[first] != column[second]
    ]
    others = [name for name in differ if name.strip().lower() not in KNOWN_NAMES[STEP]]
    remedy = "they differ in nothing but the loss: remove one of them"
    if others and others[0].strip().lower() in _NAMES_OF_RUNS:
        remedy = f"name what tells its runs apart: --run-by {shlex.quote(others[0])}"
    elif others:
        remedy = (
            f"name what else makes a size: --size-by {shlex.quote(','.join((*size, others[0])))}"
        )
    elif differ:
        where = [
            f"--where {shlex.quote(f'{column}={cells.text(first, column)}')}" for column in size
        ]
        remedy = (
            "of one training keep the last row alone, or compare its curves at one size: "
            f"{' '.join(where)}"
        )
    raise ReadError(
        f"{cells.source}: {run.label} has two losses at {label} ({cells.place}s "
        f"{cells.lines[first]} and {cells.lines[second]}); "
        f"expected the final one of each run; {remedy}"
    )


# Numbers in place of runs: one loss an arm, as published tables have them.

_NOT_FINITE = re.compile(r"[-+]?(?:nan|inf|infinity)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.(\d*))?|\.(\d+))(?:[eE]([-+]?\d{1,3}))?")


def number_curve(text: str, label: str, step: int = 1) -> Curve:
    """A run of one evaluation, printed to the last digit of a number as it was typed."""
    return curve_from_arrays(
        [step], [float(text)], columns={PRINTED_STEP: [printed_step_of(text)]}, label=label
    )


def printed_step_of(text: str) -> float:
    """The last digit's place of a number as it was typed: 0.001 for "2.240" and for "2240e-3"."""
    match = _NUMBER.fullmatch(text)
    decimals = len((match[1] or match[2] or "") if match else "")
    exponent = int(match[3] or 0) if match else 0
    return float(10.0 ** (exponent - decimals))


def is_typed_number(text: str) -> bool:
    """Whether a text is a number as one types it, NaN or infinity."""
    return bool(_NUMBER.fullmatch(text) or _NOT_FINITE.fullmatch(text))


def is_size(column: str) -> bool:
    """Whether a column is named as the size of a model."""
    return _plain(column) in SIZE_NAMES


def _plain(column: str) -> str:
    return column.strip().lower().replace(" ", "_")


def proposed_options(source: str) -> list[str]:
    """The options for a table of many runs whose columns have known names, as they are typed; none
    for any other file.
    """
    try:
        cells = read_cells(source)
    except ReadError:
        return []
    known = [
        name
        for name in (arm_column(cells.names), FOLDER)
        if name is not None and name in cells.columns
    ]
    values = {name: list(dict.fromkeys(cells.texts(name))) for name in known}
    arm = next(
        (name for name, arms in values.items() if 2 <= len(arms) <= MAX_ARMS and "" not in arms),
        None,
    )
    if arm is None:
        return []
    arms = values[arm]
    baseline = next((name for name in arms if name.lower() in _BASELINES), arms[0])
    is_alone = not any(name.strip().lower() in KNOWN_NAMES[LOSS] for name in cells.names)
    if (sizes := _proposed_sizes(cells, arm)) is not None:
        losses = [name for name in cells.names if "loss" in re.split("[^a-z]+", name.lower())]
        options = ["--arm-by", arm, "--size-by", ",".join(sizes), "--baseline", baseline]
        if losses and is_alone:
            return [*options, "--loss", losses[0]]
        return options
    runs = [name for name in cells.names if name.strip().lower() in _NAMES_OF_RUNS]
    runs = [
        name
        for name in runs
        if len(set(zip(cells.texts(arm), cells.texts(name), strict=True))) > len(arms)
    ]
    steps = [name for name in cells.names if name.lower() in KNOWN_NAMES[STEP]] or [
        name for name in cells.names if name == SAMPLES
    ]

    def are_apart(columns: Sequence[str]) -> bool:
        rows = [*zip(*(cells.texts(name) for name in (arm, *columns, *steps[:1])), strict=True)]
        return len(set(rows)) == len(rows)

    places = [name for name in cells.names if name.strip().lower() in CONDITIONS and name != arm]
    runs = next(
        (
            names
            for names in ([], *([name] for name in runs), *([place, *runs[:1]] for place in places))
            if are_apart(names)
        ),
        runs[:1],
    )
    options = [
        "--arm-by",
        arm,
        *(["--run-by", ",".join(runs)] if runs else []),
        "--baseline",
        baseline,
    ]
    options += ["--step", SAMPLES] if steps == [SAMPLES] else []
    held_out = [name for name in cells.names if is_held_out(name)]
    if held_out and (is_alone or Path(source).is_dir()):
        return [*options, "--loss", held_out[0]]
    return options


def _proposed_sizes(cells: Cells, arm: str) -> Sequence[str] | None:
    """The columns that name the size in a table of final losses, one an arm and size; None for any
    other table.
    """
    named = [
        name
        for name in cells.names
        if is_size(name) and name != arm and len(set(cells.texts(name))) > 1
    ]
    named.sort(key=lambda name: SIZE_NAMES.index(_plain(name)))
    lengths = [name for name in cells.names if "tokens" in name.lower()]
    for columns in (
        *([name] for name in named),
        *([name, length] for name in named for length in lengths),
    ):
        rows = [*zip(*(cells.texts(name) for name in (arm, *columns)), strict=True)]
        if len(set(rows)) == len(rows) <= _MOST_LENGTHS * len({row[:2] for row in rows}):
            return columns
    return None


def _check_columns(cells: Cells, layout: RunTable) -> None:
    """Raise ReadError where a column is missing, or is named both for a value and for a name."""
    seed = () if layout.seed is None else (layout.seed,)
    parts = {
        "the arm": (layout.arm,),
        "the run": layout.run,
        "the seed": seed,
        "the cluster": layout.keep,
    }
    for what, names in parts.items():
        for name in names:
            cells.require(name, what)
            if name == layout.arm and what in ("the seed", "the cluster"):
                raise ReadError(
                    f"{cells.source}: the column {name!r} names the arm, so it cannot name {what}; "
                    "name another column"
                )
    for what, column in (("the step", layout.step), ("the loss", layout.loss)):
        if column is not None:
            cells.require(column, what)
            other = next((role for role, names in parts.items() if column in names), "the loss")
            if other != "the loss" or layout.step == layout.loss:
                raise ReadError(
                    f"{cells.source}: the column {column!r} was given for {what} and for {other}; "
                    "expected one column for each"
                )


def _arms(cells: Cells, layout: RunTable) -> list[str]:
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


def _runs(cells: Cells, layout: RunTable) -> list[_Run]:
    """The runs with their rows; raises ReadError for two runs with one label in an arm."""
    arms = cells.texts(layout.arm)
    names = [cells.full_texts(column, "the name of a run") for column in layout.run]
    rows: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for row, (arm, *name) in enumerate(zip(arms, *names, strict=True)):
        rows.setdefault((arm, tuple(name)), []).append(row)
    runs = [_Run(arm=arm, name=name, rows=own) for (arm, name), own in rows.items()]
    for (arm, label), number in Counter((run.arm, run.label) for run in runs).items():
        if number > 1:
            raise ReadError(
                f"{cells.source}: {number} runs of {arm} are called {label!r}; expected one name "
                "per run; rename one of them"
            )
    return runs


def _quantities(cells: Cells, layout: RunTable) -> dict[str, str]:
    """The column of each quantity; those that name the arm, the run, the seed or a condition hold
    no quantity.
    """
    wanted = {
        quantity: column
        for quantity, column in ((STEP, layout.step), (LOSS, layout.loss))
        if column is not None
    }
    taken = {layout.arm, *layout.run, layout.seed, *layout.keep}
    conditions = {name for name in cells.names if name.strip().lower() in CONDITIONS} - set(
        wanted.values()
    )
    names = [name for name in cells.names if name not in taken | conditions]
    columns = find_columns(names, wanted, cells.source, _OPTION)
    _refuse_metrics(cells, names, columns[LOSS])
    both = columns[STEP], columns[LOSS]
    return {
        quantity: column
        for quantity, column in columns.items()
        if quantity in (STEP, LOSS) or column not in both
    }


def _refuse_metrics(cells: Cells, names: Sequence[str], loss: str) -> None:
    """Raise ReadError where the values of several metrics stand in one column, because they would
    be read as losses of one run.
    """
    if loss.strip().lower() not in VALUE_NAMES:
        return
    for name in names:
        metrics = (
            list(dict.fromkeys(cells.texts(name))) if name.strip().lower() in METRIC_NAMES else []
        )
        if len(metrics) > 1:
            raise ReadError(
                f"{cells.source}: the column {name!r} names {len(metrics)} metrics "
                f"({listed(metrics[:_SHOWN])}); expected the loss alone; "
                "remove the rows of other metrics, or export one column per metric"
            )


def _curve(cells: Cells, run: _Run, quantities: Mapping[str, str], layout: RunTable) -> Curve:
    found = [name for name in cells.names if name not in layout.keep]
    loss = quantities[LOSS]
    if all(cells.is_empty(row, loss) for row in run.rows):
        raise ReadError(
            f"{cells.where(run.rows[0])}: run {run.label} of {run.arm} has no loss in the column "
            f"{loss!r}; expected a number in at least one of its rows; write nan for a run that "
            "diverged, or name the loss with --loss NAME"
        )
    rows = [
        row
        for row in run.rows
        if not (cells.is_empty(row, loss) and cells.is_empty(row, quantities[STEP]))
    ]
    values = {STEP: _steps(cells, rows, quantities[STEP])}
    values |= {
        quantity: cells.numbers(rows, column)
        for quantity, column in quantities.items()
        if quantity not in values
    }
    _refuse_sizes(cells, run, (layout.arm, *layout.run, *quantities.values()))
    _refuse_repeats(cells, run, [row for row in rows if not cells.is_empty(row, loss)], quantities)
    for column in cells.names:
        if column.strip().lower() in _NAMES_OF_RUNS and column not in (
            layout.arm,
            *quantities.values(),
        ):
            _only_value(cells, run, column, may_be_empty=True)
    about = {layout.arm, layout.seed, *layout.run, *layout.keep}
    names = [name for name in found if name not in about and name.strip().lower() not in CONDITIONS]
    present = {
        name: np.array([bool(cells.text(row, name)) for row in rows])
        for name in names
        if np.isnan(values[LOSS]).any()
    }
    where = f"{cells.source}, run {run.label} of {run.arm}"
    written = np.array([not cells.is_empty(row, loss) for row in rows])
    records = training_records(values, quantities, present, where, written=written)
    columns = dataclasses.replace(columns_of(records, quantities, found), option=_OPTION)
    return curve_of(columns, where, label=run.label, stated=layout.loss is not None)


def _steps(cells: Cells, rows: Sequence[int], column: str) -> FloatArray:
    return np.array(
        [step_number(cells.number(row, column), cells.where(row), _OPTION) for row in rows],
        np.float64,
    )


def _refuse_sizes(cells: Cells, run: _Run, named: Collection[str]) -> None:
    """Raise ReadError where the rows of one run are of models of several sizes."""
    for column in cells.names:
        if is_size(column) and column not in named:
            values = list(dict.fromkeys(cells.text(row, column) for row in run.rows))
        else:
            values = []
        if len(values) > 1:
            raise ReadError(
                f"{cells.source}: run {run.label} of {run.arm} has {len(values)} values in the "
                f"column {column!r}, the size of a model; `parity compare` compares the final "
                f"losses of each size with --size-by {shlex.quote(column)}, or the runs of one "
                f"with --where {shlex.quote(f'{column}={values[0]}')}"
            )


def _refuse_repeats(
    cells: Cells, run: _Run, rows: Sequence[int], quantities: Mapping[str, str]
) -> None:
    """Raise ReadError where a run has a step twice, with the columns in which the two rows
    differ.
    """
    seen: dict[float, int] = {}
    for row, step in zip(rows, _steps(cells, rows, quantities[STEP]).tolist(), strict=True):
        first = seen.setdefault(step, row)
        if first == row:
            continue
        others = {
            name: column
            for name, column in cells.columns.items()
            if name not in quantities.values()
        }
        remedy = "they differ in no column that could name another run: remove one of them"
        if differ := [name for name, column in others.items() if column[first] != column[row]]:
            known = [name for name in differ if name.strip().lower() in _NAMES_OF_RUNS]
            remedy = (
                f"the rows also differ in {listed(differ[:_SHOWN])}: name what tells runs apart "
                "with --run-by"
            )
            remedy += f", such as --run-by {shlex.quote(known[0])}" if known else ""
        raise ReadError(
            f"{cells.source}: run {run.label} of {run.arm} has step {step:,.0f} twice "
            f"({cells.place}s {cells.lines[first]} and "
            f"{cells.lines[row]}); expected one row per run and step; {remedy}"
        )


def _seeds(cells: Cells, layout: RunTable, runs: Sequence[_Run]) -> list[int]:
    """The seed of each run: whole numbers as they are, other values numbered in their natural
    order; 0 without a column of seeds.
    """
    if layout.seed is None:
        return [0] * len(runs)
    cells.full_texts(layout.seed, "the seed of the run")
    values = [_only_value(cells, run, layout.seed) for run in runs]
    if all(re.fullmatch(r"[0-9]{1,15}", value) for value in values):
        return [int(value) for value in values]
    numbers = {
        value: number
        for number, value in enumerate(sorted(set(values), key=lambda value: _natural((value,))))
    }
    return [numbers[value] for value in values]


def _context(cells: Cells, run: _Run, layout: RunTable) -> dict[str, str]:
    """What a run ran on: the kept columns, and the well-known conditions that have one value
    in it.
    """
    context = {column: _only_value(cells, run, column) for column in layout.keep}
    for column in cells.names:
        key = column.strip().lower()
        if key in CONDITIONS and column not in (layout.arm, *layout.keep):
            values = {cells.text(row, column) for row in run.rows}
            if len(values) == 1 and "" not in values:
                context.setdefault(HOST if key == "hostname" else key, values.pop())
    return context


def _only_value(cells: Cells, run: _Run, column: str, *, may_be_empty: bool = False) -> str:
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


def _natural(name: Sequence[str]) -> list[list[tuple[int, str]]]:
    """A key that sorts names with numbers in them by the numbers."""
    return [[_sort_key(part) for part in re.split("([0-9]+)", text)] for text in name]


def _sort_key(part: str) -> tuple[int, str]:
    digits = part.lstrip("0")
    if re.fullmatch("[0-9]+", part):
        return len(digits), digits
    return -1, part


# The times of runs from a table with one row per run: time per step or sample, and time to the
# target loss.

TO_TARGET: Mapping[str, float] = {
    "seconds_to_target": 1.0,
    "minutes_to_target": 60.0,
    "hours_to_target": 3600.0,
}
PER_STEP: Mapping[str, float] = {
    "step_seconds": 1.0,
    "seconds_per_step": 1.0,
    "seconds_per_sample": 1.0,
    "seconds_per_sequence": 1.0,
    "ms_per_step": 1e-3,
    "ms_per_sample": 1e-3,
    "ms_per_sequence": 1e-3,
}
"""Columns of times, in lower case, and their units in seconds."""


def read_run_times(source: str, arm: str, run: Sequence[str]) -> list[RunTimes]:
    """The times of each run, from a path or "-" (stdin); `arm` and `run` name the columns of the
    arm and of the run, as in `RunTable`.

    Raises ReadError for a missing column, a table without a column of times, a time that is not
    positive, and a run with two rows.
    """
    cells = read_cells(source)
    cells.require(arm, "the arm")
    for column in run:
        cells.require(column, "the run")
    to_target, per_step = (_column(cells, known) for known in (TO_TARGET, PER_STEP))
    if to_target is None and per_step is None:
        raise ReadError(
            f"{source}: no column of times among {listed(cells.names)}; expected at least one of "
            f"{', '.join((*TO_TARGET, *PER_STEP))}"
        )
    hardware = _column(cells, HARDWARE, may_be_several=True)
    arms = cells.full_texts(arm, "the name of an arm")
    names = (cells.full_texts(column, "the name of a run") for column in run)
    labels = ["/".join(parts) for parts in zip(*names, strict=True)] if run else arms
    rows: dict[tuple[str, str], int] = {}
    times = []
    for row, (of, label) in enumerate(zip(arms, labels, strict=True)):
        if (first := rows.setdefault((of, label), row)) != row:
            raise ReadError(
                f"{source}: run {label} of {of} has two rows ({cells.place}s {cells.lines[first]} "
                f"and {cells.lines[row]}); expected one row per run"
            )
        times.append(
            RunTimes(
                arm=of,
                run=label,
                hardware=(cells.text(row, hardware) or None) if hardware else None,
                step_seconds=_seconds(cells, row, per_step, PER_STEP),
                seconds_to_target=_seconds(cells, row, to_target, TO_TARGET),
            )
        )
    return times


def _column(cells: Cells, known: Iterable[str], *, may_be_several: bool = False) -> str | None:
    """The column with a known name; raises ReadError where two columns could hold one time."""
    by_key = {name.strip().lower(): name for name in reversed(cells.names)}
    columns = [by_key[key] for key in known if key in by_key]
    if len(columns) > 1 and not may_be_several:
        raise ReadError(
            f"{cells.source}: {listed(columns)} hold the same time in other units; expected one of "
            "them; remove the others"
        )
    return columns[0] if columns else None


def _seconds(
    cells: Cells, row: int, column: str | None, units: Mapping[str, float]
) -> float | None:
    """A time in seconds, None where the cell is empty; raises ReadError where it is not a positive
    number.
    """
    if column is None or cells.text(row, column).lower() in (*MISSING, "nan"):
        return None
    value = cells.number(row, column)
    if not 0.0 < value < math.inf:
        raise ReadError(
            f"{cells.where(row)}: {value:g} in the column {column!r}; expected a positive time, or "
            "an empty cell"
        )
    return value * units[column.strip().lower()]
