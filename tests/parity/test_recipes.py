"""Words for recipes: those of the trainer are known, others are refused, and only a few give the
smaller run-to-run noise.
"""

import dataclasses
from collections.abc import Callable

import pytest

from parity.comparing.compare import compare
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.policy import Policy, policy_from_mapping
from parity.judging.verdict.verdict import judge
from parity.recipes import (
    ALWAYS_STOCHASTIC,
    NEAREST,
    RECIPES,
    RecipeError,
    check_recipe,
    check_rounding,
)
from training import rules, switches


def test_known_recipes_are_those_of_the_trainer() -> None:
    assert {*rules.RECIPES, *rules.STATED_RECIPES} == set(RECIPES)
    for recipe in rules.RECIPES:
        assert not (recipe in NEAREST and switches.rounds_stochastically(recipe))
        assert (recipe in ALWAYS_STOCHASTIC) == switches.rounds_stochastically(recipe)


@pytest.mark.parametrize(
    "recipe", [*RECIPES, None, "other:ternary", "mxfp4+stochastic_rounding+rht"]
)
def test_a_known_recipe_and_one_that_is_named_as_another_are_accepted(recipe: str | None) -> None:
    check_recipe(recipe)


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("nvpf4", "; did you mean nvfp4?"),
        ("te_fp8", "; did you mean fp8?"),
        ("ternary", "recipe of your own"),
        ("", "own"),
    ],
)
def test_another_word_is_refused_with_the_known_ones(word: str, hint: str) -> None:
    with pytest.raises(RecipeError) as refused:
        check_recipe(word)
    assert str(refused.value).endswith(hint)
    assert "did you mean" in hint or all(known in str(refused.value) for known in RECIPES)


@pytest.mark.parametrize("place", ["baseline", "candidate", "control"])
def test_the_judge_refuses_an_unknown_recipe_wherever_it_stands(place: str) -> None:
    runs = {
        name: curve_from_arrays([0, 1], [2.0, 1.0], recipe="nvpf4" if name == place else "fp8")
        for name in ("baseline", "candidate", "control")
    }
    with pytest.raises(RecipeError, match="nvpf4"):
        judge(
            [runs["baseline"]],
            {"c": [runs["candidate"]]},
            policy_from_mapping({"schedule": "decayed", "margin": "1%"}),
            controls=[runs["control"]],
        )


@pytest.mark.parametrize(
    "state",
    [
        lambda: check_rounding("nvfp4", "nearest"),
        lambda: curve_from_arrays([1, 2], [3.0, 2.0], recipe="nvfp4", rounding="nearest"),
        lambda: judge([contradicting()], {"b": [contradicting()]}, Policy(margin="1%")),
        lambda: compare(contradicting(), contradicting(), margin="1%"),
        lambda: compare(
            {"step": [1, 2], "loss": [3.0, 2.0]},
            {"step": [1, 2], "loss": [3.0, 2.1]},
            recipe="nvfp4",
            rounding="nearest",
        ),
    ],
)
def test_a_stochastic_recipe_with_rounding_to_nearest_is_one_error_everywhere(
    state: Callable[[], object],
) -> None:
    with pytest.raises(
        ValueError,
        match="is nearest, but recipe nvfp4 rounds stochastically; expected another recipe, such "
        "as nvfp4_no_sr",
    ):
        state()


def contradicting() -> Curve:
    return dataclasses.replace(
        curve_from_arrays([1, 2], [3.0, 2.0], rounding="nearest"), recipe="nvfp4"
    )


def test_a_recipe_without_stochastic_rounding_may_round_to_nearest() -> None:
    assert (
        curve_from_arrays([1, 2], [3.0, 2.0], recipe="nvfp4_no_sr", rounding="nearest").recipe
        == "nvfp4_no_sr"
    )
