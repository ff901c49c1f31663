"""What every command prints: lines, tables and JSON to stdout, and reports to files."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from parity.canonical_json import json_value
from parity.cli.terminal.wrong_calls import UsageError
from parity.inert import inert
from parity.readers.files.text import os_words

WIDTH = 80


def write_file(path: str, data: bytes) -> None:
    """Write a report to a file; UsageError if that fails."""
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({os_words(error)})") from None


def paths_by_name(path: str, names: Sequence[str]) -> list[str]:
    """One path per name: the path itself for a single name, else with the name before its
    ending.
    """
    if len(names) == 1:
        return [path]
    target = Path(path)
    safe = (
        "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
        for name in names
    )
    return [str(target.with_name(f"{target.stem}-{name}{target.suffix}")) for name in safe]


def print_json(value: Any) -> None:
    """Print a value to stdout as indented JSON with sorted keys; numbers that are not finite are
    the text nan, inf and -inf, because JSON has none.
    """
    print(json.dumps(json_value(value), indent=1, sort_keys=True, allow_nan=False))


def print_lines(lines: Iterable[str], console: Console | None = None) -> None:
    """Print lines as they are, to stdout unless a console is given."""
    console = console or Console(highlight=False, markup=False, emoji=False)
    for line in lines:
        console.print(inert(line), soft_wrap=True)


def print_rows(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, headed: bool = False
) -> None:
    """Print a table: with headings on a terminal; in a pipe one row per line, tab-separated and
    never wrapped.

    A table whose columns depend on what was asked is `headed` in a pipe, too.
    """
    if not sys.stdout.isatty():
        for row in (headings, *rows) if headed else rows:
            print("\t".join(inert(" ".join(cell.split())) for cell in row))
        return
    Console(highlight=False, markup=False).print(table_of(headings, rows))


def table_of(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table for a terminal, whose long cells are folded."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(inert, row))
    return table
