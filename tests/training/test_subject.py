"""What an analysis can take apart: the units in which two runs differ, what is off, and what is
refused with the way out.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import yaml
from pydantic import TypeAdapter

from parity_lab.training.subject import subject
from server.settings import CHECKOUT
from training.overrides import Override
from training.rules import SpecError
from training.spec import Data, JobSpec, Model, RunSpec, Schedule

SPEC = RunSpec(
    recipe="nvfp4",
    engine="emulated",
    model=Model(vocab_size=32, d_model=32, n_layers=2, n_heads=1, n_kv_heads=1, d_ff=32),
    data=Data(source="text", path="given", sequence_length=16, batch_size=2),
    schedule=Schedule(steps=100, warmup_steps=2),
    layer_policy="mlp_only",
    seed=0,
    replicate=0,
    devices=1,
)
FP8 = replace(SPEC, recipe="fp8_current")
FAULT = Override(recipe="mxfp4", blocks=(1,), projections=("down",))


def names(measured):
    return [unit.name for unit in measured.units]


def test_units_are_the_gemms_in_which_the_two_differ():
    planted = replace(SPEC, overrides=(FAULT,))
    assert names(subject(planted, SPEC, 60, 10)) == ["1.down.fprop", "1.down.dgrad", "1.down.wgrad"]
    assert len(subject(planted, FP8, 60, 10).units) == 18
    assert names(subject(planted, None, 60, 10)) == names(subject(SPEC, None, 60, 10))
    only_forward = replace(
        SPEC, overrides=(Override(recipe="bf16", gemms=("fprop",), blocks=(0,)),)
    )
    assert names(subject(only_forward, SPEC, 60, 10)) == [
        "0.gate.fprop",
        "0.up.fprop",
        "0.down.fprop",
    ]


@pytest.mark.parametrize("name", ["demo", "demo-quick"])
def test_the_demo_keeps_a_checkpoint_from_which_its_candidates_can_be_explained(name):
    content = yaml.safe_load((CHECKOUT / "examples" / f"{name}.yaml").read_text())["job"]
    job = TypeAdapter(JobSpec).validate_json(json.dumps(content))
    (step,) = job.keep_checkpoints
    for candidate in job.candidates:
        assert (
            len(subject(job.run_of(candidate, 0), job.run_of(job.baseline, 0), step, 100).units)
            == 27
        )


def test_a_unit_that_is_off_has_the_baselines_arithmetic():
    measured = subject(SPEC, FP8, 60, 10)
    assert measured.arithmetics[0].recipe == "bf16"
    assert (measured.without(measured.units) == measured.off).all()
    assert (measured.alone(measured.units) == measured.on).all()
    unit = measured.units[0]
    recipes = np.array([arithmetic.recipe for arithmetic in measured.arithmetics])
    assert recipes[measured.without([unit])[unit.place]] == "fp8_current"
    assert recipes[measured.alone([unit])[unit.place]] == "nvfp4"
    assert (measured.without([unit]) != measured.on).sum() == 1
    assert (subject(SPEC, None, 60, 10).off == 0).all()


def test_the_arithmetic_is_that_at_the_checkpoint():
    late = replace(
        SPEC,
        overrides=(
            Override(recipe="fp8_current", projections=("gate", "up", "down"), from_step=40),
        ),
    )
    with pytest.raises(SpecError, match="compute every GEMM alike"):
        subject(late, FP8, 60, 10)
    assert len(subject(late, FP8, 20, 10).units) == 18


@pytest.mark.parametrize(
    ("candidate", "baseline", "step", "steps", "field"),
    [
        (SPEC, FP8, 100, 1, "fork.step"),
        (SPEC, FP8, 0, 1, "fork.step"),
        (SPEC, FP8, 60, 41, "why.fork_steps"),
        (SPEC, FP8, 60, 0, "why.fork_steps"),
        (
            replace(SPEC, overrides=(Override(recipe="bf16", from_step=65),)),
            FP8,
            60,
            10,
            "why.fork_steps",
        ),
        (
            SPEC,
            replace(FP8, overrides=(Override(recipe="bf16", from_step=65),)),
            60,
            10,
            "why.fork_steps",
        ),
        (replace(SPEC, recipe="fp8_delayed"), FP8, 60, 10, "why.candidate"),
        (SPEC, replace(SPEC, recipe="fp8_delayed"), 60, 10, "why.against"),
        (SPEC, SPEC, 60, 10, "why.candidate"),
        (replace(SPEC, recipe="bf16"), FP8, 60, 10, "why.candidate"),
        (replace(SPEC, devices=2), FP8, 60, 10, "why.devices"),
    ],
)
def test_what_cannot_be_analysed_is_refused(candidate, baseline, step, steps, field):
    with pytest.raises(SpecError) as refused:
        subject(candidate, baseline, step, steps)
    assert refused.value.field == field
    assert refused.value.remedy or "before" in str(refused.value)


def test_other_engines_are_sent_to_arms_of_a_job():
    native = replace(
        SPEC,
        engine="transformer_engine",
        recipe="fp8_current",
        model=Model(d_model=128, n_heads=2, n_kv_heads=2, d_ff=256),
        data=Data(),
    )
    with pytest.raises(SpecError, match="ablation as an arm"):
        subject(native, None, 60, 10)
