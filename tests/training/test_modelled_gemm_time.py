"""The modelled GEMM time against sums by hand, place by place."""

import pytest

from training.later_recipe import LaterRecipe
from training.modelled_gemm_time import GB200, gemm_time, rate, weights
from training.overrides import Override
from training.spec import ArmSpec, Data, JobSpec, Model, Schedule
from training.step_values import PROJECTIONS

MODEL = Model(vocab_size=256, d_model=64, n_layers=4, n_heads=4, n_kv_heads=2, d_ff=96)
BF16, FP8, NVFP4 = ArmSpec(recipe="bf16"), ArmSpec(recipe="fp8_current"), ArmSpec(recipe="nvfp4")


def job(*candidates, **changes):
    return JobSpec(
        name="t",
        baseline=FP8,
        candidates=candidates or (NVFP4,),
        model=MODEL,
        data=Data(sequence_length=32, batch_size=2),
        schedule=Schedule(steps=100, warmup_steps=10),
        **changes,
    )


def test_weights_are_inputs_times_outputs():
    assert weights(MODEL) == {
        "query": 64 * 64,
        "key": 64 * 32,
        "value": 64 * 32,
        "out": 64 * 64,
        "gate": 64 * 96,
        "up": 64 * 96,
        "down": 96 * 64,
    }
    assert tuple(weights(MODEL)) == PROJECTIONS


def test_one_format_everywhere_has_its_rate():
    spec = job()
    assert [gemm_time(spec, arm) for arm in (BF16, FP8, NVFP4)] == pytest.approx([1.0, 0.5, 0.25])
    assert gemm_time(spec, NVFP4, {**GB200, "fp4": 6.0}) == pytest.approx(1 / 6)


def test_each_place_counts_with_its_format_and_its_steps():
    arm = ArmSpec(
        recipe="nvfp4",
        overrides=(
            Override(recipe="bf16", blocks=("last 1",)),
            Override(
                recipe="fp8_current", blocks=("first 1",), projections=("down",), gemms=("wgrad",)
            ),
        ),
        then=LaterRecipe(recipe="bf16", from_step=80),
    )
    spec = job(arm, keep_last=0)
    sizes, expected = weights(MODEL), 0.0
    for step in range(100):
        for block in range(4):
            for name, size in sizes.items():
                for gemm in ("fprop", "dgrad", "wgrad"):
                    speed = 4.0
                    speed = 1.0 if block == 3 or step >= 80 else speed
                    speed = (
                        2.0 if (block, name, gemm) == (0, "down", "wgrad") and step < 80 else speed
                    )
                    expected += size / speed
    assert gemm_time(spec, arm) == pytest.approx(expected / (100 * 4 * 3 * sum(sizes.values())))


def test_the_layer_policy_and_kept_blocks_are_bf16():
    sizes = weights(MODEL)
    mlp = sum(sizes[name] for name in ("gate", "up", "down")) / sum(sizes.values())
    spec = job(layer_policy="mlp_only", keep_first=1)
    assert gemm_time(spec, NVFP4) == pytest.approx(1.0 - 0.75 * mlp * 0.75)


def test_a_format_without_a_rate_is_refused():
    with pytest.raises(ValueError, match="f32"):
        rate("f32")
    assert {rate(name) for name in ("mxfp4", "nvfp4_no_rht")} == {GB200["fp4"]}
