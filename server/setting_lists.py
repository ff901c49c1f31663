"""Settings that are lists, as a person writes them in a shell or in `.env`: plain text or JSON.

/data,gs://corpus is the same as ["/data", "gs://corpus"]. A command is split as a shell splits
it, because its arguments contain commas.
"""

import json
import shlex
from typing import Any, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

_LISTS = (list, tuple, set, frozenset)
_QUOTES = ("'", '"')


def is_list(field: FieldInfo) -> bool:
    """Whether a setting has several values."""
    return get_origin(field.annotation) in _LISTS or field.annotation in _LISTS


def items_of(text: str, *, command: bool, objects: bool) -> list[Any]:
    """The values in a variable's text; `command`: the words of a command line; `objects`: values
    that only JSON can state. Raises PydanticCustomError for a text that is no list.
    """
    text = text.strip()
    if objects:
        example = '[{"url": "https://...", "secret": "whsec_...", "events": ["job.ended"]}]'
    elif command:
        example = 'srun --ntasks=8 or ["srun", "--ntasks=8"]'
    else:
        example = '/a,/b or ["/a", "/b"]'
    if text.startswith("[") or (objects and text):
        values = _json_list(text, example)
    elif command:
        values = _words(text, example)
    else:
        values = [part.strip() for part in text.split(",") if part.strip()]
    for value in values:
        if isinstance(value, str) and not value.strip():
            raise _wrong(f"expected no empty text in the list, such as {example}")
        if isinstance(value, str) and not command and value.startswith(_QUOTES):
            raise _wrong(f"expected no quotes around it, such as {example}")
    return values


def _json_list(text: str, example: str) -> list[Any]:
    try:
        values = json.loads(text)
    except ValueError as error:
        at = (
            f" (wrong at character {error.pos + 1})"
            if isinstance(error, json.JSONDecodeError)
            else ""
        )
        raise _wrong(f"expected a JSON list{at}, such as {example}") from None
    if not isinstance(values, list):
        raise _wrong(f"expected a JSON list such as {example}")
    return values


def _words(text: str, example: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError:
        raise _wrong(f"expected a command whose quotes are closed, such as {example}") from None
    if len(words) == 1 and "," in words[0]:
        raise _wrong(f"expected blanks between the words of a command, such as {example}")
    return words


def _wrong(sentence: str) -> PydanticCustomError:
    return PydanticCustomError("setting_list", "{sentence}", {"sentence": sentence})
