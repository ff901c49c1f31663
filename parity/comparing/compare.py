"""`parity.compare` and `parity.assert_parity`: a verdict from runs in files, in trackers or in
memory.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from parity.comparing.arms import (
    Stated,
    arm_names,
    check_parameters,
    read_arm,
    read_one,
    read_short_rerun,
    refuse_same_file,
    stated_arms,
)
from parity.comparing.case import check_arm, complete_case
from parity.comparing.comparison import Call, Comparison
from parity.comparing.loss_unit import BITS, case_in_nats, unit_of_policy
from parity.comparing.noise_tables import check_families, read_rerun_table
from parity.comparing.policy_file import read_policy, stated_policy
from parity.comparing.statements import (
    TRAINING,
    InputError,
    check_noise_table,
    check_plan,
    stated_multiplicity,
    stated_rounding,
)
from parity.judging.case import Case
from parity.judging.curves.curve import Curve
from parity.judging.noise.noise_table import NoiseTable
from parity.judging.noise.public_table import public_noise_table
from parity.judging.policy import Policy, PolicyError, stated_margin
from parity.judging.verdict.sign_offs import why_not_acceptable
from parity.readers.errors import ReadError
from parity.readers.run_names import run_name
from parity.recipes import check_recipe

BASELINE, CANDIDATE = "baseline", "candidate"
_STEP_OPTION = 'columns={"step": "NAME"}'
_MAPPINGS = ("context", "columns")  # whose value for an arm is a mapping of text


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
    pairing: str | None = None,
    parameters: str | float | None = None,
    loss_is: str | None = None,
    loss_unit: str | None = None,
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
    (without it run-to-run noise is assumed as of a large one), `pairing="stated"` that the arms
    read the same data in the same order where batch noise cannot show it, and
    `loss_is="training"` that losses of different names are one quantity. `loss_unit="bits"`
    converts all losses into nats, `loss_unit="other"` states that they are no cross-entropy.
    Without `planned_steps` (or `assume_complete`) and recorded rates that decayed, or that
    statement, a gap is known as of a point only, and nothing passes.
    `looks` registers how often the question may be judged with runs added in between, `look` is
    this one; `candidates` is how many are compared with this baseline, each by a call of its own:
    they share the error. `names` are those of the two arms, `layer_policy` names the layers that
    are quantized. `noise_table` is a CSV file in place of the public one.

    Raises TypeError for data of another kind, and ValueError (ReadError, PolicyError, ...) for what
    cannot be compared.
    """
    given = {**locals()}  # the parameters, before anything else has a name
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
        policy,
        margin,
        profile,
        checks,
        {
            "looks": looks,
            "schedule": schedule,
            "start": start,
            "pairing": pairing,
            "loss_unit": unit_of_policy(loss_unit),
        },
    )
    if isinstance(candidates, bool) or not isinstance(candidates, int) or candidates < 1:
        raise InputError(f"candidates is {candidates!r}; expected a whole number, at least 1")
    multiplicity = stated_multiplicity(look, "look", case_policy.looks, candidates)
    runs_by_role = {BASELINE: _runs(base, BASELINE), CANDIDATE: _runs(candidate, CANDIDATE)}
    called = _names(runs_by_role, names)
    recipes = _values_by_arm(recipe, "recipe", called)
    roundings = _values_by_arm(rounding, "rounding", called)
    contexts, columns_of = (
        _values_by_arm(context, "context", called),
        _values_by_arm(columns, "columns", called),
    )
    stated = {}
    for name in called:
        check_recipe(recipes.get(name), f"recipe of {name}")
        word = stated_rounding(roundings.get(name), f"rounding of {name}", recipes.get(name))
        stated[name] = Stated(
            recipe=recipes.get(name), rounding=word, context=contexts.get(name, {})
        )
    arms: dict[str, list[Curve]] = {}
    for name, runs in zip(called, runs_by_role.values(), strict=True):
        columns_of_run = partial(_same_columns, columns_of.get(name, {}))
        try:
            arms[name] = read_arm(name, runs, stated[name], columns_of_run, own_seeds)
        except ReadError as error:
            if error.tries:
                error.propose(error.said, error.tries, partial(_columns_of_arm, name))
            raise
    early: dict[str, list[Curve]] = {}
    for name, reruns in _values_by_arm(short_reruns, "short_reruns", called).items():
        for run in _runs(reruns, f"short_reruns of {name}"):
            early.setdefault(name, []).append(
                read_short_rerun(run, (name, arms[name]), stated[name], columns_of.get(name, {}))
            )
    reruns = [] if controls is None else _runs(controls, "controls")
    shorter = [] if shorter_baseline is None else _runs(shorter_baseline, "shorter_baseline")
    check_noise_table(noise_table, "noise_table", family, "family")
    families = _values_by_arm(family, "family", called)
    noise_rows = _noise_table(noise_table)
    check_families(families, noise_rows or public_noise_table(), "family")
    (baseline_name, baseline), *others = stated_arms([*arms.items()], size, "parameters", loss_is)
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
        noise_table=noise_rows,
        families=families,
        multiplicity=multiplicity,
    )
    if loss_unit == BITS:
        case = case_in_nats(case)
    case = complete_case(case, step_option=_STEP_OPTION, noise_option="short_reruns")
    defaults = compare.__kwdefaults__ or {}
    options = {name: given[name] for name in defaults if given[name] is not defaults[name]}
    call = Call(base=base, candidate=candidate, options=options)
    return Comparison(case, case.documents()[0], call)


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
            note = f"\nallow_inconclusive does not apply: {why_not}\n"
        else:
            note = ""
        raise AssertionError(f"{result.report()}{note}")


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
    numbers = (
        [] if isinstance(seeds, (str, bytes)) or not isinstance(seeds, Iterable) else list(seeds)
    )
    if not numbers or not all(isinstance(seed, (int, np.integer)) for seed in numbers):
        raise TypeError(
            f"seeds is {seeds!r:.80}; expected a list of whole numbers, one per run of an arm"
        )
    return [int(seed) for seed in numbers]


def _columns_of_arm(arm: str, columns: Mapping[str, str]) -> str:
    """Names of columns for one arm, as `compare` takes them."""
    return f"columns={json.dumps({arm: dict(columns)}, ensure_ascii=False)}"


def _same_columns(columns: Mapping[str, str], _run: Any) -> Mapping[str, str]:
    return columns


def _runs(runs: Any, name: str) -> list[Any]:
    """One run, or the runs of a list; anything else that looks like several is refused, because it
    can be read in two ways.
    """
    if isinstance(runs, tuple):
        raise TypeError(
            f'{name} is a tuple; expected a list for several runs, or {{"step": ..., "loss": ...}} '
            "for one"
        )
    if not isinstance(runs, list):
        return [runs]
    if not runs:
        raise InputError(f"{name} is an empty list; expected at least one run")
    if all(isinstance(item, (int, float)) for item in runs):
        raise TypeError(
            f'{name} is a list of numbers, and a list holds several runs; expected {{"step": ..., '
            '"loss": ...}, or an array'
        )
    return runs


def _names(runs_by_role: Mapping[str, Sequence[Any]], names: tuple[str, str] | None) -> list[str]:
    """The names of the two arms: as given, else of their first files, else baseline and
    candidate.
    """
    files = {
        role: str(runs[0]) if isinstance(runs[0], (str, os.PathLike)) else None
        for role, runs in runs_by_role.items()
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


def _values_by_arm(value: Any, parameter: str, names: Sequence[str]) -> dict[str, Any]:
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
