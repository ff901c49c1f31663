"""Sizes that a recipe needs, by engine and GEMM (compared with Transformer Engine's own checks in
engines/test_te_shapes.py).
"""

from dataclasses import replace

import pytest

from training.environment.maxtext_options import MaxTextOptions
from training.gemm_sizes import linear_sizes, needs
from training.model_shapes import PRESETS
from training.overrides import GEMMS, Override
from training.rules import SpecError
from training.segments import Arithmetic
from training.spec import ArmSpec, Data, JobSpec, Model, Projections
from training.switches import Switches

JOB = JobSpec(
    name="job",
    engine="transformer_engine",
    baseline=ArmSpec(recipe="bf16"),
    candidates=(ArmSpec(recipe="nvfp4"),),
    model=Model(preset="llama3-0.3m-by128"),
)
MAXTEXT = {"engine": "maxtext", "data": Data(source="grain", path="x")}


def of(recipe, *, native=True, **switches):
    """(size, multiple) of each GEMM."""
    arithmetic = Arithmetic(recipe, Switches(**switches))
    return {
        gemm: {
            need.size: need.multiple
            for need in needs(gemm, arithmetic, native=native)
            if need.size in "MKN"
        }
        for gemm in GEMMS
    }


@pytest.mark.parametrize(
    ("recipe", "switches", "fprop", "dgrad", "wgrad"),
    [
        ("bf16", {}, {}, {}, {}),
        ("fp8_current", {}, {"K": 16}, {"N": 16}, {"M": 16}),
        ("fp8_delayed", {}, {"K": 16}, {"N": 16}, {"M": 16}),
        ("mxfp8", {}, {"K": 32}, {"N": 32}, {"M": 32}),
        ("nvfp4", {}, {"K": 32}, {"N": 32}, {"M": 64, "K": 128, "N": 128}),
        ("nvfp4_no_rht", {}, {"K": 32}, {"N": 32}, {"M": 32}),
        ("nvfp4", {"rht": False}, {"K": 32}, {"N": 32}, {"M": 32}),
        ("nvfp4_no_rht", {"rht": True}, {"K": 32}, {"N": 32}, {"M": 64, "K": 128, "N": 128}),
    ],
)
def test_a_kernel_needs_multiples_by_gemm(recipe, switches, fprop, dgrad, wgrad):
    assert of(recipe, **switches) == {"fprop": fprop, "dgrad": dgrad, "wgrad": wgrad}


def test_the_emulation_needs_whole_blocks_along_the_contracted_size():
    assert of("nvfp4", native=False) == {"fprop": {"K": 16}, "dgrad": {"N": 16}, "wgrad": {"M": 16}}
    assert of("nvfp4", native=False, block_size=64)["wgrad"] == {"M": 64}
    assert of("fp8_current", native=False) == {"fprop": {}, "dgrad": {}, "wgrad": {}}


def test_keys_and_values_are_as_wide_as_their_heads():
    sizes = {
        name: (inputs.value, outputs.value)
        for name, (inputs, outputs) in linear_sizes(128, 384, 16, (8, 2)).items()
    }
    assert sizes["query"] == sizes["out"] == (128, 128)
    assert sizes["key"] == sizes["value"] == (128, 32)
    assert (sizes["gate"], sizes["down"]) == ((128, 384), (384, 128))


FITS = {
    "llama3-20m",
    "llama3-75m",
    "llama3-1b",
    "llama3-8b",
    "llama3-405b",
    *(name for name in PRESETS if name.endswith("-by128")),
}


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_from_20m_on_and_by128_fit_the_kernels_and_the_others_are_refused_with_one_that_does(  # noqa: E501
    preset,
):
    if preset in FITS:
        assert replace(JOB, model=Model(preset=preset)).engine == "transformer_engine"
        return
    with pytest.raises(
        SpecError,
        match=r"wgrad of \w+ with recipe nvfp4 .*rotation.*the nearest preset that fits is "
        rf"{preset}-by128$",
    ):
        replace(JOB, model=Model(preset=preset))
    assert (
        replace(JOB, model=Model(preset=preset), candidates=(ArmSpec(recipe="mxfp8"),)).engine
        == "transformer_engine"
    )


@pytest.mark.parametrize(
    ("changes", "field", "value", "message"),
    [
        (
            {"model": Model(preset="llama3-0.3m")},
            "model.d_model",
            96,
            "multiple of 128 for wgrad of query .*transformer_engine.*value is 128",
        ),
        (
            {"model": Model(preset="llama3-5m")},
            "model.n_kv_heads x head size",
            64,
            "multiple of 128 for wgrad of key",
        ),
        (
            {"model": Model(preset="llama3-0.3m-by128", d_ff=320)},
            "model.d_ff",
            320,
            "wgrad of gate.*value is 256",
        ),
        (
            {"data": Data(batch_size=3, sequence_length=32)},
            "data.batch_size x data.sequence_length",
            96,
            "multiple of 64.*value is 128$",
        ),
        (
            {"candidates": (ArmSpec(recipe="fp8_current"),), "model": Model(d_ff=264)},
            "model.d_ff",
            264,
            "multiple of 16 for dgrad of gate",
        ),
        (
            {**MAXTEXT, "model": Model(preset="llama3-1m")},
            "model.n_kv_heads x head size",
            64,
            "wgrad of key.*under engine maxtext",
        ),
        (
            {**MAXTEXT, "data": Data(source="grain", path="x", batch_size=16, sequence_length=8)},
            "data.sequence_length",
            8,
            "of 16 for fprop",
        ),
        (
            {**MAXTEXT, "devices": 2, "maxtext": MaxTextOptions(ici_tensor_parallelism=2)},
            "model.d_model / maxtext.ici_tensor_parallelism",
            64,
            "multiple of 128 for wgrad of query",
        ),
    ],
)
def test_a_size_that_does_not_fit_is_refused_with_the_nearest(changes, field, value, message):
    with pytest.raises(SpecError, match=message) as refusal:
        replace(JOB, **changes)
    assert (refusal.value.field, refusal.value.value) == (field, value)


def test_only_layers_that_a_recipe_reaches_have_to_fit():
    small = {"model": Model(preset="llama3-1m")}  # 64 keys
    assert replace(JOB, **small, layer_policy="mlp_only")
    assert replace(JOB, **small, projections=Projections(key="bf16", value="bf16"))
    no_rotation = Override(projections=("key", "value"), switches=Switches(rht=False))
    assert replace(JOB, **small, candidates=(ArmSpec(recipe="nvfp4", overrides=(no_rotation,)),))
    late = Override(projections=("key", "value"), recipe="mxfp8", from_step=9)
    with pytest.raises(SpecError, match="wgrad of key"):
        replace(JOB, **small, candidates=(ArmSpec(recipe="nvfp4", overrides=(late,)),))


def test_maxtext_without_transformer_engine_and_a_model_of_its_own_are_not_checked_here():
    options = MaxTextOptions(hardware="cpu", implementation="xla")
    odd = Model(d_model=90, n_heads=3, n_kv_heads=1, d_ff=255)
    assert replace(
        JOB, **MAXTEXT, model=odd, candidates=(ArmSpec(recipe="fp8_delayed"),), maxtext=options
    )
    assert replace(JOB, **MAXTEXT, model=odd, maxtext=MaxTextOptions(model_name="llama3-8b"))
