"""CSV and its relatives (tab, semicolon, blanks): a header line of names, or two bare columns of
step and loss.
"""

import csv
import dataclasses
import io
import re
from collections.abc import Iterable

from parity.frozen import frozen
from parity.readers.columns.long_table import Row
from parity.readers.columns.names import KNOWN_NAMES, LOSS, STEP, first_known_name
from parity.readers.columns.number import is_number
from parity.readers.errors import ReadError

DELIMITERS = ("\t", ";", ",", "|")
_LOOKED_AT = 1 << 13  # characters
_NUMBER = re.compile(r"\d[\d.]*")


@frozen
class DelimitedTable:
    """A table as text: the cells of its first line, what separates them (None: blanks), and its
    rows with the number of the first one.

    Where the first line has numbers alone it is no header (`has_header`) but the first row.
    """

    source: str
    first: list[str]
    delimiter: str | None
    body: str
    line: int

    @property
    def has_header(self) -> bool:
        """Whether the first line names the columns."""
        return not all(is_number(name) for name in self.first)

    def rows(self) -> list[Row]:
        """(line, row by name) of each row; raises ReadError where one has other cells than the
        header.
        """
        rows: list[Row] = []
        try:
            marked: Iterable[list[str]]
            if self.delimiter:
                marked = csv.reader(io.StringIO(self.body), delimiter=self.delimiter)
            else:
                marked = map(str.split, self.body.splitlines())
            for number, cells in enumerate(marked, self.line):
                if not cells:
                    continue
                if len(cells) != len(self.first):
                    raise ReadError(
                        f"{self.source}, line {number}: {len(cells)} cells; expected "
                        f"{len(self.first)}, as in the header"
                    )
                rows.append(
                    (number, dict(zip(self.first, (cell.strip() for cell in cells), strict=True)))
                )
        except csv.Error:
            raise ReadError(f"{self.source}: not valid CSV; check the quotes in the file") from None
        return rows


def as_table(text: str, source: str) -> DelimitedTable:
    """The table in a text that is not empty."""
    start = next(at for at, letter in enumerate(text) if letter not in "\r\n")
    head, _, rest = text[start:].partition("\n")
    first = head.rstrip("\r")
    delimiter = delimiter_of(first)
    line = text.count("\n", 0, start) + 1
    table = DelimitedTable(
        source=source,
        first=fields(first, delimiter),
        delimiter=delimiter,
        body=text[start:],
        line=line,
    )
    if not table.has_header:
        return table
    body = rest.lstrip("\r\n")
    return dataclasses.replace(
        table, body=body, line=line + 1 + rest.count("\n", 0, len(rest) - len(body))
    )


def delimiter_of(line: str) -> str | None:
    """What separates the cells of a line, None for blanks."""
    if any(mark in line for mark in DELIMITERS):
        return max(DELIMITERS, key=line.count)
    return None


def is_prose(text: str, source: str) -> bool:
    """Whether a text is no table: its first line names no step and no loss, and says things, as the
    next one does, or most lines have other numbers of cells.
    """
    table = as_table(text, source)
    if table.delimiter is None and any(map(is_number, table.first)):
        return table.has_header
    if not table.has_header or any(
        first_known_name(table.first, KNOWN_NAMES[quantity]) for quantity in (STEP, LOSS)
    ):
        return False
    if any(mark in name for name in table.first for mark in ("=", ": ")):
        return True
    lines = [line for line in table.body[:_LOOKED_AT].split("\n")[:-1] if line.strip()]
    if lines and fields(_NUMBER.sub("0", lines[0]), table.delimiter) == [
        _NUMBER.sub("0", name) for name in table.first
    ]:
        return True
    return 2 * sum(len(fields(line, table.delimiter)) != len(table.first) for line in lines) > len(
        lines
    )


def fields(line: str, delimiter: str | None) -> list[str]:
    """The cells of a line, without blanks around them."""
    if delimiter is None:
        return line.split()
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:  # a stray carriage return or an endless quoted cell: no row of numbers
        return [cell.strip() for cell in line.split(delimiter)]
