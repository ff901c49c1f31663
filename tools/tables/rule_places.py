"""Where the rule of a code stands, and where what it looks at is measured, read from the source of
the judge.
"""

import ast
import inspect
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import FunctionType, ModuleType

from parity.judging import codes, measurements
from parity.judging.codes import ReasonCode
from parity.judging.curves import arms
from parity.judging.evaluations import measured
from parity.judging.evaluations import precedence as evaluations
from parity.judging.precedence import CHECKS, ROWS, WARNINGS
from parity.judging.secondary import advisory
from parity.judging.verdict import checks

Rule = Callable[..., object]
Places = dict[str, list[str]]
"""Names of functions by their file."""
MEASURING = tuple(f"parity.judging.{folder}." for folder in ("curves", "gap", "noise", "secondary"))
# What nearly every rule looks at says nothing of where one is decided.
COMMON = ("curves.curve", "curves.arms", "curves.window", "curves.alignment", "gap.interval")
COMMON_FIELDS = ("arms", "baseline", "candidate", "runs", "both", "policy", "window", "aligned")


def rules_of_codes() -> Mapping[str, Sequence[Rule]]:
    """The rules of each code, those of training first, then those of held-out losses."""
    listed: list[tuple[ReasonCode, Rule]] = [
        *((row.code, row.rule) for row in ROWS),
        *((entry, _check_of(name)) for name, pair in CHECKS.items() for entry in pair),
        (codes.VALIDATION_LOSS_WORSE, checks.apply_checks),
        *WARNINGS,
        *((row.code, row.rule) for row in evaluations.ROWS),
        *evaluations.WARNINGS,
    ]
    rules: dict[str, list[Rule]] = defaultdict(list)
    for entry, rule in listed:
        if rule not in rules[entry.code]:
            rules[entry.code].append(rule)
    return rules


def _check_of(name: str) -> Rule:
    check: Rule = getattr(checks, f"_{name}")
    return check


def places_in_words(functions: Sequence[Callable[..., object]]) -> str:
    """The files of some functions, each with their names."""
    names: Places = defaultdict(list)
    for function in functions:
        file = function.__module__.replace(".", "/") + ".py"
        if function.__name__ not in names[file]:
            names[file].append(function.__name__)
    return ", ".join(
        f"`{file}` ({', '.join(f'`{name}`' for name in found)})" for file, found in names.items()
    )


def measured_by(rule: Rule) -> Sequence[Callable[..., object]]:
    """The functions that measure what a rule looks at: those that it calls, and those that made the
    fields that it reads.
    """
    found = dict.fromkeys(_called(rule, set()))
    for field in _fields(rule, set()):
        found |= dict.fromkeys(_makers().get(field, ()))
    return [
        function
        for function in found
        if function.__module__.startswith(MEASURING)
        and not function.__module__.endswith(COMMON)
        and function.__module__ != rule.__module__
    ]


def _tree(function: Rule) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def _globals(function: Rule, tree: ast.AST) -> Iterator[FunctionType]:
    """The functions of Python that a function names."""
    names = vars(inspect.getmodule(function))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(
            value := inspect.unwrap(names[node.id])
            if callable(names.get(node.id)) and not isinstance(names[node.id], type)
            else None,
            FunctionType,
        ):
            yield value


def _called(rule: Rule, seen: set[Rule]) -> Iterator[FunctionType]:
    """Functions of other files that a rule names, also by way of helpers in its own file."""
    seen.add(rule)
    for function in _globals(rule, _tree(rule)):
        if function.__module__ != rule.__module__:
            yield function
        elif function not in seen:
            yield from _called(function, seen)


def _fields(rule: Rule, seen: set[Rule]) -> Iterator[str]:
    """The attributes that a rule and the helpers in its file read."""
    seen.add(rule)
    tree = _tree(rule)
    yield from (node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    for function in _globals(rule, tree):
        if function.__module__ == rule.__module__ and function not in seen:
            yield from _fields(function, seen)


@cache
def _makers() -> Mapping[str, Sequence[FunctionType]]:
    """By the name of a measured field, the functions whose results are in it."""
    makers: dict[str, list[FunctionType]] = defaultdict(list)
    for module in (measurements, arms, measured, advisory):
        for field, functions in _keywords(module):
            if field not in COMMON_FIELDS:
                makers[field] += functions
    return makers


def _keywords(module: ModuleType) -> Iterator[tuple[str, list[FunctionType]]]:
    """The keywords of calls in a module, each with the functions that its value, or the variable
    that is its value, calls.
    """
    tree = ast.parse(inspect.getsource(module))
    assigned = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        for keyword in node.keywords:
            value: ast.AST = keyword.value
            if isinstance(value, ast.Name):
                value = assigned.get(value.id, value)
            functions = [
                function
                for name in ast.walk(value)
                if isinstance(name, ast.Call) and isinstance(name.func, ast.Name)
                for function in _resolved(module, name.func.id, set())
            ]
            if keyword.arg is not None and functions:
                yield keyword.arg, functions


def _resolved(module: ModuleType, name: str, seen: set[str]) -> Iterator[FunctionType]:
    """A function of another file by its name in a module; of a helper of that module, those that it
    calls.
    """
    value = vars(module).get(name)
    if value is None or isinstance(value, type) or not callable(value) or name in seen:
        return
    function = inspect.unwrap(value)
    if not isinstance(function, FunctionType):
        return
    if function.__module__ != module.__name__:
        yield function
        return
    for node in ast.walk(_tree(function)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield from _resolved(module, node.func.id, seen | {name})
