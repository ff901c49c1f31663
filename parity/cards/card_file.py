"""A card as YAML, and back: strict about its fields, indifferent to how a value is written.

Key order, comments and the quotes of numbers are free: every value but a plain null is read as text
and taken as the kind that its field has, so that a commit of digits stays text and a quoted number
a number. What readers see is what is read: a number has ASCII digits in their usual form, and
neither characters that nobody sees nor tags nor directives stand in the file.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import yaml

from parity.canonical_json import fields_of
from parity.cards.card import Card
from parity.cards.golden_card import GoldenCard
from parity.comparing.policy_file import yaml_value
from parity.inert import inert
from parity.names_once import NameTwiceError, object_of_pairs
from parity.typed_json import shown
from parity.wording import did_you_mean

_BOOLS = {"true": True, "false": False}
_NOT_FINITE = {
    ".nan": math.nan,
    "nan": math.nan,
    **dict.fromkeys((".inf", "+.inf", "inf", "infinity"), math.inf),
    **dict.fromkeys(("-.inf", "-inf", "-infinity"), -math.inf),
}
_WHOLE_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,99})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?")
_TAGS = frozenset(("!!", kind) for kind in ("int", "float", "bool", "null", "str", "map", "seq"))
_BYTE_ORDER_MARK = "\ufeff"
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
    """The card in the text of a file, which is JSON where the file's name says so, else YAML.
    CardError names the place of what is wrong, InputError what is no YAML.
    """
    text = readable_text(text, path)
    if path.lower().endswith(".json"):
        value = _json_value(text, path)
    else:
        _check_syntax(text, path)
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


def readable_text(text: str, path: str) -> str:
    """The text of a card's file with line ends alike and without a byte order mark; CardError for a
    character that nobody sees, but that moves others or ends a comment.
    """
    text = text.removeprefix(_BYTE_ORDER_MARK).replace("\r\n", "\n")
    for number, line in enumerate(text.split("\n"), 1):
        if unseen := next((mark for mark in line if inert(mark) != mark), None):
            raise CardError(
                f"{path}, line {number}: has the character U+{ord(unseen):04X}, which nobody sees; "
                "expected it as an escape, as `parity card` writes it"
            )
    return text


def plain(value: object) -> Any:
    """A card, or a part of it, as dicts, lists, text and numbers, for YAML and JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(item) for name, item in fields_of(value).items()}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def _check_syntax(text: str, path: str) -> None:
    """CardError for a tag or a directive, by which YAML means other than it shows."""
    try:
        for token in yaml.scan(text, Loader=yaml.BaseLoader):
            place = f"{path}, line {token.start_mark.line + 1}"
            if isinstance(token, yaml.DirectiveToken) and token.name != "YAML":
                raise CardError(f"{place}: %{shown(token.name)[1:-1]} is a directive; remove it")
            if isinstance(token, yaml.TagToken) and token.value not in _TAGS:
                raise CardError(
                    f"{place}: {shown(''.join(filter(None, token.value)))} is a tag; remove it"
                )
    except yaml.YAMLError:
        return  # `yaml_value` names what is wrong


def _json_value(text: str, path: str) -> object:
    """The value of JSON text, its numbers as they are written."""
    try:
        return json.loads(
            text,
            parse_int=str,
            parse_float=str,
            parse_constant=str,
            object_pairs_hook=object_of_pairs,
        )
    except (json.JSONDecodeError, RecursionError):
        raise CardError(f"{path}: is no JSON; expected what `parity card --json` prints") from None
    except NameTwiceError as error:
        raise CardError(f"{path}: {error}") from None


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
        if value is None:
            return None
        hint = get_args(hint)[0]
    origin = get_origin(hint)
    if origin is list:
        if not isinstance(value, list):
            raise _refused(path, place, value, "a list")
        (kind,) = get_args(hint)
        return [_read(item, kind, path, f"{place}[{index}]") for index, item in enumerate(value)]
    if origin is dict:
        return _mapping(value, get_args(hint)[1], path, place)
    if is_dataclass(hint):
        return _record(value, cast("type[Any]", hint), path, place)
    if hint is bool and isinstance(value, bool):
        return value  # of JSON
    if not isinstance(value, str):
        raise _refused(path, place, value, _WORDS.get(hint, "text"))
    if origin is Literal:
        if value not in get_args(hint):
            raise _refused(path, place, value, " or ".join(get_args(hint)))
        return value
    return _scalar(value, hint, path, place)


def _mapping(value: object, kind: Any, path: str, place: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _refused(path, place, value, "names with values")
    for key in value:
        if not isinstance(key, str):
            raise _refused(path, f"a name in {place}", key, "text")
    return {key: _read(item, kind, path, _joined(place, key)) for key, item in value.items()}


def _scalar(text: str, kind: Any, path: str, place: str) -> object:
    if kind is str:
        return text
    if kind is bool and text.lower() in _BOOLS:
        return _BOOLS[text.lower()]
    if kind is int and _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    if kind is float and text.lower() in _NOT_FINITE:
        return _NOT_FINITE[text.lower()]
    if kind is float and _NUMBER.fullmatch(text):
        return float(text)
    raise _refused(path, place, text, _WORDS[kind])


def _refused(path: str, place: str, value: object, expected: str) -> CardError:
    return CardError(f"{path}: {place} is {shown(value)}; expected {expected}")


def _joined(place: str, key: object) -> str:
    name = key if isinstance(key, str) and key.isascii() and key.isprintable() else ascii(key)
    return f"{place}.{name[:80]}" if place else name[:80]
