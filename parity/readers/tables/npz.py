"""NumPy archives of many runs, `<run>/step` and `<run>/loss` (T,): one run is named as
`file.npz:run`.
"""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from parity.judging.curves.curve import FloatArray
from parity.readers.columns.columns import RunColumns
from parity.readers.columns.names import (
    KNOWN_NAMES,
    LOSS,
    STEP,
    VALIDATION,
    did_you_mean,
    is_known,
    listed,
    named_column,
)
from parity.readers.columns.second_losses import (
    FurtherLosses,
    further_losses,
    losses_beside,
    series_beside,
)
from parity.readers.columns.several_runs import choose_run
from parity.readers.errors import ReadError
from parity.wording import count

NPZ = ".npz"
# what numpy and zipfile raise on damaged, encrypted or unknown archives
_UNREADABLE = (
    OSError,
    ValueError,
    zipfile.BadZipFile,
    EOFError,
    KeyError,
    AttributeError,
    NotImplementedError,
    RuntimeError,
    zlib.error,
)


def read_npz(
    path: str, run: str | None, named_columns: Mapping[str, str]
) -> tuple[RunColumns, str]:
    """Columns of one run of the archive, and its name; the only run where none is named,
    SeveralRunsError if there are more. Steps and losses are the arrays of these names, unless
    others are named.
    """
    runs = _arrays(path)
    run = choose_run(sorted(runs), run, path)
    columns = runs[run]
    named = {
        quantity: _named(columns, stated, run, quantity, path)
        for quantity, stated in named_columns.items()
    }
    loss = named.get(LOSS, LOSS)
    if loss not in columns:
        raise ReadError(
            f"{path}: run {run!r} has {', '.join(sorted(columns))}; expected '{run}/step' and "
            f"'{run}/loss'"
        )
    step = named.get(STEP, STEP)
    for name in (step, loss):
        if columns[name].dtype.kind == "b":
            raise ReadError(f"{path}: '{run}/{name}' has flags; expected numbers")
    steps, losses = len(columns[step]), len(columns[loss])
    if steps != losses:
        raise ReadError(
            f"{path}: run {run!r} has {count(steps, 'step')} and "
            f"{count(losses, 'loss', 'losses')}; expected one loss a step"
        )
    whole = {name: array for name, array in columns.items() if len(array) == steps}
    names = _by_quantity(whole, {STEP: step, LOSS: loss, **named})
    taken = RunColumns(
        values={quantity: whole[name] for quantity, name in names.items()},
        names={quantity: f"{run}/{name}" for quantity, name in names.items()},
        found=[f"{run}/{name}" for name in columns],
        further=_losses_beside(whole, step, loss, names.get(VALIDATION)),
    )
    if left_out := [name for name in columns if name not in whole]:
        taken = taken.noted(f"left out, as of another length than the steps: {listed(left_out)}")
    return taken, run


def _named(
    columns: Mapping[str, FloatArray], stated: str, run: str, quantity: str, path: str
) -> str:
    """The array that a person named for a quantity, with or without its run; raises ReadError where
    there is none.
    """
    name = named_column([*columns], stated.removeprefix(f"{run}/"))
    if name is None:
        raise ReadError(
            f"{path}: no array {stated!r} for {quantity}; the arrays of run {run!r} are "
            f"{listed([*columns])}{did_you_mean(stated, [*columns])}"
        )
    return name


def _by_quantity(columns: Mapping[str, FloatArray], named: Mapping[str, str]) -> dict[str, str]:
    """The names of the arrays of numbers by quantity, with those that are named; an unknown name is
    a quantity of its own.
    """
    names = {quantity: name for quantity, name in named.items() if name in columns}
    for name, array in columns.items():
        known = (
            quantity
            for quantity in KNOWN_NAMES
            if quantity not in names and is_known(name, quantity)
        )
        if name not in names.values() and array.dtype.kind != "b":
            names.setdefault(next(known, name), name)
    return names


def _losses_beside(
    columns: Mapping[str, FloatArray], step: str, loss: str, validation: str | None
) -> FurtherLosses:
    """What is known of the other losses (T,) of a run than the one of this name; `validation` names
    the held-out one.
    """
    steps = np.asarray(columns[step], np.float64)
    if not np.isfinite(steps).all():
        return FurtherLosses()  # steps that are none are refused later
    written = np.ones(len(steps), dtype=bool)
    beside = losses_beside(columns, loss)
    series = {
        name: series_beside(name, steps, np.asarray(columns[name], np.float64), written)
        for name in (loss, *beside, *([validation] if validation else []))
    }
    return further_losses(
        loss,
        series[loss],
        {name: series[name] for name in beside},
        held_out=series[validation] if validation else None,
    )


def _arrays(path: str) -> dict[str, Mapping[str, FloatArray]]:
    """Arrays by run and quantity."""
    if not Path(path).is_file():
        if Path(path).is_dir():
            problem = "is a directory; expected a file"
        else:
            problem = "no such file; check the path"
        raise ReadError(f"{path}: {problem}")
    try:
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            flat = {key: np.asarray(archive[key]) for key in archive.files}
    except _UNREADABLE:
        raise ReadError(
            f"{path}: not a NumPy archive; expected arrays named '<run>/step' and '<run>/loss'"
        ) from None
    runs: dict[str, dict[str, FloatArray]] = {}
    for key, array in flat.items():
        run, _, quantity = key.rpartition("/")
        column = array[:, 0] if array.shape[1:] == (1,) else array
        if column.ndim == 1 and column.dtype.kind in "iufb":
            runs.setdefault(run or "run", {})[quantity] = column
    usable: dict[str, Mapping[str, FloatArray]] = {
        run: columns for run, columns in runs.items() if STEP in columns
    }
    if not usable:
        raise ReadError(
            f"{path}: no array named '<run>/step'; found "
            f"{', '.join(sorted(flat)[:12]) or 'nothing'}"
        )
    return usable
