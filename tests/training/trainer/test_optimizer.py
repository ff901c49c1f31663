"""AdamW against the published formulas in plain numpy."""

import jax.numpy as jnp
import numpy as np
import pytest

from training.spec import Schedule
from training.trainer.step import apply, initial_state, learning_rate, settings

SCHEDULE = Schedule(steps=100, learning_rate=0.01, warmup_steps=10, final_fraction=0.1, weight_decay=0.2, clip_norm=0.5)


def test_learning_rate_warms_up_and_decays_as_a_cosine():
    rates = [float(learning_rate(settings(SCHEDULE), jnp.int32(step))) for step in range(100)]
    assert rates[0] == pytest.approx(0.001)
    assert rates[9] == pytest.approx(0.01)
    assert rates[55] == pytest.approx(0.01 * (0.1 + 0.9 * 0.5 * (1 + np.cos(np.pi * 45 / 90))), rel=1e-5)
    assert rates[99] == pytest.approx(0.001, rel=0.01)
    assert np.argmax(rates) in (9, 10)


def test_three_steps_equal_the_plain_formula():
    random = np.random.default_rng(0)
    w = {"matrix": random.standard_normal((3, 2)).astype(np.float32), "gain": np.ones(3, np.float32)}
    parameters, state = {name: jnp.asarray(value) for name, value in w.items()}, None
    state = initial_state(parameters)
    m = {name: np.zeros_like(value, np.float64) for name, value in w.items()}
    v = {name: np.zeros_like(value, np.float64) for name, value in w.items()}
    plain = {name: value.astype(np.float64) for name, value in w.items()}
    for step in range(3):
        g = {name: random.standard_normal(value.shape).astype(np.float32) for name, value in w.items()}
        update = apply(settings(SCHEDULE), parameters, state, {name: jnp.asarray(value) for name, value in g.items()}, jnp.int32(step))
        norm = np.sqrt(sum(np.sum(value.astype(np.float64) ** 2) for value in g.values()))
        rate = 0.01 * (step + 1) / 10
        before = dict(plain)
        for name, value in g.items():
            clipped = value * min(1, 0.5 / norm)
            m[name] = 0.9 * m[name] + 0.1 * clipped
            v[name] = 0.95 * v[name] + 0.05 * clipped**2
            direction = m[name] / (1 - 0.9 ** (step + 1)) / (np.sqrt(v[name] / (1 - 0.95 ** (step + 1))) + 1e-8)
            plain[name] = plain[name] - rate * (direction + (0.2 * plain[name] if name == "matrix" else 0))
        parameters, state = update.parameters, update.state
        for name, moved_to in plain.items():
            np.testing.assert_allclose(np.asarray(parameters[name]), moved_to, rtol=2e-5, atol=1e-6)
        moved = np.sqrt(sum(np.sum((plain[name] - before[name]) ** 2) for name in plain))
        size = np.sqrt(sum(np.sum(plain[name] ** 2) for name in plain))
        expected = (rate, norm, min(norm, 0.5), size, moved)
        values = (update.learning_rate, update.grad_norm, update.clipped_grad_norm, update.param_norm, update.update_norm)
        np.testing.assert_allclose([float(value) for value in values], expected, rtol=1e-4)


def test_a_zero_gradient_is_no_division_by_zero():
    parameters = {"gain": jnp.ones(3)}
    update = apply(settings(SCHEDULE), parameters, initial_state(parameters), {"gain": jnp.zeros(3)}, jnp.int32(0))
    np.testing.assert_array_equal(np.asarray(update.parameters["gain"]), 1)
    assert float(update.clipped_grad_norm) == 0
