"""Which reader reads a file: by its name, its folder, or how its text begins.

A format is a module with its reader, and one entry here: `FILE_FORMATS` has files that are known by
their names, `LINE_FORMATS` texts of lines, the first that fits. The step lines of a trainer are an
entry in `parity.readers.logs.trainer_formats`, a tracker is one in
`parity.readers.trackers.sources`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from parity.frozen import frozen
from parity.readers.columns.columns import RunColumns
from parity.readers.errors import NoLossError, ReadError, SeveralRunsError, TwoLossesError
from parity.readers.files.growing import Growing
from parity.readers.files.text import read_text
from parity.readers.logs.json_log.documents import is_json
from parity.readers.logs.json_log.lines import JsonLines, read_json
from parity.readers.logs.mlperf import is_mlperf, read_mlperf, result_files
from parity.readers.logs.pattern import PATTERN, PatternLog
from parity.readers.logs.pattern_proposal import is_bar_of_means, patterns_of_two, proposed_pattern
from parity.readers.logs.printed_log import PrintedLog, is_printed_log
from parity.readers.logs.tensorboard import (
    EVENT_FILES,
    is_tensorboard_file,
    read_event_folder,
    read_tensorboard,
)
from parity.readers.logs.train_log import TrainLog, is_train_log
from parity.readers.remedies import column_options
from parity.readers.tables.delimited import is_prose
from parity.readers.tables.growing_table import GrowingTable
from parity.readers.tables.npz import NPZ
from parity.readers.tables.parquet import is_parquet_file, read_parquet
from parity.readers.tables.plain_table import plain_table, rows_that_say
from parity.readers.trackers.sources import is_source
from parity.readers.trackers.wandb_file import SUFFIX
from parity.readers.trackers.wandb_folder import is_run_folder, offline_files


@frozen
class FileFormat:
    """Files of one run that are known by their names: `fits` looks at the path, `read` reads the
    columns, some of which the user may name.
    """

    fits: Callable[[str], bool]
    read: Callable[[str, Mapping[str, str]], RunColumns]


@frozen
class LineFormat:
    """A text of lines: `fits` looks at its beginning, or where its second argument is true at all
    of it; `reader` makes what reads it while it grows, from source, named columns and run.

    `has_runs`: whether one of several runs in it can be named.
    """

    fits: Callable[[str, bool], bool]
    reader: Callable[[str, Mapping[str, str], str | None], Growing]
    has_runs: bool = False


FILE_FORMATS = (
    FileFormat(fits=is_tensorboard_file, read=read_tensorboard),
    FileFormat(fits=is_parquet_file, read=read_parquet),
)
LINE_FORMATS = (
    LineFormat(fits=lambda text, _whole: is_json(text), reader=JsonLines, has_runs=True),
    LineFormat(
        fits=lambda text, whole: is_train_log(text, whole=whole),
        reader=lambda source, named_columns, _run: (
            PrintedLog(source, named_columns) if named_columns else TrainLog(source)
        ),
    ),
    LineFormat(
        fits=lambda text, whole: is_printed_log(text, whole=whole),
        reader=lambda source, named_columns, _run: PrintedLog(source, named_columns),
    ),
)
"""What none of these fits is a table."""


def read_columns(path: str, run: str | None, named_columns: Mapping[str, str]) -> RunColumns:
    """Columns of one run of a file or of a folder; raises ReadError."""
    if run is None and Path(path).is_dir() and not _is_misnamed_folder(path):
        return _read_folder(path, named_columns)
    if Path(path).is_file() and (file_format := _file_format(path)) is not None:
        if run is not None:
            raise ReadError(
                f"{path}:{run}: one run of a table is read from CSV or JSON lines only; name the "
                "file alone, or export CSV"
            )
        return file_format.read(path, named_columns)
    return columns_of_text(read_text(path), path, run, named_columns)


def columns_of_text(
    text: str, path: str, run: str | None, named_columns: Mapping[str, str]
) -> RunColumns:
    """Columns of one run of a text that was read from a path; raises ReadError."""
    if PATTERN not in named_columns:
        if run is None and is_mlperf(text):
            try:
                return read_mlperf(text, path, named_columns)
            except NoLossError:  # its trainer may print what it does not log
                if not is_train_log(text, whole=True):
                    raise
        if is_json(text):
            return read_json(text, path, named_columns, run)
    reader = growing_reader(text, path, named_columns, run)
    if isinstance(reader, GrowingTable):
        return _read_table(reader, text, path, named_columns, run)
    return _read(reader, text, path)


def _read_table(
    reader: GrowingTable, text: str, path: str, named_columns: Mapping[str, str], run: str | None
) -> RunColumns:
    """What the reader of a table reads; a log behind a long preamble is read as one."""
    table = plain_table(text if "\n" in text else text.replace("\r", "\n"), path)
    try:
        columns = reader.read(table)
    except ReadError:
        further = growing_reader(table, path, named_columns, run, whole=True)
        if not isinstance(further, GrowingTable):
            return _read(further, table, path)
        if run is None and (is_prose(table, path) or is_bar_of_means(table)):
            raise _unread_log(table, path) from None
        raise
    said = rows_that_say(text)
    return dataclasses.replace(columns, said_not_finite=said) if said else columns


def _read(reader: Growing, text: str, path: str) -> RunColumns:
    """What a reader reads; the error of a log with two numbers for a loss proposes both."""
    try:
        return reader.read(text)
    except TwoLossesError as error:
        if patterns := patterns_of_two(text, error.line, path):
            said = error.said.rpartition("; ")[0]
            error.propose(said, [{PATTERN: pattern} for pattern in patterns], column_options)
        raise


def _unread_log(text: str, path: str) -> ReadError:
    """The error of a log that nothing reads, with the pattern that does."""
    error = ReadError(
        f"{path}: neither a table nor a log with two lines of a step and a training loss, "
        "such as 'step 10 loss 4.88'"
    )
    if is_bar_of_means(text):
        return ReadError(
            f"{error.said}; its losses are those of ggml-opt's progress bar: each is the mean of "
            "the epoch so far, which hides single steps; write the loss of each batch, with the "
            "columns step and loss"
        )
    if (pattern := proposed_pattern(text, path)) is not None:
        error.propose(error.said, [{PATTERN: pattern}], column_options)
    elif (pattern := proposed_pattern(text, path, of_means=True)) is not None:
        said = (
            f"{error.said}; its losses are named as running means, of which each hides the steps "
            "before: log the plain loss"
        )
        error.propose(said, [{PATTERN: pattern}], column_options)
    else:
        return ReadError(
            f"{error.said}; no lines of it differ in a step that rises and in a number that could "
            "be a loss; write a CSV file with the columns step and loss"
        )
    return error


def growing_reader(
    text: str,
    source: str,
    named_columns: Mapping[str, str],
    run: str | None = None,
    *,
    whole: bool = False,
) -> Growing:
    """What reads a file of lines that begins with this text, and may still grow; the text is not
    fed to it yet.

    `whole`: look for the lines of a log behind a long preamble, too.
    """
    if PATTERN in named_columns:
        return PatternLog(source, named_columns)
    for line_format in LINE_FORMATS:
        if (run is None or line_format.has_runs) and line_format.fits(text, whole):
            return line_format.reader(source, named_columns, run)
    return GrowingTable(source, named_columns, run)


def _read_folder(path: str, named_columns: Mapping[str, str]) -> RunColumns:
    """The run in a folder of TensorBoard's event files, or of one MLPerf log."""
    if is_run_folder(path):
        raise ReadError(
            f"{path}: the folder of a W&B run without its file run-ID{SUFFIX}, which has the "
            "history; copy that file into it, or read the run from its server: "
            "wandb:ENTITY/PROJECT/RUN"
        )
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
        return read_mlperf(read_text(logs[0]), logs[0], named_columns)
    return read_event_folder(path, named_columns)


def is_text_file(name: str, path: str, run: str | None) -> bool:
    """Whether a run is in a text file of its own."""
    is_other = (
        is_source(name)
        or path.endswith(NPZ)
        or _file_format(path) is not None
        or Path(path).is_dir()
    )
    return run is None and not is_other and not offline_files(path)


def _is_misnamed_folder(path: str) -> bool:
    """Whether a folder has the name of a file, so that the file was meant."""
    return _file_format(path) is not None or Path(path).suffix in (
        ".csv",
        ".tsv",
        ".jsonl",
        ".json",
    )


def _file_format(path: str) -> FileFormat | None:
    return next((entry for entry in FILE_FORMATS if entry.fits(path)), None)
