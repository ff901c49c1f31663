"""Read the JSON or YAML of an unknown author: every value has its kind, or it is refused by its
place, with what was expected.

Nothing is converted: `true` is no number, and "0" is no seed. `refuse` makes the error from the
place, the value and what was expected.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from numbers import Real
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Refusal = Callable[[str, object, str], Exception]
_T = TypeVar("_T")
_Record = TypeVar("_Record", bound="DataclassInstance")
_MAX_SHOWN = 60
_WORDS: Mapping[type, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    list: "a list",
}


class ManifestError(ValueError):
    """A part of a manifest that is refused: its place, its value and what was expected."""


def shown(value: object) -> str:
    """A value of a stranger as short printable ASCII."""
    text = ascii(value)
    if len(text) <= _MAX_SHOWN:
        return text
    return f"{text[: _MAX_SHOWN - 3]}..."


def manifest_error(place: str, value: object, expected: str) -> ManifestError:
    """The error about a part of a manifest."""
    return ManifestError(f"{place} is {shown(value)}; expected {expected}")


def typed(
    value: object,
    kind: type[_T],
    place: str,
    expected: str | None = None,
    refuse: Refusal = manifest_error,
) -> _T:
    """The value if it is of that kind. `bool` is no number here; a whole number is a `float`,
    too.
    """
    kinds: tuple[type, ...] = (int, float) if kind is float else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
        raise refuse(place, value, expected or _WORDS[kind])
    return value  # type: ignore[return-value]


def optional(value: object, kind: type[_T], place: str) -> _T | None:
    """The value if it is of that kind, or None."""
    if value is None:
        return None
    return typed(value, kind, place, f"{_WORDS[kind]} or null")


def record(kind: type[_Record], value: object, place: str, expected: str = "an object") -> _Record:
    """A dataclass from an object that has all its fields, each of the kind that its annotation
    says.
    """
    entries = typed(value, dict, place, expected)
    values = {}
    for name, (type_, is_optional) in kinds_of(kind).items():
        where = f"{place}.{name}"
        values[name] = (
            optional(entries[name], type_, where)
            if is_optional
            else typed(entries.get(name), type_, where)
        )
    return kind(**values)


_hints = cache(get_type_hints)


@cache
def kinds_of(kind: type["DataclassInstance"]) -> Mapping[str, tuple[type[Any], bool]]:
    """The kind of each field of a dataclass, and whether it may be None; of words that are listed
    it is `str`.
    """
    found = {}
    for name, hint in _hints(kind).items():
        type_ = get_args(hint)[0] if get_origin(hint) is UnionType else hint  # `kind | None`
        found[name] = (
            str if get_origin(type_) is Literal else get_origin(type_) or type_,
            type_ is not hint,
        )
    return found


def known_keys(
    mapping: object, kind: type["DataclassInstance"], place: str, refuse: Refusal
) -> Mapping[str, Any]:
    """A mapping that has only the fields of a dataclass as its keys."""
    names = [item.name for item in fields(kind)]
    if not isinstance(mapping, Mapping):
        raise refuse(place, mapping, "a mapping of " + ", ".join(names))
    for key, value in mapping.items():
        if key not in names:
            raise refuse(f"{place}.{key}", value, "no such key; known keys: " + ", ".join(names))
    return mapping


def check_words(item: "DataclassInstance", place: str, refuse: Refusal) -> None:
    """Refuse a field of a dataclass that lists its words (`Literal`) where it has another one."""
    for name, hint in _hints(type(item)).items():
        if get_origin(hint) is Literal and getattr(item, name) not in get_args(hint):
            raise refuse(f"{place}.{name}", getattr(item, name), " or ".join(get_args(hint)))


def check_between(place: str, value: object, low: float, high: float, refuse: Refusal) -> None:
    """Refuse what is no number from `low` to `high`."""
    # NaN is in no range
    if isinstance(value, bool) or not isinstance(value, Real) or value < low or not value <= high:
        raise refuse(place, value, f"a number from {low:g} to {high:g}")
