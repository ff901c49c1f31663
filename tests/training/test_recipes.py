"""The table of recipes, entry by entry."""

import pytest

from training.formats import E2M1, E4M3, E5M2
from training.recipes import linear_recipe
from training.rules import NOT_TE_PARITY, RECIPES, STOCHASTIC_RECIPES, refusal

SIDES = ("fprop_x", "fprop_w", "dgrad_g", "dgrad_w", "wgrad_x", "wgrad_g")


def operands(name):
    recipe = linear_recipe(name, fast_bf16=True)
    return {side: getattr(recipe, side) for side in SIDES}


@pytest.mark.parametrize("name", RECIPES)
def test_stochastic_rounding_meets_gradients_only_and_both_of_them(name):
    stochastic = {side for side, quantizer in operands(name).items() if quantizer is not None and quantizer.stochastic}
    assert stochastic == ({"dgrad_g", "wgrad_g"} if name in STOCHASTIC_RECIPES else set())


@pytest.mark.parametrize("name", RECIPES)
def test_the_rotation_meets_both_operands_of_wgrad_or_none(name):
    rotated = {side for side, quantizer in operands(name).items() if quantizer is not None and quantizer.rotated}
    expected = {"wgrad_x", "wgrad_g"} if name in ("nvfp4", "nvfp4_no_sr", "nvfp4_1d_weights", "mxfp4_rht_sr") else set()
    assert rotated == expected


def test_formats_and_scales_are_those_of_the_table():
    assert set(operands("f32").values()) == set(operands("bf16").values()) == {None}
    fp8 = operands("fp8_current")
    assert [fp8[side].format for side in SIDES] == [E4M3, E4M3, E5M2, E4M3, E4M3, E5M2]
    late = operands("fp8_delayed")
    assert [late[side].format for side in SIDES] == [fp8[side].format for side in SIDES]
    assert all(q.delayed for q in late.values())
    assert {(q.format, q.scaling, q.block) for q in operands("mxfp8").values()} == {(E4M3, "mx", 32)}
    assert {(q.format, q.scaling, q.block) for q in operands("mxfp4").values()} == {(E2M1, "mx", 32)}
    assert {(q.format, q.scaling, q.block) for q in operands("nvfp4").values()} == {(E2M1, "nvfp4", 16)}
    assert [operands("nvfp4")[side].two_dimensional for side in SIDES] == [False, True, False, True, False, False]
    assert not any(q.two_dimensional for q in operands("nvfp4_1d_weights").values())


def test_products_follow_the_processor_and_f32_is_float32_throughout():
    assert linear_recipe("nvfp4", fast_bf16=False).products == "float32"
    assert linear_recipe("nvfp4", fast_bf16=False).activations == "bfloat16"
    assert linear_recipe("f32", fast_bf16=True).products == linear_recipe("f32", fast_bf16=True).activations == "float32"


@pytest.mark.parametrize("name", sorted(NOT_TE_PARITY))
def test_what_only_we_run_is_refused_on_a_real_engine(name):
    assert refusal("emulated", name, "all_linears") is None
    for engine in ("transformer_engine", "maxtext"):
        assert NOT_TE_PARITY[name] in refusal(engine, name, "all_linears")
