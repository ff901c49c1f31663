"""A card as YAML, and back: strict about its fields, indifferent to how a value is written.

Key order, comments, line ends and quotes are free: every value is read as text and taken as the
kind that its field has, so that a commit of digits stays text and a quoted number a number.
"""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import yaml

from parity.canonical_json import fields_of
from parity.cards.card import Card
from parity.cards.golden_card import GoldenCard
from parity.comparing.policy_file import yaml_value
from parity.typed_json import shown
from parity.wording import did_you_mean

_NULLS = ("null", "Null", "NULL", "~", "")
_BOOLS = {"true": True, "false": False}
_NOT_FINITE = {".nan": math.nan, ".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf}
_WORDS: Mapping[object, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
}


class CardError(ValueError):
    """A file that is no card; the message names the place, its value and what was expected."""


AnyCard = Card | GoldenCard
_KINDS: Mapping[str, type[AnyCard]] = {
    schema: kind
    for kind in (Card, GoldenCard)
    for schema in get_args(get_type_hints(kind)["schema"])
}


def card_yaml(card: AnyCard) -> str:
    """The YAML of a card: its fields in their order, the same text for the same card."""
    text: str = yaml.safe_dump(
        plain(card), sort_keys=False, allow_unicode=False, width=math.inf, default_flow_style=False
    )
    return text


def read_card(text: str, path: str) -> AnyCard:
    """The card in YAML text from a file; CardError names the place of what is wrong, InputError
    what is no YAML.
    """
    value = yaml_value(text, path, as_text=True)
    if not isinstance(value, dict) or "schema" not in value:
        raise CardError(f"{path}: is no card; expected the YAML that `parity card` writes")
    schema = value["schema"]
    if not isinstance(schema, str) or schema not in _KINDS:
        raise CardError(
            f"{path}: schema is {shown(schema)}; this parity reads {' and '.join(_KINDS)}; install "
            "the version that wrote the card"
        )
    return cast("AnyCard", _record(value, _KINDS[schema], path, ""))


def plain(value: object) -> Any:
    """A card, or a part of it, as dicts, lists, text and numbers, for YAML and JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(item) for name, item in fields_of(value).items()}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def _record(value: object, kind: type[Any], path: str, place: str) -> object:
    expected = [item.name for item in fields(kind)]
    if not isinstance(value, dict):
        raise _refused(path, place, value, f"keys {', '.join(expected)}")
    for key in value:
        if key not in expected:
            near = did_you_mean(str(key), expected)
            raise CardError(f"{path}: {_joined(place, key)} is no field of a card; remove it{near}")
    for key in expected:
        if key not in value:
            raise CardError(f"{path}: {_joined(place, key)} is missing; write the card again")
    hints = get_type_hints(kind)
    return kind(
        **{key: _read(value[key], hints[key], path, _joined(place, key)) for key in expected}
    )


def _read(value: object, hint: Any, path: str, place: str) -> object:
    """A value of the kind that a field has."""
    if get_origin(hint) in (UnionType, Union):
        if isinstance(value, str) and value in _NULLS:
            return None
        hint = get_args(hint)[0]
    origin = get_origin(hint)
    if origin is list:
        if not isinstance(value, list):
            raise _refused(path, place, value, "a list")
        (kind,) = get_args(hint)
        return [_read(item, kind, path, f"{place}[{index}]") for index, item in enumerate(value)]
    if origin is dict:
        if not isinstance(value, dict):
            raise _refused(path, place, value, "names with values")
        kind = get_args(hint)[1]
        return {key: _read(item, kind, path, _joined(place, key)) for key, item in value.items()}
    if is_dataclass(hint):
        return _record(value, cast("type[Any]", hint), path, place)
    if not isinstance(value, str):
        raise _refused(path, place, value, _WORDS.get(hint, "text"))
    if origin is Literal:
        if value not in get_args(hint):
            raise _refused(path, place, value, " or ".join(get_args(hint)))
        return value
    return _scalar(value, hint, path, place)


def _scalar(text: str, kind: Any, path: str, place: str) -> object:
    if kind is str:
        return text
    try:
        if kind is bool:
            return _BOOLS[text.lower()]
        if kind is int:
            return int(text)
        return _NOT_FINITE[text.lower()] if text.lower() in _NOT_FINITE else float(text)
    except (KeyError, ValueError):
        raise _refused(path, place, text, _WORDS[kind]) from None


def _refused(path: str, place: str, value: object, expected: str) -> CardError:
    return CardError(f"{path}: {place} is {shown(value)}; expected {expected}")


def _joined(place: str, key: object) -> str:
    name = key if isinstance(key, str) and key.isascii() and key.isprintable() else ascii(key)
    return f"{place}.{name[:80]}" if place else name[:80]
