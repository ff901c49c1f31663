"""Numbers in the fields of forms."""

from collections.abc import Callable
from typing import TypeVar

from server.errors import InvalidError

N = TypeVar("N", int, float)


def parsed_number(name: str, text: str, kind: Callable[[str], N], what: str) -> N | None:
    """The number; None for an empty field. InvalidError for another text."""
    try:
        return kind(text) if text.strip() else None
    except ValueError:
        raise InvalidError(f"{name} is {text!r:.40}, expected {what} or an empty field") from None
