"""The value of a JSON text, in which an object gives each name one value."""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from parity.names_once import NameTwiceError, object_of_pairs
from parity.readers.errors import ReadError

object_of_values = partial(object_of_pairs, equal_values_pass=True)
"""An object of a log, for json's `object_pairs_hook`: a value that is written twice is one."""


def flat_object(record: dict[str, Any]) -> dict[str, Any]:
    """An object without objects in it: their names follow its own behind a slash. Raises
    NameTwiceError where that gives one name two values.
    """
    if not any(type(value) is dict for value in record.values()):
        return record
    return object_of_values([*_flat_pairs(record, "")])


def _flat_pairs(record: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flat_pairs(value, f"{before}{name}/")
        else:
            yield f"{before}{name}", value


def json_value(text: str, name: str, remedy: str = "check the file") -> Any:
    """The value of a JSON text; raises ReadError, with the line, where it is not valid JSON, or an
    object gives one name two values.
    """
    try:
        return json.loads(text, object_pairs_hook=object_of_values)
    except NameTwiceError as error:
        raise ReadError(f"{name}: {error}") from None
    except (ValueError, RecursionError) as error:
        place = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ReadError(f"{name}{place}: not valid JSON; {remedy}") from None
