"""The case that the judge gets, from arms and what is stated: the one way from `parity compare` and from `parity.compare` to a verdict."""

from collections.abc import Mapping, Sequence

from parity.comparing.arms import Arm, check_noise_runs, refuse_mixed_units
from parity.comparing.stated import InputError
from parity.judging.advice import LayerSnr
from parity.judging.criteria import Criteria
from parity.judging.curve import PLANNED_STEPS, Curve
from parity.judging.evidence import Case
from parity.judging.floors.groups import Floors
from parity.judging.floors.public import public_floors
from parity.judging.multiplicity import Multiplicity
from parity.judging.secondary.downstream import Evaluations
from parity.readers.trackers import FAMILY
from parity.wording import did_you_mean


def comparison_case(
    arms: Sequence[Arm],
    criteria: Criteria,
    *,
    step_option: str,
    noise_option: str,
    controls: Sequence[Curve] = (),
    noise_runs: Mapping[str, list[Curve]] | None = None,
    planned_steps: int | None = None,
    assume_complete: bool = False,
    layer_policy: str | None = None,
    layer_snr_db: Mapping[str, LayerSnr] | None = None,
    evaluations: Evaluations | None = None,
    floors: Floors | None = None,
    families: Mapping[str, str] | None = None,
    multiplicity: Multiplicity | None = None,
    shorter: Sequence[Curve] = (),
) -> Case:
    """The case of arms, baseline first; `families` has the family of reruns by arm.

    `controls` are reruns of the baseline, `shorter` finished runs of its recipe on fewer tokens.
    `step_option` and `noise_option` are what errors call the column of the step and the noise runs. Without `floors` a family is one of the
    public table, without `planned_steps` or `assume_complete` the plan is that of the runs' sources. Raises InputError where runs count in
    different units, or where an arm has too many noise runs.
    """
    early = dict(noise_runs or {})
    refuse_mixed_units([*arms, *early.items()], (*controls, *shorter), step_option)
    for name, runs in early.items():
        check_noise_runs(len(runs), name, noise_option)
    refuse_mixed_recipes(arms)
    baseline_name, baseline = arms[0]
    named = families_of_configs(arms, floors) | dict(families or {})
    if planned_steps is None and not assume_complete:
        planned_steps = stated_plan(arms)
    return Case(
        baseline=baseline,
        candidates=dict(arms[1:]),
        criteria=criteria,
        controls=controls,
        planned_steps=planned_steps,
        assume_complete=assume_complete,
        layer_policy=layer_policy,
        baseline_name=baseline_name,
        layer_snr_db=dict(layer_snr_db or {}),
        evaluations=dict(evaluations or {}),
        floors=floors or public_floors() if named else None,
        families=named,
        noise_runs=early,
        multiplicity=multiplicity,
        shorter=shorter,
    )


def stated_plan(arms: Sequence[Arm]) -> int | None:
    """The planned length that the runs' sources state, a trainer's log or a tracker's config; None where none does or two disagree."""
    stated = {run.context[PLANNED_STEPS] for _, runs in arms for run in runs if PLANNED_STEPS in run.context}
    return int(stated.pop()) if len(stated) == 1 else None


def refuse_mixed_recipes(arms: Sequence[Arm]) -> None:
    """Raise InputError where the configs of an arm's runs state different recipes, so that they are no reruns of each other."""
    for name, runs in arms:
        recipes = sorted({run.recipe for run in runs if run.recipe is not None})
        if len(recipes) > 1:
            raise InputError(
                f"{name}: its runs have different recipes, {' and '.join(recipes)}; expected one; state it for the arm, or remove runs"
            )


def families_of_configs(arms: Sequence[Arm], floors: Floors | None) -> dict[str, str]:
    """The family by arm that the configs of all its runs state, if the table of reruns has it; any other name borrows nothing."""
    stated = {name: {run.context.get(FAMILY) for run in runs} for name, runs in arms}
    alone = {name: family for name, (family, *others) in stated.items() if family is not None and not others}
    known = (floors or public_floors()).families if alone else {}
    return {name: family for name, family in alone.items() if family in known}


def check_arm(name: str, names: Sequence[str], option: str) -> None:
    """Raise InputError where something is stated of an arm that is not there."""
    if name not in names:
        raise InputError(f"{option}: no arm is called {name!r}; the arms are {', '.join(names)}{did_you_mean(name, names)}")
