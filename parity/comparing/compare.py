"""`parity.compare` and `parity.assert_parity`: the case that the judge gets, the verdict, and what
a script sees of it.
"""

import copy
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from parity.comparing.arms import (
    TRAINING,
    Arm,
    InputError,
    Stated,
    arm_names,
    check_noise_table,
    check_parameters,
    check_plan,
    check_short_reruns,
    read_arm,
    read_one,
    read_policy,
    read_rerun_table,
    read_short_rerun,
    refuse_mixed_units,
    refuse_same_file,
    stated_multiplicity,
    stated_policy,
    stated_rounding,
    with_common_facts,
)
from parity.judging.bundles.evidence import Case
from parity.judging.curves.curve import PLANNED_STEPS, Curve
from parity.judging.decision import State
from parity.judging.document_types import VerdictDocument
from parity.judging.noise.noise_table import NoiseTable
from parity.judging.noise.public_table import public_noise_table
from parity.judging.policy import Policy, PolicyError, stated_margin
from parity.judging.verdict.path import with_path
from parity.judging.verdict.sign_offs import why_not_acceptable
from parity.readers import run_name
from parity.readers.trackers.run import FAMILY
from parity.recipes import check_recipe
from parity.report.page import notebook_html
from parity.report.scene import case_scene
from parity.report.terminal import plain_text
from parity.report.verdict_figure import verdict_figure
from parity.report.view import view_of
from parity.report.words import with_words, words
from parity.wording import did_you_mean, minus

# What a comparison in Python returns: the verdict with its numbers, for a script, a terminal and a
# notebook.

_LINE = 300  # characters of a line of the repr
_WIDTH = 80


class Reason(NamedTuple):
    """A reason for the verdict: a code of docs/codes.md and its sentence."""

    code: str
    sentence: str


@dataclass(frozen=True, repr=False, eq=False)
class Comparison:
    """A candidate judged against its baseline. `case` is what the judge was given, `document` the
    verdict as `to_dict` returns it.
    """

    case: Case
    document: VerdictDocument

    @property
    def verdict(self) -> State:
        """pass, fail or inconclusive."""
        return self.document["verdict"]

    @property
    def gap(self) -> float | None:
        """The candidate's final loss minus the baseline's, in nats; None where no window could be
        judged.
        """
        if not self.document["gap"]:
            return None
        return self.document["gap"]["mean"]

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the gap's interval in nats, at the policy's confidence."""
        gap = self.document["gap"]
        return (gap["lo"], gap["hi"]) if gap else None

    @property
    def margin(self) -> float | None:
        """The largest acceptable gap in nats."""
        if not self.document["margin"]:
            return None
        return self.document["margin"]["nats"]

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons, the deciding one first."""
        return tuple(
            Reason(reason["code"], reason["sentence"]) for reason in self.document["reasons"]
        )

    @property
    def next(self) -> tuple[str, ...]:
        """What to do next, the most useful first."""
        return tuple(self.document["advice"]["sentences"])

    def to_dict(self) -> dict[str, Any]:
        """The verdict document (schema parity.verdict/1), as `parity compare --json` prints it."""
        return copy.deepcopy(dict(with_words(self.document)))

    def report(self, *, verbose: bool = False) -> str:
        """The report that `parity compare` prints (`verbose`: that of `-v`, with all numbers), as
        text of 80 columns.
        """
        return plain_text([self.document], _WIDTH, verbose=verbose)

    def figure(self) -> Any:
        """The one-page figure of `parity compare --figure`, as a matplotlib Figure. Raises
        FigureError without matplotlib.
        """
        return verdict_figure(self.document, self.case)

    def __repr__(self) -> str:
        """Lead, measure, interval, and what to do next, a line each."""
        told = words(view_of(self.document))
        lines = [
            f"{told.chip}  {told.lead}",
            minus(told.measure),
            minus(told.interval),
            f"Next: {minus(told.next)}" if told.next else "",
        ]
        return "\n".join(_one_line(line) for line in lines if line)

    def _repr_html_(self) -> str:
        """What a notebook shows: the answer, the picture, reasons and numbers; nothing is loaded
        from elsewhere.
        """
        return self._html

    @cached_property
    def _html(self) -> str:
        (document,) = with_path(self.case.verdicts())
        return notebook_html(document, case_scene(self.case, [document]))

    def __bool__(self) -> bool:
        """Refused: each of three verdicts would count as true."""
        raise TypeError(
            'a comparison is neither true nor false; test .verdict == "pass", or use '
            "parity.assert_parity"
        )


def _one_line(text: str) -> str:
    words = " ".join(text.split())
    if len(words) <= _LINE:
        return words
    return f"{words[: _LINE - 1]}…"


# The case that the judge gets, from arms and what is stated: the one way from `parity compare` and
# from `parity.compare` to a verdict.


def complete_case(case: Case, *, step_option: str, noise_option: str) -> Case:
    """A case with what its runs state themselves: the planned length, and the families of reruns.

    `step_option` and `noise_option` are what errors call the column of the step and the short
    reruns. Raises InputError where runs count in different units, where an arm has too many short
    reruns, or reruns of several recipes.
    """
    arms = [
        (case.baseline_name or "", list(case.baseline)),
        *((name, list(runs)) for name, runs in case.candidates.items()),
    ]
    early = [(name, list(runs)) for name, runs in case.short_reruns.items()]
    refuse_mixed_units([*arms, *early], (*case.controls, *case.shorter), step_option)
    for name, runs in early:
        check_short_reruns(len(runs), name, noise_option)
    refuse_mixed_recipes(arms)
    families = families_of_configs(arms, case.noise_table) | dict(case.families)
    is_open = case.planned_steps is None and not case.assume_complete
    return replace(
        case,
        planned_steps=stated_plan(arms) if is_open else case.planned_steps,
        noise_table=case.noise_table or public_noise_table() if families else None,
        families=families,
    )


def stated_plan(arms: Sequence[Arm]) -> int | None:
    """The planned length that the runs' sources state, a trainer's log or a tracker's config; None
    where none does or two disagree.
    """
    stated = {
        run.context[PLANNED_STEPS]
        for _, runs in arms
        for run in runs
        if PLANNED_STEPS in run.context
    }
    if len(stated) != 1:
        return None
    return int(stated.pop())


def refuse_mixed_recipes(arms: Sequence[Arm]) -> None:
    """Raise InputError where the configs of an arm's runs state different recipes, so that they are
    no reruns of each other.
    """
    for name, runs in arms:
        recipes = sorted({run.recipe for run in runs if run.recipe is not None})
        if len(recipes) > 1:
            raise InputError(
                f"{name}: its runs have different recipes, {' and '.join(recipes)}; expected one; "
                "state it for the arm, or remove runs"
            )


def families_of_configs(arms: Sequence[Arm], noise_table: NoiseTable | None) -> dict[str, str]:
    """The family by arm that the configs of all its runs state, if the noise table has it; any
    other name borrows nothing.
    """
    stated = {name: {run.context.get(FAMILY) for run in runs} for name, runs in arms}
    alone = {
        name: family
        for name, (family, *others) in stated.items()
        if family is not None and not others
    }
    known = (noise_table or public_noise_table()).families if alone else {}
    return {name: family for name, family in alone.items() if family in known}


def check_arm(name: str, names: Collection[str], option: str) -> None:
    """Raise InputError where something is stated of an arm that is not there."""
    if name not in names:
        known = f"; the runs are called {', '.join(names)}"
        raise InputError(f"{option} {name}: no such run{did_you_mean(name, names) or known}")


# `parity.compare` and `parity.assert_parity`: a verdict from runs in files, in trackers or in
# memory.

BASELINE, CANDIDATE = "baseline", "candidate"
_STEP_OPTION = 'columns={"step": "NAME"}'


def compare(
    base: Any,
    candidate: Any,
    *,
    margin: str | None = None,
    profile: str | None = None,
    policy: Policy | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    checks: Sequence[str] = (),
    planned_steps: int | np.integer[Any] | None = None,
    assume_complete: bool = False,
    recipe: str | Mapping[str, str] | None = None,
    rounding: str | Mapping[str, str] | None = None,
    seeds: Sequence[int] | None = None,
    context: Mapping[str, str] | Mapping[str, Mapping[str, str]] | None = None,
    columns: Mapping[str, str] | Mapping[str, Mapping[str, str]] | None = None,
    controls: Any = None,
    shorter_baseline: Any = None,
    short_reruns: Mapping[str, Sequence[Any]] | None = None,
    family: str | Mapping[str, str] | None = None,
    noise_table: NoiseTable | str | os.PathLike[str] | None = None,
    layer_policy: str | None = None,
    names: tuple[str, str] | None = None,
    looks: int | None = None,
    look: int = 1,
    candidates: int = 1,
    schedule: str | None = None,
    start: str | None = None,
    parameters: str | float | None = None,
    loss_is: str | None = None,
) -> Comparison:
    """Judge a candidate against its baseline, as `parity compare` does.

    `base` and `candidate` are one run each, or a list of runs. A run is a path or source (text that
    `parity compare` takes), a data frame, a dict of arrays such as {"step": ..., "loss": ...}, an
    array of losses, or a `Curve`. Losses are nats per token. `margin` has a unit: "1%" of the loss,
    or "0.01 nats". `policy` is a policy, its keys, or a file with them; margin, profile and checks
    override it. `recipe`, `rounding`, `family`, `context` and `columns` hold for both arms, or are
    mappings by arm ("baseline", "candidate", or its name). `seeds` has the seed of each run of an
    arm. `controls` are reruns of the baseline, `short_reruns` reruns by arm that were stopped
    early; both only measure run-to-run noise. `shorter_baseline` is a finished run of the
    baseline's recipe on 25 to 50 % of its tokens (or a list of such runs), by which a gap, and a
    margin such as "5% tokens", is converted into tokens. `schedule="decayed"` states that the
    learning rate of all runs had fallen to the end of its schedule at their last step,
    `start="loaded"` that they began with trained weights, `parameters="8B"` the size of the model
    (without it run-to-run noise is assumed as of a large one), and `loss_is="training"` that losses
    of different names are one quantity. Without `planned_steps` (or `assume_complete`) and recorded
    rates that decayed, or that statement, a gap is known as of a point only, and nothing passes.
    `looks` registers how often the question may be judged with runs added in between, `look` is
    this one; `candidates` is how many are compared with this baseline, each by a call of its own:
    they share the error. `names` are those of the two arms, `layer_policy` names the layers that
    are quantized. `noise_table` is a CSV file in place of the public one.

    Raises TypeError for data of another kind, and ValueError (ReadError, PolicyError, ...) for what
    cannot be compared.
    """
    # such as the maximum of a column
    planned_steps = int(planned_steps) if isinstance(planned_steps, np.integer) else planned_steps
    own_seeds = _whole_numbers(seeds)
    size = check_parameters(parameters, "parameters")
    if loss_is not in (None, TRAINING):
        raise InputError(
            f"loss_is is {loss_is!r}; expected {TRAINING!r}, or None to take each loss by its name"
        )
    check_plan(planned_steps, "planned_steps", assume_complete, "assume_complete")
    case_policy = _policy(
        policy, margin, profile, checks, {"looks": looks, "schedule": schedule, "start": start}
    )
    if isinstance(candidates, bool) or not isinstance(candidates, int) or candidates < 1:
        raise InputError(f"candidates is {candidates!r}; expected a whole number, at least 1")
    multiplicity = stated_multiplicity(look, "look", case_policy.looks, candidates)
    given = {BASELINE: _runs(base, BASELINE), CANDIDATE: _runs(candidate, CANDIDATE)}
    called = _names(given, names)
    recipes = _by_arm(recipe, "recipe", called)
    roundings = _by_arm(rounding, "rounding", called)
    contexts, columns_of = _by_arm(context, "context", called), _by_arm(columns, "columns", called)
    stated = {}
    for name in called:
        check_recipe(recipes.get(name), f"recipe of {name}")
        word = stated_rounding(roundings.get(name), f"rounding of {name}", recipes.get(name))
        stated[name] = Stated(
            recipe=recipes.get(name), rounding=word, context=contexts.get(name, {})
        )
    arms: dict[str, list[Curve]] = {}
    for name, runs in zip(called, given.values(), strict=True):
        arms[name] = read_arm(
            name, runs, stated[name], partial(_same_columns, columns_of.get(name, {})), own_seeds
        )
    early: dict[str, list[Curve]] = {}
    for name, reruns in _by_arm(short_reruns, "short_reruns", called).items():
        for run in _runs(reruns, f"short_reruns of {name}"):
            early.setdefault(name, []).append(
                read_short_rerun(run, (name, arms[name]), stated[name], columns_of.get(name, {}))
            )
    reruns = [] if controls is None else _runs(controls, "controls")
    shorter = [] if shorter_baseline is None else _runs(shorter_baseline, "shorter_baseline")
    check_noise_table(noise_table, "noise_table", family, "family")
    (baseline_name, baseline), *others = with_common_facts(
        [*arms.items()], size, "parameters", loss_is
    )
    case = Case(
        baseline=baseline,
        candidates=dict(others),
        policy=case_policy,
        baseline_name=baseline_name,
        controls=[
            read_one(run, f"control {number}", columns_of.get(called[0], {}))
            for number, run in enumerate(reruns, 1)
        ],
        shorter=[
            read_one(run, f"shorter run {number}", columns_of.get(called[0], {}))
            for number, run in enumerate(shorter, 1)
        ],
        short_reruns=early,
        planned_steps=planned_steps,
        assume_complete=assume_complete,
        layer_policy=layer_policy,
        noise_table=_noise_table(noise_table),
        families=_by_arm(family, "family", called),
        multiplicity=multiplicity,
    )
    case = complete_case(case, step_option=_STEP_OPTION, noise_option="short_reruns")
    return Comparison(case, case.documents()[0])


def assert_parity(
    base: Any, candidate: Any, *, allow_inconclusive: bool = False, **options: Any
) -> Comparison:
    """`compare`, with an AssertionError that has the verdict's report unless the verdict is pass.

    `allow_inconclusive` accepts an inconclusive verdict on a measured gap, too. It never accepts a
    fail, nor runs that could not be compared, such as an empty one, a copy, or one on other data.
    """
    result = compare(base, candidate, **options)
    refuse_worse(result, allow_inconclusive=allow_inconclusive)
    return result


def refuse_worse(result: Comparison, *, allow_inconclusive: bool) -> None:
    """Raise AssertionError with the report unless the verdict is pass, or inconclusive on a
    measured gap where that is allowed.
    """
    if not isinstance(allow_inconclusive, bool):
        raise TypeError(f"allow_inconclusive is {allow_inconclusive!r}; expected True or False")
    if result.verdict == "pass":
        return
    why_not = why_not_acceptable(result.document) if allow_inconclusive else None
    if not allow_inconclusive or why_not is not None:
        if why_not and result.verdict == "inconclusive":
            note = f"allow_inconclusive does not apply: {why_not}\n"
        else:
            note = ""
        raise AssertionError(f"\n{note}{result.report()}")


def _policy(
    policy: Policy | Mapping[str, Any] | str | os.PathLike[str] | None,
    margin: object,
    profile: str | None,
    checks: Sequence[str],
    others: Mapping[str, Any],
) -> Policy:
    base: Mapping[str, Any] = {}
    if policy is None:
        pass
    elif isinstance(policy, Policy):
        base = policy.document()
    elif isinstance(policy, Mapping):
        if policy.get("margin") is not None:
            base = {**policy, "margin": stated_margin(policy["margin"])}
        else:
            base = policy
    elif isinstance(policy, (str, os.PathLike)):
        base = read_policy(os.fspath(policy))
    else:
        raise TypeError(
            f"policy is {type(policy).__name__}; expected Policy, a mapping of its keys, or the "
            "path of a file with them"
        )
    if isinstance(checks, str):
        raise TypeError(f"checks is {checks!r}; expected a list of names")
    try:
        amount = None if margin is None else stated_margin(margin)
        return stated_policy(base, margin=amount, profile=profile, checks=checks, **others)
    except PolicyError as error:
        raise PolicyError(error.path.removeprefix("policy."), error.value, error.expected) from None


def _whole_numbers(seeds: object) -> list[int] | None:
    if seeds is None:
        return None
    given = (
        [] if isinstance(seeds, (str, bytes)) or not isinstance(seeds, Iterable) else list(seeds)
    )
    if not given or not all(isinstance(seed, (int, np.integer)) for seed in given):
        raise TypeError(
            f"seeds is {seeds!r:.80}; expected a list of whole numbers, one per run of an arm"
        )
    return [int(seed) for seed in given]


def _same_columns(columns: Mapping[str, str], _run: Any) -> Mapping[str, str]:
    return columns


def _runs(given: Any, name: str) -> list[Any]:
    """One run, or the runs of a list; anything else that looks like several is refused, because it
    can be read in two ways.
    """
    if isinstance(given, tuple):
        raise TypeError(
            f'{name} is a tuple; expected a list for several runs, or {{"step": ..., "loss": ...}} '
            "for one"
        )
    if not isinstance(given, list):
        return [given]
    if not given:
        raise InputError(f"{name} is an empty list; expected at least one run")
    if all(isinstance(item, (int, float)) for item in given):
        raise TypeError(
            f'{name} is a list of numbers, and a list holds several runs; expected {{"step": ..., '
            '"loss": ...}, or an array'
        )
    return given


def _names(given: Mapping[str, Sequence[Any]], names: tuple[str, str] | None) -> list[str]:
    """The names of the two arms: as given, else of their first files, else baseline and
    candidate.
    """
    files = {
        role: str(runs[0]) if isinstance(runs[0], (str, os.PathLike)) else None
        for role, runs in given.items()
    }
    if names is not None:
        if (
            isinstance(names, str)
            or len(names) != 2
            or not all(isinstance(name, str) and name for name in names)
            or names[0] == names[1]
        ):
            raise InputError(
                f"names is {names!r}; expected two different names, of the baseline and of the "
                "candidate"
            )
        return list(names)
    refuse_same_file([file for file in files.values() if file is not None])
    stems = [run_name(file) if file is not None else role for role, file in files.items()]
    return arm_names(stems, [file or "" for file in files.values()], [False, False])


def _arm_of(key: str, parameter: str, names: Sequence[str]) -> str:
    if key in names:
        return key
    if key in (BASELINE, CANDIDATE):
        return names[(BASELINE, CANDIDATE).index(key)]
    check_arm(key, names, parameter)
    return key


_MAPPINGS = ("context", "columns")  # whose value for an arm is a mapping of text


def _by_arm(value: Any, parameter: str, names: Sequence[str]) -> dict[str, Any]:
    """What is stated of each arm: one value for both, or a mapping by arm."""
    if value is None:
        return {}
    if parameter == "short_reruns":
        kind: type = object
        expected = "a mapping of arms to lists of runs"
    else:
        kind = Mapping if parameter in _MAPPINGS else str
        expected = (
            "a mapping, or one by arm" if parameter in _MAPPINGS else "text, or a mapping by arm"
        )
    is_for_both = isinstance(value, str) or (parameter in _MAPPINGS and _is_text(value))
    if is_for_both and kind is not object and isinstance(value, kind):
        return dict.fromkeys(names, value)
    if not isinstance(value, Mapping) or not all(isinstance(item, kind) for item in value.values()):
        raise TypeError(f"{parameter} is {value!r:.80}; expected {expected}")
    by_arm: dict[str, Any] = {}
    for key, item in value.items():
        if (name := _arm_of(str(key), parameter, names)) in by_arm:
            raise InputError(f"{parameter} names {name} twice; expected one value per arm")
        by_arm[name] = item
    return by_arm


def _is_text(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(item, str) for item in value.values())


def _noise_table(noise_table: NoiseTable | str | os.PathLike[str] | None) -> NoiseTable | None:
    if noise_table is None or isinstance(noise_table, NoiseTable):
        return noise_table
    if not isinstance(noise_table, (str, os.PathLike)):
        raise TypeError(
            f"noise_table is {type(noise_table).__name__}; expected NoiseTable, or the path of a "
            "noise table (CSV)"
        )
    return read_rerun_table(os.fspath(noise_table))
