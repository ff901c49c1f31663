"""The style and the script of the page, as its file contains them."""

from functools import cache
from pathlib import Path

_STATIC = Path(__file__).parents[1] / "static"


@cache
def verdict_style() -> str:
    """The style of the page and of its picture."""
    return (_STATIC / "verdict.css").read_text(encoding="utf-8")


@cache
def verdict_script() -> str:
    """The script of the page: keys, cursor and the choice of a candidate."""
    return f"{{{(_STATIC / 'verdict.js').read_text(encoding='utf-8')}}}"
