"""Operations a token against published shares and a product that counts itself."""

import jax
import jax.numpy as jnp
import pytest

from training.flops import flops_per_token
from training.spec import Model


@pytest.mark.parametrize(("preset", "billions"), [("llama3-8b", 8.03), ("llama3-405b", 405.85)])
def test_large_models_cost_six_times_their_parameters_and_their_attention(preset, billions):
    model = Model(preset=preset)
    assert model.parameters == pytest.approx(billions * 1e9, rel=1e-3)
    at = flops_per_token(model, 8192)
    looked_up = model.vocab_size * model.d_model
    norms = (2 * model.n_layers + 1) * model.d_model
    assert at.total == 6 * (model.parameters - looked_up - norms) + 12 * model.n_layers * 8192 * model.d_model
    assert 0.8 < at.quantized / flops_per_token(model, 1).total < 1


def test_a_policy_moves_work_and_adds_none():
    model = Model()
    linears, mlp = flops_per_token(model, 128), flops_per_token(model, 128, "mlp_only")
    assert linears.total == mlp.total
    assert mlp.quantized == 6 * model.n_layers * 3 * model.d_model * model.d_ff < linears.quantized


def test_xla_counts_the_forward_products_alike():
    """One block's linear layers and logits, compiled: XLA's own count of a forward pass is a third of ours."""
    model = Model(vocab_size=64, d_model=32, n_layers=1, n_heads=2, n_kv_heads=2, d_ff=64)
    shapes = [(32, 32)] * 4 + [(32, 64)] * 2 + [(64, 32), (32, 64)]

    def forward(weights):
        return [jnp.ones((8, w.shape[0])) @ w for w in weights]

    counted = jax.jit(forward).lower([jnp.ones(shape) for shape in shapes]).compile().cost_analysis()["flops"]
    ours = flops_per_token(model, 1).total - 12 * model.d_model
    assert counted == pytest.approx(8 * ours / 3, rel=0.05)
