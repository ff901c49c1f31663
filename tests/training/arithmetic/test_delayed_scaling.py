"""Delayed scaling beside a plain Python trace of its rule; TE's own trace is in test_vectors."""

import jax.numpy as jnp
import numpy as np
import pytest

from training.arithmetic.delayed_scaling import DelayedScaling, initial_scales, update
from training.arithmetic.formats import E4M3


@pytest.mark.parametrize("most_recent", [False, True])
def test_scales_follow_the_amaxes_of_the_steps_before(most_recent):
    amaxes = [3.5, 28.0, 1.25, 0.0, 330.0, 2.0, 0.0, float("inf"), 1.0, 1.0, 1.0, 1.0]
    scales = initial_scales(1, 1, 4)
    remembered, expected = [], 1.0
    for amax in amaxes:
        scales = update(scales, jnp.full((1, 1, 3), amax), DelayedScaling(most_recent=most_recent))
        remembered = [*remembered, amax][-4:]
        largest = amax if most_recent else max(remembered)
        remembered = remembered[-3:]
        if 0 < largest < float("inf"):
            expected = largest
        np.testing.assert_allclose(
            np.asarray(scales.scale)[0, 0],
            np.array([448, 448, 57344]) / expected if expected else 1,
            rtol=1e-6,
        )


def test_without_a_history_every_scale_stays_one():
    scales = update(initial_scales(2, 7, 0), jnp.full((2, 7, 3), 9.0))
    np.testing.assert_array_equal(np.asarray(scales.scale), 1)


def test_a_silent_first_step_keeps_scale_one():
    scales = update(
        initial_scales(1, 1, 4), jnp.zeros((1, 1, 3)), DelayedScaling(formats=(E4M3, E4M3, E4M3))
    )
    np.testing.assert_array_equal(np.asarray(scales.scale), 1)


@pytest.mark.parametrize("margin", [1, 3])
def test_a_margin_leaves_room_above_the_history(margin):
    amax = jnp.full((1, 1, 3), 3.5)
    plain, roomy = (
        update(initial_scales(1, 1, 4), amax, DelayedScaling(margin=room)) for room in (0, margin)
    )
    np.testing.assert_array_equal(np.asarray(roomy.scale) * 2**margin, np.asarray(plain.scale))
    np.testing.assert_array_equal(np.asarray(roomy.history), np.asarray(plain.history))


def test_a_history_of_one_step_is_the_most_recent_amax():
    short, recent = initial_scales(1, 1, 1), initial_scales(1, 1, 1024)
    for amax in (8.0, 2.0, 0.0, 3.0):
        short = update(short, jnp.full((1, 1, 3), amax), DelayedScaling(history_length=1))
        recent = update(recent, jnp.full((1, 1, 3), amax), DelayedScaling(most_recent=True))
        np.testing.assert_array_equal(np.asarray(short.scale), np.asarray(recent.scale))
