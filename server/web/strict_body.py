"""No silent conversions in request bodies: `true` is no number and "400" is no count, whatever pydantic would make of them.

Pydantic's own strict mode refuses lists for tuples and objects for nested dataclasses, so the parsed value is compared with
what was sent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, TypeVar

from pydantic import WrapValidator

from server.errors import FieldProblem, InvalidError

T = TypeVar("T")


def _exactly(sent: object, parse: Callable[[object], T]) -> T:
    """Parse a body, and refuse it where a value changed its kind on the way."""
    parsed = parse(sent)
    _compare(sent, parsed, "")
    return parsed


# A request body whose numbers, texts and truth values were sent as such.
StrictBody = Annotated[T, WrapValidator(_exactly)]


def _compare(sent: object, parsed: object, pointer: str) -> None:
    """InvalidError with a JSON Pointer where a leaf was sent as another kind than it was read."""
    if dataclasses.is_dataclass(parsed) and isinstance(sent, Mapping):
        for name, value in sent.items():
            _compare(value, getattr(parsed, name), f"{pointer}/{name}")
    elif isinstance(sent, Mapping) and isinstance(parsed, Mapping):
        for name, value in sent.items():
            _compare(value, parsed.get(name), f"{pointer}/{name}")
    elif isinstance(sent, list) and isinstance(parsed, Sequence):
        # Long columns of plain numbers have nothing to convert.
        if not set(map(type, sent)) <= {int, float}:
            for index, (value, read) in enumerate(zip(sent, parsed, strict=False)):
                _compare(value, read, f"{pointer}/{index}")
    elif _kind(sent) != _kind(parsed) and _kind(parsed):  # a field may also have been replaced, as a preset's name is by its parts
        detail = f"{pointer.rpartition('/')[2]} is {sent!r:.80}, a {_kind(sent) or 'value'}; expected a {_kind(parsed)}"
        raise InvalidError(detail, [FieldProblem(pointer=pointer, detail=detail)])


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "truth value"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else ""
