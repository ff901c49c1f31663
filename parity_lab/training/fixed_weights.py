"""Measurements on fixed weights: the held-out loss, and the weight's gradients, under any choice of
arithmetic for every GEMM.

What it answers: how much of the forward loss does each GEMM cost at once, and how far does each
move the gradient?

    losses      loss[u, b]  of choice u on batch b                                 the same
                weights and tokens: no run-to-run noise
    gradients   sums over seeds of g = dL/dW under choice u and r, its bf16 twin, on batch b:

        reference   <r, r>              dot        mean <g, r>          own    mean <g, g>
        error       mean <g - r, g - r> systematic the part of the error that does not average out
                    over seeds, unbiased:
                                        (|sum (g - r)|^2 - sum |g - r|^2) / (S (S - 1))

Sums are additive over layers and batches, so any ratio of them can be formed later
(`parity_lab.effects`).

The assumption that can fail: weights trained with a quantizer have adapted to it. What removing
it gains now is not what training without it from the start would have gained; the forward part is
an upper bound.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from parity_lab.training.menu import Choice
from parity_lab.training.menu_layer import menu_loss
from training.arithmetic import random_bits
from training.step_values import PROJECTIONS
from training.trainer.model import Decoder, Parameters
from training.trainer.step import State

Weights = list[dict[str, jax.Array]]
Batches = npt.NDArray[np.int32]


def losses(
    model: Decoder, state: State, batches: Batches, choices: Iterable[Choice]
) -> Iterator[npt.NDArray[np.float64]]:
    """For each choice the mean cross entropy (batches,) in nats of these weights; batches: int32
    (batches, sequences, length + 1).
    """
    tokens = jnp.asarray(batches)
    for choice in choices:
        yield np.asarray(
            _losses(model, state.parameters, state.scales.scale, tokens, jnp.asarray(choice)),
            np.float64,
        )


def gradients(
    model: Decoder,
    state: State,
    batches: Batches,
    choices: Sequence[Choice],
    seeds: Sequence[int],
    z_loss: float,
) -> Iterator[npt.NDArray[np.float64]]:
    """For each batch the sums (choices, blocks, projections, SUMS) over the weight of each layer.

    seeds: uint32 numbers, at least two, from which stochastic rounding draws. The program is
    compiled once; the loops are the host's.
    """
    if len(seeds) < 2:
        raise ValueError(
            f"{len(seeds)} seed, expected at least 2: the part of the error that averages out is "
            "seen between seeds only"
        )
    weight = jnp.float32(z_loss)
    for tokens in jnp.asarray(batches):
        gradient = partial(_gradient, model, state.parameters, state.scales.scale, tokens)
        reference = gradient(jnp.zeros_like(choices[0]), random_bits.key(), weight)
        sums = []
        for choice in choices:
            total = None
            for seed in seeds:
                total = _added(
                    total,
                    gradient(jnp.asarray(choice), random_bits.key(run=(0, seed)), weight),
                    reference,
                )
            sums.append(
                np.asarray(_mean_sums(total, reference, jnp.float32(len(seeds))), np.float64)
            )
        yield np.stack(sums)


@partial(jax.jit, static_argnums=0)
def _losses(
    model: Decoder, parameters: Parameters, scale: jax.Array, batches: jax.Array, choice: jax.Array
) -> jax.Array:
    def batch_loss(tokens: jax.Array) -> jax.Array:
        return menu_loss(
            model, parameters, tokens, random_bits.key(), scale, choice, jnp.float32(0)
        )[1]

    result: jax.Array = jax.lax.map(batch_loss, batches)
    return result


@partial(jax.jit, static_argnums=0)
def _gradient(
    model: Decoder,
    parameters: Parameters,
    scale: jax.Array,
    tokens: jax.Array,
    choice: jax.Array,
    key: random_bits.Key,
    z_loss: jax.Array,
) -> Weights:
    """The gradient of the loss for the weights of the linear layers."""
    whole = jax.grad(
        lambda weights: menu_loss(model, weights, tokens, key, scale, choice, z_loss)[0]
    )(parameters)
    return [{name: block[name] for name in PROJECTIONS} for block in whole["blocks"]]


class _Total(NamedTuple):
    """Over seeds: the summed error, a tree like the weights, and (blocks, projections) each: dot,
    square and squared error.
    """

    error: Weights
    dot: jax.Array
    square: jax.Array
    squared: jax.Array


@jax.jit
def _added(total: _Total | None, gradient: Weights, reference: Weights) -> _Total:
    error = jax.tree.map(jnp.subtract, gradient, reference)
    new = _Total(error, _dots(gradient, reference), _dots(gradient, gradient), _dots(error, error))
    return new if total is None else jax.tree.map(jnp.add, total, new)


@jax.jit
def _mean_sums(total: _Total, reference: Weights, count: jax.Array) -> jax.Array:
    systematic = (_dots(total.error, total.error) - total.squared) / (count * (count - 1))
    return jnp.stack(
        [
            _dots(reference, reference),
            total.dot / count,
            total.square / count,
            total.squared / count,
            systematic,
        ],
        axis=-1,
    )


def _dots(left: Weights, right: Weights) -> jax.Array:
    """Inner products (blocks, projections) of two trees of weights."""
    return jnp.stack(
        [
            jnp.stack([jnp.sum(a[name] * b[name]) for name in PROJECTIONS])
            for a, b in zip(left, right, strict=True)
        ]
    )
