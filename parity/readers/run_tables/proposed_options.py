"""The options to type for a table of many runs whose columns have known names."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from parity.readers.columns.names import LOSS, STEP, is_held_out, is_known
from parity.readers.columns.several_runs import arm_column
from parity.readers.errors import ReadError
from parity.readers.logs.mlperf import FOLDER, SAMPLES
from parity.readers.run_tables.cells import TableCells, read_cells
from parity.readers.run_tables.final_losses import read_final_losses
from parity.readers.run_tables.known_columns import (
    CONDITIONS,
    NAMES_OF_RUNS,
    SIZE_NAMES,
    is_size,
    plain_column,
)
from parity.readers.run_tables.layout import RunTable
from parity.readers.run_tables.run_table import read_run_table
from parity.readers.run_tables.runs import MAX_ARMS

# of the trainings of one arm and size in a table of final losses; more rows are those of a curve
_MOST_LENGTHS = 5
_BASELINES = ("baseline", "base", "bf16", "fp32", "f32")


def tried_options(source: str) -> list[str]:
    """The options for a table of many runs, with what else makes the table readable where that was
    found by trying; none for any other file.
    """
    options = proposed_options(source)
    named = dict(zip(options[::2], options[1::2], strict=True))
    if not options or "--size-by" in named:
        return options
    layout = RunTable(
        arm=named["--arm-by"],
        run=tuple(filter(None, named.get("--run-by", "").split(","))),
        step=named.get("--step"),
        loss=named.get("--loss"),
    )
    try:
        if read_final_losses(source, layout) is None:
            read_run_table(source, layout)
    except ReadError as error:
        if error.form is not None:
            return [*options, *shlex.split(error.form(error.tries[0]))]
    return options


def proposed_options(source: str) -> list[str]:
    """The options for a table of many runs whose columns have known names, as they are typed; none
    for any other file.
    """
    try:
        cells = read_cells(source)
    except ReadError:
        return []
    arm_columns = [
        name
        for name in (arm_column(cells.names), FOLDER)
        if name is not None and name in cells.columns
    ]
    values = {name: list(dict.fromkeys(cells.texts(name))) for name in arm_columns}
    arm = next(
        (name for name, arms in values.items() if 2 <= len(arms) <= MAX_ARMS and "" not in arms),
        None,
    )
    if arm is None:
        return []
    arms = values[arm]
    baseline = next((name for name in arms if name.lower() in _BASELINES), arms[0])
    is_alone = not any(is_known(name, LOSS) for name in cells.names)
    if (sizes := _proposed_sizes(cells, arm)) is not None:
        losses = [name for name in cells.names if "loss" in re.split("[^a-z]+", name.lower())]
        options = ["--arm-by", arm, "--size-by", ",".join(sizes), "--baseline", baseline]
        if losses and is_alone:
            return [*options, "--loss", losses[0]]
        return options
    runs = [name for name in cells.names if name.strip().lower() in NAMES_OF_RUNS]
    runs = [
        name
        for name in runs
        if len(set(zip(cells.texts(arm), cells.texts(name), strict=True))) > len(arms)
    ]
    steps = [name for name in cells.names if is_known(name, STEP)] or [
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


def _proposed_sizes(cells: TableCells, arm: str) -> Sequence[str] | None:
    """The columns that name the size in a table of final losses, one an arm and size; None for any
    other table.
    """
    named = [
        name
        for name in cells.names
        if is_size(name) and name != arm and len(set(cells.texts(name))) > 1
    ]
    named.sort(key=lambda name: SIZE_NAMES.index(plain_column(name)))
    lengths = [name for name in cells.names if "tokens" in name.lower()]
    for columns in (
        *([name] for name in named),
        *([name, length] for name in named for length in lengths),
    ):
        rows = [*zip(*(cells.texts(name) for name in (arm, *columns)), strict=True)]
        if len(set(rows)) == len(rows) <= _MOST_LENGTHS * len({row[:2] for row in rows}):
            return columns
    return None
