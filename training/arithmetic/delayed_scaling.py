"""Delayed scaling: an FP8 tensor is scaled by the largest magnitudes of the last steps.

What it answers: by which scale is x of this layer multiplied at step t, and what is kept for step
t + 1?

    quantize with the scale S(t), saturating;   history[0] = amax(t);   A = max(history)
    S(t + 1) = largest / A / 2^margin, kept as it is where A is 0 or not finite;   history rolls
      by one and history[0] = 0

`most_recent` takes A = amax(t) instead. So the scale of step t comes from earlier steps, and step
0 has scale 1. The scale is known before the tensor is computed, which saves a pass over it in
hardware. The assumption that can fail: a tensor's largest magnitude changes slowly; a tensor that
outgrows its history, and the room of 2^margin, saturates.

The state is two arrays for the whole model, (block, projection, operand) and the same with a last
axis for the history. They are stored next to the parameters and are not parameters, so the
optimizer, clipping and averaging leave them unchanged.

Source: Transformer Engine 2.20.2, DelayedScaling (margin, amax_history_len, amax_compute_algo)
and jax/quantize/quantizer.py; the defaults are Transformer Engine's.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from training.arithmetic.formats import E4M3, E5M2, Format
from training.arithmetic.quantize import tensor_scale
from training.frozen import frozen

HISTORY_LENGTH = 1024
OPERANDS = ("x", "kernel", "grad")
FORMATS = (E4M3, E4M3, E5M2)


@frozen
class DelayedScaling:
    """How the next scale follows from the amaxes, and the formats of x, kernel and gradient."""

    margin: int = 0
    history_length: int = HISTORY_LENGTH
    most_recent: bool = False
    formats: tuple[Format, ...] = FORMATS


class Scales(NamedTuple):
    """Encode scales (blocks, projections, 3) and amax histories (blocks, projections, 3, length),
    float32.
    """

    scale: jax.Array
    history: jax.Array


DEFAULT = DelayedScaling()


def initial_scales(blocks: int, projections: int, length: int) -> Scales:
    """Scale 1 and an empty history; a length of 0 keeps every scale at 1 for good."""
    shape = (blocks, projections, len(OPERANDS))
    return Scales(jnp.ones(shape, jnp.float32), jnp.zeros((*shape, length), jnp.float32))


def update(scales: Scales, amax: jax.Array, rule: DelayedScaling = DEFAULT) -> Scales:
    """Returns the state after a step whose tensors had these amaxes (..., operands); `rule` has one
    format per operand.
    """
    if not scales.history.shape[-1]:
        return scales
    history = scales.history.at[..., 0].set(amax)
    largest_seen = amax if rule.most_recent else jnp.max(history, axis=-1)
    usable = (largest_seen > 0) & jnp.isfinite(largest_seen)
    fresh = jnp.stack(
        [tensor_scale(largest_seen[..., i], fmt) for i, fmt in enumerate(rule.formats)], axis=-1
    )
    if rule.margin:
        fresh = fresh * np.float32(2.0**-rule.margin)
    return Scales(
        jnp.where(usable, fresh, scales.scale),
        jnp.roll(history, -1, axis=-1).at[..., 0].set(np.float32(0)),
    )
