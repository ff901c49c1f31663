"""Texts of strangers, made inert where they land: control characters for a terminal, formulas for a
spreadsheet's cell.

A job's name, a trainer's message, a token's name or a label may hold what a terminal obeys (ESC, C1
controls), or what turns the direction of the text around it. It is shown as it would be written in
Python, `\\x1b`, so that a reader sees it. Line ends and tabs stay.
"""

import unicodedata
from typing import Any

_KEPT = frozenset("\n\t")
# Marks and overrides of direction, and line ends that only some programs know.
_TURNING = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029"
)
_FORMULA = frozenset("=+-@\t\r\uff1d\uff0b\uff0d\uff20")


def inert(text: str) -> str:
    """A text whose control characters and marks of direction are written out."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_written(character) if _obeyed(character) else character for character in text)


def inert_value(value: Any) -> Any:
    """A parsed JSON document with all of its texts inert; keys too."""
    if isinstance(value, str):
        return inert(value)
    if isinstance(value, dict):
        return {inert(str(name)): inert_value(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(inert_value, value))
    return value


def _obeyed(character: str) -> bool:
    return character in _TURNING or (
        character not in _KEPT and unicodedata.category(character) in ("Cc", "Cs")
    )


def _written(character: str) -> str:
    return ascii(character)[1:-1]


def cell(text: str) -> str:
    """A text as a spreadsheet's cell, which takes none for a formula; a number stays one."""
    shown = text.lstrip(" \u00a0")
    if shown[:1] not in _FORMULA or not shown:
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
