"""Dataclasses of requests and documents: their decorator, a base for what a caller sends, and a document from a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

from server.database.sessions import time_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C")
T = TypeVar("T", bound="DataclassInstance")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(kind: type[C]) -> type[C]:
    """Make a class a dataclass that never changes, has no further attributes, and takes its fields by name."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)


class Body:
    """The base of a dataclass that a caller sends: an unknown key is an error."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}


def of(kind: type[T], source: object, /, **more: object) -> T:
    """A dataclass with what a row or another object has under the names of its fields, and with `more`.

    A time of the source (`..._at`, seconds since 1970) becomes text.
    """
    make: Callable[..., T] = kind
    values = {field.name: getattr(source, field.name) for field in fields(kind) if field.name not in more}
    return make(**{name: time_text(value) if name.endswith("_at") else value for name, value in values.items()}, **more)
