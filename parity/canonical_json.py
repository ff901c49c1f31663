"""Values as canonical JSON: sorted keys, no NaN or infinity as numbers, the same bytes for the same
value.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_PLAIN = frozenset((str, int, bool, type(None)))


def json_value(value: object) -> Any:
    """JSON-able form: dataclasses and mappings become sorted dicts, arrays and tuples lists,
    non-finite floats "nan", "inf", "-inf".
    """
    if type(value) in _PLAIN:  # most values: the questions below take longer
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return json_value(fields_of(value))
    if isinstance(value, Mapping):
        return {str(key): json_value(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if hasattr(value, "tolist"):  # numpy's, which is not imported here: a policy needs none of it
        return json_value(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    return value


def fields_of(item: "DataclassInstance") -> dict[str, Any]:
    """The fields of a dataclass as they are, by their names: `asdict` without the copies."""
    return {field.name: getattr(item, field.name) for field in fields(item)}


def canonical_json(value: object) -> str:
    """Canonical JSON text of a value, with a newline at its end."""
    return (
        json.dumps(json_value(value), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
        + "\n"
    )
