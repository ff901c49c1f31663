"""A frozen value with one of its fields changed, for tests of keys: each field in its turn.

The change is made without the value's own checks, so that no field needs others to go with it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

Path = tuple[str | int, ...]


def leaves(value: Any, at: Path = ()) -> Iterator[Path]:
    """The path of every field within a value: of its parts, and of those that have no parts."""
    for own in fields(value):
        path, inner = (*at, own.name), getattr(value, own.name)
        if is_dataclass(inner):
            yield from leaves(inner, path)
            continue
        yield path
        if isinstance(inner, tuple):
            for number, each in enumerate(inner):
                if is_dataclass(each):
                    yield from leaves(each, (*path, number))


def indifferent(value: Any, key: Callable[[Any], object]) -> set[str]:
    """The fields of a value that leave its key as it is."""
    own = key(value)
    return {called(path) for path in leaves(value) if key(changed(value, path)) == own}


def called(path: Path) -> str:
    """A path as text: `schedule.steps`."""
    return ".".join(map(str, path))


def changed(value: Any, path: Path) -> Any:
    """The value with another one in this place."""
    name, *rest = path
    if isinstance(name, int):
        return (*value[:name], changed(value[name], tuple(rest)), *value[name + 1 :])
    inner = getattr(value, name)
    if rest:
        inner = changed(inner, tuple(rest))
    else:
        inner = _other(inner, get_type_hints(type(value))[name])
    made = copy.copy(value)
    object.__setattr__(made, name, inner)
    return made


def _other(value: Any, hint: Any) -> Any:
    """Another value of a type than this one."""
    words = list(_words(hint))
    if isinstance(value, bool) or (value is None and bool in get_args(hint)):
        return not value
    if isinstance(value, tuple):
        if value:
            return value[:-1]
        kinds = [each for each in get_args(hint) if is_dataclass(each)]
        return (_least(kinds[0]) if kinds else words[0] if words else 1,)
    if isinstance(value, Mapping):
        return {**value, "another": 1}
    if words:
        return next(word for word in words if word != value)
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, int | float):
        return value + 1
    assert value is None, f"no other value of {hint}"
    kind = next((each for each in get_args(hint) if each is not type(None)), str)
    if is_dataclass(kind):
        return _least(kind)
    return {int: 1, float: 1.0}.get(kind, "x")


def _least(kind: Any) -> Any:
    """A value of a class with what it cannot do without."""
    return kind(
        **{
            "Command": {"launcher": "x"},
            "Override": {"recipe": "bf16"},
            "LaterRecipe": {"recipe": "bf16", "from_step": 1},
            "Amount": {"value": 1.0, "unit": "nats"},
        }.get(kind.__name__, {})
    )


def _words(hint: Any) -> Iterator[Any]:
    """The words that a type allows, if it lists them."""
    if get_origin(hint) is Literal:
        yield from get_args(hint)
        return
    for each in get_args(hint):
        yield from _words(each)
