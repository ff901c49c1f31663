"""Documents against the JSON Schemas that `parity schema` prints, with no key beyond them."""

from __future__ import annotations

import json
from typing import Any

import jsonschema

from parity.cli.schema import schema_text


def schema(name: str) -> dict[str, Any]:
    """A schema as it is printed."""
    parsed: dict[str, Any] = json.loads(schema_text(name))
    return parsed


def check(name: str, document: object) -> None:
    """Raise ValidationError for a document that is not as its schema says, or that has a key that
    the schema does not name.
    """
    jsonschema.Draft202012Validator(_closed(schema(name))).validate(document)


def _closed(part: Any) -> Any:
    if isinstance(part, list):
        return [_closed(item) for item in part]
    if not isinstance(part, dict):
        return part
    closed = {key: _closed(item) for key, item in part.items()}
    if "properties" in part and isinstance(part["properties"], dict):
        closed.setdefault("additionalProperties", False)
    return closed
