"""Small tables of named values, CSV or JSON: (row number, row) with the row as a mapping."""

import csv
import io
from collections.abc import Callable, Mapping
from typing import Any

from parity.readers.errors import ReadError
from parity.readers.files.json_values import json_value

ValueRow = Mapping[str, Any]


def rows_of(
    text: str, name: str, object_rows: Callable[[Mapping[str, Any]], list[Any]]
) -> list[tuple[int, ValueRow]]:
    """Rows of CSV (numbered as lines) or of JSON (from 1): a list of objects, or an object that
    `object_rows` turns into one.

    Raises ReadError with the file, which is `name`, and what was expected.
    """
    if text.lstrip()[:1] not in ("[", "{"):
        try:
            reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
            return [(reader.line_num, row) for row in reader]
        except csv.Error:
            raise ReadError(f"{name}: not valid CSV; check the file") from None
    document = json_value(text, name)
    rows = list(enumerate(object_rows(document) if isinstance(document, dict) else document, 1))
    for number, row in rows:
        if not isinstance(row, dict):
            raise ReadError(f"{name}, row {number}: {row!r}; expected one object per row")
    return rows
