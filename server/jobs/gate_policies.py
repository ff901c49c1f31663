"""What a repository's gates have to ask, pinned by the operator: a job file and the options of a gate can only ask for more.

One TOML file, `PARITY_GATE_POLICIES`, with a table for each repository that a token names (`python -m server.tokens create --repository`):

    [repository."team/model"]
    margin = "1%"                        # at most
    replicates = 2                       # at least, of each arm
    steps = 1000                         # at least
    looks = 1                            # at most
    launcher = "loop"                    # engine command with this launcher
    parameters = {layers = 4}            # of the launcher: these values, and no others
    recipes = ["bf16", "nvfp4"]          # no other
    questions = ["revision", "recipe"]   # each asked by a candidate
    criteria = {as_of = "accept"}        # in place of the defaults, which hold for all that a job's policy could loosen
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

from parity.judging.criteria import NVFP4, PROFILES, Amount, Criteria, CriteriaError, criteria_from_mapping, stated_margin
from parity.structure import frozen, known_keys, typed
from server.errors import InvalidError
from training.command import Compared, Value
from training.spec import JobSpec

Choice = Literal["fail", "pass"]
# What a job may choose as it likes: other margins and looks have rules of their own, and further gates and questions only ask for more.
_FREE = ("margin", "profile", "looks", "question", "gates", "early_stop")


class PolicyError(ValueError):
    """A file of pinned policies that cannot be read: its place, the value and what was expected."""


def _refusal(place: str, value: object, expected: str) -> PolicyError:
    return PolicyError(f"{place} is {value!r:.200}, expected {expected}")


@frozen
class GatePolicy:
    """What the gates of one repository have to ask; None and () ask for nothing."""

    margin: Amount | None = None
    replicates: int | None = None
    steps: int | None = None
    looks: int | None = None
    launcher: str | None = None
    parameters: Mapping[str, Value] = field(default_factory=dict)
    recipes: tuple[str, ...] = ()
    questions: tuple[Compared, ...] = ()
    criteria: Criteria = Criteria(profile=NVFP4)
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


Rule = Callable[[GatePolicy, JobSpec, Criteria], str | None]


def _margin(policy: GatePolicy, _: JobSpec, criteria: Criteria) -> str | None:
    if policy.margin is None:
        return None
    stated = [amount for amount in (criteria.margin, PROFILES.get(criteria.profile or "")) if amount is not None]
    if any(each.unit == policy.margin.unit and each.value <= policy.margin.value and each.slope == policy.margin.slope for each in stated):
        return None  # the smallest of several decides
    return f"criteria.margin is {' and '.join(map(str, stated))}, expected at most {policy.margin}"


def _replicates(policy: GatePolicy, spec: JobSpec, _: Criteria) -> str | None:
    fewest = min(spec.arms, key=lambda arm: arm.replicates)
    if policy.replicates is None or fewest.replicates >= policy.replicates:
        return None
    return f"replicates of {fewest.name} is {fewest.replicates}, expected at least {policy.replicates}"


def _steps(policy: GatePolicy, spec: JobSpec, _: Criteria) -> str | None:
    if policy.steps is None or spec.schedule.steps >= policy.steps:
        return None
    return f"schedule.steps is {spec.schedule.steps}, expected at least {policy.steps}"


def _looks(policy: GatePolicy, _: JobSpec, criteria: Criteria) -> str | None:
    if policy.looks is None or criteria.looks <= policy.looks:
        return None
    return f"criteria.looks is {criteria.looks}, expected at most {policy.looks}"


def _launcher(policy: GatePolicy, spec: JobSpec, _: Criteria) -> str | None:
    named = None if spec.command is None else spec.command.launcher
    return None if policy.launcher in (None, named) else f"command.launcher is {named}, expected {policy.launcher}"


def _parameters(policy: GatePolicy, spec: JobSpec, _: Criteria) -> str | None:
    """Parameters could make any two commits train alike, such as a learning rate of 0: with a launcher pinned they are, too."""
    if policy.launcher is None or spec.command is None or spec.command.parameters == policy.parameters:
        return None
    return f"command.parameters is {dict(spec.command.parameters)}, expected {dict(policy.parameters)}"


def _recipes(policy: GatePolicy, spec: JobSpec, _: Criteria) -> str | None:
    others = [arm for arm in spec.arms if policy.recipes and arm.recipe not in policy.recipes]
    return f"recipe of {others[0].name} is {others[0].recipe}, expected one of {', '.join(policy.recipes)}" if others else None


def _questions(policy: GatePolicy, spec: JobSpec, _: Criteria) -> str | None:
    asked = {compared for _, compared in spec.comparisons().values()}
    missing = [question for question in policy.questions if question not in asked]
    return f"no candidate differs in its {missing[0]}, expected one that does ({', '.join(policy.questions)})" if missing else None


def _criteria(policy: GatePolicy, _: JobSpec, criteria: Criteria) -> str | None:
    for own in fields(Criteria):
        if own.name not in _FREE and getattr(criteria, own.name) != getattr(policy.criteria, own.name):
            return f"criteria.{own.name} is {getattr(criteria, own.name)}, expected {getattr(policy.criteria, own.name)}"
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
    "criteria": _criteria,
}


def pinned(path: Path | None, repository: str, spec: JobSpec, criteria: Criteria) -> PinnedDocument:
    """What is pinned for the gates of a repository. InvalidError for a job that asks for less, or where nothing is pinned for it."""
    try:
        policies = read_policies(path) if path else {}
    except PolicyError as error:
        raise InvalidError(f"the operator's file of gate policies cannot be read, so no gate of {repository} can pass: {error}") from None
    policy = policies.get(repository)
    if policy is None:
        raise InvalidError(
            f"the token is for repository {repository}, and no policy is pinned for it; ask the operator (PARITY_GATE_POLICIES)"
        )
    problems = [problem for rule in RULES.values() if (problem := rule(policy, spec, criteria)) is not None]
    if problems:
        raise InvalidError(f"{'; '.join(problems)}: pinned for repository {repository}")
    return PinnedDocument(repository=repository, on_inconclusive=policy.on_inconclusive, on_infra=policy.on_infra, advisory=policy.advisory)


def read_policies(path: Path) -> dict[str, GatePolicy]:
    """The pinned policies of a file, by repository. Raises PolicyError that names the place, the value and what was expected."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PolicyError(f"{path}: {error}") from None
    tables = content.get("repository")
    if not isinstance(tables, dict) or content.keys() != {"repository"}:
        raise PolicyError(f'{path}: expected tables [repository."TEAM/NAME"] and nothing else')
    try:
        return {name: _policy(table, f"repository.{name}") for name, table in tables.items()}
    except (PolicyError, CriteriaError) as error:
        raise PolicyError(f"{path}: {error}") from None


def _policy(table: object, place: str) -> GatePolicy:
    given = known_keys(table, GatePolicy, place, _refusal)
    return GatePolicy(**{key: _READ[key](value, f"{place}.{key}") for key, value in given.items()})


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


def _replaced(value: object, place: str) -> Criteria:
    stated = typed(value, dict, place, "a table", _refusal)
    if free := [name for name in stated if name in _FREE]:
        raise _refusal(f"{place}.{free[0]}", stated[free[0]], "no such key here: it has a rule of its own, or needs none")
    return criteria_from_mapping({"profile": NVFP4, **stated})


_READ: Mapping[str, Callable[[object, str], Any]] = {
    "margin": stated_margin,
    "replicates": _at_least_one,
    "steps": _at_least_one,
    "looks": _at_least_one,
    "launcher": _text,
    "parameters": _values,
    "recipes": _texts,
    "questions": _asked,
    "criteria": _replaced,
    "on_inconclusive": _choice,
    "on_infra": _choice,
    "advisory": lambda value, place: typed(value, bool, place, refuse=_refusal),
}
