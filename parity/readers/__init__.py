"""Readers: a file of any known kind becomes a Curve, or a one-line error that names the file, the
line and the remedy.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from parity.judging.curves.curve import Curve
from parity.readers.columns import LOSS, STDIN, Columns, NoLossError, ReadError, curve_of, read_text
from parity.readers.lines import Growing
from parity.readers.logs import (
    EVENT_FILES,
    JsonLines,
    PrintedLog,
    TrainLog,
    is_json,
    is_printed_log,
    is_tensorboard_file,
    is_train_log,
    read_folder,
    read_json,
    read_tensorboard,
)
from parity.readers.mlperf import is_mlperf, read_mlperf, result_files
from parity.readers.pattern import PATTERN, PatternLog, proposed
from parity.readers.table import (
    NPZ,
    SUFFIX,
    GrowingTable,
    SeveralRunsError,
    is_prose,
    read_npz,
    read_parquet,
)
from parity.readers.trackers import (
    is_source,
    offline_files,
    offline_name,
    read_offline,
    read_source,
    source_name,
)
from parity.readers.trackers.run import ConfigFacts, applied, facts_of

__all__ = ["ReadError", "SeveralRunsError", "read_run", "read_runs", "read_with_config", "run_name"]


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
    wanted = dict(columns or {})
    path, run = split_name(name)
    if PATTERN in wanted and not _is_text(name, path, run):
        raise ReadError(
            f"{name}: a pattern finds lines of a log, a text file; for a log alone say --column "
            f"WHERE:{PATTERN}=..., with its arm or file"
        )
    facts = ConfigFacts()
    if is_source(name) or offline_files(path):
        of_tracker = (
            read_source(name, wanted) if is_source(name) else read_offline(path, run, wanted)
        )
        taken, facts = of_tracker.columns, facts_of(of_tracker.config, name)
    elif path.endswith(NPZ):
        taken, archived = read_npz(path, run)
        label = label or archived
    else:
        taken = _read(path, run, wanted)
        facts = facts_of(taken.config, name)
    curve = curve_of(taken, name, label=label or run_name(name), stated=LOSS in wanted)
    return applied(dataclasses.replace(curve, replicate=replicate), facts, recipe), facts


def _read(path: str, run: str | None, wanted: Mapping[str, str]) -> Columns:
    if run is None and Path(path).is_dir() and not _is_misnamed_folder(path):
        return _read_folder(path, wanted)
    if Path(path).is_file() and (is_tensorboard_file(path) or path.endswith(SUFFIX)):
        if run is not None:
            raise ReadError(
                f"{path}:{run}: one run of a table is read from CSV or JSON lines only; name the "
                "file alone, or export CSV"
            )
        return (read_tensorboard if is_tensorboard_file(path) else read_parquet)(path, wanted)
    return _read_text(read_text(path), path, run, wanted)


def _read_text(text: str, path: str, run: str | None, wanted: Mapping[str, str]) -> Columns:
    if PATTERN not in wanted:
        if run is None and is_mlperf(text):
            try:
                return read_mlperf(text, path, wanted)
            except NoLossError:  # its trainer may print what it does not log
                if not is_train_log(text, whole=True):
                    raise
        if is_json(text):
            return read_json(text, path, wanted, run)
    reader = growing(text, path, wanted, run)
    try:
        return reader.read(text)
    except ReadError:
        if not isinstance(reader, GrowingTable):
            raise
        if not isinstance(reader := growing(text, path, wanted, run, whole=True), GrowingTable):
            return reader.read(text)
        if run is None and is_prose(text, path):
            option = proposed(text)
            if option:
                remedy = f"say where they stand: {option}"
            else:
                remedy = "write a CSV file with the columns step and loss, or say --pattern REGEX"
            raise ReadError(
                f"{path}: neither a table nor a log with two lines of a step and a training loss, "
                f"such as 'step 10 loss 4.88'; {remedy}"
            ) from None
        raise


def growing(
    text: str,
    source: str,
    wanted: Mapping[str, str],
    run: str | None = None,
    *,
    whole: bool = False,
) -> Growing:
    """What reads a file of lines that begins with this text, and may still grow; the text is not
    fed to it yet.

    `whole`: look for the lines of a log behind a long preamble, too.
    """
    if PATTERN in wanted:
        return PatternLog(source, wanted)
    if is_json(text):
        return JsonLines(source, wanted, run)
    if run is None and is_train_log(text, whole=whole):
        return TrainLog(source, wanted)
    if run is None and is_printed_log(text, whole=whole):
        return PrintedLog(source, wanted)
    return GrowingTable(source, wanted, run)


def _read_folder(path: str, wanted: Mapping[str, str]) -> Columns:
    """The run in a folder of TensorBoard's event files, or of one MLPerf log."""
    if any(Path(path).rglob(EVENT_FILES)):
        logs = []
    else:
        logs = [str(file) for file in result_files(Path(path))]
    if len(logs) > 1:
        raise SeveralRunsError(
            f"{path}: a folder of {len(logs):,} MLPerf logs; name one, or compare them: parity "
            f"compare {path} --arm-by COLUMN",
            tuple(logs),
        )
    if logs:
        return read_mlperf(read_text(logs[0]), logs[0], wanted)
    return read_folder(path, wanted)


def _is_text(name: str, path: str, run: str | None) -> bool:
    """Whether a run is in a text file of its own."""
    is_other = (
        is_source(name)
        or path.endswith((NPZ, SUFFIX))
        or is_tensorboard_file(path)
        or Path(path).is_dir()
    )
    return run is None and not is_other and not offline_files(path)


def _is_misnamed_folder(path: str) -> bool:
    """Whether a folder has the name of a file, so that the file was meant."""
    return (
        path.endswith(SUFFIX)
        or is_tensorboard_file(path)
        or Path(path).suffix in (".csv", ".tsv", ".jsonl", ".json")
    )


def split_name(name: str) -> tuple[str, str | None]:
    """A run's name as path and run: `file.npz:run`, `-:RUN`, or `FILE:RUN` where FILE exists and
    the whole name does not.

    A run in a tracker is not split.
    """
    if is_source(name):
        return name, None
    path, colon, run = name.rpartition(NPZ + ":")
    if colon:
        return path + NPZ, run
    if name.startswith(STDIN + ":"):
        return STDIN, name[2:]
    if ":" in name and not _exists(name):
        parts = name.split(":")
        for end in range(len(parts) - 1, 0, -1):
            if _exists(path := ":".join(parts[:end])):
                return path, ":".join(parts[end:])
    return name, None


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # too long for a name, or a NUL in it
        return False


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
        dataclasses.replace(read_run(each, columns=columns), replicate=number)
        for number, each in enumerate(names)
    )


def run_name(name: str) -> str:
    """A short name for a run: its file's stem, the archive's or table's run, its name in the
    tracker, or "stdin".
    """
    if is_source(name):
        return source_name(name)
    run = split_name(name)[1]
    if run:
        return run
    if name == STDIN:
        return "stdin"
    stem = Path(name).name
    for suffix in (
        ".gz",
        ".zip",
        ".csv",
        ".tsv",
        ".txt",
        ".log",
        ".jsonl",
        ".json",
        ".ndjson",
        ".parquet",
        ".wandb",
        NPZ,
    ):
        stem = stem.removesuffix(suffix)
    return offline_name(stem) or name
