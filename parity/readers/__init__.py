"""Readers: a file of any known kind becomes a Curve, or a one-line error that names the file, the line and the remedy."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from parity.judging.curve import Curve, CurveError, FloatArray, curve_from_arrays
from parity.readers.columns import LOSS, STEP
from parity.readers.jsonlines import read_json_lines
from parity.readers.npz import read_npz, run_names
from parity.readers.parquet import SUFFIX, read_parquet
from parity.readers.source import STDIN, ReadError, read_text
from parity.readers.table import read_table
from parity.readers.tensorboard import is_tensorboard_file, read_tensorboard
from parity.readers.units import unit_change

__all__ = ["ReadError", "read_run", "read_runs", "run_name"]

NPZ = ".npz"


def read_run(
    name: str, *, columns: Mapping[str, str] | None = None, label: str | None = None, replicate: int = 0, recipe: str | None = None
) -> Curve:
    """Read one run from a path, "-" (stdin) or `file.npz:run`; `columns` maps quantities (step, loss, ...) to column names.

    Raises ReadError: one line with the file, the line and what to do.
    """
    wanted = dict(columns or {})
    path, _, run = name.rpartition(NPZ + ":")
    if path or name.endswith(NPZ):
        values, archived = read_npz(path + NPZ if path else name, run if path else None)
        return dataclasses.replace(_curve(values, name, label or archived, replicate, ()), recipe=recipe)
    if Path(name).is_file() and (is_tensorboard_file(name) or name.endswith(SUFFIX)):
        values, notes = (read_tensorboard if is_tensorboard_file(name) else read_parquet)(name, wanted)
        return dataclasses.replace(_curve(values, name, label or run_name(name), replicate, notes), recipe=recipe)
    text = read_text(name)
    is_json = text.lstrip()[:1] == "{"
    values, notes = (read_json_lines if is_json else read_table)(text, name, wanted)
    return dataclasses.replace(_curve(values, name, label or run_name(name), replicate, notes), recipe=recipe)


def read_runs(name: str, *, columns: Mapping[str, str] | None = None) -> tuple[Curve, ...]:
    """All runs of an archive, or the one run of any other file."""
    if not name.endswith(NPZ):
        return (read_run(name, columns=columns),)
    return tuple(dataclasses.replace(read_run(f"{name}:{run}"), replicate=i) for i, run in enumerate(run_names(name)))


def run_name(name: str) -> str:
    """A short name for a file's run: its stem, the archive's run, or "stdin"."""
    if name == STDIN:
        return "stdin"
    _, _, run = name.rpartition(NPZ + ":")
    if run and NPZ + ":" in name:
        return run
    stem = Path(name).name
    for suffix in (".gz", ".csv", ".tsv", ".txt", ".jsonl", ".json", ".ndjson", ".parquet", NPZ):
        stem = stem.removesuffix(suffix)
    return stem or name


def _curve(values: dict[str, FloatArray], name: str, label: str, replicate: int, notes: tuple[str, ...]) -> Curve:
    rest = {key: value for key, value in values.items() if key not in (STEP, LOSS)}
    try:
        curve = curve_from_arrays(values[STEP], values[LOSS], columns=rest, label=label, replicate=replicate, notes=notes)
    except CurveError as error:
        raise ReadError(f"{name}: {error}") from None
    if change := unit_change(curve.steps):
        last, stride, first, wider = change
        raise ReadError(
            f"{name}: after step {last:,} (strides of {stride:,}) comes {first:,} (strides of {wider:,}), so the unit changes; "
            "expected one unit; name the column that counts optimizer steps with --column step=NAME"
        )
    return curve
