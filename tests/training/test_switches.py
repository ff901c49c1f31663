"""Which recipes round stochastically: every one that a specification can name, with the switch and without."""

import pytest

from training.rules import RECIPES, SpecError
from training.switches import Switches, rounds_stochastically

STOCHASTIC = {
    "f32": False,
    "bf16": False,
    "fp8_current": False,
    "fp8_delayed": False,
    "mxfp8": False,
    "nvfp4": True,
    "nvfp4_no_rht": True,
    "nvfp4_no_sr": False,
    "nvfp4_1d_weights": True,
    "mxfp4": False,
    "mxfp4_rht_sr": True,
}
BLOCK_SCALED = sorted(recipe for recipe in STOCHASTIC if recipe.startswith(("mx", "nv")))


def test_every_recipe_is_here():
    assert set(STOCHASTIC) == set(RECIPES)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_without_switches(recipe):
    assert rounds_stochastically(recipe) is STOCHASTIC[recipe]


@pytest.mark.parametrize("recipe", BLOCK_SCALED)
def test_the_switch_decides_over_the_recipe(recipe):
    assert rounds_stochastically(recipe, Switches(stochastic_rounding=True)) is True
    assert rounds_stochastically(recipe, Switches(stochastic_rounding=False)) is False


@pytest.mark.parametrize("switches", [{"rht": False}, {"weight_scaling": "1d"}, {"block_size": 32}])
@pytest.mark.parametrize("recipe", BLOCK_SCALED)
def test_other_switches_change_nothing(recipe, switches):
    assert rounds_stochastically(recipe, Switches(**switches)) is STOCHASTIC[recipe]


@pytest.mark.parametrize("recipe", ["", "int4", "NVFP4", "nvfp4_sr"])
def test_an_unknown_recipe_has_no_answer(recipe):
    with pytest.raises(SpecError, match="recipe is"):
        rounds_stochastically(recipe)


def test_a_switch_on_a_recipe_without_blocks_is_refused():
    with pytest.raises(SpecError, match="stochastic_rounding"):
        rounds_stochastically("fp8_current", Switches(stochastic_rounding=True))
