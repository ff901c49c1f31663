"""The GPU benchmark at a size that a CPU does: its plain step trains what our bf16 step trains."""

import jax
import numpy as np
import pytest

from benchmarks.gpu_arithmetic import SIZES, ModelSize, main, model_of, step_of
from training.spec import Model

SMALL = ModelSize(
    model=Model(vocab_size=32, d_model=32, n_layers=1, n_heads=2, n_kv_heads=1, d_ff=64),
    batch=2,
    sequence=16,
)


def losses(name: str) -> list[float]:
    run = step_of(SMALL, name)
    return [float(run().rows[0, 0]) for _ in range(3)]


def test_the_sizes_are_what_their_names_say():
    assert [round(size.model.parameters / 1e6, -1) for size in SIZES.values()] == [0, 20, 150, 1240]
    assert SMALL.flops == 6 * SMALL.model.parameters * 32


def test_the_plain_step_trains_what_the_bf16_step_trains():
    expected = losses("bf16")
    np.testing.assert_allclose(losses("plain"), expected, rtol=2e-3)
    assert expected[2] < expected[0]
    assert losses("nvfp4") != expected
    # or its layer would not be the plain one
    assert model_of(SMALL, "plain").recipe_of(0, "query").quantized


def test_without_a_gpu_it_says_so(capsys, monkeypatch):
    if jax.devices()[0].platform == "gpu":
        pytest.skip("this machine has a GPU")
    monkeypatch.setattr("sys.argv", ["gpu_arithmetic.py"])
    assert main() == 2
    assert "expected an NVIDIA GPU" in capsys.readouterr().err
