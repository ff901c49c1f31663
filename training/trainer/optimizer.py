"""AdamW with warm-up and cosine decay; its settings are run-time arguments.

What it answers: how do gradients change the parameters at step t?

    lr(t)  = peak * min(1, (t + 1) / warm-up) * (f + (1 - f) (1 + cos(pi p)) / 2),  p = (t - warm-up) / (steps - warm-up) in [0, 1]
    g      = gradient * min(1, clip / |gradient|)
    w     -= lr * (adam(g; beta1, beta2, 1e-8) + decay * w)      decay for matrices only, not for norms

The settings are arguments of the compiled step, not constants in it, so that all runs of one recipe and shape share
one compiled program. Source: Loshchilov and Hutter, arXiv 1711.05101; the algebra is optax's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from training.spec import Schedule

_TINY = float(np.finfo(np.float32).tiny)


class Settings(NamedTuple):
    """A schedule as float32 scalars, ready to be an argument of a jitted function."""

    steps: np.float32
    learning_rate: np.float32
    warmup_steps: np.float32
    final_fraction: np.float32
    beta1: np.float32
    beta2: np.float32
    weight_decay: np.float32
    clip_norm: np.float32
    z_loss: np.float32


class Update(NamedTuple):
    """New parameters and state, and the float32 scalars that describe the step."""

    parameters: Any
    state: Any
    learning_rate: jax.Array
    grad_norm: jax.Array
    clipped_grad_norm: jax.Array
    param_norm: jax.Array
    update_norm: jax.Array


def settings(schedule: Schedule) -> Settings:
    """Returns a schedule's numbers as arguments of the compiled step."""
    return Settings(*(np.float32(getattr(schedule, name)) for name in Settings._fields))


def learning_rate(settings: Settings, step: jax.Array) -> jax.Array:
    """Learning rate (float32 scalar) of the 0-based step (int32 scalar)."""
    t = step.astype(jnp.float32)
    warm = jnp.minimum(1.0, (t + 1) / jnp.maximum(settings.warmup_steps, 1.0))
    progress = jnp.clip((t - settings.warmup_steps) / jnp.maximum(settings.steps - settings.warmup_steps, 1.0), 0.0, 1.0)
    cosine = settings.final_fraction + (1 - settings.final_fraction) * 0.5 * (1 + jnp.cos(np.float32(np.pi) * progress))
    return settings.learning_rate * warm * cosine


def initial_state(parameters: Any) -> Any:
    """Returns Adam's two moments and its counter at step 0, for a tree of parameters."""
    return optax.scale_by_adam().init(parameters)


def apply(settings: Settings, parameters: Any, state: Any, gradient: Any, step: jax.Array) -> Update:
    """One AdamW step; all trees have the shape of `parameters`."""
    grad_norm = optax.tree.norm(gradient)
    shrink = jnp.minimum(1.0, settings.clip_norm / jnp.maximum(grad_norm, _TINY))
    clipped = jax.tree.map(lambda g: g * shrink, gradient)
    adam = optax.scale_by_adam(b1=settings.beta1, b2=settings.beta2, eps=1e-8)
    with jax.numpy_dtype_promotion("standard"):  # optax raises float32 to an int32 count
        direction, state = adam.update(clipped, state, parameters)
    rate = learning_rate(settings, step)

    def change(d: jax.Array, w: jax.Array) -> jax.Array:
        return -rate * (d + settings.weight_decay * w if w.ndim > 1 else d)

    updates = jax.tree.map(change, direction, parameters)
    parameters = jax.tree.map(jnp.add, parameters, updates)
    return Update(parameters, state, rate, grad_norm, grad_norm * shrink, optax.tree.norm(parameters), optax.tree.norm(updates))
