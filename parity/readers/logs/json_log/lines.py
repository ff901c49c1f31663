"""JSON: one object a line (our own logger's, MaxText's `metrics_file`, exports), or a document."""

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from parity.names_once import NameTwiceError
from parity.readers.columns.columns import RunColumns
from parity.readers.columns.long_table import long_layout, read_long
from parity.readers.columns.names import (
    LOSS,
    NOT_THE_LOSS,
    STEP,
    find_columns,
    has_known,
    is_known,
    listed,
    name_words,
    named_column,
)
from parity.readers.columns.planned_length import add_planned_length
from parity.readers.columns.series import columns_from_series
from parity.readers.columns.several_runs import (
    SHOWN,
    arm_column,
    choose_run,
    loss_of_run,
    run_column,
)
from parity.readers.errors import ReadError, SeveralRunsError
from parity.readers.files.growing import Growing, cut
from parity.readers.files.json_values import flat_object, object_of_values
from parity.readers.logs.json_log.documents import (
    ColumnRecords,
    Document,
    DocumentTable,
    cut_list,
    document_of,
)
from parity.readers.logs.json_log.records import (
    Record,
    RecordRows,
    columns_of_numbers,
    columns_of_records,
)
from parity.readers.logs.json_log.series_lines import read_series_lines
from parity.wording import first_few

_NOT_FINITE = re.compile(r"(?<=[:,\s\[])([-+]?)(nan|inf(?:inity)?)(?=\s{0,9}[,}\]])", re.IGNORECASE)
_PACKED = 1 << 18  # characters of lines that are compressed together


def read_json(
    text: str, source: str, named_columns: Mapping[str, str], run: str | None = None
) -> RunColumns:
    """Columns of a JSON text."""
    if (columns := read_series_lines(text, source, named_columns, run)) is not None:
        return columns
    try:
        document = document_of(text, source)
    except ReadError:
        if (document := cut_list(text, source)) is None:
            raise
        columns = _columns_of_document(document, named_columns, source, run)
        return cut(add_planned_length(columns, document.planned))
    if document is None or not (document.tables or document.series):
        return JsonLines(source, named_columns, run).read(text)
    columns = _columns_of_document(document, named_columns, source, run)
    return add_planned_length(columns, document.planned)


def _columns_of_document(
    document: Document, named_columns: Mapping[str, str], source: str, run: str | None
) -> RunColumns:
    tables = [table for table in document.tables if _has_loss(table, named_columns, source)]
    if run is not None:
        tables = [table for table in tables if table.path == run] or tables
    if len(tables) > 1:
        shown = first_few([table.path for table in tables], SHOWN)
        raise SeveralRunsError(
            f"{source} holds {len(tables)} tables with a loss; name one as "
            f"{source}:{tables[0].path}, of {shown}",
            tuple(f"{source}:{table.path}" for table in tables),
        )
    if not tables and document.series:
        names = [*document.series]
        named = named_columns if run is None else {LOSS: loss_of_run(names, run, source)}
        return columns_from_series(names, document.series.__getitem__, named, source)
    if not tables:
        path = document.tables[0].path
        names = [f"{path}/{name}" if path else name for name in document.tables[0].names]
        find_columns(names, named_columns, source, may_number=True)
    table = tables[0] if tables else document.tables[0]
    if run == table.path:
        run = None
    if other := [name for name in table.beside if is_known(name, STEP) or is_known(name, LOSS)]:
        raise ReadError(
            f"{source}: the list {other[0]!r} has not the length of {listed(table.names)}; "
            "expected lists of one value per step"
        )
    return _columns_of_run(table.records, table.names, named_columns, source, "record", run)


def _has_loss(table: DocumentTable, named_columns: Mapping[str, str], source: str) -> bool:
    """Whether a table may hold the training losses of a run."""
    if LOSS in named_columns and named_column(table.names, named_columns[LOSS]) is not None:
        return True
    if NOT_THE_LOSS & name_words(table.path):
        return False
    return has_known(table.names, LOSS) or bool(long_layout(table.names, named_columns, source))


class JsonLines(Growing):
    """An object a line. Which fields are the step and the loss is decided by all names so far: a
    new one may revise all rows, and a second run is refused where none is named.

    Lines become numbers once; their text is kept, compressed, for a new name that makes others of
    them. A long table, or one with a field of runs, is read again each time that its columns are
    asked for.
    """

    def __init__(
        self, source: str, named_columns: Mapping[str, str], run: str | None = None
    ) -> None:
        super().__init__(source)
        self._named_columns, self._run = named_columns, run
        self._names: set[str] = set()
        self._sorted: list[str] = []
        # of these names, where they are those of a plain table of one run
        self._fields: Mapping[str, str] | None = None
        self._packed: list[bytes] = []
        self._tail: list[str] = []
        self._tail_length = 0
        self._new: list[Record] = []
        self._rows: RecordRows | None = None
        # all of them, for what is no plain table of one run
        self._records: list[Record] | None = None

    def _take(self, text: str) -> None:
        records = _records(text, self._source, self._lines + 1)
        self._names.update(*(record for _, record in records))
        self._new += records
        if self._records is not None:
            self._records += records
        self._tail.append(text)
        self._tail_length += len(text)
        if self._tail_length > _PACKED:
            self._packed.append(
                zlib.compress("".join(self._tail).encode("utf-8", "surrogatepass"), 1)
            )
            self._tail, self._tail_length = [], 0

    def whole(self) -> RunColumns:
        last = "".join(self._torn).strip()
        if self._before and last.startswith("{") and not _is_closed(last):
            return cut(self.columns())
        return super().whole()

    @property
    def column_names(self) -> Sequence[str]:
        """The names of all fields."""
        return sorted(self._names)

    def columns(self) -> RunColumns:
        """The run so far; raises ReadError where no step or no loss is in it, or the run is not."""
        if len(self._names) != len(self._sorted):
            self._sorted, self._fields = sorted(self._names), None
        names = self._sorted
        if self._fields is None and (
            self._run is not None
            or long_layout(names, self._named_columns, self._source)
            or run_column(names)
        ):
            if self._records is None:
                self._records = self._all_records()
            self._new, self._rows = [], None
            return _columns_of_run(
                self._records, names, self._named_columns, self._source, "line", self._run
            )
        if self._fields is None:
            self._fields = find_columns(names, self._named_columns, self._source, may_number=True)
        if self._rows is None or self._rows.fields != self._fields:
            self._rows, self._new = (
                RecordRows(self._fields, self._source, "line"),
                self._all_records(),
            )
        taken = 0
        try:
            for record in self._new:
                self._rows.take(record)
                taken += 1
        finally:
            del self._new[:taken]
        return self._rows.columns(names)

    def _all_records(self) -> list[Record]:
        texts = [
            zlib.decompress(packed).decode("utf-8", "surrogatepass") for packed in self._packed
        ]
        return _records("".join((*texts, *self._tail)), self._source, 1)


def _is_closed(line: str) -> bool:
    """Whether a line is an object that ends, valid or not."""
    return line.endswith("}") and line.count("{") <= line.count("}")


def json_records(text: str, source: str) -> tuple[list[Record], str]:
    """The objects of a JSON text with their numbers, and what is numbered: a record or a line."""
    document = document_of(text, source)
    if document is None or not (document.tables or document.series):
        return _records(text, source, 1), "line"
    return document.largest(), "record"


def _columns_of_run(
    records: Iterable[Record],
    names: Sequence[str],
    named_columns: Mapping[str, str],
    source: str,
    place: str,
    run: str | None,
) -> RunColumns:
    if layout := long_layout(names, named_columns, source):
        return read_long(records, layout, named_columns, source, run)
    if isinstance(records, ColumnRecords) and (columns := records.numbers()) is not None:
        if run is not None:
            named_columns = {**named_columns, LOSS: loss_of_run(names, run, source)}
        return columns_of_numbers(columns, named_columns, source)
    column = run_column(names)
    if column is None and run is not None:
        column = arm_column(names)
    if column is not None:
        chosen = choose_run((str(record.get(column)) for _, record in records), run, source)
        records = [
            (number, record) for number, record in records if str(record.get(column)) == chosen
        ]
    elif run is not None:
        named_columns = {**named_columns, LOSS: loss_of_run(names, run, source)}
    return columns_of_records(records, names, named_columns, source, place)


def _loaded(line: str) -> Any:
    """The value of a line of JSON, in which NaN and infinity may be written as C does."""
    try:
        return json.loads(line, object_pairs_hook=object_of_values)
    except json.JSONDecodeError:
        spelled = _NOT_FINITE.sub(_as_json, line)
        if spelled == line:
            raise
        return json.loads(spelled, object_pairs_hook=object_of_values)


def _as_json(found: re.Match[str]) -> str:
    return "NaN" if "n" in found[2].lower()[:1] else f"{found[1]}Infinity"


def _records(text: str, source: str, first: int) -> list[Record]:
    records: list[Record] = []
    for number, line in enumerate(text.split("\n"), first):
        if not line.strip():
            continue
        try:
            record = _loaded(line)
        except NameTwiceError as error:
            raise ReadError(f"{source}, line {number}: {error}") from None
        except (ValueError, RecursionError):
            raise ReadError(
                f"{source}, line {number}: not valid JSON; expected one object per line such as "
                '{"step": 1, "loss": 2.5}'
            ) from None
        if not isinstance(record, dict):
            raise ReadError(
                f"{source}, line {number}: {line.strip()[:40]!r} is not a JSON object; expected "
                '{"step": 1, "loss": 2.5}'
            )
        try:
            records.append((number, flat_object(record)))
        except NameTwiceError as error:
            raise ReadError(f"{source}, line {number}: {error}") from None
    return records
