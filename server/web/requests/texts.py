"""The texts of a request: only what a database can store and a response can repeat, and each in one
spelling.

JSON and addresses can spell NUL, which PostgreSQL stores in no text, and half of a surrogate
pair, which is no character. Both are refused, with the field. An accented letter has two
spellings that look the same; texts have the composed one (NFC), so that equal names are equal.
Only the name of a file stays as it is: on a disk the two are two files.
"""

import re
import unicodedata
from collections import Counter
from typing import Annotated
from urllib.parse import parse_qsl, urlencode

from fastapi import Form
from pydantic import AfterValidator
from starlette.types import Scope

from server.errors import InvalidError

_REFUSED = re.compile("[\0\ud800-\udfff]")
_FILES = frozenset({"path"})  # fields that name a file
_Container = dict[str, object] | list[object]


def cleaned(text: str, pointer: str) -> str:
    """A text in its one spelling; InvalidError with the pointer of the field if it cannot be
    stored.
    """
    match = _REFUSED.search(text)
    if match is not None:
        character = (
            "NUL" if match[0] == "\0" else f"half of a surrogate pair, U+{ord(match[0]):04X},"
        )
        name = pointer.rpartition("/")[2] or "the text"
        detail = (
            f"{name} has {character} as character {match.start() + 1}, which no text can hold; "
            "remove it"
        )
        raise InvalidError.at(pointer, detail)
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", text)


def _cleaned_form_text(text: str) -> str:
    try:
        return cleaned(text, "")
    except InvalidError as error:
        raise ValueError(error.detail) from None  # the framework adds the name of the field


# A field of a form.
FormText = Annotated[str, Form(), AfterValidator(_cleaned_form_text)]


def clean_body(body: object) -> object:
    """A parsed JSON document with all of its texts cleaned; lists and mappings are changed in
    place.

    Without recursion, because JSON nests deeper than Python calls.
    """
    if isinstance(body, str):
        return cleaned(body, "")
    left: list[tuple[_Container, str]] = [(body, "")] if isinstance(body, dict | list) else []
    while left:
        container, pointer = left.pop()
        if isinstance(container, dict):
            _clean_keys(container, pointer)
        elif set(map(type, container)) <= {int, float}:  # a column of a curve
            continue
        places = [*container.items()] if isinstance(container, dict) else [*enumerate(container)]
        for place, value in places:
            at = f"{pointer}/{escaped(str(place))}"
            if isinstance(value, str):
                new = cleaned(value, at)
                container[place] = value if place in _FILES else new  # type: ignore[index]
            elif isinstance(value, dict | list):
                left.append((value, at))
    return body


def _clean_keys(mapping: dict[str, object], pointer: str) -> None:
    keys = [cleaned(key, f"{pointer}/{escaped(key)}") for key in mapping]
    if len(set(keys)) < len(keys):
        twice = Counter(keys).most_common(1)[0][0]
        detail = (
            f"{twice!r:.80} is there twice, in two spellings of the same characters; leave one out"
        )
        raise InvalidError.at(f"{pointer}/{escaped(twice)}", detail)
    if keys != [*mapping]:
        values = [*mapping.values()]
        mapping.clear()
        mapping.update(zip(keys, values, strict=True))


def clean_address(scope: Scope) -> None:
    """Clean the path and the query of a request in place."""
    scope["path"] = cleaned(scope["path"], "/path")
    if b"%" not in scope["query_string"]:
        return
    sent = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    clean = [
        (cleaned(name, f"/query/{escaped(name)}"), cleaned(value, f"/query/{escaped(name)}"))
        for name, value in sent
    ]
    if clean != sent:
        scope["query_string"] = urlencode(clean).encode("latin-1")


def escaped(part: str) -> str:
    """A part of a JSON Pointer, which a response can repeat."""
    return part.replace("~", "~0").replace("/", "~1").encode("utf-8", "backslashreplace").decode()
