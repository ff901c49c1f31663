"""The words for recipes: which are known, which of them always round to nearest, and how a user names a recipe of their own.

A recipe sets the run noise that is assumed, and stochastic rounding has more of it, so a misspelled word must never get the smaller
noise. Only a word of `NEAREST` does: by definition its gradients are rounded to nearest. Every other word counts as stochastic unless
the rounding itself was recorded.

A name may have switches behind it, as our trainer writes them: "mxfp4+stochastic_rounding+rht". `other:NAME` is any other recipe.
"""

import difflib

NEAREST = ("f32", "bf16", "fp8", "fp8_current", "fp8_delayed", "mxfp8", "fp8_block")
RECIPES = (*NEAREST, "nvfp4", "nvfp4_no_rht", "nvfp4_no_sr", "nvfp4_1d_weights", "mxfp4", "mxfp4_rht_sr")
ALWAYS_STOCHASTIC = ("nvfp4", "nvfp4_no_rht", "nvfp4_1d_weights", "mxfp4_rht_sr")
OTHER = "other:"


class RecipeError(ValueError):
    """A word that is not a recipe; the message has the word, the known ones and what to write for a recipe of one's own."""


def check_recipe(recipe: str | None, name: str = "recipe") -> None:
    """Raise RecipeError if a stated recipe is neither known nor `other:NAME`; `name` is what the message calls it."""
    if recipe is None or recipe.split("+", 1)[0] in RECIPES or (recipe.startswith(OTHER) and recipe[len(OTHER) :].strip()):
        return
    close = difflib.get_close_matches(recipe.lower().replace("-", "_").removeprefix("te_"), RECIPES, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise RecipeError(f"{name} is {recipe!r}; expected one of {', '.join(RECIPES)}, or {OTHER}NAME for a recipe of your own{hint}")


def rounds_to_nearest(recipe: str | None) -> bool:
    """Whether a recipe rounds to nearest by its definition. A switch behind the name can only take that away."""
    return recipe in NEAREST
