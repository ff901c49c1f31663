"""The pair's job, its shortening, and the check that a run's record names the device."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tools.gpu_evidence.pair import DeviceError, check_devices, job_of, shorter
from tools.gpu_evidence.steps import STEPS
from training.spec import JobSpec, capability


@pytest.mark.parametrize("engine", ["emulated", "transformer_engine"])
@pytest.mark.parametrize("tokens", [None, Path("/prepared/tokens.npy")])
@pytest.mark.parametrize("small", [True, False])
def test_the_job_is_valid_and_has_two_seeds_of_each_arm(engine, tokens, small):
    job = TypeAdapter(JobSpec).validate_python(
        job_of(engine, ("fp8_current",), 4000, tokens, small=small)
    )
    assert [(arm.recipe, arm.replicates) for arm in job.arms] == [("bf16", 2), ("fp8_current", 2)]
    assert capability(job)[0] == {"emulated": "cpu", "transformer_engine": "sm90"}[engine]
    assert job.data.source == ("tokens" if tokens else "python_stdlib")
    assert not job.remat
    if not small:
        assert 19e6 < job.model.parameters < 26e6


def run(device_class, steps=100):
    return {"device_class": device_class, "steps": steps}


def test_runs_whose_records_name_one_gpu_are_evidence():
    check_devices([run("gpu:sm90"), run("gpu:sm90"), run(None, steps=0)], "gpu")


@pytest.mark.parametrize(
    "runs",
    [
        [],
        [run(None)],
        [run("cpu:x86_64:amx_bf16")],
        [run("gpu:sm90"), run("cpu:x86_64")],
        [run("gpu:sm90"), run("gpu:sm100")],
        [run("gpus")],
    ],
)
def test_a_run_whose_record_does_not_name_the_gpu_is_a_failure(runs):
    with pytest.raises(DeviceError, match="expected one gpu for all"):
        check_devices(runs, "gpu")


@given(st.sampled_from(STEPS), st.integers(2, 6), st.floats(0.1, 1000), st.floats(0, 2000))
def test_a_job_is_shortened_only_where_it_cannot_end(steps, runs, rate, left):
    chosen = shorter(steps, runs, rate, left)
    if chosen is None:
        assert steps * runs * 1.4 / rate + 45 <= left or steps == min(STEPS)
    else:
        assert chosen < steps
        assert steps * runs * 1.4 / rate + 45 > left
        assert chosen == min(STEPS) or chosen * runs * 1.4 / rate + 45 <= left
        assert all(
            count * runs * 1.4 / rate + 45 > left for count in STEPS if chosen < count <= steps
        )


def test_an_h200s_speed_needs_no_shorter_job():
    assert shorter(4000, 6, 1 / 0.0153, 13 * 60) is None
    assert shorter(4000, 6, 1 / 0.060, 13 * 60) == 1000
