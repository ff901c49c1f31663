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
from parity.readers.columns.several_runs import choose_run
from parity.readers.errors import ReadError

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
    return RunColumns(
        values=dict(columns), names={STEP: f"{run}/{STEP}", LOSS: f"{run}/{LOSS}"}
    ), run


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
        if array.ndim == 1 and array.dtype.kind in "iuf":
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
