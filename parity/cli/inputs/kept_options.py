"""Options that a file keeps of a comparison, in place of typed ones."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from parity.cli.terminal.options import Options
from parity.cli.terminal.wrong_calls import UsageError
from parity.readers.files.text import STDIN
from parity.readers.run_tables.typed_number import is_typed_number
from parity.readers.trackers.sources import is_source

_Filled = TypeVar("_Filled", bound=Options)
_KINDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text"}


def filled(group: _Filled, section: Mapping[str, object], folder: Path, where: str) -> _Filled:
    """The group with what a file keeps of it, by field, where nothing was typed; files are named
    from `folder`.

    A repeatable option is a list, or a mapping of what stands before and after its `=`. Raises
    UsageError for a value of another kind.
    """
    hints, untyped = get_type_hints(type(group)), type(group)()
    values: dict[str, Any] = {}
    for option in fields(group):
        if option.name in section and getattr(group, option.name) == getattr(untyped, option.name):
            value = _option_value(
                section[option.name], str(hints[option.name]), f"{where}: {option.name}"
            )
            metavar = str(option.metadata.get("more", {}).get("metavar"))
            names_file = any(mark in metavar for mark in ("FILE", ".yaml"))
            values[option.name] = _resolved_files(value, folder) if names_file else value
    return replace(group, **values)


def _option_value(value: object, kind: str, where: str) -> object:
    """A value of a file as the option has it."""
    if "list" in kind:
        items = [value] if isinstance(value, (str, int, float)) else value
        if isinstance(items, dict):
            items = [
                f"{name}={one}"
                for name, many in items.items()
                for one in (many if isinstance(many, list) else [many])
            ]
        if isinstance(items, list) and all(isinstance(item, (str, int, float)) for item in items):
            return [str(item) for item in items]
        raise UsageError(
            f"{where} is {value!r}; expected a text, a list of texts, or texts by name"
        )
    expected = next((name for name in ("bool", "int", "float") if name in kind), "str")
    allowed: dict[str, tuple[type, ...]] = {
        "bool": (bool,),
        "int": (int,),
        "float": (int, float),
        "str": (str, int, float),
    }
    if not isinstance(value, allowed[expected]) or (expected != "bool" and isinstance(value, bool)):
        raise UsageError(f"{where} is {value!r}; expected {_KINDS[expected]}")
    return str(value) if expected == "str" else value


def _resolved_files(value: object, folder: Path) -> object:
    if isinstance(value, list):
        return [resolved_file(item, folder) for item in value]
    return resolved_file(str(value), folder)


def resolved_file(item: str, folder: Path) -> str:
    """FILE or NAME=FILE with the file named from a folder; a number, stdin or a tracker's run as it
    is.
    """
    name, mark, file = item.rpartition("=")
    if file == STDIN or is_typed_number(file) or is_source(file):
        return item
    return f"{name}{mark}{folder / file}"
