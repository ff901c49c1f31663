"""What a repository's gates have to ask, pinned by the operator: a job file and the options of a gate can only ask for more.

One TOML file, `PARITY_GATE_RULES`, with a table for each repository that a token names (`python -m server.tokens create --repository`):

    [repository."team/model"]
    margin = "1%"                        # at most
    replicates = 2                       # at least, of each arm
    steps = 1000                         # at least
    looks = 1                            # at most
    launcher = "loop"                    # engine command with this launcher
    parameters = {layers = 4}            # of the launcher: these values, and no others
    recipes = ["bf16", "nvfp4"]          # no other
    questions = ["revision", "recipe"]   # each asked by a candidate
    policy = {as_of = "accept"}        # in place of the defaults, which hold for all that a job's policy could loosen
    on_inconclusive = "fail"
    on_infra = "fail"
    advisory = false

A pull request can change its job file, and with it everything that is not pinned. What it cannot change is the token. Can fail: a workflow
that a pull request changes need not run the gate at all; let the check be required, and own the workflow's file.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from parity.judging.policy import NVFP4, PROFILES, Amount, Policy, PolicyError, policy_from_mapping, stated_margin
from parity.structure import frozen, known_keys, typed
from server.errors import InvalidError
from training.command import Compared, Value
from training.spec import JobSpec

Choice = Literal["fail", "pass"]
# What a job may choose as it likes: other margins and looks have rules of their own, and further checks and questions only ask for more.
_FREE = ("margin", "profile", "looks", "question", "checks", "early_stop")


class RulesError(ValueError):
    """A file of pinned rules that cannot be read: its place, the value and what was expected."""


def _refusal(place: str, value: object, expected: str) -> RulesError:
    return RulesError(f"{place} is {value!r:.200}, expected {expected}")


@frozen
class PinnedRules:
    """What the gates of one repository have to ask; None and () ask for nothing."""

    margin: Amount | None = None
    replicates: int | None = None
    steps: int | None = None
    looks: int | None = None
    launcher: str | None = None
    parameters: Mapping[str, Value] = field(default_factory=dict)
    recipes: tuple[str, ...] = ()
    questions: tuple[Compared, ...] = ()
    policy: Policy = Policy(profile=NVFP4)
    on_inconclusive: Choice = "fail"
    on_infra: Choice = "fail"
    advisory: bool = False


@frozen
class PinnedDocument:
    """What the operator pinned of the exit code of a repository's gates; options and the job file can only be stricter."""

    repository: str
    on_inconclusive: Choice
    on_infra: Choice
    advisory: bool


Rule = Callable[[PinnedRules, JobSpec, Policy], str | None]


def _margin(rules: PinnedRules, _: JobSpec, policy: Policy) -> str | None:
    if rules.margin is None:
        return None
    stated = [amount for amount in (policy.margin, PROFILES.get(policy.profile or "")) if amount is not None]
    if any(each.unit == rules.margin.unit and each.value <= rules.margin.value and each.slope == rules.margin.slope for each in stated):
        return None  # the smallest of several decides
    return f"policy.margin is {' and '.join(map(str, stated))}, expected at most {rules.margin}"


def _replicates(rules: PinnedRules, spec: JobSpec, _: Policy) -> str | None:
    fewest = min(spec.arms, key=lambda arm: arm.replicates)
    if rules.replicates is None or fewest.replicates >= rules.replicates:
        return None
    return f"replicates of {fewest.name} is {fewest.replicates}, expected at least {rules.replicates}"


def _steps(rules: PinnedRules, spec: JobSpec, _: Policy) -> str | None:
    if rules.steps is None or spec.schedule.steps >= rules.steps:
        return None
    return f"schedule.steps is {spec.schedule.steps}, expected at least {rules.steps}"


def _looks(rules: PinnedRules, _: JobSpec, policy: Policy) -> str | None:
    if rules.looks is None or policy.looks <= rules.looks:
        return None
    return f"policy.looks is {policy.looks}, expected at most {rules.looks}"


def _launcher(rules: PinnedRules, spec: JobSpec, _: Policy) -> str | None:
    named = None if spec.command is None else spec.command.launcher
    if rules.launcher in (None, named):
        return None
    return f"command.launcher is {named}, expected {rules.launcher}"


def _parameters(rules: PinnedRules, spec: JobSpec, _: Policy) -> str | None:
    """Parameters could make any two commits train alike, such as a learning rate of 0: with a launcher pinned they are, too."""
    if rules.launcher is None or spec.command is None or spec.command.parameters == rules.parameters:
        return None
    return f"command.parameters is {dict(spec.command.parameters)}, expected {dict(rules.parameters)}"


def _recipes(rules: PinnedRules, spec: JobSpec, _: Policy) -> str | None:
    others = [arm for arm in spec.arms if rules.recipes and arm.recipe not in rules.recipes]
    if not others:
        return None
    return f"recipe of {others[0].name} is {others[0].recipe}, expected one of {', '.join(rules.recipes)}"


def _questions(rules: PinnedRules, spec: JobSpec, _: Policy) -> str | None:
    asked = {compared for _, compared in spec.comparisons().values()}
    missing = [question for question in rules.questions if question not in asked]
    if not missing:
        return None
    return f"no candidate differs in its {missing[0]}, expected one that does ({', '.join(rules.questions)})"


def _policy(rules: PinnedRules, _: JobSpec, policy: Policy) -> str | None:
    for own in fields(Policy):
        if own.name not in _FREE and getattr(policy, own.name) != getattr(rules.policy, own.name):
            return f"policy.{own.name} is {getattr(policy, own.name)}, expected {getattr(rules.policy, own.name)}"
    return None


# One rule a key of the file; the keys of the exit code are applied where the gate leaves (`parity.cli.gate_report`).
RULES: Mapping[str, Rule] = {
    "margin": _margin,
    "replicates": _replicates,
    "steps": _steps,
    "looks": _looks,
    "launcher": _launcher,
    "parameters": _parameters,
    "recipes": _recipes,
    "questions": _questions,
    "policy": _policy,
}


def pinned(path: Path | None, repository: str, spec: JobSpec, policy: Policy) -> PinnedDocument:
    """What is pinned for the gates of a repository. InvalidError for a job that asks for less, or where nothing is pinned for it."""
    try:
        by_repository = read_rules(path) if path else {}
    except RulesError as error:
        raise InvalidError(f"the operator's file of gate rules cannot be read, so no gate of {repository} can pass: {error}") from None
    rules = by_repository.get(repository)
    if rules is None:
        raise InvalidError(
            f"the token is for repository {repository}, and no rules are pinned for it; ask the operator (PARITY_GATE_RULES)"
        )
    problems = [problem for rule in RULES.values() if (problem := rule(rules, spec, policy)) is not None]
    if problems:
        raise InvalidError(f"{'; '.join(problems)}: pinned for repository {repository}")
    return PinnedDocument(repository=repository, on_inconclusive=rules.on_inconclusive, on_infra=rules.on_infra, advisory=rules.advisory)


def read_rules(path: Path) -> dict[str, PinnedRules]:
    """The pinned rules of a file, by repository. Raises RulesError that names the place, the value and what was expected."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RulesError(f"{path}: {error}") from None
    tables = content.get("repository")
    if not isinstance(tables, dict) or content.keys() != {"repository"}:
        raise RulesError(f'{path}: expected tables [repository."TEAM/NAME"] and nothing else')
    try:
        return {name: _rules(table, f"repository.{name}") for name, table in tables.items()}
    except (RulesError, PolicyError) as error:
        raise RulesError(f"{path}: {error}") from None


def _rules(table: object, place: str) -> PinnedRules:
    given = known_keys(table, PinnedRules, place, _refusal)
    return PinnedRules(**{key: _READ[key](value, f"{place}.{key}") for key, value in given.items()})


def _at_least_one(value: object, place: str) -> int:
    if typed(value, int, place, refuse=_refusal) < 1:
        raise _refusal(place, value, "1 or more")
    return value  # type: ignore[return-value]


def _text(value: object, place: str) -> str:
    return typed(value, str, place, refuse=_refusal)


def _texts(value: object, place: str) -> tuple[str, ...]:
    return tuple(_text(each, place) for each in typed(value, list, place, "a list of texts", _refusal))


def _asked(value: object, place: str) -> tuple[str, ...]:
    questions = _texts(value, place)
    if unknown := set(questions) - {*get_args(Compared)}:
        raise _refusal(place, min(unknown), "recipe, revision or environment")
    return questions


def _values(value: object, place: str) -> dict[str, Value]:
    values = typed(value, dict, place, "a table", _refusal)
    for name, each in values.items():
        if not isinstance(each, int | float | bool | str):
            raise _refusal(f"{place}.{name}", each, "a number, a text, or true or false")
    return values


def _choice(value: object, place: str) -> object:
    if value not in get_args(Choice):
        raise _refusal(place, value, "fail or pass")
    return value


def _replaced(value: object, place: str) -> Policy:
    stated = typed(value, dict, place, "a table", _refusal)
    if free := [name for name in stated if name in _FREE]:
        raise _refusal(f"{place}.{free[0]}", stated[free[0]], "no such key here: it has a rule of its own, or needs none")
    return policy_from_mapping({"profile": NVFP4, **stated})


_READ: Mapping[str, Callable[[object, str], Any]] = {
    "margin": stated_margin,
    "replicates": _at_least_one,
    "steps": _at_least_one,
    "looks": _at_least_one,
    "launcher": _text,
    "parameters": _values,
    "recipes": _texts,
    "questions": _asked,
    "policy": _replaced,
    "on_inconclusive": _choice,
    "on_infra": _choice,
    "advisory": lambda value, place: typed(value, bool, place, refuse=_refusal),
}
