"""Request bodies: parsed and checked in the thread of the endpoint, never in the event loop, and
without silent conversions. Only texts get one spelling (`server.web.requests.texts`).

`true` is not accepted as a number, nor "400" as a count. Pydantic's own strict mode rejects lists
for tuples and objects for nested dataclasses, so the parsed value is compared with the sent one
instead.

A body is parsed only after its sender was authorized: the framework's own way, parsing and
validating in the event loop, would let every request of 16 MiB stop all others.
"""

import dataclasses
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache, wraps
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError, WrapValidator
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response as StarletteResponse

from parity.names_once import NameTwiceError, object_of_pairs
from server.errors import InvalidError
from server.records import Sent
from server.web.limits import MOST_COUNTED
from server.web.requests.body_sizes import check_body
from server.web.requests.texts import clean_body

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
