"""The counting of the GPU benchmark, and its step at a size that a CPU does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.gpu_arithmetic import Stack, main, parameters, step
from training.arithmetic.recipes import linear_recipe

SMALL = Stack(layers=1, width=32, hidden=64, tokens=32)


def test_flops_and_bytes_of_one_block():
    assert SMALL.flops == 3 * 3 * 2 * 32 * 32 * 64
    plain = 3 * 3 * 2 * (32 * 32 + 32 * 64 + 32 * 64)
    assert SMALL.least_bytes(linear_recipe("bf16", fast_bf16=True)) == plain
    assert SMALL.least_bytes(linear_recipe("nvfp4", fast_bf16=True)) == plain + 3 * 2 * 2 * 2 * (32 * 32 + 32 * 64 + 32 * 64)
    assert 0.75e9 < sum(a * b for a, b in Stack().linears) < 0.9e9  # the MLPs of a model of the 1 B class


def test_the_step_gives_a_gradient_for_every_weight():
    weights, x = parameters(SMALL), jnp.ones((32, 32), jnp.bfloat16)
    loss, (gradients, _) = step(SMALL, linear_recipe("nvfp4", fast_bf16=True))(weights, x)
    assert np.isfinite(float(loss))
    assert [g.shape for g in gradients] == [w.shape for w in weights]
    assert all(float(jnp.max(jnp.abs(g.astype(jnp.float32)))) > 0 for g in gradients)


def test_without_a_gpu_it_says_so(capsys, monkeypatch):
    if jax.devices()[0].platform == "gpu":
        pytest.skip("this machine has a GPU")
    monkeypatch.setattr("sys.argv", ["gpu_arithmetic.py"])
    assert main() == 2
    assert "expected an NVIDIA GPU" in capsys.readouterr().err
