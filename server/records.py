"""Dataclasses of requests and documents: a base for what a caller sends, a document from a row, and
numbers for JSON.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from server.database.clock import time_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
Number = float | Literal["nan", "inf", "-inf"]


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


def number(value: float) -> Number:
    """A float for JSON; non-finite values become the strings nan, inf and -inf."""
    if np.isfinite(value):
        return float(value)
    return kind_of(value)


def kind_of(value: float) -> Literal["nan", "inf", "-inf"]:
    """The word for a value that is not finite."""
    if np.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"


def rounded(
    values: NDArray[np.float64], known: NDArray[np.bool_] | None = None, *, digits: int = 7
) -> list[float | None]:
    """Values (n,) for JSON to some significant digits, null where not `known` or not finite (the
    mean of huge values).

    A chart cannot show more digits, and the response is half as long.
    """
    finite = np.isfinite(values)
    known = finite if known is None else known & finite
    numbers = np.where(known, values, 0.0)
    decade = np.floor(np.log10(np.maximum(np.abs(numbers), 1e-290)))
    scale = 10.0 ** np.clip(digits - 1 - decade, -300, 300)
    scaled = numbers * scale
    numbers = np.where(np.isfinite(scaled), np.round(scaled) / scale, numbers)
    return [
        value if is_known else None
        for value, is_known in zip(numbers.tolist(), known.tolist(), strict=True)
    ]


def digest(content: object) -> str:
    """SHA-256 of JSON, as it is stored with jobs and runs."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
