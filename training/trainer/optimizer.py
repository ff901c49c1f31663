"""AdamW or Muon, with warm-up and then cosine decay or a stable phase; the settings are run-time
arguments.

What it answers: how do gradients change the parameters at step t?

    lr(t)  = peak * min(1, (t + 1) / warm-up) * (f + (1 - f) (1 + cos(pi p)) / 2),  p = (t -
           warm-up) / (steps - warm-up) in [0, 1]
    g      = gradient * min(1, clip / |gradient|)
    w     -= lr * (adam(g; beta1, beta2, 1e-8) + decay * w)      decay for matrices only, not for
          norms

With `decay_steps` d the cosine gives way to warm-up, stable, decay:  1 - (1 - f) max(0, (t -
  (steps - d)) / d).

Muon takes, for the weights of linear layers, another direction than adam's:

    m = 0.95 m + 0.05 g,   n = 0.95 m' + 0.05 g'     (bias-corrected: Nesterov's momentum)
    direction = 0.2 sqrt(max(inputs, outputs)) N(n),  N: five Newton-Schulz steps towards U V^T of
      n = U S V^T

Its root mean square is then near that of AdamW's, so that one learning rate serves both
(Moonlight, arXiv 2502.16982). Embeddings and norms stay with AdamW. N is computed in float32
products of the device (on a GPU in TF32, XLA's default).

The settings are arguments of the compiled step, not constants in it, so that all runs of one
recipe and shape share one compiled program; only the optimizer is compiled in, and the state says
which it is. Source: Loshchilov and Hutter, arXiv 1711.05101; K. Jordan,
https://kellerjordan.github.io/posts/muon; Haegele et al., arXiv 2405.18392, for the schedule; the
algebra is optax's.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from training.spec import Optimizer, Schedule
from training.step_values import PROJECTIONS

_TINY = float(np.finfo(np.float32).tiny)
_MUON_MOMENTUM, _MUON_RMS = 0.95, 0.2


class OptimizerSettings(NamedTuple):
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
    decay_steps: np.float32


class Update(NamedTuple):
    """New parameters and state, and the float32 scalars that describe the step."""

    parameters: Any
    state: Any
    learning_rate: jax.Array
    grad_norm: jax.Array
    clipped_grad_norm: jax.Array
    param_norm: jax.Array
    update_norm: jax.Array


def settings(schedule: Schedule) -> OptimizerSettings:
    """Returns a schedule's numbers as arguments of the compiled step."""
    return OptimizerSettings(
        *(np.float32(getattr(schedule, name)) for name in OptimizerSettings._fields)
    )


def learning_rate(settings: OptimizerSettings, step: jax.Array) -> jax.Array:
    """Learning rate (float32 scalar) of the 0-based step (int32 scalar)."""
    t = step.astype(jnp.float32)
    warm = jnp.minimum(1.0, (t + 1) / jnp.maximum(settings.warmup_steps, 1.0))
    progress = jnp.clip(
        (t - settings.warmup_steps) / jnp.maximum(settings.steps - settings.warmup_steps, 1.0),
        0.0,
        1.0,
    )
    cosine = settings.final_fraction + (1 - settings.final_fraction) * 0.5 * (
        1 + jnp.cos(np.float32(np.pi) * progress)
    )
    fallen = jnp.clip(
        (t - (settings.steps - settings.decay_steps)) / jnp.maximum(settings.decay_steps, 1.0),
        0.0,
        1.0,
    )
    line = 1 - (1 - settings.final_fraction) * fallen
    return settings.learning_rate * warm * jnp.where(settings.decay_steps > 0, line, cosine)


def initial_state(parameters: Any, optimizer: Optimizer = "adamw") -> Any:
    """Returns the optimizer's moments and counters at step 0, for a tree of parameters."""
    adam = optax.scale_by_adam()
    return (adam if optimizer == "adamw" else _muon(adam)).init(parameters)


def _muon(adam: optax.GradientTransformation) -> optax.GradientTransformation:
    """Muon's direction for the weights of linear layers, `adam`'s for everything else."""

    def matrices(tree: Any) -> Any:
        return jax.tree.map(
            lambda w: optax.contrib.MuonDimensionNumbers(w.ndim - 2, w.ndim - 1), tree
        )

    def labels(tree: Any) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda path, _: "muon" if path[-1].key in PROJECTIONS else "adam", tree
        )

    muon = optax.chain(
        optax.contrib.scale_by_muon(beta=_MUON_MOMENTUM, weight_dimension_numbers=matrices),
        optax.stateless_with_tree_map(
            lambda d, _: d * np.float32(_MUON_RMS * max(d.shape[-2:]) ** 0.5)
        ),
    )
    return optax.partition({"muon": muon, "adam": adam}, labels)


def apply(
    settings: OptimizerSettings, parameters: Any, state: Any, gradient: Any, step: jax.Array
) -> Update:
    """One step of the optimizer that `state` belongs to; all trees have the shape of
    `parameters`.
    """
    grad_norm = optax.tree.norm(gradient)
    shrink = jnp.minimum(1.0, settings.clip_norm / jnp.maximum(grad_norm, _TINY))
    clipped = jax.tree.map(lambda g: g * shrink, gradient)
    adam = optax.scale_by_adam(b1=settings.beta1, b2=settings.beta2, eps=1e-8)
    optimizer = adam if isinstance(state, optax.ScaleByAdamState) else _muon(adam)
    with jax.numpy_dtype_promotion("standard"):  # optax raises float32 to an int32 count
        direction, state = optimizer.update(clipped, state, parameters)
    rate = learning_rate(settings, step)

    def change(path: Any, d: jax.Array, w: jax.Array) -> jax.Array:
        return -rate * (d if path[-1].key.endswith("norm") else d + settings.weight_decay * w)

    updates = jax.tree_util.tree_map_with_path(change, direction, parameters)
    parameters = jax.tree.map(jnp.add, parameters, updates)
    return Update(
        parameters,
        state,
        rate,
        grad_norm,
        grad_norm * shrink,
        optax.tree.norm(parameters),
        optax.tree.norm(updates),
    )
