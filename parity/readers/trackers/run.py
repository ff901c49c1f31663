"""What a tracker returns of one run, and the errors that all trackers share."""

import importlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from parity.extras import installation
from parity.frozen import frozen
from parity.judging.curves.curve import Curve
from parity.readers.columns.columns import RunColumns
from parity.readers.columns.names import LOSS, OPTION, STEP, find_columns, is_known
from parity.readers.curve.curve import curve_of
from parity.readers.errors import ColumnError, ReadError
from parity.readers.logs.json_log.records import Record, columns_of_records
from parity.readers.remedies import with_tried_options

_MANY_ROWS = 20_000
NO_ROWS = "the run's history is empty; expected one row per training step"


@frozen
class TrackerRun:
    """One run: the columns that were read, its config as the trainer logged it, nested, and the
    name of the run for a person.
    """

    columns: RunColumns
    config: Mapping[str, Any]


def tracker_package(name: str, extra: str, source: str) -> ModuleType:
    """The tracker's own package; ReadError with what the `extra` installs where it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] != name.partition(".")[0]:
            reason = f"the package {name} cannot be imported (it needs {error.name})"
        else:
            reason = f"the package {name} is not installed"
        raise ReadError(f"{source}: {reason}; install it: {installation(extra)}") from None


@contextmanager
def package_errors(refusal: Callable[[Exception], ReadError]) -> Iterator[None]:
    """Turn whatever a tracker's package raises, none of which it documents, into our one line."""
    try:
        yield
    except ReadError:
        raise
    except Exception as error:  # noqa: BLE001
        raise refusal(error) from None


def ended_words(state: str) -> str:
    """How a run ended, for a note."""
    if state.lower() == "finished":
        return "the run is finished"
    return f"the run ended as {state}"


def first_line(error: BaseException, limit: int = 160) -> str:
    """What a package's error says, for the middle of a sentence: the operating system's reason
    where it has one, else its first line.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
        cause = cause.__cause__ or cause.__context__
    line = next(
        (text.strip() for text in str(error).splitlines() if text.strip()), type(error).__name__
    )
    return line[:limit].rstrip(".")


def columns_of_rows(
    rows: Sequence[Mapping[str, Any]], named_columns: Mapping[str, str], source: str, counter: str
) -> RunColumns:
    """Columns of a run's rows, one per logging call; `counter` is the tracker's own step, which
    every row has.

    The counter counts calls of the logger, not optimizer steps, unless the trainer set it. A step
    that the trainer logged is therefore preferred; it must be in every row that has a loss. Rows
    without a training loss are left out and counted. An error proposes the options that read it.
    """
    names = sorted({name for row in rows for name in row})
    return with_tries(
        lambda columns: _columns_of_rows(rows, columns, source, counter),
        names,
        named_columns,
        source,
        is_large=len(rows) > _MANY_ROWS,
    )


def with_tries(
    read: Callable[[Mapping[str, str]], RunColumns],
    names: Sequence[str],
    named_columns: Mapping[str, str],
    source: str,
    *,
    is_large: bool = False,
) -> RunColumns:
    """What `read` takes by names of columns; an error proposes the options that read the run."""

    def curve(columns: Mapping[str, str]) -> Curve:
        return curve_of(read(columns), source, label=source, stated=True)

    try:
        return read(named_columns)
    except ColumnError as error:
        error.source = source
        raise with_tried_options(error, names, named_columns, curve, is_large=is_large) from None


def _columns_of_rows(
    rows: Sequence[Mapping[str, Any]], named_columns: Mapping[str, str], source: str, counter: str
) -> RunColumns:
    logged = {name for row in rows for name in row if name != counter and is_known(name, STEP)}
    hidden = {counter} if logged and named_columns.get(STEP) != counter else set()
    records: list[Record] = [
        (
            number,
            {
                key: value
                for key, value in row.items()
                if key not in hidden and not isinstance(value, (dict, list))
            },
        )
        for number, row in enumerate(rows, 1)
    ]
    names = sorted({name for _, record in records for name in record})
    chosen = find_columns(names, named_columns, source)
    without = [
        number
        for number, record in records
        if record.get(chosen[LOSS]) is not None and record.get(chosen[STEP]) is None
    ]
    if without:
        raise ColumnError(
            f"{source}: {len(without):,} rows with a loss have no {chosen[STEP]!r} (first row "
            f"{without[0]:,}); expected the step in each; "
            f"name another one with {OPTION.format(STEP)}",
            [*names, counter],
        )
    columns = columns_of_records(records, names, named_columns, source, "row")
    if hidden or named_columns.get(STEP):
        return columns
    return columns.noted(
        f"step is the tracker's own counter {counter!r}: the run logged no step of its own"
    )


def same_number(left: float, right: float) -> bool:
    """Whether two values are equal, where NaN equals NaN."""
    return left == right or (math.isnan(left) and math.isnan(right))
