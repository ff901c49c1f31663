"""The rules of the house that docs/architecture.md states, for every module of the packages."""

import ast

import pytest

import parity
from server.settings import CHECKOUT

PARAMETERS = 8


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    """All modules by name; each worker collects this file, and only one needs their trees."""
    return {
        ".".join(path.relative_to(CHECKOUT).with_suffix("").parts).removesuffix(
            ".__init__"
        ): ast.parse(path.read_text(encoding="utf-8"))
        for package in ("parity", "parity_lab", "server", "training", "workers")
        for path in sorted((CHECKOUT / package).rglob("*.py"))
    }


def test_a_conditional_expression_stands_in_no_other(modules: dict[str, ast.Module]) -> None:
    nested = [
        f"{name}:{part.lineno}"
        for name, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.IfExp)
        for part in (node.test, node.body, node.orelse)
        if isinstance(part, ast.IfExp)
    ]
    assert nested == [], "write a plain if"


def test_only_commands_routes_and_the_public_calls_have_more_than_eight_parameters(
    modules: dict[str, ast.Module],
) -> None:
    many = set()
    for name, tree in modules.items():
        for owner in (
            node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef)
        ):
            called = {owner.name} if isinstance(owner, ast.ClassDef) else set()
            for node in owner.body:
                if (
                    isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                    and not node.decorator_list
                ):
                    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                    if len(given) > PARAMETERS and not {node.name, *called} & {*parity.__all__}:
                        many.add(f"{name}.{node.name}")
    assert many == set()
