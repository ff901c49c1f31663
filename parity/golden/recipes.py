"""Whether a run has its golden's recipe: another one is refused, whoever shows it."""

from collections.abc import Sequence

from parity.effective_recipe import not_claimed
from parity.golden.golden_file import Golden, GoldenError
from parity.judging.curves.curve import RECORDED_RECIPE, Curve
from parity.recipes import check_recipe

NO_PRECISION_CHANGE = "a golden compares runs of one recipe; `parity compare` compares recipes"


def common_recipe(goldens: Sequence[Golden], run: Curve, stated: str | None, option: str) -> str:
    """The recipe of goldens and run. `option` names the input that states it.

    Raises GoldenError where the goldens, the statement, the run's source or the run's name have
    different ones, and RecipeError for a word that is no recipe.
    """
    check_recipe(stated, option)
    recipe = goldens[0].recipe
    for golden in goldens[1:]:
        _refuse_other(recipe, golden.recipe, f"golden {golden.curve.label}", goldens[0])
    if stated is not None:
        _refuse_other(recipe, stated, option, goldens[0])
    for recorded in (run.recipe, run.context.get(RECORDED_RECIPE)):
        if recorded is not None:
            _refuse_other(recipe, recorded, f"run {run.label}", goldens[0])
    if stated is None and run.recipe is None and not_claimed(run.label, recipe) is not None:
        raise GoldenError(
            f"the run's name, {run.label}, is that of another recipe than {recipe}, its golden's; "
            f"{NO_PRECISION_CHANGE}. If the run has the golden's recipe, state it: {option} "
            f"{recipe}"
        )
    return recipe


def first_recipe(run: Curve, stated: str | None, option: str) -> str:
    """The recipe of a run that has no golden yet. Raises GoldenError where nobody states it, or the
    statement and the run's source differ.
    """
    check_recipe(stated, option)
    if stated is not None and run.recipe not in (None, stated):
        raise GoldenError(
            f"{option} is {stated}, but run {run.label} recorded {run.recipe}; expected one recipe"
        )
    recipe = stated or run.recipe
    if recipe is None:
        raise GoldenError(
            f"neither a golden nor run {run.label} states the recipe; expected {option} with one, "
            "such as bf16: runs of two precisions can look like one recipe"
        )
    return recipe


def _refuse_other(recipe: str, other: str, source: str, golden: Golden) -> None:
    if other != recipe:
        raise GoldenError(
            f"{source} has recipe {other}, golden {golden.curve.label} {recipe}; "
            f"{NO_PRECISION_CHANGE}"
        )
