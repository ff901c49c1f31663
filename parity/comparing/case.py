"""The case that the judge gets, from arms and what is stated: the one way from `parity compare` and
from `parity.compare` to a verdict.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from parity.comparing.arms import (
    Arm,
    check_short_reruns,
    refuse_mixed_units,
    refuse_unmatched_rows,
)
from parity.comparing.statements import InputError
from parity.judging.case import Case
from parity.judging.curves.curve import PLANNED_STEPS
from parity.judging.noise.noise_table import NoiseTable
from parity.judging.noise.public_table import public_noise_table
from parity.readers.run_config import FAMILY
from parity.wording import did_you_mean


def complete_case(case: Case, *, step_option: str, noise_option: str) -> Case:
    """A case with what its runs state themselves: the planned length, and the families of reruns.

    `step_option` and `noise_option` are what errors call the column of the step and the short
    reruns. Raises InputError where runs count in different units, where losses without steps cannot
    be matched, where an arm has too many short reruns, or reruns of several recipes.
    """
    arms = [
        (case.baseline_name or "", list(case.baseline)),
        *((name, list(runs)) for name, runs in case.candidates.items()),
    ]
    early = [(name, list(runs)) for name, runs in case.short_reruns.items()]
    refuse_mixed_units([*arms, *early], (*case.controls, *case.shorter), step_option)
    refuse_unmatched_rows(arms)
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
    families = (noise_table or public_noise_table()).families if alone else {}
    return {name: family for name, family in alone.items() if family in families}


def check_arm(name: str, names: Collection[str], option: str) -> None:
    """Raise InputError where something is stated of an arm that is not there."""
    if name not in names:
        called = f"; the runs are called {', '.join(names)}"
        if option == "--recipe":
            called += f"; name yours as in {name}=FILE"
        raise InputError(f"{option} {name}: no such run{did_you_mean(name, names) or called}")
