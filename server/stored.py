"""JSON that some version of this service stored, as an object of today's version.

A key that an older version did not know takes the default of today's class. A key that this version
does not know was added by a newer one, and a value of another kind is damage: both are refused, by
their place, because to drop them would answer another question than the one on record.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from parity.typed_json import shown
from server.errors import StoredFormError
from server.wrong_values import sentence
from training.spec import Model

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def read_stored(kind: type[T], value: object, place: str) -> T:
    """The dataclass that `value` is stored as; `place` names it in an error ("job j1: its policy").

    Raises StoredFormError for a key that this version does not know, a key without a default that
    is missing, and a value of another kind.
    """
    with reading(place):
        if not isinstance(value, Mapping):
            raise TypeError(f"it is {shown(value)}, expected an object")
        names = [field.name for field in fields(kind)]
        unknown = sorted(set(value) - set(names))
        if unknown:
            raise TypeError(f"it has {', '.join(unknown)}, which this version does not know")
        read: T = _adapter(kind).validate_python(dict(value))
        return read


def stored_model(spec: Mapping[str, Any]) -> Model:
    """The model of a specification as it is stored with a job."""
    return read_stored(Model, spec["model"], f"the model of job {spec.get('name')!r}")


@contextmanager
def reading(place: str) -> Iterator[None]:
    """Turn the error of a form that has a reader of its own into a StoredFormError."""
    try:
        yield
    except (TypeError, LookupError, ValueError) as error:
        if isinstance(error, ValidationError):
            problem = sentence(error.errors()[0])
        elif isinstance(error, KeyError):
            problem = f"it lacks {error}"
        else:
            problem = str(error)
        raise StoredFormError(
            f"{place} cannot be read by this version: {problem}; a newer version stored it, or it "
            "is damaged: `python -m server.check` on the server's machine says which"
        ) from error


@cache
def _adapter(kind: type[T]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
