"""Dataclasses of requests and documents: a base for what a caller sends, a document from a row."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from server.database.clock import time_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


class Body:
    """The base of a dataclass that a caller sends: an unknown key is an error."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}


class Sent(Body):
    """A body that keeps `sent`, the parsed JSON as it came: what it does not have is a default of
    ours that nobody stated.
    """

    __slots__ = ("sent",)
    sent: Mapping[str, Any]


def from_attributes(kind: type[T], source: object, /, **more: object) -> T:
    """A dataclass with what a row or another object has under the names of its fields, and with
    `more`.

    A time of the source (`..._at`, seconds since 1970) becomes text.
    """
    make: Callable[..., T] = kind
    values = {
        field.name: getattr(source, field.name) for field in fields(kind) if field.name not in more
    }
    return make(
        **{
            name: time_text(value) if name.endswith("_at") else value
            for name, value in values.items()
        },
        **more,
    )
