"""The compiled program: a block of AdamW steps with warm-up and cosine decay, and the loss on held-out tokens."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from training.arithmetic import formats, quantize
from training.arithmetic.linear import Channel, gradient_norms, quiet_channel, quiet_statistics
from training.rules import PROJECTIONS
from training.spec import Schedule
from training.trainer.model import Decoder, loss_and_lm_loss

# AdamW with warm-up and cosine decay; its settings are run-time arguments.
#
# What it answers: how do gradients change the parameters at step t?
#
#     lr(t)  = peak * min(1, (t + 1) / warm-up) * (f + (1 - f) (1 + cos(pi p)) / 2),  p = (t - warm-up) / (steps - warm-up) in [0, 1]
#     g      = gradient * min(1, clip / |gradient|)
#     w     -= lr * (adam(g; beta1, beta2, 1e-8) + decay * w)      decay for matrices only, not for norms
#
# The settings are arguments of the compiled step, not constants in it, so that all runs of one recipe and shape share one compiled
# program. Source: Loshchilov and Hutter, arXiv 1711.05101; the algebra is optax's.

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


# The compiled program: a block of training steps, and the loss on held-out tokens.
#
# What it answers: what is the state after these steps, and what does each step report?
#
#     per step:  gradient = mean over the pieces of the batch, and over the devices that share it
#                state    = AdamW(state, gradient);   scales = those of delayed scaling after the largest amax of all pieces
#
# Everything that differs between the runs of one recipe and shape (seed, salt, schedule, tokens, number of steps in a block) is an
# argument, so they share one compilation, and JAX's persistent cache saves it for the next process. The length of a block does not affect
# any bit; the numbers of pieces, devices and threads do.
#
# The assumption that can fail: pieces have equal sizes, so that the mean of their means is the mean; the specification checks that.

ROW = ("loss", "lm_loss", "learning_rate", "grad_norm", "clipped_grad_norm", "param_norm", "update_norm", "nonfinite_inputs")
"""The columns of `BlockOutput.rows`: the fields of a step's `StepStats` that come from the device."""
_AXIS = "data"  # the mesh has one: the devices share a batch
_mean, _sum, _largest = (partial(reduce, axis_name=_AXIS) for reduce in (jax.lax.pmean, jax.lax.psum, jax.lax.pmax))
_WHOLE, _SPLIT = P(), P(_AXIS)  # type: ignore[no-untyped-call]


class State(NamedTuple):
    """The state that a step changes: parameters, the optimizer's moments, and the scales of delayed scaling."""

    parameters: Any
    moments: Any
    scales: quantize.Scales


class Inputs(NamedTuple):
    """The arguments of a block in addition to the state.

    tokens: int32 (capacity, batch, sequence + 1), of which the first `steps` are used; first: the block's first step; salt: the number
    from which stochastic rounding is drawn. The scalars are uint32 (salt) and int32.
    """

    tokens: jax.Array
    first: jax.Array
    steps: jax.Array
    salt: jax.Array
    settings: Settings


class BlockOutput(NamedTuple):
    """A block's output: rows (capacity, columns), the norm of every linear layer's gradient (capacity, blocks, projections),
    and the statistics of its last step (blocks, projections, columns), zeros unless the model is watched."""

    rows: jax.Array
    layer_grad_norms: jax.Array
    statistics: jax.Array


class _Gradients(NamedTuple):
    """Mean losses, gradient and the layers' measurements of one piece of a batch, or of several."""

    loss: jax.Array
    lm_loss: jax.Array
    gradient: Any
    report: jax.Array
    statistics: jax.Array


class Sharing(NamedTuple):
    """How a batch is cut: the devices share it, and each computes its share in `pieces`, one after another."""

    pieces: int
    devices: int

    @property
    def mesh(self) -> Mesh:
        return jax.make_mesh((self.devices,), (_AXIS,), devices=jax.devices()[: self.devices])

    @property
    def everywhere(self) -> NamedSharding:
        """The placement of the state: a copy on every device."""
        return NamedSharding(self.mesh, _WHOLE)

    @property
    def by_sequence(self) -> NamedSharding:
        """The placement of a block's tokens: a share of every batch on each device."""
        return NamedSharding(self.mesh, P(None, _AXIS))  # type: ignore[no-untyped-call]


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=(2,))
def block(model: Decoder, sharing: Sharing, state: State, inputs: Inputs) -> tuple[State, BlockOutput]:
    """Returns the state after the block's steps and their output."""
    capacity, layers = inputs.tokens.shape[0], (model.shape.n_layers, len(PROJECTIONS))

    def step(offset: jax.Array, carry: tuple[State, BlockOutput]) -> tuple[State, BlockOutput]:
        state, output = carry
        number = inputs.first + offset
        seed, z_loss = formats.fold(inputs.salt, number), jnp.asarray(inputs.settings.z_loss)
        gradients = _gradient(model, sharing, state, inputs.tokens[offset], seed, z_loss)
        update = apply(inputs.settings, state.parameters, state.moments, gradients.gradient, number)
        norms = (update.learning_rate, update.grad_norm, update.clipped_grad_norm, update.param_norm, update.update_norm)
        row = jnp.stack([gradients.loss, gradients.lm_loss, *norms, jnp.sum(gradients.report[..., 3])])
        output = BlockOutput(
            output.rows.at[offset].set(row),
            output.layer_grad_norms.at[offset].set(_layer_grad_norms(gradients.gradient)),
            gradients.statistics,
        )
        scales = quantize.update(state.scales, gradients.report[..., :3], model.delayed_scaling)
        return State(update.parameters, update.state, scales), output

    quiet = BlockOutput(
        jnp.zeros((capacity, len(ROW)), jnp.float32), jnp.zeros((capacity, *layers), jnp.float32), quiet_statistics(*layers)
    )
    result: tuple[State, BlockOutput] = jax.lax.fori_loop(0, inputs.steps, step, (state, quiet))
    return result


def _layer_grad_norms(gradient: Any) -> jax.Array:
    return jnp.stack([jnp.stack([gradient_norms(block[name]) for name in PROJECTIONS]) for block in gradient["blocks"]])


def _gradient(model: Decoder, sharing: Sharing, state: State, tokens_BT: jax.Array, seed: jax.Array, z_loss: jax.Array) -> _Gradients:
    """Returns means over a whole batch, the largest amaxes, and the statistics of the first piece on the first device."""
    if sharing.devices == 1:
        return _of_pieces(model, sharing.pieces, state, tokens_BT, seed, z_loss)

    def on_one(state: State, tokens_BT: jax.Array, seed: jax.Array, z_loss: jax.Array) -> _Gradients:
        place = jax.lax.axis_index(_AXIS)
        gradients = _of_pieces(model, sharing.pieces, state, tokens_BT, formats.fold(seed, place), z_loss)
        loss, lm_loss, gradient = _mean((gradients.loss, gradients.lm_loss, gradients.gradient))
        amax, nonfinite = _largest(gradients.report[..., :3]), _sum(gradients.report[..., 3:])
        of_first = _sum(jnp.where(place == 0, gradients.statistics, jnp.float32(0)))
        return _Gradients(loss, lm_loss, gradient, jnp.concatenate([amax, nonfinite], axis=-1), of_first)

    specs = (_WHOLE, _SPLIT, _WHOLE, _WHOLE)
    shared = jax.shard_map(on_one, mesh=sharing.mesh, in_specs=specs, out_specs=_WHOLE, check_vma=False)
    result: _Gradients = shared(state, tokens_BT, seed, z_loss)
    return result


def _of_pieces(model: Decoder, pieces: int, state: State, tokens_BT: jax.Array, seed: jax.Array, z_loss: jax.Array) -> _Gradients:
    """Returns means over a device's pieces, computed one after another."""
    if pieces == 1:
        return _of_piece(model, state, tokens_BT, seed, z_loss)

    def add(total: _Gradients, piece: tuple[jax.Array, jax.Array]) -> tuple[_Gradients, None]:
        number, tokens_BT = piece
        gradients = _of_piece(model, state, tokens_BT, formats.fold(seed, number), z_loss)
        summed = jax.tree.map(jnp.add, total, gradients)
        amax = jnp.maximum(total.report[..., :3], gradients.report[..., :3])
        statistics = jnp.where(number == 0, gradients.statistics, total.statistics)
        return summed._replace(report=jnp.concatenate([amax, summed.report[..., 3:]], axis=-1), statistics=statistics), None

    tokens = tokens_BT.reshape(pieces, -1, tokens_BT.shape[1])
    shapes = jax.eval_shape(partial(_of_piece, model), state, tokens[0], seed, z_loss)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    total, _ = jax.lax.scan(add, zeros, (jnp.arange(pieces), tokens))
    share = jnp.float32(1 / pieces)
    gradient = jax.tree.map(lambda leaf: leaf * share, total.gradient)
    result: _Gradients = total._replace(loss=total.loss * share, lm_loss=total.lm_loss * share, gradient=gradient)
    return result


def _of_piece(model: Decoder, state: State, tokens_BT: jax.Array, seed: jax.Array, z_loss: jax.Array) -> _Gradients:
    channels = _channels(state)
    value_and_grad = jax.value_and_grad(loss_and_lm_loss, argnums=(1, 4), has_aux=True)
    (loss, lm_loss), (gradient, channel_gradients) = value_and_grad(model, state.parameters, tokens_BT, seed, channels, z_loss)
    return _Gradients(loss, lm_loss, gradient, channel_gradients.report, channel_gradients.statistics)


def _channels(state: State) -> Channel:
    """The channels of all linear layers (blocks, projections, ...), with their delayed scales."""
    return quiet_channel(*state.scales.scale.shape[:2])._replace(scale=state.scales.scale)


@partial(jax.jit, static_argnums=0)
def validation_loss(model: Decoder, state: State, batches: jax.Array) -> jax.Array:
    """Mean cross entropy over held-out batches (batches, batch, sequence + 1), with the recipe's own forward pass."""
    channels = _channels(state)

    def one(tokens: jax.Array) -> jax.Array:
        return loss_and_lm_loss(model, state.parameters, tokens, jnp.uint32(0), channels, jnp.float32(0))[1]

    return jnp.mean(jax.lax.map(one, batches))
