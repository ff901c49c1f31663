"""How a plan and a calibration are printed: as JSON, or as text with a table."""

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group
from rich.table import Table as RichTable

from parity.canonical_json import canonical_json
from parity.version import JUDGE_VERSION

CALIBRATION_SCHEMA, PLAN_SCHEMA = "parity.calibration/1", "parity.plan/1"


def print_design(schema: str, document: Mapping[str, Any], text: Group, *, as_json: bool) -> None:
    """Print a plan or a calibration: as canonical JSON with its schema, or its text."""
    if as_json:
        sys.stdout.write(
            canonical_json({"schema": schema, "engine_version": JUDGE_VERSION, **document})
        )
    else:
        Console(width=80, highlight=False).print(text)


def design_table(*names: str) -> RichTable:
    """An empty table whose columns have these headings."""
    table = RichTable(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, justify="right")
    return table
