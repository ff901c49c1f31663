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
    is_known,
    listed,
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


def read_npz(path: str, run: str | None) -> tuple[RunColumns, str]:
    """Columns of one run of the archive, and its name; the only run where none is named,
    SeveralRunsError if there are more.
    """
    runs = _arrays(path)
    run = choose_run(sorted(runs), run, path)
    columns = runs[run]
    if LOSS not in columns:
        raise ReadError(
            f"{path}: run {run!r} has {', '.join(sorted(columns))}; expected '{run}/step' and "
            f"'{run}/loss'"
        )
    for name in (STEP, LOSS):
        if columns[name].dtype.kind == "b":
            raise ReadError(f"{path}: '{run}/{name}' has flags; expected numbers")
    steps, losses = len(columns[STEP]), len(columns[LOSS])
    if steps != losses:
        raise ReadError(
            f"{path}: run {run!r} has {count(steps, 'step')} and "
            f"{count(losses, 'loss', 'losses')}; expected one loss a step"
        )
    whole = {name: array for name, array in columns.items() if len(array) == steps}
    names = _by_quantity(whole)
    taken = RunColumns(
        values={quantity: whole[name] for quantity, name in names.items()},
        names={quantity: f"{run}/{name}" for quantity, name in names.items()},
        further=_losses_beside(whole, names.get(VALIDATION)),
    )
    if left_out := [name for name in columns if name not in whole]:
        taken = taken.noted(f"left out, as of another length than the steps: {listed(left_out)}")
    return taken, run


def _by_quantity(columns: Mapping[str, FloatArray]) -> dict[str, str]:
    """The names of the arrays of numbers by quantity; an unknown name is a quantity of its own."""
    names = {STEP: STEP, LOSS: LOSS}
    for name, array in columns.items():
        known = (
            quantity
            for quantity in KNOWN_NAMES
            if quantity not in names and is_known(name, quantity)
        )
        if name not in names and array.dtype.kind != "b":
            names[next(known, name)] = name
    return names


def _losses_beside(columns: Mapping[str, FloatArray], validation: str | None) -> FurtherLosses:
    """What is known of the other losses (T,) of a run; `validation` names the held-out one."""
    steps = np.asarray(columns[STEP], np.float64)
    if not np.isfinite(steps).all():
        return FurtherLosses()  # steps that are none are refused later
    written = np.ones(len(steps), dtype=bool)
    beside = losses_beside(columns, LOSS)
    series = {
        name: series_beside(name, steps, np.asarray(columns[name], np.float64), written)
        for name in (LOSS, *beside, *([validation] if validation else []))
    }
    return further_losses(
        LOSS,
        series[LOSS],
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
