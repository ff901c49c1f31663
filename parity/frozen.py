"""`frozen`: a dataclass that never changes, for every value that is handed from part to part."""

import dataclasses
from collections.abc import Callable
from typing import TypeVar, dataclass_transform, overload

C = TypeVar("C")


@overload
def frozen(kind: type[C], /) -> type[C]: ...
@overload
def frozen(*, eq: bool = True) -> Callable[[type[C]], type[C]]: ...
@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,)
)
def frozen(
    kind: type[C] | None = None, /, *, eq: bool = True
) -> type[C] | Callable[[type[C]], type[C]]:
    """Make a class a dataclass that never changes, has no further attributes, and takes its fields
    by name.

    `eq`: whether two are equal when all their fields are; leave it out for values with arrays.
    """
    make = dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=eq)
    return make if kind is None else make(kind)
