"""The sizes of lists, objects and numbers in a request's body: checked, and described in the
OpenAPI document.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from server.errors import InvalidError
from server.logs import cut
from server.web.limits import LARGEST, MOST_ITEMS, MOST_KEYS, MOST_NUMBERS


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
            value_schema = _resolved(described, schema, "array")
            kinds = set(map(type, value))
            most = value_schema.get(
                "maxItems", MOST_ITEMS if kinds & {dict, list} else MOST_NUMBERS
            )
            if len(value) > most:
                raise _refused(
                    pointer,
                    f"has {len(value):,} items, expected at most {most:,} "
                    f"{pointer.rpartition('/')[2]}",
                )
            if kinds <= {int, float}:
                _check_numbers(pointer, value)
            else:
                items = value_schema.get("items", {})
                rest += [
                    (f"{pointer}/{index}", item, items)
                    for index, item in enumerate(value)
                    if not isinstance(item, str | float)
                ]
        elif isinstance(value, dict):
            value_schema = _resolved(described, schema, "object")
            most = value_schema.get("maxProperties", MOST_KEYS)
            if len(value) > most:
                raise _refused(pointer, f"has {len(value):,} keys, expected at most {most:,}")
            fields, others = (
                value_schema.get("properties", {}),
                value_schema.get("additionalProperties", {}),
            )
            for name, item in value.items():
                if not isinstance(item, str | float):
                    rest.append((f"{pointer}/{_token(name)}", item, fields.get(name, others)))
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
        rest += [
            alternative for name in ("anyOf", "oneOf", "allOf") for alternative in one.get(name, ())
        ]
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
