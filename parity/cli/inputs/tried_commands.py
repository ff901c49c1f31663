"""What makes a whole command read all of its files, where one of them is refused: each choice was
tried on each file.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from parity.cli.inputs.columns import ColumnNames
from parity.comparing.arms import refuse_mixed_units
from parity.comparing.statements import InputError
from parity.judging.curves.curve import Curve
from parity.judging.curves.reading import different_meanings
from parity.readers import read_run
from parity.readers.columns.names import STEP
from parity.readers.curve.step_unit import other_unit
from parity.readers.errors import ColumnError, ReadError, SeveralRunsError
from parity.readers.files.text import STDIN
from parity.readers.remedies import column_options, columns_that_may_count, option_words
from parity.readers.run_names import split_name

_NO_NAME = "\0"  # that no column has: the refusal lists them
_LARGE = 1 << 28  # bytes of files, which are not read again for each choice
Files = Sequence[tuple[str, str]]
"""Arms with a file each."""


def with_tried_command(error: ReadError, files: Files, columns: ColumnNames) -> ReadError:
    """The same error, with the options that read all files of a command, or with one run in place
    of each file that holds several.
    """
    if isinstance(error, SeveralRunsError):
        refused = {file: _refusal(file, columns.of_run(arm, file)) for arm, file in files}
        error.instead = {
            file: one.names[0]
            for file, one in refused.items()
            if isinstance(one, SeveralRunsError) and one.names
        } | {error.source: error.names[0]}
    elif error.tries and sum(_size(file) for _, file in files) > _LARGE:
        error.words = [option_words(one, error.source) for one in error.tries]
    elif error.tries:
        others = [(arm, file) for arm, file in files if file not in (error.source, STDIN)]
        fitting = [one for one in error.tries if _fits(error.source, one, files, columns)]
        if not fitting:
            error.refuse_tries("no column of it is what the other runs have, in their unit")
        error.words = [_words(error.source, one, others, files, columns) for one in fitting]
    return error


def in_one_unit(mixed: InputError, files: Files, columns: ColumnNames) -> ReadError:
    """The error of runs that count in different units, with the columns of the step with which
    they count in one.
    """
    said = str(mixed).partition("; expected")[0]
    runs = [(arm, file, _run(file, columns.of_run(arm, file))) for arm, file in files]
    # those that count in the widest strides first: tokens or samples, not steps
    strides = [
        (-(run.completeness.stride or 0), arm, file) for arm, file, run in runs if run is not None
    ]
    for _, arm, file in sorted(strides, key=lambda one: one[0]):
        stated = columns.of_run(arm, file)
        refusal = _refusal(file, {**stated, STEP: _NO_NAME})
        names = refusal.names if isinstance(refusal, ColumnError) else ()
        tries = [
            {STEP: name}
            for name in columns_that_may_count(names)
            if _counts_as_others(file, {STEP: name}, files, columns)
        ]
        if tries:
            error = ReadError(said)
            error.source = file
            error.propose(said, tries, column_options)
            error.words = [option_words(one, file) for one in tries]
            return error
    return ReadError(
        f"{said}; no column of their files counts in one unit; write a CSV file with the columns "
        "step and loss for one of them"
    )


def _size(file: str) -> int:
    path = Path(split_name(file)[0])
    return path.stat().st_size if path.is_file() else 0


def _fits(source: str, tried: Mapping[str, str], files: Files, columns: ColumnNames) -> bool:
    """Whether a file that is read so counts as the others do, and has the quantity that they
    have.
    """
    runs = [
        (file, run)
        for arm, file in files
        if (run := _run(file, {**columns.of_run(arm, file), **(tried if file == source else {})}))
    ]
    ours = [run for file, run in runs if file == source]
    return not any(
        other_unit(one, other) or different_meanings([(file, [other]), (source, [one])])
        for one in ours
        for file, other in runs
        if file != source
    )


def _counts_as_others(
    source: str, tried: Mapping[str, str], files: Files, columns: ColumnNames
) -> bool:
    """Whether all files are read, in one unit, where one of them is read so."""
    arms = []
    for arm, file in files:
        run = _run(file, {**columns.of_run(arm, file), **(tried if file == source else {})})
        if run is None:
            return False
        arms.append((arm, [run]))
    try:
        refuse_mixed_units(arms, [], "")
    except InputError:
        return False
    return True


def _words(
    source: str, tried: Mapping[str, str], others: Files, files: Files, columns: ColumnNames
) -> Sequence[str]:
    """The options: for all files where they read the others, too, else for this one, and for each
    other that is refused what reads it.
    """
    has_stdin = any(file == STDIN != source for _, file in files)
    if not has_stdin and all(
        _refusal(file, {**columns.of_run(arm, file), **tried}) is None for arm, file in others
    ):
        return option_words(tried)
    words = option_words(tried, source)
    for arm, file in others:
        refusal = _refusal(file, columns.of_run(arm, file))
        if refusal is not None and refusal.tries:
            words += option_words(refusal.tries[0], file)
    return words


def _refusal(file: str, columns: Mapping[str, str]) -> ReadError | None:
    """Why a file is refused; None where it is read."""
    try:
        _read(file, columns)
    except ReadError as error:
        return error
    return None


def _run(file: str, columns: Mapping[str, str]) -> Curve | None:
    """The run of a file; None where it is refused."""
    try:
        return _read(file, columns)
    except ReadError:
        return None


def _read(file: str, columns: Mapping[str, str]) -> Curve:
    if file == STDIN:  # which cannot be read again
        raise ReadError(f"{file}: read already")
    return read_run(file, columns=columns)
