"""What a request may contain: texts that a database can store, strict bodies, query parameters,
cursors and entity tags.
"""

import base64
import binascii
import dataclasses
import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache, wraps
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints
from urllib.parse import parse_qsl, urlencode

from fastapi import Depends, Form, Header, Query, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import AfterValidator, TypeAdapter, ValidationError, WrapValidator
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response as StarletteResponse
from starlette.types import Scope

from parity.names_once import NameTwiceError, object_of_pairs
from server.database.states import JOB_ENDED, RUN_ENDED
from server.database.tables import Job, Run, is_id
from server.errors import InvalidError
from server.records import Sent
from server.web.limits import LARGEST, MOST_COUNTED, check_body

# The texts of a request: only what a database can store and a response can repeat, and each in one
# spelling.
#
# JSON and addresses can spell NUL, which PostgreSQL stores in no text, and half of a surrogate
# pair, which is no character. Both are refused, with the field. An accented letter has two
# spellings that look the same; texts have the composed one (NFC), so that equal names are equal.
# Only the name of a file stays as it is: on a disk the two are two files.

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


def _of_form(text: str) -> str:
    try:
        return cleaned(text, "")
    except InvalidError as error:
        raise ValueError(error.detail) from None  # the framework adds the name of the field


# A field of a form.
FormText = Annotated[str, Form(), AfterValidator(_of_form)]


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


# Request bodies: parsed and checked in the thread of the endpoint, never in the event loop, and
# without silent conversions. Only texts get one spelling (`server.web.requests`).
#
# `true` is not accepted as a number, nor "400" as a count. Pydantic's own strict mode rejects lists
# for tuples and objects for nested dataclasses, so the parsed value is compared with the sent one
# instead.
#
# A body is parsed only after its sender was authorized: the framework's own way, parsing and
# validating in the event loop, would let every request of 16 MiB stop all others.

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class _Unread:
    """The bytes of a body that nobody has parsed yet."""

    content: bytes


def _exactly(sent: object, parse: Callable[[object], T]) -> T | _Unread:
    """Parse a body; InvalidError for a text that cannot be stored, and if parsing changed the kind
    of a value.

    The framework's own look passes the bytes on.
    """
    if isinstance(sent, _Unread):
        return sent
    sent = clean_body(sent)
    parsed = parse(sent)
    _compare(sent, parsed, "")
    if isinstance(parsed, Sent):
        object.__setattr__(parsed, "sent", sent)
    return parsed


_EXACTLY = WrapValidator(_exactly)
# A request body whose numbers, strings and booleans were sent as such; its router's `route_class`
# is `BodyRoute`.
StrictBody = Annotated[T, _EXACTLY]


class BodyRoute(APIRoute):
    """A route whose JSON body is parsed and checked where its endpoint runs, which must be a plain
    function, so in a thread.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, _reading(endpoint), **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, StarletteResponse]]:
        """The framework's handler, which gets the body as bytes where it asks for JSON."""
        handle = super().get_route_handler()

        async def unread(request: Request) -> StarletteResponse:
            return await handle(_Bytes(request.scope, request.receive))

        return unread


class _Bytes(Request):
    async def json(self) -> _Unread:
        """The body as it came."""
        return _Unread(await self.body())


def _reading(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """The endpoint, given its body as the annotation says."""

    @cache
    def kinds() -> dict[str, tuple[TypeAdapter[Any], dict[str, Any]]]:
        hints = get_type_hints(endpoint, include_extras=True)
        adapters = {
            name: TypeAdapter(hint)
            for name, hint in hints.items()
            if _EXACTLY in get_args(hint)[1:]
        }
        return {name: (adapter, adapter.json_schema()) for name, adapter in adapters.items()}

    @wraps(endpoint)
    def read(*args: Any, **values: Any) -> Any:
        unread = {
            name: value.content for name, value in values.items() if isinstance(value, _Unread)
        }
        return endpoint(
            *args,
            **values | {name: _parsed(*kinds()[name], content) for name, content in unread.items()},
        )

    return read


def _parsed(adapter: TypeAdapter[Any], schema: Mapping[str, Any], content: bytes) -> Any:
    try:
        sent = json.loads(content, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        wrong = {
            "type": "json_invalid",
            "loc": ("body", error.pos),
            "msg": f"not valid JSON: {error.msg}",
            "input": {},
        }
        raise RequestValidationError([wrong]) from error
    # not UTF-8, a number of thousands of digits, or thousands of brackets
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "There was an error parsing the body") from error
    return _validated(adapter, schema, sent)


def once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of parsed JSON; InvalidError for a name that is there twice: which one counts would
    be the parser's choice.
    """
    try:
        return object_of_pairs(pairs)
    except NameTwiceError as error:
        raise InvalidError(str(error)) from None


def validated(kind: Any, sent: object) -> Any:
    """A body of this annotation (`StrictBody`) that was not sent as it is but made from what was
    sent, checked like one that was.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    return _validated(adapter, adapter.json_schema(), sent)


def _validated(adapter: TypeAdapter[Any], schema: Mapping[str, Any], sent: object) -> Any:
    check_body(sent, schema)
    try:
        return adapter.validate_python(sent)
    except ValidationError as error:
        raise refused(error) from error


def refused(error: ValidationError) -> RequestValidationError:
    """A refused body as the error that becomes a problem document. So many findings that listing
    them takes time are only counted.
    """
    if error.error_count() > MOST_COUNTED:
        many = {
            "type": "value_error",
            "loc": ("body",),
            "msg": f"the body has {error.error_count():,} errors, expected none",
            "input": {},
        }
        return RequestValidationError([many])
    return RequestValidationError(
        [
            {**finding, "loc": ("body", *finding["loc"])}
            for finding in error.errors(include_url=False)
        ]
    )


def _compare(sent: object, parsed: object, pointer: str) -> None:
    """InvalidError with a JSON Pointer to the first leaf that was sent as another kind than it was
    parsed as.
    """
    if dataclasses.is_dataclass(parsed) and isinstance(sent, Mapping):
        for name, value in sent.items():
            _compare(value, getattr(parsed, name), f"{pointer}/{name}")
    elif isinstance(sent, Mapping) and isinstance(parsed, Mapping):
        for name, value in sent.items():
            _compare(value, parsed.get(name), f"{pointer}/{name}")
    elif isinstance(sent, list) and isinstance(parsed, Sequence):
        # Long columns of plain numbers cannot have been converted.
        if not set(map(type, sent)) <= {int, float}:
            for index, (value, read) in enumerate(zip(sent, parsed, strict=False)):
                _compare(value, read, f"{pointer}/{index}")
    # a field may also have been replaced: a preset's name by its fields
    elif _kind(sent) != _kind(parsed) and _kind(parsed):
        detail = (
            f"{pointer.rpartition('/')[2]} is {sent!r:.80}, a {_kind(sent) or 'value'}; expected a "
            f"{_kind(parsed)}"
        )
        raise InvalidError.at(pointer, detail)


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "truth value"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    return ""


# The keys of a query: a misspelt one would be ignored, and the response would be to another
# question.


# in the event loop: it takes no time, and waits for no thread
async def check_query(request: Request) -> None:
    """InvalidError for a key that the route does not know, with those that it knows."""
    if not request.query_params:
        return
    known = _query_keys(request.scope["route"].dependant)
    unknown = next((key for key in request.query_params if key not in known), None)
    if unknown is not None:
        expected = f"one of {', '.join(known)}" if known else "no query at all"
        raise InvalidError.at(
            f"/query/{escaped(unknown)}",
            f"query key {unknown!r:.80} is not known here; expected {expected}",
        )


def _query_keys(dependant: Dependant) -> list[str]:
    """The keys that a route reads, and those that its dependencies read."""
    return [
        *(each.alias for each in dependant.query_params),
        *(key for part in dependant.dependencies for key in _query_keys(part)),
    ]


# Query parameters that the routes of curves share.

FirstStep = Annotated[int, Query(alias="from", ge=0, le=LARGEST, description="first step")]
LastStep = Annotated[int | None, Query(alias="to", ge=0, le=LARGEST, description="last step")]
Spacing = Annotated[
    Literal["linear", "log"],
    Query(description="buckets of equal length in steps, or in the logarithm of the step"),
]


# The cursor of a list: the id of the last row of a page, opaque to clients.


def cursor_of(row_id: str) -> str:
    """The `next_cursor` of a page that ends with this row."""
    return base64.urlsafe_b64encode(row_id.encode()).decode()


def row_id_of(cursor: str, kind: str) -> str:
    """The id in a cursor, of kind "j" (job) or "b" (baseline); InvalidError if the cursor has no
    such id.
    """
    try:
        row_id = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        row_id = ""
    if not is_id(kind, row_id):
        raise InvalidError(
            f"cursor is {cursor!r}, expected the next_cursor of an earlier page; leave it out for "
            "the first page"
        )
    return row_id


# Entity tags of responses about ended runs and jobs. These no longer change, so repeating such a
# request is cheap.

_FORMAT = 2  # raise it with a change that alters the response to the same request


def entity_tag(ended: Run | Job, *question: object) -> str | None:
    """The tag of a response about a run or a job that has ended; None before its end.

    It is made from the identity of the record, not from the response, so that it is known before
    anything is read. It is a weak tag, because the same response may be sent in several encodings.
    """
    state, over = (ended.state, RUN_ENDED) if isinstance(ended, Run) else (ended.status, JOB_ENDED)
    if state not in over:
        return None
    # After a run's end only retention changes its message, when it deletes the curve.
    messages = [run.message for run in ([ended] if isinstance(ended, Run) else ended.runs)]
    content = repr((_FORMAT, ended.id, state, ended.finished_at, messages, question))
    return f'W/"{hashlib.sha256(content.encode()).hexdigest()[:32]}"'


class NotModifiedError(Exception):
    """The client already has the response; `problems.install` answers 304 with these headers."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__("not modified")
        self.headers = headers


_IfNoneMatch = Annotated[str, Header(description="the ETag of an earlier response")]


class ClientCopy:
    """What a route knows of the copy that its client has."""

    def __init__(self, response: Response, if_none_match: _IfNoneMatch = "") -> None:
        self._response = response
        self._known = {part.strip().removeprefix("W/") for part in if_none_match.split(",")}

    def check(self, ended: Run | Job, *question: object, vary: str | None = None) -> dict[str, str]:
        """Tag the response about a run or a job; returns its headers. Ends the request with 304 if
        the client already has the response.

        Clients may cache a tagged response privately, and must check the tag before each use.
        """
        tag = entity_tag(ended, *question)
        headers = {} if vary is None else {"Vary": vary}
        if tag is not None:
            headers |= {"ETag": tag, "Cache-Control": "private, no-cache"}
            if self._known & {tag.removeprefix("W/"), "*"}:
                raise NotModifiedError(headers)
        self._response.headers.update(headers)
        return headers


Tags = Annotated[ClientCopy, Depends()]
UNCHANGED: dict[int | str, dict[str, Any]] = {
    304: {"description": "The response named by If-None-Match is still current"}
}
