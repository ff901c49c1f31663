"""Writes what follows from code into pages and files: `python -m tools.tables [NAME...] [--check]`.

Without a name all are written, which takes some minutes; the one at hand is named. `--check` writes
nothing: it prints one line for each page or file that is not of today, and exits with 1 where there
is one.
"""

import argparse
import sys
from collections.abc import Sequence

from tools.tables.catalogue import TABLES
from tools.tables.generated import ROOT, GeneratedTable


def main(arguments: Sequence[str]) -> int:
    """Write the tables, or check them."""
    parser = argparse.ArgumentParser(prog="python -m tools.tables", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(TABLES)}")
    parser.add_argument("--check", action="store_true", help="write nothing, say what differs")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in TABLES]
    if unknown:
        parser.error(f"no table {unknown[0]!r}; expected one of {', '.join(TABLES)}")
    outdated = False
    for name in options.names or TABLES:
        print(f"{name} ...", file=sys.stderr, flush=True)
        for line in _written(TABLES[name], check=options.check):
            outdated = True
            print(line, flush=True)
    return int(options.check and outdated)


def _written(table: GeneratedTable, *, check: bool) -> list[str]:
    """A line for each page or file that was not of today; it is now, but for a check."""
    lines = []
    for path in table.paths:
        today = table.today(path)
        if path.is_file() and today == path.read_text(encoding="utf-8"):
            continue
        name = path.relative_to(ROOT)
        if check:
            lines.append(f"{name} is not of today; run python -m tools.tables {table.name}")
        else:
            path.write_text(today, encoding="utf-8")
            lines.append(f"wrote {name}")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
