"""Where the rule of a code stands, and where what it looks at is measured, read from the source of
the judge.
"""

import ast
import inspect
import sys
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
MEASURING = (
    *(f"parity.judging.{folder}." for folder in ("curves", "gap", "noise", "secondary")),
    *(f"parity.judging.{module}" for module in ("identical", "parting")),
)
# What nearly every rule looks at says nothing of where one is decided.
COMMON = ("curves.curve", "curves.arms", "curves.window", "curves.alignment", "gap.interval")
WORDING = "_SHOWN"  # how many of something a sentence lists
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
    return _listed(names)


def numbers_in_words(rules: Sequence[Rule]) -> str:
    """The files of the constants that some rules compare with, each with their names."""
    numbers: Places = defaultdict(list)
    for rule in rules:
        for file, names in numbers_of(rule).items():
            numbers[file] += [name for name in names if name not in numbers[file]]
    return _listed(numbers)


def _listed(names: Mapping[str, Sequence[str]]) -> str:
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


def numbers_of(rule: Rule) -> Mapping[str, Sequence[str]]:
    """By file, the constants that a rule names, with those of the functions that it calls; where
    there are none, those of what measured the fields that it reads.
    """
    called = [function for function in measured_by(rule) if function in set(_called(rule, set()))]
    named = [*_constants(rule, set())]
    named += [constant for function in called for constant in _named_constants(function)]
    if not named:
        named = [
            constant for function in measured_by(rule) for constant in _named_constants(function)
        ]
    numbers: dict[str, dict[str, None]] = defaultdict(dict)
    for file, name in named:
        numbers[file][name] = None
    return {file: list(names) for file, names in numbers.items()}


def _constants(function: Rule, seen: set[Rule]) -> Iterator[tuple[str, str]]:
    """The constants of a function and of the helpers in its own file that it names."""
    seen.add(function)
    yield from _named_constants(function)
    for helper in _globals(function, _tree(function)):
        if helper.__module__ == function.__module__ and helper not in seen:
            yield from _constants(helper, seen)


def _named_constants(function: Rule) -> Iterator[tuple[str, str]]:
    """The numbers in capitals that a function names, each with the file that states it."""
    module = sys.modules[function.__module__]
    for node in ast.walk(_tree(function)):
        name = node.id if isinstance(node, ast.Name) else ""
        is_number = name.isupper() and isinstance(vars(module).get(name), (int, float))
        if is_number and not name.endswith(WORDING):
            yield _home(module, name), name


def _home(module: ModuleType, name: str) -> str:
    """The file of the module that a name is imported from, or of the module itself."""
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
            return str(node.module).replace(".", "/") + ".py"
    return module.__name__.replace(".", "/") + ".py"


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
