"""What one request may cost: sizes, requests per minute, and connections that never send a whole
request.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Iterable, Mapping
from typing import Any

import redis
from uvicorn.protocols.http.h11_impl import H11Protocol

from parity.frozen import frozen
from server.errors import InvalidError
from server.logs import cut
from server.queue import redis_client

# What one request may cost: the sizes of bodies, lists, numbers, answers and log lines; and
# requests per minute for each token.
#
# `server.web.requests` checks each body against these sizes, and the description of the API states
# them.

BODY_BYTES = 2**20
"""The largest body of a request without curves or tables; those have the setting
`max_body_bytes`.
"""
LARGEST = 2**53
"""The largest whole number of a request: up to it, numbers are exact in JSON, and the database can
store them.
"""
MOST_ITEMS, MOST_NUMBERS, MOST_KEYS = 1000, 10_000_000, 1000
"""The longest list of objects or lists, the longest other list, and the most keys of an object,
where no field has its own limit.
"""
MOST_VALUES = 2_000_000
"""The most values of columns in one answer; a file (CSV, Arrow) is sent in parts and has no
limit.
"""
MOST_FINDINGS, MOST_COUNTED = 100, 10_000
"""The most errors that a problem document lists, and the most of which it can list some: making
more of them takes seconds.
"""

THREADS, MOST_WAITING, THREAD_SECONDS = 12, 128, 20.0
"""How many threads work on requests; how many requests wait for one, of which the next is refused;
and for how long each of them does.

With 40 threads, the event loop had so small a share of the interpreter under load that even
refusals took seconds.
"""

RETRIES_A_SECOND, LONGEST_RETRY_SECONDS = 20, 30
"""How many refused clients are told to try again in the same second, and the longest that one is
told to wait.

A refusal costs about a quarter of an answer. If all tried again after two seconds, an overloaded
server would mostly refuse.
"""

_log = logging.getLogger(__name__)
_MINUTE = 60
# to connect, and again for an answer: a request may not wait longer for the broker than a second
_PATIENCE_SECONDS = 0.4
# After a failure no request tries Redis again for this long, because each try would wait.
_AWAY_SECONDS = 5.0


@frozen
class Allowance:
    """Requests that a caller may make in a minute, how many are left (below 0: limit exceeded), and
    when the next minute begins.
    """

    limit: int
    left: int
    seconds: int

    def headers(self) -> dict[str, str]:
        """The same values as response headers."""
        values = {
            "RateLimit-Limit": self.limit,
            "RateLimit-Remaining": max(0, self.left),
            "RateLimit-Reset": self.seconds,
        }
        return {name: str(value) for name, value in values.items()}


class RetryTimes:
    """When refused clients are to try again: RETRIES_A_SECOND of them, one after another."""

    def __init__(self) -> None:
        self._last = 0.0

    def seconds(self, now: float) -> int:
        """Whole seconds from `now` for the next client, at least 2; once the longest is reached, at
        random from half of it on.
        """
        self._last = max(now + 1.0, self._last + 1.0 / RETRIES_A_SECOND)
        longest = now + LONGEST_RETRY_SECONDS
        if self._last <= longest:
            return max(2, math.ceil(self._last - now))
        self._last = longest
        return random.randint(LONGEST_RETRY_SECONDS // 2, LONGEST_RETRY_SECONDS)  # noqa: S311


class Limiter:
    """Counts requests by minute in Redis, so that all API processes count together."""

    def __init__(self, url: str, per_minute: int) -> None:
        self._redis = redis_client(url, _PATIENCE_SECONDS)
        self._per_minute = per_minute
        self._away_until = 0.0

    def count(self, token_id: str) -> Allowance | None:
        """Count a request of this token; its remaining allowance, or None while Redis is
        unreachable.
        """
        if time.monotonic() < self._away_until:
            return None
        minute, second = divmod(int(time.time()), _MINUTE)
        key = f"parity:requests:{token_id}:{minute}"
        try:
            with self._redis.pipeline() as pipeline:
                pipeline.incr(key)
                pipeline.expire(key, 2 * _MINUTE)
                made: int = pipeline.execute()[0]
        except redis.RedisError as error:
            _log.warning("requests are not counted, because the broker is unreachable: %s", error)
            self._away_until = time.monotonic() + _AWAY_SECONDS
            return None
        return Allowance(
            limit=self._per_minute, left=self._per_minute - made, seconds=_MINUTE - second
        )


def check_values(columns: int, values: int) -> None:
    """InvalidError where the columns of an answer have too many values; `values` is the most that
    one of them can have.
    """
    if columns * values > MOST_VALUES:
        raise InvalidError(
            f"the answer would have {columns:,} columns of {values:,} values, expected at most "
            f"{MOST_VALUES:,} values in all; ask for fewer columns (`names`) or fewer values of "
            "each (`points` or `limit`), or for the steps as format csv or arrow"
        )


def check_body(body: object, schema: Mapping[str, Any]) -> None:
    """InvalidError for a number or a part of a body, as JSON has it, that is larger than a request
    may contain.

    A list is counted before anybody looks at its items: its limit is that of the body's JSON
    `schema`, or a general one.
    """
    rest = [("", body, schema)]
    while rest:
        pointer, value, described = rest.pop()
        if isinstance(value, list):
            own = _resolved(described, schema, "array")
            kinds = set(map(type, value))
            most = own.get("maxItems", MOST_ITEMS if kinds & {dict, list} else MOST_NUMBERS)
            if len(value) > most:
                raise _refused(
                    pointer,
                    f"has {len(value):,} items, expected at most {most:,} "
                    f"{pointer.rpartition('/')[2]}",
                )
            if kinds <= {int, float}:
                _check_numbers(pointer, value)
            else:
                items = own.get("items", {})
                rest += [
                    (f"{pointer}/{index}", each, items)
                    for index, each in enumerate(value)
                    if not isinstance(each, str | float)
                ]
        elif isinstance(value, dict):
            own = _resolved(described, schema, "object")
            most = own.get("maxProperties", MOST_KEYS)
            if len(value) > most:
                raise _refused(pointer, f"has {len(value):,} keys, expected at most {most:,}")
            fields, others = own.get("properties", {}), own.get("additionalProperties", {})
            for name, each in value.items():
                if not isinstance(each, str | float):
                    rest.append((f"{pointer}/{_token(name)}", each, fields.get(name, others)))
        elif isinstance(value, int):
            _check_numbers(pointer, (value,))


def _resolved(described: Any, schema: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """What a schema says of a value of this kind; nothing where it expects no such value."""
    rest = [described]
    while rest:
        one = rest.pop()
        if not isinstance(one, Mapping):  # true or false
            continue
        if one.get("type") == kind:
            return one
        if "$ref" in one:
            rest.append(schema["$defs"][one["$ref"].rpartition("/")[2]])
        rest += [each for name in ("anyOf", "oneOf", "allOf") for each in one.get(name, ())]
    return {}


def _check_numbers(pointer: str, values: Iterable[float]) -> None:
    for number in (min(values, default=0), max(values, default=0)):
        if isinstance(number, int) and not -LARGEST <= number <= LARGEST:
            raise _refused(
                pointer,
                f"has a whole number out of range, {_digits(number)}; expected -{LARGEST} to "
                f"{LARGEST}",
            )


def _digits(number: int) -> str:
    if abs(number) < 10**40:
        return str(number)
    return f"one of {number.bit_length()} bits"


def _refused(pointer: str, problem: str) -> InvalidError:
    where = cut(pointer)
    words = where.removeprefix("/job/").removeprefix("/").replace("/", ".")
    return InvalidError.at(where, problem, f"{words or 'the body'} {problem}")


def _token(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def describe_limits(openapi: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI document with the limits that `check_body` sets, at each number, list and object
    of a request without its own.
    """
    schemas: Mapping[str, Any] = openapi["components"]["schemas"]
    rest = [
        content["schema"]
        for methods in openapi["paths"].values()
        for operation in methods.values()
        for content in operation.get("requestBody", {}).get("content", {}).values()
    ]
    seen: set[int] = set()
    while rest:
        schema = rest.pop()
        if id(schema) in seen:
            continue
        seen.add(id(schema))
        if "$ref" in schema:
            rest.append(schemas[schema["$ref"].rpartition("/")[2]])
        if (
            schema.get("type") == "integer"
            and not {"maximum", "exclusiveMaximum", "const", "enum"} & schema.keys()
        ):
            schema["maximum"] = LARGEST
        if schema.get("type") == "array":
            items = schema.get("items", {})
            schema.setdefault(
                "maxItems", MOST_ITEMS if {"$ref", "items"} & items.keys() else MOST_NUMBERS
            )
            rest += [items, *schema.get("prefixItems", ())]
        if schema.get("type") == "object" and isinstance(
            schema.get("additionalProperties", False), dict
        ):
            schema.setdefault("maxProperties", MOST_KEYS)
            rest.append(schema["additionalProperties"])
        rest += [
            *schema.get("properties", {}).values(),
            *schema.get("anyOf", ()),
            *schema.get("oneOf", ()),
            *schema.get("allOf", ()),
        ]
    return openapi


# uvicorn's connection, closed where a client opens it and sends no whole request, or an ambiguous
# one.
#
# uvicorn waits indefinitely for the head of a request, so that a few hundred idle sockets would use
# up its files.

HEAD_SECONDS = 20.0
"""How long a client may take to send the head of a request; bodies have their own limit
(`server.web.middleware`).
"""


class Connection(H11Protocol):
    """One client's connection; name it with `uvicorn --http server.web.limits:Connection`."""

    _idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As uvicorn's, and begin to watch."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._watch()

    def on_response_complete(self) -> None:
        """As uvicorn's; the client may now send another request."""
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def _watch(self) -> None:
        if self.transport.is_closing():
            return
        answering = self.cycle is not None and not self.cycle.response_complete
        waited = self.loop.time() - self._idle_since
        if not answering and waited >= HEAD_SECONDS:
            self.transport.close()
            return
        self.loop.call_later(HEAD_SECONDS / 4 if answering else HEAD_SECONDS - waited, self._watch)
