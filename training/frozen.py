"""`frozen`: a dataclass that never changes, and takes its fields by name."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

C = TypeVar("C")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(kind: type[C]) -> type[C]:
    """Make a class a dataclass that never changes, has no further attributes, and takes its fields
    by name.
    """
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)
