"""Which settings a process reads, from the modules that it can import."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from server.settings import CHECKOUT, Settings

_OWN = ("migrations", "parity", "parity_lab", "server", "training", "workers")


def settings_read(*entries: str) -> set[str]:
    """The names of the settings that these modules, and all that they import, read."""
    read = set[str]()
    for module in _imported(entries):
        read |= _attributes(module)
    return set().union(*(_fields(name) for name in read))


def variables_named(*entries: str) -> set[str]:
    """The variables `PARITY_…` that these modules of the service, and all that they import, name
    as a whole text of their own, and that are not settings. Those of package parity are a client's.
    """
    named = {
        node.value
        for module in _imported(entries)
        if not module.startswith("parity")
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch("PARITY_[A-Z_]*[A-Z]", node.value)
    }
    return named - {variable(name) for name in Settings.model_fields}


def variable(setting: str) -> str:
    """The environment variable of a setting."""
    return f"PARITY_{setting.upper()}"


def _file(module: str) -> Path | None:
    path = CHECKOUT.joinpath(*module.split("."))
    candidates = (path / "__init__.py", path.with_suffix(".py"))
    return next((candidate for candidate in candidates if candidate.is_file()), None)


@functools.cache
def _tree(module: str) -> ast.Module:
    path = _file(module)
    return ast.parse(path.read_text(encoding="utf-8") if path else "")


def _imports(module: str) -> Iterator[str]:
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def _imported(entries: tuple[str, ...]) -> set[str]:
    """These modules and all of the checkout that they import, also inside of functions."""
    found, left = set[str](), list(entries)
    while left:
        module = left.pop()
        if module in found or module.split(".")[0] not in _OWN or _file(module) is None:
            continue
        found.add(module)
        left += [*_imports(module), module.rpartition(".")[0]]
    return found


def _attributes(module: str) -> set[str]:
    """What this module reads of something called settings that Settings has."""
    known = {*Settings.model_fields, *_properties()}
    return {
        node.attr
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Attribute)
        and _name(node.value).strip("_") == "settings"
        and node.attr in known
    }


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


@functools.cache
def _properties() -> dict[str, set[str]]:
    """The methods and properties of the settings, each with what it reads of them."""
    (own,) = (
        node
        for node in _tree("server.settings").body
        if isinstance(node, ast.ClassDef) and node.name == Settings.__name__
    )
    return {
        method.name: {
            node.attr
            for node in ast.walk(method)
            if isinstance(node, ast.Attribute) and _name(node.value) == "self"
        }
        for method in own.body
        if isinstance(method, ast.FunctionDef)
    }


def _fields(name: str) -> set[str]:
    """The settings that one attribute of the settings is made of."""
    if name in Settings.model_fields:
        return {name}
    return set().union(*(_fields(part) for part in _properties().get(name, ())))
