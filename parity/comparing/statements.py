"""What a person states about a comparison, with one set of rules for the command line and for
Python.

Each function takes the `name` by which an error calls the input: an option such as `--rounding
nvfp4`, or a parameter such as `rounding`.
"""

from typing import get_args

from parity.judging.curves.curve import (
    MAX_STEP,
    ROUNDINGS,
    Rounding,
)
from parity.judging.multiplicity import Multiplicity
from parity.recipes import check_rounding
from parity.wording import did_you_mean

TRAINING, HELD_OUT = "training", "validation"
LOSS_KINDS = (TRAINING, HELD_OUT)
"""What a person can state of all losses of a comparison."""


class InputError(ValueError):
    """An input that cannot be used; the message names it, its value, what was expected and what to
    do.
    """


def check_plan(planned_steps: int | None, name: str, assume_complete: bool, other: str) -> None:
    """Raise InputError where the planned length is no number of steps, or is stated together with
    its assumption.
    """
    if not isinstance(assume_complete, bool):
        raise InputError(f"{other} is {assume_complete!r}; expected True or False")
    if planned_steps is None:
        return
    if isinstance(planned_steps, bool) or not isinstance(planned_steps, int) or planned_steps < 1:
        raise InputError(
            f"{name} is {planned_steps!r}; expected a whole number of steps, at least 1"
        )
    if planned_steps > MAX_STEP:
        raise InputError(
            f"{name} has {len(str(planned_steps)):,} digits; expected a number of steps, at most "
            f"{MAX_STEP:,}"
        )
    if assume_complete:
        raise InputError(f"{name} and {other} exclude each other; give only one of them")


def stated_multiplicity(look: int, name: str, looks: int, candidates: int) -> Multiplicity:
    """Which of the policy's `looks` a comparison without a ledger is, and how many candidates share
    it; InputError for another look.
    """
    if isinstance(look, bool) or not isinstance(look, int) or not 1 <= look <= looks:
        if looks > 1:
            expected = (
                f"expected a whole number from 1 to {looks}, the looks that the policy registers"
            )
        else:
            expected = (
                "expected 1: this policy registers one look; register more before the first one "
                "(looks: 2)"
            )
        raise InputError(f"{name} is {look!r}; {expected}")
    return Multiplicity(look=look, looks=looks, candidates=candidates)


def stated_rounding(word: str | None, name: str, recipe: str | None = None) -> Rounding | None:
    """What an input states of the rounding; InputError for any other word, RecipeError where it
    contradicts the recipe.
    """
    check_rounding(recipe, word, name)
    for rounding in ROUNDINGS:
        if word == rounding:
            return rounding
    if word is None:
        return None
    raise InputError(
        f"{name} is {word!r}; expected "
        f"{' or '.join(get_args(Rounding))}{did_you_mean(str(word), ROUNDINGS)}"
    )


def check_noise_table(noise_table: object, name: str, families: object, other: str) -> None:
    """Raise InputError where a noise table is given and no family of it is named."""
    if noise_table is not None and not families:
        shown = repr(noise_table) if isinstance(noise_table, str) else "given"
        raise InputError(
            f"{name} is {shown} without {other}; name the family whose run-to-run noise the arms "
            "borrow (`parity noise list`)"
        )
