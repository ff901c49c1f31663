"""Benchmarks and experiments are run by hand: what they import of ours is there."""

import ast
from functools import cache
from pathlib import Path

import pytest

from server.settings import CHECKOUT

OURS = (
    "parity",
    "parity_lab",
    "server",
    "training",
    "workers",
    "tools",
    "benchmarks",
    "experiments",
    "tests",
)
FILES = sorted(
    path for folder in ("benchmarks", "experiments") for path in (CHECKOUT / folder).rglob("*.py")
)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _names(module: str) -> set[str]:
    """What can be imported from a module: the names that its file sets, and the modules of its
    folder.
    """
    place = CHECKOUT.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    names = {path.stem for path in place.glob("*") if path.is_dir() or path.suffix == ".py"}
    for node in ast.walk(_tree(file)) if file.exists() else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_name_that_it_imports_is_there(path):
    for node in ast.walk(_tree(path)):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.partition(".")[0] in OURS
        ):
            missing = {alias.name for alias in node.names} - _names(node.module)
            assert not missing, f"line {node.lineno}: {node.module} has no {', '.join(missing)}"
