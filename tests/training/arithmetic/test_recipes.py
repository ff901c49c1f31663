"""The table of recipes, entry by entry."""

from dataclasses import replace

import pytest

from parity.judging.noise import arm_noise
from parity.recipes import check_recipe
from training.arithmetic.formats import E2M1, E4M3, E5M2
from training.arithmetic.recipes import layer_recipe, linear_recipe
from training.rules import NOT_TE_PARITY, RECIPES, SpecError, refusal
from training.segments import Arithmetic
from training.switches import Switches, label, not_te_parity, rounds_stochastically

SIDES = ("fprop_x", "fprop_w", "dgrad_g", "dgrad_w", "wgrad_x", "wgrad_g")


def operands(name, **switches):
    recipe = linear_recipe(name, Switches(**switches), fast_bf16=True)
    return {side: getattr(recipe, side) for side in SIDES}


@pytest.mark.parametrize("name", RECIPES)
def test_stochastic_rounding_meets_gradients_only_and_both_of_them(name):
    stochastic = {
        side
        for side, quantizer in operands(name).items()
        if quantizer is not None and quantizer.stochastic
    }
    assert stochastic == ({"dgrad_g", "wgrad_g"} if rounds_stochastically(name) else set())


@pytest.mark.parametrize("name", RECIPES)
def test_the_rotation_meets_both_operands_of_wgrad_or_none(name):
    rotated = {
        side
        for side, quantizer in operands(name).items()
        if quantizer is not None and quantizer.rotated
    }
    expected = (
        {"wgrad_x", "wgrad_g"}
        if name in ("nvfp4", "nvfp4_no_sr", "nvfp4_1d_weights", "mxfp4_rht_sr")
        else set()
    )
    assert rotated == expected


def test_formats_and_scales_are_those_of_the_table():
    assert set(operands("f32").values()) == set(operands("bf16").values()) == {None}
    fp8 = operands("fp8_current")
    assert [fp8[side].format for side in SIDES] == [E4M3, E4M3, E5M2, E4M3, E4M3, E5M2]
    late = operands("fp8_delayed")
    assert [late[side].format for side in SIDES] == [fp8[side].format for side in SIDES]
    assert all(q.delayed for q in late.values())
    assert {(q.format, q.scaling, q.block) for q in operands("mxfp8").values()} == {
        (E4M3, "mx", 32)
    }
    assert {(q.format, q.scaling, q.block) for q in operands("fp8_block").values()} == {
        (E4M3, "fp8_block", 128)
    }
    assert [operands("fp8_block")[side].two_dimensional for side in SIDES] == [
        False,
        True,
        False,
        True,
        False,
        False,
    ]
    assert {(q.format, q.scaling, q.block) for q in operands("mxfp4").values()} == {
        (E2M1, "mx", 32)
    }
    assert {(q.format, q.scaling, q.block) for q in operands("nvfp4").values()} == {
        (E2M1, "nvfp4", 16)
    }
    assert [operands("nvfp4")[side].two_dimensional for side in SIDES] == [
        False,
        True,
        False,
        True,
        False,
        False,
    ]
    assert not any(q.two_dimensional for q in operands("nvfp4_1d_weights").values())


def test_products_follow_the_processor_and_f32_is_float32_throughout():
    assert linear_recipe("nvfp4", fast_bf16=False).products == "float32"
    assert linear_recipe("nvfp4", fast_bf16=False).activations == "bfloat16"
    assert (
        linear_recipe("f32", fast_bf16=True).products
        == linear_recipe("f32", fast_bf16=True).activations
        == "float32"
    )


@pytest.mark.parametrize("name", sorted(NOT_TE_PARITY))
def test_what_only_we_run_is_refused_on_a_real_engine(name):
    assert refusal("emulated", name, "all_linears") is None
    assert not_te_parity(name) == NOT_TE_PARITY[name]
    for engine in ("transformer_engine", "maxtext"):
        assert NOT_TE_PARITY[name] in refusal(engine, name, "all_linears")


@pytest.mark.parametrize(
    ("switches", "variant"),
    [
        ({"rht": False}, "nvfp4_no_rht"),
        ({"stochastic_rounding": False}, "nvfp4_no_sr"),
        ({"rht": False, "stochastic_rounding": False}, "nvfp4_no_rht_no_sr"),
        ({"weight_scaling": "1d"}, "nvfp4_1d_weights"),
    ],
)
def test_a_named_variant_is_its_switch(switches, variant):
    assert operands("nvfp4", **switches) == operands(variant)
    assert not_te_parity("nvfp4", Switches(**switches)) == not_te_parity(variant)


def test_switches_compose_on_any_block_scaled_recipe():
    assert operands("mxfp4", rht=True, stochastic_rounding=True) == operands("mxfp4_rht_sr")
    every = operands(
        "mxfp8", rht=True, stochastic_rounding=True, weight_scaling="2d", block_size=64
    )
    assert {(q.format, q.scaling, q.block) for q in every.values()} == {(E4M3, "mx", 64)}
    assert [q.rotated for q in every.values()] == [False, False, False, False, True, True]
    assert [q.stochastic for q in every.values()] == [False, False, True, False, False, True]
    assert [q.two_dimensional for q in every.values()] == [False, True, False, True, False, False]


@pytest.mark.parametrize(
    ("recipe", "switches", "reason"),
    [
        ("nvfp4", {}, None),
        ("nvfp4", {"rht": False, "stochastic_rounding": False}, None),
        ("nvfp4", {"rht": False, "weight_scaling": "1d"}, None),
        ("nvfp4", {"weight_scaling": "1d"}, "refuses 1D weight scales"),
        ("nvfp4_1d_weights", {"rht": False}, None),
        ("nvfp4", {"block_size": 32}, "NVFP4 in blocks of 16, not of 32"),
        ("mxfp8", {"block_size": 16}, "MXFP8 in blocks of 32, not of 16"),
        ("mxfp8", {"stochastic_rounding": True}, "neither rotation nor stochastic"),
        ("mxfp4", {"rht": True}, "no MXFP4"),
        ("fp8_current", {}, None),
    ],
)
def test_what_transformer_engine_has_not_is_refused_with_the_reason(recipe, switches, reason):
    refusal = not_te_parity(recipe, Switches(**switches))
    assert refusal is None if reason is None else reason in refusal


@pytest.mark.parametrize("recipe", ["f32", "bf16", "fp8_current", "fp8_delayed"])
def test_a_recipe_without_blocks_has_no_switches(recipe):
    with pytest.raises(
        SpecError, match=f"switches.rht is False, expected (no switch|nothing) on recipe {recipe}"
    ):
        linear_recipe(recipe, Switches(rht=False), fast_bf16=True)


@pytest.mark.parametrize("wrong", [{"block_size": 8}, {"weight_scaling": "3d"}])
def test_a_switch_that_cannot_be_is_refused(wrong):
    with pytest.raises(SpecError, match="expected"):
        Switches(**wrong)


@pytest.mark.parametrize(
    ("recipe", "switches", "name"),
    [
        ("nvfp4_no_rht", {}, "nvfp4_no_rht"),
        ("nvfp4", {"stochastic_rounding": False, "block_size": 32}, "nvfp4+no_sr+block_size=32"),
        ("nvfp4_no_sr", {"stochastic_rounding": True}, "nvfp4"),
        ("mxfp4", {"stochastic_rounding": True, "rht": True}, "mxfp4+stochastic_rounding+rht"),
        ("nvfp4", {"rht": False, "weight_scaling": "1d"}, "nvfp4+no_rht+weight_scaling=1d"),
    ],
)
def test_the_judge_knows_the_label_and_never_takes_it_for_less_noise(recipe, switches, name):
    assert label(recipe, Switches(**switches)) == name
    check_recipe(name)
    assert arm_noise.assume_stochastic(name) or not rounds_stochastically(
        recipe, Switches(**switches)
    )
    assert arm_noise.assume_stochastic(f"{name}+stochastic_rounding")


def test_forward_in_bf16_leaves_the_backward_products_quantized():
    recipe = linear_recipe("nvfp4", fast_bf16=True)
    bf16, nvfp4, fp8 = map(Arithmetic, ("bf16", "nvfp4", "fp8_delayed"))
    late = layer_recipe((bf16, nvfp4, nvfp4), fast_bf16=True)
    assert late.operands == (None, None, *recipe.operands[2:])
    assert layer_recipe((bf16, fp8, fp8), fast_bf16=True).delayed


def test_the_gemms_of_a_layer_may_have_recipes_of_their_own():
    recipes = [
        linear_recipe(name, fast_bf16=True) for name in ("mxfp8", "nvfp4_no_sr", "fp8_current")
    ]
    mixed = layer_recipe(
        (Arithmetic("mxfp8"), Arithmetic("nvfp4_no_sr"), Arithmetic("fp8_current")), fast_bf16=True
    )
    assert mixed.operands == (
        *recipes[0].operands[:2],
        *recipes[1].operands[2:4],
        *recipes[2].operands[4:],
    )
    for recipe in RECIPES:
        assert layer_recipe((Arithmetic(recipe),) * 3, fast_bf16=True) == linear_recipe(
            recipe, fast_bf16=True
        )
    nvfp4 = linear_recipe("nvfp4", fast_bf16=True)
    with pytest.raises(ValueError, match="expected both or neither"):
        replace(nvfp4, wgrad_x=replace(nvfp4.wgrad_x, rotated=False))


def test_gradients_take_the_format_that_is_chosen_for_them():
    for name in ("mxfp8", "fp8_block", "fp8_current", "fp8_delayed"):
        for chosen, fmt in (("e4m3", E4M3), ("e5m2", E5M2)):
            formats = [q.format for q in operands(name, gradient_format=chosen).values()]
            assert formats == [E4M3, E4M3, fmt, E4M3, E4M3, fmt]
    assert linear_recipe(
        "fp8_delayed", Switches(gradient_format="e4m3"), fast_bf16=True
    ).delayed_scaling.formats == (E4M3, E4M3, E4M3)


def test_delayed_scaling_follows_its_switches_and_by_default_transformer_engines():
    plain = linear_recipe("fp8_delayed", fast_bf16=True).delayed_scaling
    assert (plain.margin, plain.history_length, plain.most_recent, plain.formats) == (
        0,
        1024,
        False,
        (E4M3, E4M3, E5M2),
    )
    switches = Switches(margin=2, amax_history_len=16, amax_compute_algo="most_recent")
    changed = linear_recipe("fp8_delayed", switches, fast_bf16=True).delayed_scaling
    assert (changed.margin, changed.history_length, changed.most_recent) == (2, 16, True)


def test_row_scaling_and_four_over_six_concern_forward_tensors_alone():
    rows = operands("nvfp4", row_scaled_activation=True)
    assert [q.row_scaled for q in rows.values()] == [True, False, False, False, True, False]
    for scope, expected in (
        ("weights", [False, True, False, True, False, False]),
        ("activations", [True, False, False, False, True, False]),
        ("all", [True, True, False, True, True, False]),
    ):
        chosen = operands("nvfp4", nvfp4_4over6=scope)
        assert [q.four_over_six == "mae" for q in chosen.values()] == expected
        assert [q.scale_bound == 256 for q in chosen.values()] == expected
    mixed = operands(
        "nvfp4",
        nvfp4_4over6="all",
        nvfp4_4over6_e4m3_use_256="weights",
        nvfp4_4over6_err_mode="mse",
    )
    assert [(q.four_over_six, q.scale_bound) for q in mixed.values()] == [
        ("mse", 448),
        ("mse", 256),
        (None, 448),
        ("mse", 256),
        ("mse", 448),
        (None, 448),
    ]


def test_random_bits_and_nan_reach_their_operands():
    few = operands("nvfp4", sr_bits=8)
    assert [q.sr_bits for q in few.values()] == [16, 16, 8, 16, 16, 8]
    for name in ("fp8_current", "fp8_delayed", "mxfp8", "fp8_block", "nvfp4", "mxfp4"):
        assert all(q.drops_nan for q in operands(name, nan="hardware").values())
        assert not any(q.drops_nan for q in operands(name).values())
