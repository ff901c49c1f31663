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
from parity.readers.columns.names import LOSS, STEP
from parity.readers.columns.second_losses import (
    FurtherLosses,
    further_losses,
    losses_beside,
    series_of_rows,
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
    steps, losses = len(columns[STEP]), len(columns[LOSS])
    if steps != losses:
        raise ReadError(
            f"{path}: run {run!r} has {count(steps, 'step')} and "
            f"{count(losses, 'loss', 'losses')}; expected one loss a step"
        )
    columns = {name: array for name, array in columns.items() if len(array) == steps}
    return RunColumns(
        values={name: array for name, array in columns.items() if array.dtype.kind != "b"},
        names={STEP: f"{run}/{STEP}", LOSS: f"{run}/{LOSS}"},
        further=_losses_beside(columns),
    ), run


def _losses_beside(columns: Mapping[str, FloatArray]) -> FurtherLosses:
    """What is known of the other losses (T,) of a run."""
    steps = columns[STEP]
    written = np.ones(len(steps), dtype=bool)
    series = {
        name: series_of_rows(steps, np.asarray(columns[name], np.float64), written)
        for name in (LOSS, *losses_beside(columns, LOSS))
    }
    return further_losses(LOSS, series.pop(LOSS), series)


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
        if array.ndim == 1 and array.dtype.kind in "iufb":
            runs.setdefault(run or "run", {})[quantity] = array
    usable: dict[str, Mapping[str, FloatArray]] = {
        run: columns for run, columns in runs.items() if STEP in columns
    }
    if not usable:
        raise ReadError(
            f"{path}: no array named '<run>/step'; found "
            f"{', '.join(sorted(flat)[:12]) or 'nothing'}"
        )
    return usable
