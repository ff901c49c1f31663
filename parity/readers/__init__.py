"""One run, or all runs, of a file or a tracker as curves; or a one-line error that names the file,
the line and the remedy.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from parity.judging.curves.curve import Curve
from parity.readers.columns.columns import RunColumns
from parity.readers.columns.names import HELD_OUT_LOSS, LOSS, VALIDATION, is_known
from parity.readers.curve.curve import curve_of
from parity.readers.curve.plausibility import check_stated
from parity.readers.errors import ColumnError, NoLossError, ReadError, SeveralRunsError
from parity.readers.files.text import STDIN, read_text
from parity.readers.formats import columns_of_text, is_text_file, read_columns
from parity.readers.logs.pattern import PATTERN
from parity.readers.remedies import with_tried_options
from parity.readers.run_config import ConfigFacts, apply_config, config_facts
from parity.readers.run_names import run_name, split_name
from parity.readers.tables.npz import NPZ, read_npz
from parity.readers.trackers.sources import is_source, read_source
from parity.readers.trackers.wandb_folder import offline_files, read_offline

__all__ = ["ReadError", "SeveralRunsError", "read_run", "read_runs", "read_with_config", "run_name"]

_LARGE = 1 << 20  # bytes of a file, which is read again for few proposals


def read_run(
    name: str,
    *,
    columns: Mapping[str, str] | None = None,
    label: str | None = None,
    replicate: int = 0,
    recipe: str | None = None,
) -> Curve:
    """Read one run from a path, "-" (stdin), `file.npz:run`, `FILE:RUN` for a table of several
    runs, or a tracker (`mlflow:RUN_ID`).

    A path is a file, or a folder of TensorBoard event files or of a W&B run. `columns` maps
    quantities (step, loss, ...) to names of columns, or "pattern" to a regular expression with
    groups of these names, which is searched in each line of a log. Raises ReadError: one line with
    the file, the line and what to do.
    """
    return read_with_config(name, columns=columns, label=label, replicate=replicate, recipe=recipe)[
        0
    ]


def read_with_config(
    name: str,
    *,
    columns: Mapping[str, str] | None = None,
    label: str | None = None,
    replicate: int = 0,
    recipe: str | None = None,
) -> tuple[Curve, ConfigFacts]:
    """The run as `read_run` returns it, and what its config states; only a tracker's run has one.

    The curve has the config's recipe, rounding, seed and context already; `recipe` counts more than
    the config's.
    """
    named_columns = dict(columns or {})
    if named_columns.get(LOSS) == HELD_OUT_LOSS:
        del named_columns[LOSS]
        again = partial(read_with_config, name, label=label, replicate=replicate, recipe=recipe)
        try:
            return again(columns=named_columns)
        except NoLossError as error:
            held_out = [column for column in error.names if is_known(column, VALIDATION)]
            if len(held_out) != 1:
                raise
        return again(columns={**named_columns, LOSS: held_out[0]})
    path, run = split_name(name)
    stated_label, label = label, label or run_name(name)
    if PATTERN in named_columns and not is_text_file(name, path, run):
        raise ReadError(
            f"{name}: a pattern finds lines of a log, a text file; for a log alone say --column "
            f"WHERE:{PATTERN}=..., with its arm or file"
        )
    facts = ConfigFacts()
    is_stated = LOSS in named_columns
    if is_source(name) or offline_files(path):
        tracker_run = (
            read_source(name, named_columns)
            if is_source(name)
            else read_offline(path, run, named_columns)
        )
        taken, facts = tracker_run.columns, config_facts(tracker_run.config, name)
        curve = curve_of(taken, name, label=label, stated=is_stated)
    elif path.endswith(NPZ):
        taken, archived = read_npz(path, run, named_columns)
        if is_stated:
            check_stated(taken.names[LOSS].rpartition("/")[2], name, taken.option)
        curve = curve_of(taken, name, label=stated_label or archived, stated=is_stated)
    else:
        taken, curve = _read_file(name, named_columns, label)
        facts = config_facts(taken.config, name)
    return apply_config(dataclasses.replace(curve, replicate=replicate), facts, recipe), facts


def _read_file(name: str, named_columns: Mapping[str, str], label: str) -> tuple[RunColumns, Curve]:
    """The run of a file; an error proposes the options that read it."""
    path, run = split_name(name)
    names: Sequence[str] = ()
    text = read_text(STDIN) if path == STDIN else None

    def columns_by(columns: Mapping[str, str]) -> RunColumns:
        if text is None:
            return read_columns(path, run, columns)
        return columns_of_text(text, path, run, columns)

    try:
        taken = columns_by(named_columns)
        names = taken.found
        if LOSS in named_columns:
            check_stated(taken.names[LOSS], name, taken.option)
        curve = curve_of(taken, name, label=label, stated=LOSS in named_columns)
    except ReadError as error:
        names = error.names if isinstance(error, ColumnError) else names
        error.source = error.source or name
        if not names or not (text or Path(path).exists()):
            raise

        def read(columns: Mapping[str, str]) -> Curve:
            tried = columns_by(columns)
            if LOSS in columns:
                check_stated(tried.names[LOSS], name, tried.option)
            return curve_of(tried, name, label=label, stated=True)

        is_large = Path(path).is_dir() or len(text or "") + _size(path) > _LARGE
        raise with_tried_options(error, names, named_columns, read, is_large=is_large) from None
    if run is not None:
        reading, *others = curve.notes
        curve = dataclasses.replace(curve, notes=(f"{reading}, run {run!r}", *others))
    return taken, curve


def _size(path: str) -> int:
    return Path(path).stat().st_size if Path(path).is_file() else 0


def read_runs(name: str, *, columns: Mapping[str, str] | None = None) -> tuple[Curve, ...]:
    """All runs of an archive, a table or a folder that has several, in their order; the one run of
    any other file.
    """
    try:
        return (read_run(name, columns=columns),)
    except SeveralRunsError as error:
        if name == STDIN:
            raise
        names = error.names
    return tuple(
        dataclasses.replace(read_run(named_run, columns=columns), replicate=number)
        for number, named_run in enumerate(names)
    )
