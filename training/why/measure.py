"""Measurements on fixed weights: the held-out loss, and the weight's gradients, under any choice of arithmetic for every GEMM.

What it answers: how much of the forward loss does each unit cost at once, and how far does each move the gradient?

    losses      loss[u, b]  of choice u on batch b                                 the same weights and tokens: no run noise
    gradients   sums over seeds of g = dL/dW under choice u and r, its bf16 twin, on batch b:

        reference   <r, r>              dot        mean <g, r>          own    mean <g, g>
        error       mean <g - r, g - r> systematic the part of the error that does not average out over seeds, unbiased:
                                        (|sum (g - r)|^2 - sum |g - r|^2) / (S (S - 1))

    forks       the losses of the steps after a checkpoint, trained with choice u

Sums are additive over layers and batches, so any ratio of them can be formed later (`parity.why.gradients`).

The assumption that can fail: weights trained with a quantizer have adapted to it. What removing it gains now is not what training without
it from the start would have gained; the forward part is an upper bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from training.arithmetic import random_bits
from training.arithmetic.recipes import layer_recipe, linear_recipe
from training.segments import Arithmetic
from training.spec import Model
from training.statistics import PROJECTIONS
from training.trainer import optimizer
from training.trainer.model import Decoder, Parameters, loss_and_lm_loss
from training.trainer.run import Run
from training.trainer.step import Inputs, State
from training.why.menu import Menu, MenuChannel, menu_linear
from training.why.units import Choice

Weights = list[dict[str, jax.Array]]
Batches = npt.NDArray[np.int32]
BLOCK = 32  # steps that a fork's program computes at once
SUMS = ("reference", "dot", "own", "error", "systematic")
"""The columns of `gradients`."""


def menu_decoder(shape: Model, arithmetics: tuple[Arithmetic, ...], choices: Iterable[Choice], *, fast_bf16: bool) -> Decoder:
    """A decoder whose linear layers choose from these arithmetics by their numbers; number 0 is bf16.

    A layer in which every one of `choices` has 0 for all GEMMs is compiled with bf16 alone, because each branch takes time to compile.
    """
    recipes = tuple(layer_recipe((each, each, each), fast_bf16=fast_bf16) for each in arithmetics)
    menus: Any = (Menu(recipes=recipes[:1]), Menu(recipes=recipes))  # they are to a menu decoder what recipes are to another
    varied = np.any([choice != 0 for choice in choices], axis=(0, 3))
    layer: Any = menu_linear
    return Decoder(
        shape=shape,
        plain=linear_recipe("bf16", fast_bf16=fast_bf16),
        recipes=menus,
        layers=tuple(tuple(map(int, block)) for block in varied),
        layer=layer,
    )


def losses(model: Decoder, state: State, batches: Batches, choices: Iterable[Choice]) -> Iterator[npt.NDArray[np.float64]]:
    """For each choice the mean cross entropy (batches,) in nats of these weights; batches: int32 (batches, sequences, length + 1)."""
    tokens = jnp.asarray(batches)
    for choice in choices:
        yield np.asarray(_losses(model, state.parameters, state.scales.scale, tokens, jnp.asarray(choice)), np.float64)


def gradients(
    model: Decoder, state: State, batches: Batches, choices: Sequence[Choice], seeds: Sequence[int], z_loss: float
) -> Iterator[npt.NDArray[np.float64]]:
    """For each batch the sums (choices, blocks, projections, SUMS) over the weight of each layer.

    seeds: uint32 numbers, at least two, from which stochastic rounding draws. The program is compiled once; the loops are the host's.
    """
    if len(seeds) < 2:
        raise ValueError(f"{len(seeds)} seed, expected at least 2: the part of the error that averages out is seen between seeds only")
    fixed = (state.parameters, state.scales.scale)
    for tokens in jnp.asarray(batches):

        def gradient(choice: Choice, seed: int, tokens: jax.Array = tokens) -> Weights:
            own: Weights = _gradient(model, *fixed, tokens, jnp.asarray(choice), jnp.uint32(seed), jnp.float32(z_loss))
            return own

        reference = gradient(np.zeros_like(choices[0]), 0)
        of_choices = []
        for choice in choices:
            total = None
            for seed in seeds:
                total = _added(total, gradient(choice, seed), reference)
            of_choices.append(np.asarray(_mean_sums(total, reference, jnp.float32(len(seeds))), np.float64))
        yield np.stack(of_choices)


@partial(jax.jit, static_argnums=0)
def _losses(model: Decoder, parameters: Parameters, scale: jax.Array, batches: jax.Array, choice: jax.Array) -> jax.Array:
    def of_batch(tokens: jax.Array) -> jax.Array:
        return _loss(model, parameters, tokens, jnp.uint32(0), scale, choice, jnp.float32(0))[1]

    result: jax.Array = jax.lax.map(of_batch, batches)
    return result


def _loss(
    model: Decoder, parameters: Parameters, tokens: jax.Array, seed: jax.Array, scale: jax.Array, choice: jax.Array, z_loss: jax.Array
) -> tuple[jax.Array, jax.Array]:
    channels: Any = MenuChannel(scale, choice)
    return loss_and_lm_loss(model, parameters, tokens, seed, channels, z_loss)


class Forked(NamedTuple):
    """The state after the steps of a fork, and their losses (steps,): mean cross entropy in nats."""

    state: State
    losses: npt.NDArray[np.float64]


def forked(
    model: Decoder, run: Run, state: State, choice: Choice, first: int, steps: int, alive: Callable[[], None] | None = None
) -> Forked:
    """Train these steps of a run from a state, every GEMM with the arithmetic that was chosen: one program for all forks of a job.

    `run` has the data order, the schedule and the random numbers; `alive` is called after each block of steps.
    Raises ValueError for a run with delayed scaling, whose state lives in the channel that the choice takes.
    """
    if model_is_delayed(model):
        raise ValueError("a recipe has delayed scaling, expected none on the menu; fork such a run from its kept checkpoint")
    losses: list[npt.NDArray[np.float64]] = []
    for begin in range(first, first + steps, BLOCK):
        count = min(BLOCK, first + steps - begin)
        inputs = run.inputs(begin, count, BLOCK)
        state, lm_loss = _steps(model, state, jnp.asarray(choice), inputs)
        losses.append(np.asarray(lm_loss, np.float64)[:count])
        if alive is not None:
            alive()
    return Forked(state, np.concatenate(losses))


def model_is_delayed(model: Decoder) -> bool:
    """Whether a recipe on the menu needs the amaxes of earlier steps."""
    menus: Any = model.recipes
    return any(each.delayed for menu in menus for each in menu.recipes)


@partial(jax.jit, static_argnums=0)
def _steps(model: Decoder, state: State, choice: jax.Array, inputs: Inputs) -> tuple[State, jax.Array]:
    def step(offset: jax.Array, carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
        state, losses = carry
        number = inputs.first + offset
        seed, z_loss = random_bits.fold(inputs.salt, number), jnp.asarray(inputs.settings.z_loss)
        of_parameters = jax.value_and_grad(
            lambda own: _loss(model, own, inputs.tokens[offset], seed, state.scales.scale, choice, z_loss), has_aux=True
        )
        (_, lm_loss), gradient = of_parameters(state.parameters)
        update = optimizer.apply(inputs.settings, state.parameters, state.moments, gradient, number)
        return state._replace(parameters=update.parameters, moments=update.state), losses.at[offset].set(lm_loss)

    quiet = jnp.zeros(inputs.tokens.shape[0], jnp.float32)
    result: tuple[State, jax.Array] = jax.lax.fori_loop(0, inputs.steps, step, (state, quiet))
    return result


@partial(jax.jit, static_argnums=0)
def _gradient(
    model: Decoder, parameters: Parameters, scale: jax.Array, tokens: jax.Array, choice: jax.Array, seed: jax.Array, z_loss: jax.Array
) -> Weights:
    """The gradient of the loss for the weights of the linear layers."""
    whole = jax.grad(lambda own: _loss(model, own, tokens, seed, scale, choice, z_loss)[0])(parameters)
    return [{name: block[name] for name in PROJECTIONS} for block in whole["blocks"]]


class _Total(NamedTuple):
    """Over seeds: the summed error, a tree like the weights, and (blocks, projections) each: dot, own and squared error."""

    error: Weights
    dot: jax.Array
    own: jax.Array
    squared: jax.Array


@jax.jit
def _added(total: _Total | None, own: Weights, reference: Weights) -> _Total:
    error = jax.tree.map(jnp.subtract, own, reference)
    new = _Total(error, _dots(own, reference), _dots(own, own), _dots(error, error))
    return new if total is None else jax.tree.map(jnp.add, total, new)


@jax.jit
def _mean_sums(total: _Total, reference: Weights, count: jax.Array) -> jax.Array:
    systematic = (_dots(total.error, total.error) - total.squared) / (count * (count - 1))
    return jnp.stack([_dots(reference, reference), total.dot / count, total.own / count, total.squared / count, systematic], axis=-1)


def _dots(left: Weights, right: Weights) -> jax.Array:
    """Inner products (blocks, projections) of two trees of weights."""
    return jnp.stack([jnp.stack([jnp.sum(a[name] * b[name]) for name in PROJECTIONS]) for a, b in zip(left, right, strict=True)])
