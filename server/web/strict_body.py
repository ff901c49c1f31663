"""No silent conversions in request bodies: `true` is not accepted as a number, nor "400" as a count. Only texts get one spelling
(`server.web.texts`).

Pydantic's own strict mode rejects lists for tuples and objects for nested dataclasses, so the parsed value is compared with
the sent one instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, TypeVar

from pydantic import WrapValidator

from server.errors import FieldProblem, InvalidError
from server.web.texts import clean_body

T = TypeVar("T")


def _exactly(sent: object, parse: Callable[[object], T]) -> T:
    """Parse a body; InvalidError for a text that cannot be stored, and if parsing changed the kind of a value."""
    sent = clean_body(sent)
    parsed = parse(sent)
    _compare(sent, parsed, "")
    return parsed


# A request body whose numbers, strings and booleans were sent as such.
StrictBody = Annotated[T, WrapValidator(_exactly)]


def _compare(sent: object, parsed: object, pointer: str) -> None:
    """InvalidError with a JSON Pointer to the first leaf that was sent as another kind than it was parsed as."""
    if dataclasses.is_dataclass(parsed) and isinstance(sent, Mapping):
        for name, value in sent.items():
            _compare(value, getattr(parsed, name), f"{pointer}/{name}")
    elif isinstance(sent, Mapping) and isinstance(parsed, Mapping):
        for name, value in sent.items():
            _compare(value, parsed.get(name), f"{pointer}/{name}")
    elif isinstance(sent, list) and isinstance(parsed, Sequence):
        # Long columns of plain numbers cannot have been converted.
        if not set(map(type, sent)) <= {int, float}:
            for index, (value, read) in enumerate(zip(sent, parsed, strict=False)):
                _compare(value, read, f"{pointer}/{index}")
    elif _kind(sent) != _kind(parsed) and _kind(parsed):  # a field may also have been replaced: a preset's name by its fields
        detail = f"{pointer.rpartition('/')[2]} is {sent!r:.80}, a {_kind(sent) or 'value'}; expected a {_kind(parsed)}"
        raise InvalidError(detail, [FieldProblem(pointer=pointer, detail=detail)])


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "truth value"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else ""
