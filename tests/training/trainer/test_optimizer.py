"""AdamW, Muon and their schedules against the published formulas in plain numpy."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from training.spec import Schedule
from training.trainer.optimizer import apply, initial_state, learning_rate, settings

SCHEDULE = Schedule(
    steps=100,
    learning_rate=0.01,
    warmup_steps=10,
    final_fraction=0.1,
    weight_decay=0.2,
    clip_norm=0.5,
)


def test_learning_rate_warms_up_and_decays_as_a_cosine():
    rates = [float(learning_rate(settings(SCHEDULE), jnp.int32(step))) for step in range(100)]
    assert rates[0] == pytest.approx(0.001)
    assert rates[9] == pytest.approx(0.01)
    assert rates[55] == pytest.approx(
        0.01 * (0.1 + 0.9 * 0.5 * (1 + np.cos(np.pi * 45 / 90))), rel=1e-5
    )
    assert rates[99] == pytest.approx(0.001, rel=0.01)
    assert np.argmax(rates) in (9, 10)


def test_three_steps_equal_the_plain_formula():
    random = np.random.default_rng(0)
    w = {
        "matrix": random.standard_normal((3, 2)).astype(np.float32),
        "mlp_norm": np.ones(3, np.float32),
    }
    parameters, state = {name: jnp.asarray(value) for name, value in w.items()}, None
    state = initial_state(parameters)
    moment = {name: np.zeros_like(value, np.float64) for name, value in w.items()}
    v = {name: np.zeros_like(value, np.float64) for name, value in w.items()}
    plain = {name: value.astype(np.float64) for name, value in w.items()}
    for step in range(3):
        g = {
            name: random.standard_normal(value.shape).astype(np.float32)
            for name, value in w.items()
        }
        update = apply(
            settings(SCHEDULE),
            parameters,
            state,
            {name: jnp.asarray(value) for name, value in g.items()},
            jnp.int32(step),
        )
        norm = np.sqrt(sum(np.sum(value.astype(np.float64) ** 2) for value in g.values()))
        rate = 0.01 * (step + 1) / 10
        before = dict(plain)
        for name, value in g.items():
            clipped = value * min(1, 0.5 / norm)
            moment[name] = 0.9 * moment[name] + 0.1 * clipped
            v[name] = 0.95 * v[name] + 0.05 * clipped**2
            direction = (
                moment[name]
                / (1 - 0.9 ** (step + 1))
                / (np.sqrt(v[name] / (1 - 0.95 ** (step + 1))) + 1e-8)
            )
            plain[name] = plain[name] - rate * (
                direction + (0.2 * plain[name] if name == "matrix" else 0)
            )
        parameters, state = update.parameters, update.state
        for name, moved_to in plain.items():
            np.testing.assert_allclose(np.asarray(parameters[name]), moved_to, rtol=2e-5, atol=1e-6)
        moved = np.sqrt(sum(np.sum((plain[name] - before[name]) ** 2) for name in plain))
        size = np.sqrt(sum(np.sum(plain[name] ** 2) for name in plain))
        expected = (rate, norm, min(norm, 0.5), size, moved)
        values = (
            update.learning_rate,
            update.grad_norm,
            update.clipped_grad_norm,
            update.param_norm,
            update.update_norm,
        )
        np.testing.assert_allclose([float(value) for value in values], expected, rtol=1e-4)


def test_a_zero_gradient_is_no_division_by_zero():
    parameters = {"mlp_norm": jnp.ones(3)}
    update = apply(
        settings(SCHEDULE),
        parameters,
        initial_state(parameters),
        {"mlp_norm": jnp.zeros(3)},
        jnp.int32(0),
    )
    np.testing.assert_array_equal(np.asarray(update.parameters["mlp_norm"]), 1)
    assert float(update.clipped_grad_norm) == 0


@pytest.mark.parametrize("decay_steps", [1, 20, 89])
def test_learning_rate_stays_at_its_peak_and_falls_in_a_line(decay_steps):
    stable = replace(SCHEDULE, decay_steps=decay_steps)
    rates = [float(learning_rate(settings(stable), jnp.int32(step))) for step in range(100)]
    falls = 100 - decay_steps
    expected = [
        min(1, (t + 1) / 10) * (1 if t < falls else 1 - 0.9 * (t - falls) / decay_steps) * 0.01
        for t in range(100)
    ]
    np.testing.assert_allclose(rates, expected, rtol=1e-5)


def orthogonal(x):
    """Five Newton-Schulz steps in float64."""
    x = x / (np.sqrt(np.sum(x**2)) + 1e-8)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if tall else x


def test_four_steps_of_muon_equal_the_plain_formula():
    random = np.random.default_rng(1)
    blocks = {"query": (4, 6), "down": (9, 4), "mlp_norm": (4,)}
    shapes = {"embed": (7, 4), "blocks": blocks}
    draw = partial(
        jax.tree.map,
        lambda shape: random.standard_normal(size=shape, dtype=np.float32),
        shapes,
        is_leaf=lambda x: isinstance(x, tuple),
    )
    parameters = jax.device_put(draw())
    state, adam = initial_state(parameters, "muon"), initial_state(parameters)
    momentum = {name: np.zeros(blocks[name]) for name in ("query", "down")}
    for step in range(4):
        gradient = draw()
        before = jax.tree.map(np.asarray, parameters)
        update = apply(
            settings(SCHEDULE), parameters, state, jax.device_put(gradient), jnp.int32(step)
        )
        adam_update = apply(
            settings(SCHEDULE), parameters, adam, jax.device_put(gradient), jnp.int32(step)
        )
        shrink = float(update.clipped_grad_norm) / float(update.grad_norm)
        for name, last_momentum in momentum.items():
            g, t = shrink * gradient["blocks"][name].astype(np.float64), step + 1
            momentum[name] = 0.95 * last_momentum + 0.05 * g
            nesterov = 0.95 * momentum[name] / (1 - 0.95 ** (t + 1)) + 0.05 * g / (1 - 0.95**t)
            direction = 0.2 * np.sqrt(max(g.shape)) * orthogonal(nesterov)
            w = before["blocks"][name]
            expected = w - float(update.learning_rate) * (direction + 0.2 * w)
            np.testing.assert_allclose(
                np.asarray(update.parameters["blocks"][name]), expected, atol=2e-6, err_msg=name
            )
            # near that of AdamW, whatever the shape
            assert 0.1 < np.sqrt(np.mean(direction**2)) < 0.3
        np.testing.assert_array_equal(update.parameters["embed"], adam_update.parameters["embed"])
        np.testing.assert_array_equal(
            update.parameters["blocks"]["mlp_norm"], adam_update.parameters["blocks"]["mlp_norm"]
        )
        parameters, state, adam = update.parameters, update.state, adam_update.state


def test_muon_of_a_zero_gradient_moves_by_decay_alone():
    parameters = {"query": jnp.ones((4, 4))}
    update = apply(
        settings(SCHEDULE),
        parameters,
        initial_state(parameters, "muon"),
        {"query": jnp.zeros((4, 4))},
        jnp.int32(0),
    )
    np.testing.assert_allclose(np.asarray(update.parameters["query"]), 1 - 0.001 * 0.2, rtol=1e-6)


@pytest.mark.parametrize("name", ["query", "down"])
def test_muon_takes_each_matrix_of_a_stack_by_itself(name):
    """As the weights of all blocks are held: one array, block by block."""
    random = np.random.default_rng(2)
    weight, gradient = (random.standard_normal((3, 4, 6), dtype=np.float32) for _ in range(2))
    parameters = {name: jnp.asarray(weight)}
    update = apply(
        settings(SCHEDULE),
        parameters,
        initial_state(parameters, "muon"),
        {name: jnp.asarray(gradient)},
        jnp.int32(0),
    )
    moved = (weight * (1 - 0.2 * float(update.learning_rate))) - np.asarray(update.parameters[name])
    for block_updates, g in zip(moved, gradient.astype(np.float64), strict=True):
        direction = 0.2 * np.sqrt(6) * orthogonal(g)
        np.testing.assert_allclose(
            block_updates, float(update.learning_rate) * direction, atol=2e-6, err_msg=name
        )
