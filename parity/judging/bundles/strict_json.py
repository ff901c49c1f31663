"""Parse JSON of an unknown author: no NaN or infinity, no name twice in one object, no nesting or
number beyond Python's own limits.
"""

import json
from typing import Any, NoReturn

from parity.names_once import NameTwiceError, object_of_pairs

MAX_INTEGER = 2**63  # beyond it no count, step or seed of a run lies


class JsonError(ValueError):
    """A text that is refused; the message says why, without quoting it at length."""


def parse_json(data: bytes) -> Any:
    """The value of a JSON text in UTF-8. Raises JsonError for everything that the standard or the
    limits above exclude.
    """
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=object_of_pairs,
            parse_constant=_no_constant,
            parse_int=_integer,
        )
    except UnicodeDecodeError as error:
        raise JsonError(f"byte {error.start:,} is not UTF-8; expected JSON in UTF-8") from None
    except RecursionError:
        raise JsonError("it is nested too deeply; expected a few levels") from None
    except NameTwiceError as error:
        raise JsonError(str(error)) from None
    except json.JSONDecodeError as error:
        raise JsonError(
            f"it is not JSON at line {error.lineno:,}, column {error.colno:,}"
        ) from None


def _no_constant(word: str) -> NoReturn:
    raise JsonError(
        f"it holds {word}, which is not JSON; expected finite numbers, or the text 'nan', 'inf' or "
        "'-inf'"
    )


def _integer(text: str) -> int:
    if len(text) > len(str(-MAX_INTEGER)) or abs(number := int(text)) > MAX_INTEGER:
        raise JsonError(
            f"it holds a whole number of {len(text.lstrip('-')):,} digits; expected at most 2^63"
        )
    return number
