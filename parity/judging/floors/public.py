"""The table of public reruns that ships with the package; only used for an arm that names one of its families."""

from functools import cache
from pathlib import Path

from parity.judging.floors.groups import Floors, read_floors

PUBLIC = Path(__file__).with_name("public.csv")


@cache
def public_floors() -> Floors:
    """The table, written by tools/public_floors.py."""
    return read_floors(PUBLIC.read_text(encoding="utf-8"))
