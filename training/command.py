"""What a job of engine `command` says: a launcher of the worker's operator, its parameters, and in
what its arms differ.

A launcher starts any trainer at a commit of its repository (`workers.commands`). The job names the
launcher and gives values to its parameters; an arm has a recipe by name, a commit as a full id, and
maybe a named set of environment variables. Nothing here is a command or a path: those are the
operator's. A candidate is compared with the one arm that differs from it in one of the three alone,
because a pair that differs in two says nothing of either.

Standard library only, like `training.spec`.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal, Protocol

from training.frozen import frozen
from training.later_recipe import LaterRecipe
from training.rules import SpecError, Strict

ENGINE = "command"
PINNED = "pinned"  # the key of a run's manifest that names the launcher's libraries
Value = int | float | bool | str
Compared = Literal["recipe", "revision", "environment"]
MOST_PARAMETERS, LONGEST_VALUE = 64, 200
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class CommandArm(Protocol):
    """What is asked of an arm here; `against` names the arm that it is judged against, "" leaves
    that to `comparisons`.
    """

    @property
    def name(self) -> str: ...
    @property
    def recipe(self) -> str: ...
    @property
    def then(self) -> LaterRecipe | None: ...
    @property
    def revision(self) -> str: ...
    @property
    def environment(self) -> str: ...
    @property
    def against(self) -> str: ...


@frozen
class Command(Strict):
    """A launcher by its name, and values for its parameters; those that are left out have the
    launcher's defaults.
    """

    launcher: str
    parameters: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name("command.launcher", self.launcher, "the name of a launcher of a worker")
        if len(self.parameters) > MOST_PARAMETERS:
            raise SpecError(
                "command.parameters",
                f"{len(self.parameters)} parameters",
                f"at most {MOST_PARAMETERS}",
            )
        for name, value in self.parameters.items():
            check_name("command.parameters", name, "names of the launcher's parameters")
            check_value(f"command.parameters.{name}", value)


def check_name(where: str, name: str, what: str) -> None:
    """Raises SpecError for a name that is none."""
    if not _NAME.fullmatch(name):
        raise SpecError(
            where,
            name,
            f"{what}: up to 64 letters, digits, '_', '.' or '-', the first no '.' or '-'",
        )


def check_value(where: str, value: Value) -> None:
    """Raises SpecError for a value that could be more than one argument of a command, an option, or
    a way out of a folder.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise SpecError(where, value, "a finite number")
    if isinstance(value, str):
        if len(value) > LONGEST_VALUE or not value.isprintable():
            raise SpecError(where, value, f"at most {LONGEST_VALUE} printable characters")
        if value.startswith("-") or ".." in value or set(value) & set("{}"):
            raise SpecError(
                where, value, "a value without '-' at its begin, and without '..', '{' and '}'"
            )


def check_revision(where: str, revision: str) -> None:
    """Raises SpecError for what is not the full id of a commit: a branch or a short id may be
    another commit tomorrow.
    """
    if not _COMMIT.fullmatch(revision):
        remedy = (
            "`parity gate` puts whole ids in place of `base` and `head`; else: git rev-parse HEAD"
        )
        raise SpecError(
            where, revision, "the full id of a commit, 40 or 64 hexadecimal digits", remedy
        )


def comparisons(arms: Sequence[CommandArm]) -> dict[str, tuple[str, Compared]]:
    """By candidate: the arm that it is judged against, and in what the two differ. `arms`: the
    baseline first.

    Without `against`, that is the first arm from which the candidate differs in one thing alone.
    Raises SpecError where there is none, or where the named one differs in nothing or in more.
    """
    by_name = {arm.name: arm for arm in arms}
    found = {}
    for candidate in arms[1:]:
        if candidate.against:
            other = by_name.get(candidate.against)
            if other is None or other is candidate:
                raise SpecError(
                    "arm.against",
                    candidate.against,
                    f"another arm of the job: {', '.join(by_name)}",
                )
            differences = _differences(other, candidate)
            if len(differences) != 1:
                how = " and ".join(differences) or "nothing"
                raise SpecError(
                    "arm.against",
                    candidate.against,
                    f"an arm that differs from {candidate.name} in one thing, not in {how}",
                )
            found[candidate.name] = (other.name, differences[0])
            continue
        single = (
            (other.name, _differences(other, candidate)) for other in arms if other is not candidate
        )
        nearest = next(
            ((name, differences[0]) for name, differences in single if len(differences) == 1), None
        )
        if nearest is None:
            shown = f"{candidate.name}: {candidate.recipe} at {candidate.revision[:12]}"
            expected = (
                "a candidate that differs from another arm in its recipe, its revision or its "
                "environment alone"
            )
            raise SpecError(
                "candidates",
                shown,
                expected,
                "add the arm between the two, such as the baseline's recipe at the new revision",
            )
        found[candidate.name] = nearest
    for name in found:
        _check_leads_to(arms[0].name, name, found)
    return found


def _check_leads_to(baseline: str, name: str, found: Mapping[str, tuple[str, Compared]]) -> None:
    """Raises SpecError for candidates that are judged against each other alone."""
    seen = [name]
    while seen[-1] != baseline:
        following = found[seen[-1]][0]
        if following in seen:
            chain = ", ".join(seen)
            raise SpecError(
                "candidates",
                chain,
                f"candidates that are judged against {baseline}, or against one that is",
            )
        seen.append(following)


def _differences(one: CommandArm, other: CommandArm) -> list[Compared]:
    """In which of the three two arms differ."""
    differs: Mapping[Compared, bool] = {
        "recipe": (one.recipe, one.then) != (other.recipe, other.then),
        "revision": one.revision != other.revision,
        "environment": one.environment != other.environment,
    }
    return [thing for thing, is_other in differs.items() if is_other]
