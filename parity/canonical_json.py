"""Values as canonical JSON: sorted keys, no NaN or infinity as numbers, the same bytes for the same value."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def json_value(value: object) -> Any:
    """JSON-able form: dataclasses and mappings become sorted dicts, arrays and tuples lists, non-finite floats "nan", "inf", "-inf"."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return json_value({item.name: getattr(value, item.name) for item in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return {str(key): json_value(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if isinstance(value, np.ndarray):
        return json_value(value.tolist())
    if isinstance(value, np.generic):
        return json_value(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def picked(item: object, *names: str) -> dict[str, Any]:
    """Some attributes of an object by their names."""
    return {name: getattr(item, name) for name in names}


def canonical_json(value: object) -> str:
    """Canonical JSON text of a value, with a newline at its end."""
    return json.dumps(json_value(value), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
