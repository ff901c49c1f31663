"""The words for recipes: which are known, which of them always round to nearest, and how a user
names a recipe of their own.

A recipe sets the run-to-run noise that is assumed, and stochastic rounding has more of it, so a
misspelled word must never get the smaller noise. Only a word of `NEAREST` does: by definition its
gradients are rounded to nearest. Every other word counts as stochastic unless the rounding itself
was recorded.

A name may have switches behind it, as our trainer writes them: "mxfp4+stochastic_rounding+rht".
`other:NAME` is any other recipe.
"""

import difflib

from parity.effective_recipe import base_of, is_written, phases

NEAREST = ("f32", "bf16", "fp8", "fp8_current", "fp8_delayed", "mxfp8", "fp8_block")
RECIPES = (
    *NEAREST,
    "nvfp4",
    "nvfp4_no_rht",
    "nvfp4_no_sr",
    "nvfp4_no_rht_no_sr",
    "nvfp4_1d_weights",
    "mxfp4",
    "mxfp4_rht_sr",
)
ALWAYS_STOCHASTIC = ("nvfp4", "nvfp4_no_rht", "nvfp4_1d_weights", "mxfp4_rht_sr")
OTHER = "other:"
# bits, and how such recipes begin
_WIDTHS = ((32, ("f32",)), (16, ("bf16",)), (8, ("fp8", "mxfp8")), (4, ("nvfp4", "mxfp4")))
# What recipes compute the forward product as, where that is not their own name: they differ in the
# backward pass alone, or may.
_FORWARD = {
    "fp8_current": "fp8",
    "fp8_delayed": "fp8",
    "nvfp4_no_rht": "nvfp4",
    "nvfp4_no_sr": "nvfp4",
    "nvfp4_no_rht_no_sr": "nvfp4",
    "mxfp4_rht_sr": "mxfp4",
}

UNSTATED = f"{OTHER}unstated"  # on a server's record: the recipe of an arm that nobody has stated


class RecipeError(ValueError):
    """A word that is not a recipe, or a recipe that contradicts the rounding; the message says what
    was expected.
    """


def check_recipe(recipe: str | None, name: str = "recipe") -> None:
    """Raise RecipeError if a stated recipe is neither known nor `other:NAME`; `name` is what the
    message calls it.
    """
    if recipe is None or (
        recipe.startswith(OTHER) and recipe[len(OTHER) :].strip() and recipe.isprintable()
    ):
        return
    if base_of(recipe) in RECIPES:
        if is_written(recipe):
            return
        expected = (
            "expected a recipe with switches such as nvfp4+no_rht, or nvfp4 then bf16 from step "
            "1,600"
        )
        raise RecipeError(f"{name} is {ascii(recipe)[:80]}; {expected}")
    close = difflib.get_close_matches(
        recipe.lower().replace("-", "_").removeprefix("te_"), RECIPES, n=1, cutoff=0.7
    )
    every = f"expected one of {', '.join(RECIPES)}, or {OTHER}NAME for a recipe of your own"
    raise RecipeError(f"{name} is {recipe!r}; {f'did you mean {close[0]}?' if close else every}")


def check_rounding(recipe: str | None, rounding: str | None, name: str = "rounding") -> None:
    """Raise RecipeError where a run that rounds to nearest has a recipe that never does; `name` is
    what the message calls the rounding.
    """
    if rounding == "nearest" and recipe in ALWAYS_STOCHASTIC:
        raise RecipeError(
            f"{name} is nearest, but recipe {recipe} rounds stochastically; expected another "
            f"recipe, such as nvfp4_no_sr or {OTHER}NAME"
        )


def rounds_to_nearest(recipe: str | None) -> bool:
    """Whether a recipe rounds to nearest by its definition. A switch behind the name can only take
    that away.
    """
    return recipe in NEAREST


def width_of(recipe: str) -> int | None:
    """The bits of the numbers that a known recipe multiplies; None for any other word."""
    name = base_of(recipe)
    if name not in RECIPES:
        return None
    return next((bits for bits, starts in _WIDTHS if name.startswith(starts)), None)


def forward_differs(first: str | None, second: str | None) -> bool:
    """Whether two recorded recipes surely differ in the forward pass; not where one changes single
    products ("nvfp4+bf16@fprop").
    """
    if first is None or second is None or "@" in phases(first)[0].recipe + phases(second)[0].recipe:
        return False
    names = [base_of(recipe) for recipe in (first, second)]
    return _FORWARD.get(names[0], names[0]) != _FORWARD.get(names[1], names[1])
