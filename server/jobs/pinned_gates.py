"""What a repository's gates have to ask, pinned by the operator: the whole question, by a job file
or its digest, and further minima.

One TOML file, `PARITY_GATE_RULES`, with a table for each repository that a token names (`python -m
server.tokens create --repository`):

    [repository."team/model"]
    job = "model.yaml"                   # the question: a job file next to this one, or "sha256:…"
      of one (`python -m server.pins`)
    free = ["job.name", "arm.revision"]  # what of it a gate may choose; by default all that can't
      help a worse candidate
    external = false                     # whether curves count that a user's own trainer sends
    statements = {rounding = {nvfp4 = "nearest"}}  # what may be stated of such runs, and nothing
      else
    margin = "1%"                        # at most; these keys are minima besides the file
    replicates = 2                       # at least, of each arm
    steps = 1000                         # at least
    looks = 1                            # at most
    launcher = "loop"                    # engine command with this launcher
    parameters = {layers = 4}            # of the launcher: these values, and no others
    recipes = ["bf16", "nvfp4"]          # no other
    questions = ["revision", "recipe"]   # each asked by a candidate
    policy = {as_of = "accept"}        # in place of the defaults, which hold for all that a job's
                                       policy could loosen
    on_inconclusive = "fail"
    on_same_numerics = "fail"            # "pass": whether two revisions of one recipe whose runs
      are too short to judge may differ by numerics only (server.jobs.same_numerics)
    on_infra = "fail"
    advisory = false

A pull request can change its own job file. What it cannot change is the token, the operator's
files, and what is not in `server.jobs.pinned_fields.FREE`. A table without `job` passes nothing:
minima alone do not pin a question. Can fail: a workflow that a pull request changes need not run
the gate at all; let the check be required, and own the workflow's file. And who trains can forge
losses.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from parity.frozen import frozen
from parity.judging.policy import (
    NVFP4,
    PROFILES,
    Amount,
    Policy,
    PolicyError,
    policy_from_mapping,
    stated_margin,
)
from parity.recipes import rounds_to_nearest
from parity.typed_json import known_keys, typed
from server.database.tables import Fact, Job
from server.errors import InvalidError
from server.jobs.baselines import BaselineChoice
from server.jobs.fingerprint import job_spec
from server.jobs.pinned_fields import free_names
from server.jobs.pinned_question import (
    SHA256,
    AskedQuestion,
    PinnedFileError,
    differences,
    digest_of,
    read_question,
)
from server.jobs.statements import StatementRequest
from training.command import Compared, Value
from training.spec import JobSpec

Choice = Literal["fail", "pass"]
# What a job may choose as it likes: other margins and looks have rules of their own, and further
# checks and questions only ask for more.
_FREE = ("margin", "profile", "looks", "question", "checks", "early_stop")


class RulesError(ValueError):
    """A file of pinned rules that cannot be read: its place, the value and what was expected."""


def _refusal(place: str, value: object, expected: str) -> RulesError:
    return RulesError(f"{place} is {value!r:.200}, expected {expected}")


@frozen
class PinnedRules:
    """What the gates of one repository have to ask; None and () ask for nothing, but no gate passes
    without a `job`.
    """

    job: AskedQuestion | str | None = None
    free: tuple[str, ...] | None = None
    external: bool = False
    statements: StatementRequest = StatementRequest()
    margin: Amount | None = None
    replicates: int | None = None
    steps: int | None = None
    looks: int | None = None
    launcher: str | None = None
    parameters: Mapping[str, Value] = field(default_factory=dict)
    recipes: tuple[str, ...] = ()
    questions: tuple[Compared, ...] = ()
    policy: Policy | None = None
    on_inconclusive: Choice = "fail"
    on_same_numerics: Choice = "fail"
    on_infra: Choice = "fail"
    advisory: bool = False


@frozen
class PinnedDocument:
    """What the operator pinned of the exit code of a repository's gates; options and the job file
    can only be stricter. `on_same_numerics` is no option, and no key of a job file.
    """

    repository: str
    on_inconclusive: Choice
    on_same_numerics: Choice
    on_infra: Choice
    advisory: bool


Rule = Callable[[PinnedRules, JobSpec, Policy], str | None]


def _margin(rules: PinnedRules, _: JobSpec, policy: Policy) -> str | None:
    if rules.margin is None:
        return None
    stated = [
        amount
        for amount in (policy.margin, PROFILES.get(policy.profile or ""))
        if amount is not None
    ]
    if any(
        margin.unit == rules.margin.unit
        and margin.value <= rules.margin.value
        and margin.slope == rules.margin.slope
        for margin in stated
    ):
        return None  # the smallest of several decides
    return f"policy.margin is {' and '.join(map(str, stated))}, expected at most {rules.margin}"


def _replicates(rules: PinnedRules, spec: JobSpec, _: Policy) -> str | None:
    fewest = min(spec.arms, key=lambda arm: arm.replicates)
    if rules.replicates is None or fewest.replicates >= rules.replicates:
        return None
    return (
        f"replicates of {fewest.name} is {fewest.replicates}, expected at least {rules.replicates}"
    )


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
    """Parameters could make any two commits train alike, such as a learning rate of 0: with a
    launcher pinned they are, too.
    """
    if (
        rules.launcher is None
        or spec.command is None
        or spec.command.parameters == rules.parameters
    ):
        return None
    return (
        f"command.parameters is {dict(spec.command.parameters)}, expected {dict(rules.parameters)}"
    )


def _recipes(rules: PinnedRules, spec: JobSpec, _: Policy) -> str | None:
    others = [arm for arm in spec.arms if rules.recipes and arm.recipe not in rules.recipes]
    if not others:
        return None
    return (
        f"recipe of {others[0].name} is {others[0].recipe}, expected one of "
        f"{', '.join(rules.recipes)}"
    )


def _questions(rules: PinnedRules, spec: JobSpec, _: Policy) -> str | None:
    asked = {compared for _, compared in spec.comparisons().values()}
    missing = [question for question in rules.questions if question not in asked]
    if not missing:
        return None
    return (
        f"no candidate differs in its {missing[0]}, expected one that does "
        f"({', '.join(rules.questions)})"
    )


def _policy(rules: PinnedRules, _: JobSpec, policy: Policy) -> str | None:
    if rules.policy is None:
        return None
    for policy_field in fields(Policy):
        if policy_field.name not in _FREE and getattr(policy, policy_field.name) != getattr(
            rules.policy, policy_field.name
        ):
            return (
                f"policy.{policy_field.name} is {getattr(policy, policy_field.name)}, expected "
                f"{getattr(rules.policy, policy_field.name)}"
            )
    return None


# One rule a key of the file; the keys of the exit code are applied where the gate leaves
# (`parity.gate.exit_under_rules`).
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


def pinned(path: Path | None, repository: str, asked: AskedQuestion) -> PinnedDocument:
    """What is pinned for the gates of a repository. InvalidError for a request that differs from
    the pinned question, or asks for less.
    """
    rules = rules_of(path, repository)
    problems = _problems(rules, asked)
    if problems:
        raise InvalidError(_refused(problems, repository))
    return _document(rules, repository)


def pinned_job(path: Path | None, repository: str, job: Job) -> PinnedDocument:
    """`pinned` for a job on record: also for what was stated of its runs, by whomever."""
    rules = rules_of(path, repository)
    if job.looked_at is not None:
        problems = [
            (
                f"job {job.id} is a project, which has no job file; expected a job that a gate "
                "asked for"
            )
        ]
    else:
        problems = [*_problems(rules, _asked_of(rules, job)), *_unpinned_statements(rules, job)]
    if problems:
        raise InvalidError(_refused(problems, repository))
    document = _document(rules, repository)
    # Who asks can cancel the job: that is no trouble of the infrastructure.
    return replace(document, on_infra="fail") if job.status == "cancelled" else document


def check_statements(path: Path | None, repository: str, request: StatementRequest) -> None:
    """InvalidError unless the operator states the same of a user's own runs."""
    problems = _not_pinned(rules_of(path, repository), request.stated())
    if problems:
        raise InvalidError(_refused(problems, repository))


def check_rounding(
    path: Path | None, repository: str, arm: str, recipe: str, rounding: str | None
) -> None:
    """InvalidError for a rounding that a trainer states at its start and the operator does not."""
    problem = _unpinned_rounding(rules_of(path, repository), arm, recipe, rounding)
    if problem:
        raise InvalidError(_refused([problem], repository))


def rules_of(path: Path | None, repository: str) -> PinnedRules:
    """The rules of a repository. InvalidError where nothing is pinned for it, or no question."""
    try:
        by_repository = read_rules(path) if path else {}
    except RulesError as error:
        raise InvalidError(
            f"the operator's file of gate rules cannot be read, so no gate of {repository} can "
            f"pass: {error}"
        ) from None
    rules = by_repository.get(repository)
    if rules is None:
        raise InvalidError(
            f"the token is for repository {repository}, and no rules are pinned for it; ask the "
            "operator (PARITY_GATE_RULES)"
        )
    if rules.job is None:
        raise InvalidError(
            f"no job is pinned for repository {repository}, and minima alone pin no question; ask "
            'the operator for job = "FILE", '
            "a copy of the job file, in PARITY_GATE_RULES"
        )
    return rules


def _document(rules: PinnedRules, repository: str) -> PinnedDocument:
    return PinnedDocument(
        repository=repository,
        on_inconclusive=rules.on_inconclusive,
        on_same_numerics=rules.on_same_numerics,
        on_infra=rules.on_infra,
        advisory=rules.advisory,
    )


def _refused(problems: Sequence[str], repository: str) -> str:
    return (
        f"{'; '.join(problems)}: pinned for repository {repository} by the operator; restore the "
        "job file, or ask the operator"
    )


def _problems(rules: PinnedRules, asked: AskedQuestion) -> list[str]:
    """What of a request is not as it is pinned, a phrase each."""
    found = [*_other_question(rules, asked)]
    if asked.spec.engine == "external" and not rules.external:
        found.append(
            "job.engine is external, and curves that a user's own trainer sends do not count here "
            "(external = true)"
        )
    return found + [
        problem
        for rule in RULES.values()
        if (problem := rule(rules, asked.spec, asked.policy)) is not None
    ]


def _other_question(rules: PinnedRules, asked: AskedQuestion) -> Sequence[str]:
    if isinstance(rules.job, AskedQuestion):
        return differences(rules.job, asked, rules.free)
    digest = digest_of(asked)
    if digest == rules.job:
        return []
    return [
        (
            f"the job has digest {digest}, expected {rules.job} (python -m server.pins FILE shows "
            "a file's)"
        )
    ]


def _asked_of(rules: PinnedRules, job: Job) -> AskedQuestion:
    """What a job on record was asked for. Which version of a baseline was the newest then, and
    whether curves were reused, is no choice.
    """
    pinned_baseline = (
        rules.job.baseline if isinstance(rules.job, AskedQuestion) else BaselineChoice()
    )
    baseline = pinned_baseline
    if job.named is not None:
        version = None if pinned_baseline.version is None else job.named.version
        baseline = BaselineChoice(name=job.named.name, version=version)
    elif pinned_baseline.name is not None:
        baseline = BaselineChoice()
    return AskedQuestion(
        spec=job_spec(job),
        policy=job.read_policy(),
        baseline=baseline,
        max_run_seconds=job.max_run_seconds,
        stated=job.spec if job.engine == "external" else None,
    )


def _unpinned_statements(rules: PinnedRules, job: Job) -> list[str]:
    """What was stated of a job's runs, later or by their trainers, and is not what the operator
    states.
    """
    problems = _not_pinned(rules, [(made.fact, made.arm, made.value) for made in job.statements])
    if job.engine == "external":
        roundings = (
            (arm, run.rounding) for arm in job.arms for run in (*arm.runs, *arm.short_reruns)
        )
        found = (
            _unpinned_rounding(rules, arm.name, arm.recipe, rounding) for arm, rounding in roundings
        )
        problems += dict.fromkeys(problem for problem in found if problem)
    return problems


def _not_pinned(rules: PinnedRules, stated: Sequence[tuple[Fact, str, Any]]) -> list[str]:
    pinned_ones = rules.statements.stated()
    return [
        f"{fact}{f' of {arm}' if arm else ''} is stated as {value}, and the operator's statements "
        "do not have that"
        for fact, arm, value in stated
        if (fact, arm, value) not in pinned_ones
    ]


def _unpinned_rounding(
    rules: PinnedRules, arm: str, recipe: str, rounding: str | None
) -> str | None:
    """Why a trainer's own rounding does not count: to nearest has the smaller assumed noise, where
    the recipe does not say so itself.
    """
    if (
        rounding != "nearest"
        or rounds_to_nearest(recipe)
        or rules.statements.rounding.get(arm) == "nearest"
    ):
        return None
    return (
        f"rounding of {arm} is stated as nearest by its trainer, and the operator's statements do "
        "not have that"
    )


def read_rules(path: Path) -> dict[str, PinnedRules]:
    """The pinned rules of a file, by repository. Raises RulesError that names the place, the value
    and what was expected.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RulesError(f"{path}: {error}") from None
    tables = content.get("repository")
    if not isinstance(tables, dict) or content.keys() != {"repository"}:
        raise RulesError(f'{path}: expected tables [repository."TEAM/NAME"] and nothing else')
    try:
        return {
            name: _rules(table, f"repository.{name}", path.parent) for name, table in tables.items()
        }
    except (RulesError, PolicyError) as error:
        raise RulesError(f"{path}: {error}") from None


def _rules(table: object, place: str, folder: Path) -> PinnedRules:
    entries = known_keys(table, PinnedRules, place, _refusal)
    read = {key: _READ[key](value, f"{place}.{key}") for key, value in entries.items()}
    if isinstance(read.get("job"), Path):
        try:
            read["job"] = read_question(folder / read["job"])
        except PinnedFileError as error:
            raise RulesError(f"{place}.job: {error}") from None
    return PinnedRules(**read)


def _job(value: object, place: str) -> Path | str:
    text = _text(value, place)
    if not text.startswith(SHA256):
        return Path(text)
    if len(text) != len(SHA256) + 64 or set(text[len(SHA256) :]) - set("0123456789abcdef"):
        raise _refusal(
            place,
            text,
            f"a job file, or {SHA256} and 64 hexadecimal digits (python -m server.pins FILE)",
        )
    return text


def _free(value: object, place: str) -> tuple[str, ...]:
    names = _texts(value, place)
    if unknown := [name for name in names if name not in free_names()]:
        raise _refusal(place, unknown[0], f"some of {', '.join(free_names())}")
    return names


def _statements(value: object, place: str) -> StatementRequest:
    try:
        return _STATEMENTS.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _refusal(
            f"{place}.{'.'.join(map(str, first['loc']))}", first["input"], first["msg"]
        ) from None


def _positive_count(value: object, place: str) -> int:
    if typed(value, int, place, refuse=_refusal) < 1:
        raise _refusal(place, value, "1 or more")
    return value  # type: ignore[return-value]


def _text(value: object, place: str) -> str:
    return typed(value, str, place, refuse=_refusal)


def _texts(value: object, place: str) -> tuple[str, ...]:
    return tuple(
        _text(item, place) for item in typed(value, list, place, "a list of texts", _refusal)
    )


def _asked(value: object, place: str) -> tuple[str, ...]:
    questions = _texts(value, place)
    if unknown := set(questions) - {*get_args(Compared)}:
        raise _refusal(place, min(unknown), "recipe, revision or environment")
    return questions


def _values(value: object, place: str) -> dict[str, Value]:
    values = typed(value, dict, place, "a table", _refusal)
    for name, item in values.items():
        if not isinstance(item, int | float | bool | str):
            raise _refusal(f"{place}.{name}", item, "a number, a text, or true or false")
    return values


def _choice(value: object, place: str) -> object:
    if value not in get_args(Choice):
        raise _refusal(place, value, "fail or pass")
    return value


def _replaced(value: object, place: str) -> Policy:
    stated = typed(value, dict, place, "a table", _refusal)
    if free := [name for name in stated if name in _FREE]:
        raise _refusal(
            f"{place}.{free[0]}",
            stated[free[0]],
            "no such key here: it has a rule of its own, or needs none",
        )
    return policy_from_mapping({"profile": NVFP4, **stated})


_STATEMENTS = TypeAdapter(StatementRequest)
_READ: Mapping[str, Callable[[object, str], Any]] = {
    "job": _job,
    "free": _free,
    "external": lambda value, place: typed(value, bool, place, refuse=_refusal),
    "statements": _statements,
    "margin": stated_margin,
    "replicates": _positive_count,
    "steps": _positive_count,
    "looks": _positive_count,
    "launcher": _text,
    "parameters": _values,
    "recipes": _texts,
    "questions": _asked,
    "policy": _replaced,
    "on_inconclusive": _choice,
    "on_same_numerics": _choice,
    "on_infra": _choice,
    "advisory": lambda value, place: typed(value, bool, place, refuse=_refusal),
}
