"""What options state of arms: recipes, rounding, and context."""

from collections.abc import Collection, Mapping, Sequence

from parity.cli.inputs.arm_options import ArmOptions
from parity.cli.inputs.pairs import pairs
from parity.cli.terminal.wrong_calls import UsageError
from parity.comparing.arms import (
    Stated,
)
from parity.comparing.case import check_arm
from parity.comparing.statements import stated_rounding
from parity.frozen import frozen
from parity.judging.curves.curve import Rounding
from parity.recipes import RecipeError, check_recipe


@frozen
class ArmStatements:
    """What options state of arms, by arm: recipes, rounding, and context as key and value."""

    recipes: Mapping[str, str]
    roundings: Mapping[str, Rounding]
    contexts: Mapping[str, Mapping[str, str]]

    def of(self, arm: str) -> Stated:
        """What is stated of an arm."""
        return Stated(
            recipe=self.recipes.get(arm),
            rounding=self.roundings.get(arm),
            context=self.contexts.get(arm, {}),
        )

    def refuse_unknown(self, arms: Collection[str]) -> None:
        """Raise InputError where an option names an arm that is not there."""
        for option_name, stated in (
            ("--recipe", self.recipes),
            ("--rounding", self.roundings),
            ("--context", self.contexts),
        ):
            for name in stated:
                check_arm(name, arms, option_name)


def stated_facts(options: ArmOptions) -> ArmStatements:
    """What options state of arms; UsageError for a word that is neither a recipe nor `other:NAME`,
    or a rounding against the recipe.
    """
    recipes = pairs(options.recipe, "--recipe", "NAME=RECIPE such as nvfp4=nvfp4")
    for name, recipe in recipes.items():
        refuse_unknown_recipe(recipe, f"--recipe {name}")
    roundings: dict[str, Rounding] = {}
    for name, word in pairs(
        options.rounding, "--rounding", "NAME=stochastic or NAME=nearest"
    ).items():
        if rounding := stated_rounding(word, f"--rounding {name}", recipes.get(name)):
            roundings[name] = rounding
    return ArmStatements(recipes=recipes, roundings=roundings, contexts=_contexts(options.context))


def refuse_unknown_recipe(recipe: str | None, option: str) -> None:
    """Raise UsageError for a word that is neither a known recipe nor `other:NAME`."""
    try:
        check_recipe(recipe, option)
    except RecipeError as error:
        raise UsageError(str(error)) from None


def _contexts(items: Sequence[str]) -> dict[str, dict[str, str]]:
    """NAME:KEY=VALUE items by arm."""
    contexts: dict[str, dict[str, str]] = {}
    for item in items:
        left, _, value = item.partition("=")
        name, _, key = left.rpartition(":")
        if not (name and key and value):
            raise UsageError(
                f"--context is {item!r}; expected NAME:KEY=VALUE such as fp8:engine=maxtext"
            )
        contexts.setdefault(name, {})[key] = value
    return contexts
