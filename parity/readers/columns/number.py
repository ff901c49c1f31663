"""A cell or a field as a number, as a step, or as the word for a missing value."""

import math
import re
import struct

import numpy as np

from parity.judging.curves.curve import MAX_STEP, BoolArray, FloatArray
from parity.readers.columns.names import OPTION, STEP
from parity.readers.errors import ReadError

MISSING = ("", "none", "null", "na", "n/a", "<na>", "nan", "-", "--")
"""What stands in a cell without a value, in lower case."""
_BLANK_BITS = 0x7FF8_0000_0000_0B1A
BLANK: float = struct.unpack("<d", struct.pack("<Q", _BLANK_BITS))[0]
"""What stands in an array of numbers where none is written: a NaN of other bits than a NaN that is
a number's value, as R has its NA.
"""
_STEP_OF_TOTAL = re.compile(r"\s*(\d{1,15})\s*(?:/|of)\s*(\d{1,15})\s*")


def step_number(value: float, where: str, option: str = OPTION) -> float:
    """A step as it is; raises ReadError where it is no whole number from 0 to 2^53."""
    if not (0 <= value <= MAX_STEP and value == int(value)):
        raise ReadError(
            f"{where}: step {value!r} is not a whole number from 0 to 2^53; name the column that "
            f"counts steps with {option.format(STEP)}"
        )
    return value


def step_of_total(text: str) -> tuple[int, int] | None:
    """Step and planned length of a text such as "5/400"; None for any other."""
    found = _STEP_OF_TOTAL.fullmatch(text)
    return (int(found[1]), int(found[2])) if found else None


def is_blank(values: FloatArray) -> BoolArray:
    """Where values (n,) are `BLANK`, and not NaN as such."""
    blank: BoolArray = np.ascontiguousarray(values).view(np.uint64) == _BLANK_BITS
    return blank


def plain_number(value: object) -> float | None:
    """A cell or a field as a number, None where it is not one; Python would read 1_0 as 10, which
    nobody who writes a table means.
    """
    if isinstance(value, bool) or value is None or (isinstance(value, str) and "_" in value):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:  # a whole number that no float holds
        if isinstance(value, int) and value > 0:
            return math.inf
        return -math.inf
    except (TypeError, ValueError):
        return None


def is_number(text: str) -> bool:
    """Whether a cell is a number, NaN or infinity."""
    try:
        float(text)
    except ValueError:
        return False
    return True
