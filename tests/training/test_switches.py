"""Which recipes round stochastically: every one that a specification can name, with the switch and
without.
"""

import pytest

from training.rules import RECIPES, SpecError
from training.spec import ArmSpec, JobSpec
from training.switches import (
    Switches,
    check_engine,
    features,
    label,
    not_te_parity,
    rounds_stochastically,
)

STOCHASTIC = {
    "f32": False,
    "bf16": False,
    "fp8_current": False,
    "fp8_delayed": False,
    "mxfp8": False,
    "fp8_block": False,
    "nvfp4": True,
    "nvfp4_no_rht": True,
    "nvfp4_no_sr": False,
    "nvfp4_no_rht_no_sr": False,
    "nvfp4_1d_weights": True,
    "mxfp4": False,
    "mxfp4_rht_sr": True,
}
BLOCK_SCALED = sorted(
    recipe for recipe in STOCHASTIC if recipe.startswith(("mx", "nv", "fp8_block"))
)


def test_every_recipe_is_here():
    assert set(STOCHASTIC) == set(RECIPES)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_without_switches(recipe):
    assert rounds_stochastically(recipe) is STOCHASTIC[recipe]


@pytest.mark.parametrize("recipe", BLOCK_SCALED)
def test_the_switch_decides_over_the_recipe(recipe):
    assert rounds_stochastically(recipe, Switches(stochastic_rounding=True)) is True
    assert rounds_stochastically(recipe, Switches(stochastic_rounding=False)) is False


@pytest.mark.parametrize(
    "switches", [{"rht": False}, {"weight_scaling": "1d"}, {"block_size": 32}, {"nan": "hardware"}]
)
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


@pytest.mark.parametrize(
    "switches",
    [{"sr_bits": 8}, {"row_scaled_activation": True}, {"nvfp4_4over6": "all"}, {"nan": "hardware"}],
)
def test_no_switch_but_its_own_turns_stochastic_rounding_off(switches):
    assert rounds_stochastically("nvfp4", Switches(**switches))


@pytest.mark.parametrize(
    ("recipe", "switches", "message"),
    [
        (
            "bf16",
            {"nan": "hardware"},
            (
                "switches.nan is 'hardware', expected no switch on recipe bf16; switches change "
                "fp8_current"
            ),
        ),
        ("fp8_current", {"margin": 1}, "its switches are gradient_format, nan"),
        (
            "nvfp4",
            {"gradient_format": "e5m2"},
            "switches.gradient_format is 'e5m2', expected nothing on recipe nvfp4",
        ),
        ("mxfp8", {"row_scaled_activation": True}, "expected nothing on recipe mxfp8"),
        (
            "mxfp8",
            {"sr_bits": 8},
            "switches.sr_bits is 8, expected nothing without stochastic rounding",
        ),
        ("nvfp4", {"nvfp4_4over6_err_mode": "mse"}, "expected nothing without nvfp4_4over6"),
        (
            "nvfp4",
            {"nvfp4_4over6": "none", "nvfp4_4over6_e4m3_use_256": "none"},
            "expected nothing without nvfp4_4over6",
        ),
        (
            "nvfp4",
            {"nvfp4_4over6": "weights", "nvfp4_4over6_e4m3_use_256": "activations"},
            "expected none or all with nvfp4_4over6: weights",
        ),
        (
            "nvfp4",
            {"nvfp4_4over6": "activations", "nvfp4_4over6_e4m3_use_256": "activations"},
            "expected none or all",
        ),
        (
            "nvfp4",
            {"nvfp4_4over6": "weights", "block_size": 32},
            "switches.block_size is 32, expected 16 with nvfp4_4over6",
        ),
    ],
)
def test_a_switch_that_the_recipe_does_not_have_or_that_changes_nothing_is_refused(
    recipe, switches, message
):
    with pytest.raises(SpecError, match=message):
        features(recipe, Switches(**switches))


@pytest.mark.parametrize(
    "wrong",
    [
        {"margin": -1},
        {"margin": 17},
        {"amax_history_len": 0},
        {"amax_compute_algo": "min"},
        {"gradient_format": "e3m4"},
        {"sr_bits": 12},
        {"nan": "ours"},
        {"nvfp4_4over6": True},
        {"nvfp4_4over6_err_mode": "MAE"},
    ],
)
def test_a_value_out_of_range_is_refused_with_what_was_expected(wrong):
    (name,) = wrong
    with pytest.raises(SpecError, match=f"switches.{name} is .*, expected "):
        Switches(**wrong)


@pytest.mark.parametrize(
    ("recipe", "switches", "expected"),
    [
        ("mxfp8", {"gradient_format": "e5m2"}, "mxfp8+gradient_format=e5m2"),
        (
            "fp8_delayed",
            {"margin": 1, "amax_history_len": 16, "amax_compute_algo": "most_recent"},
            None,
        ),
        (
            "nvfp4_no_rht",
            {"row_scaled_activation": True, "nvfp4_4over6": "all"},
            "nvfp4+no_rht+row_scaled_activation+nvfp4_4over6=all",
        ),
        ("nvfp4", {"sr_bits": 8, "nan": "hardware"}, "nvfp4+sr_bits=8+nan=hardware"),
        ("nvfp4", {"sr_bits": 16, "nan": "propagate"}, "nvfp4"),
    ],
)
def test_the_label_names_what_differs(recipe, switches, expected):
    assert label(recipe, Switches(**switches)) == (
        expected or "fp8_delayed+margin=1+amax_history_len=16+amax_compute_algo=most_recent"
    )


@pytest.mark.parametrize(
    ("recipe", "switches", "reason"),
    [
        ("mxfp8", {"gradient_format": "e5m2"}, None),
        ("fp8_current", {"gradient_format": "e4m3"}, None),
        (
            "fp8_delayed",
            {"amax_history_len": 16, "margin": 1, "amax_compute_algo": "most_recent"},
            None,
        ),
        ("nvfp4", {"nan": "hardware"}, None),
        ("nvfp4", {"nan": "propagate"}, "use nan: hardware"),
        ("nvfp4", {"sr_bits": 8}, "leave sr_bits out"),
        (
            "nvfp4",
            {"row_scaled_activation": True},
            "row_scaled_activation for PyTorch only; the nearest .* is nvfp4 without",
        ),
        ("nvfp4", {"nvfp4_4over6": "weights"}, "nvfp4_4over6 for PyTorch only"),
        (
            "nvfp4",
            {"nvfp4_4over6": "all"},
            "refuses nvfp4_4over6 on activations together with the Hadamard rotation",
        ),
        ("nvfp4", {"nvfp4_4over6": "all", "rht": False}, "nvfp4_4over6 for PyTorch only"),
        ("fp8_block", {"gradient_format": "e5m2"}, "nearest .* mxfp8"),
    ],
)
def test_engine_transformer_engine_refuses_what_its_jax_path_lacks_and_names_the_nearest(
    recipe, switches, reason
):
    if reason is None:
        check_engine("transformer_engine", recipe, Switches(**switches))
        assert not_te_parity(recipe, Switches(**switches)) is None
        return
    with pytest.raises(
        SpecError, match=f"expected switches that engine transformer_engine has; .*{reason}"
    ):
        check_engine("transformer_engine", recipe, Switches(**switches))
    check_engine("emulated", recipe, Switches(**switches))


def test_maxtext_has_no_switches():
    with pytest.raises(SpecError, match="MaxText selects a recipe by name"):
        check_engine("maxtext", "mxfp8", Switches(gradient_format="e5m2"))


def test_a_switch_that_is_not_set_is_not_in_the_document_of_a_job():
    job = JobSpec(
        name="job",
        baseline=ArmSpec(recipe="bf16"),
        candidates=(ArmSpec(recipe="mxfp8", switches=Switches(gradient_format="e5m2", rht=True)),),
    )
    plain = {"stochastic_rounding": None, "rht": None, "weight_scaling": None, "block_size": None}
    assert job.document()["baseline"]["switches"] == plain
    assert job.document()["candidates"][0]["switches"] == plain | {
        "rht": True,
        "gradient_format": "e5m2",
    }
