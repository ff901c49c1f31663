"""Profiles: the shares of a made trace, and a real trace of real steps on a CPU."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from training.step_values import StepStats
from training.trainer.profiling import (
    COLUMNS,
    Tracing,
    device_shares,
    newest,
    peak_memory_bytes,
    profiled,
)

STEP = StepStats(
    step=0,
    loss=1.0,
    lm_loss=1.0,
    learning_rate=1e-3,
    grad_norm=1.0,
    clipped_grad_norm=1.0,
    param_norm=1.0,
    update_norm=1.0,
    tokens=8,
    step_seconds=2e-6,
    data_wait_seconds=5e-7,
    nonfinite_inputs=0.0,
    layer_grad_norms=(),
)


def trace(*events, process="/device:GPU:0", lane="Stream #16(Compute)"):
    """A trace of one device; events are (name, start, duration)."""
    names = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": process}},
        {"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": lane}},
        {"ph": "M", "pid": 1, "tid": 3, "name": "thread_name", "args": {"name": "XLA Modules"}},
        {"ph": "M", "pid": 9, "name": "process_name", "args": {"name": "/host:CPU"}},
        {"ph": "M", "pid": 9, "tid": 1, "name": "thread_name", "args": {"name": "python"}},
        {"ph": "X", "pid": 9, "tid": 1, "name": "all-reduce", "ts": 0, "dur": 1000},
        {"ph": "X", "pid": 1, "tid": 3, "name": "jit_block", "ts": 0, "dur": 1000},
    ]
    return {
        "traceEvents": [
            *names,
            *({"ph": "X", "pid": 1, "tid": 2, "name": n, "ts": t, "dur": d} for n, t, d in events),
        ]
    }


def test_a_collective_counts_where_nothing_computes():
    gemm, reduce = ("nvjet_gemm", 0, 60), ("ncclDevKernel_AllReduce_Sum_f32", 40, 40)
    assert device_shares(trace(gemm, reduce, ("fusion", 90, 10))) == {
        "compute_share": pytest.approx(0.7),
        "communication_share": pytest.approx(0.2),
        "idle_share": pytest.approx(0.1),
    }
    on_cpu = trace(
        ("ynn_fusion", 0, 50),
        ("end: ynn_fusion", 0, 100),
        ("ThunkExecutor::Execute", 0, 100),
        ("dot", 75, 25),
    )
    on_cpu["traceEvents"][0]["args"]["name"], on_cpu["traceEvents"][1]["args"]["name"] = (
        "/host:CPU",
        "tf_XLAPjRtCpuClient/7",
    )
    assert device_shares(on_cpu)["compute_share"] == pytest.approx(0.75)
    assert all(math.isnan(value) for value in device_shares({"traceEvents": []}).values())


def test_a_real_trace_of_some_steps(tmp_path, monkeypatch):
    # these steps are done when they are told
    monkeypatch.setattr("training.trainer.profiling._LEAST_SECONDS", 0.0)

    @jax.jit
    def work(x):
        return jnp.sin(x @ x)

    def steps():
        x = jnp.ones((300, 300), jnp.float32)
        for number in range(6):
            x = work(x).block_until_ready()
            yield replace(STEP, step=number)

    heard = []
    stats = list(
        profiled(
            steps(),
            Tracing(folder=tmp_path / "profile", first=2, steps=3),
            lambda step, values: heard.append((step, values)),
        )
    )
    assert [step.step for step in stats] == list(range(6))
    assert [step for step, _ in heard] == [4, 5]
    values = heard[0][1]
    assert set(values) == set(COLUMNS)
    assert values["traced_steps"] == 3
    assert values["data_wait_share"] == pytest.approx(0.25)
    assert 0 < values["compute_share"] <= 1
    assert values["communication_share"] == 0
    assert values["compute_share"] + values["idle_share"] == pytest.approx(1)
    assert values["compile_seconds"] > 0
    assert 1 << 20 < values["peak_memory_bytes"] <= peak_memory_bytes()
    assert newest(tmp_path / "profile")["traceEvents"]


def test_without_a_trace_there_are_no_shares_and_a_broken_run_ends_its_trace(tmp_path):
    heard = []
    list(
        profiled(
            [STEP], Tracing(folder=tmp_path), lambda step, values: heard.append((step, values))
        )
    )
    ((step, values),) = heard
    assert step == 0
    assert math.isnan(values["compute_share"])
    assert values["peak_memory_bytes"] > 0

    def breaks():
        yield STEP
        raise ValueError("broken")

    for _ in range(2):  # a second trace could not begin while the first runs
        with pytest.raises(ValueError, match="broken"):
            list(
                profiled(
                    breaks(),
                    Tracing(folder=tmp_path / "p", first=1, steps=5),
                    lambda *_: heard.append(None),
                )
            )
    assert len(heard) == 1


def test_a_trace_that_shows_no_device_has_all_three_shares_and_none_is_a_number():
    shares = device_shares({"traceEvents": []})
    assert shares.keys() == device_shares(trace(("nvjet_gemm", 0, 60))).keys()
    assert all(math.isnan(share) for share in shares.values())


def test_a_run_without_a_step_reports_no_profile(tmp_path):
    calls = []
    assert (
        list(profiled([], Tracing(folder=tmp_path), lambda *arguments: calls.append(arguments)))
        == []
    )
    assert calls == []
