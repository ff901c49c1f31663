"""The compiled program: a block of training steps, and the loss on held-out tokens.

What it answers: what is the state after these steps, and what does each step report?

    per step:  gradient = mean over the pieces of the batch, and over the devices that share it
               state    = optimizer(state, gradient);   scales = those of delayed scaling after
                        the largest amax of all pieces

Everything that differs between the runs of one recipe and shape (words of the run, schedule,
tokens, number of steps in a block) is an argument, so they share one compilation, and JAX's
persistent cache saves it for the next process. The length of a block does not affect any bit; the
numbers of pieces, devices and threads do.

The assumption that can fail: pieces have equal sizes, so that the mean of their means is the
mean; the specification checks that.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from training.arithmetic import delayed_scaling, random_bits
from training.arithmetic.layer_statistics import gradient_norms, quiet_statistics
from training.arithmetic.linear import Channel, quiet_channel
from training.step_values import PROJECTIONS
from training.trainer.model import Decoder, loss_and_lm_loss
from training.trainer.optimizer import OptimizerSettings, apply

ROW = (
    "loss",
    "lm_loss",
    "learning_rate",
    "grad_norm",
    "clipped_grad_norm",
    "param_norm",
    "update_norm",
    "nonfinite_inputs",
)
"""The columns of `BlockOutput.rows`: the fields of a step's `StepStats` that come from the
device.
"""
_AXIS = "data"  # the mesh has one: the devices share a batch
_mean, _sum, _largest = (
    partial(reduce, axis_name=_AXIS) for reduce in (jax.lax.pmean, jax.lax.psum, jax.lax.pmax)
)
_WHOLE, _SPLIT = P(), P(_AXIS)  # type: ignore[no-untyped-call]


class State(NamedTuple):
    """The state that a step changes: parameters, the optimizer's moments, and the scales of delayed
    scaling.

    The programs take it as `training.trainer.model.grouped` gives it; checkpoints and forks have it
    block by block.
    """

    parameters: Any
    moments: Any
    scales: delayed_scaling.Scales


class Inputs(NamedTuple):
    """The arguments of a block in addition to the state.

    tokens: int32 (capacity, batch, sequence + 1), of which the first `steps` are used; first: the
    block's first step; run: the two words (2,) that name the run to stochastic rounding. They are
    uint32, the scalars int32.
    """

    tokens: jax.Array
    first: jax.Array
    steps: jax.Array
    run: jax.Array
    settings: OptimizerSettings


class BlockOutput(NamedTuple):
    """A block's output: rows (capacity, columns), the norm of every linear layer's gradient
    (capacity, blocks, projections), and the statistics of its last step (blocks, projections,
    columns), zeros unless the model is watched.
    """

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
    """How a batch is cut: the devices share it, and each computes its share in `pieces`, one after
    another.
    """

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
def block(
    model: Decoder, sharing: Sharing, state: State, inputs: Inputs
) -> tuple[State, BlockOutput]:
    """Returns the state after the block's steps and their output; the state is as `grouped` gives
    it.
    """
    capacity, layers = inputs.tokens.shape[0], (model.shape.n_layers, len(PROJECTIONS))

    def step(offset: jax.Array, carry: tuple[State, BlockOutput]) -> tuple[State, BlockOutput]:
        state, output = carry
        number = inputs.first + offset
        key, z_loss = (
            random_bits.Key(inputs.run, number.astype(jnp.uint32)),
            jnp.asarray(inputs.settings.z_loss),
        )
        gradients = _gradient(model, sharing, state, inputs.tokens[offset], key, z_loss)
        update = apply(inputs.settings, state.parameters, state.moments, gradients.gradient, number)
        norms = (
            update.learning_rate,
            update.grad_norm,
            update.clipped_grad_norm,
            update.param_norm,
            update.update_norm,
        )
        row = jnp.stack(
            [gradients.loss, gradients.lm_loss, *norms, jnp.sum(gradients.report[..., 3])]
        )
        output = BlockOutput(
            output.rows.at[offset].set(row),
            output.layer_grad_norms.at[offset].set(_layer_grad_norms(model, gradients.gradient)),
            gradients.statistics,
        )
        scales = delayed_scaling.update(
            state.scales, gradients.report[..., :3], model.delayed_scaling
        )
        return State(update.parameters, update.state, scales), output

    quiet = BlockOutput(
        jnp.zeros((capacity, len(ROW)), jnp.float32),
        jnp.zeros((capacity, *layers), jnp.float32),
        quiet_statistics(*layers),
    )
    result: tuple[State, BlockOutput] = jax.lax.fori_loop(0, inputs.steps, step, (state, quiet))
    return result


def _layer_grad_norms(model: Decoder, gradient: Any) -> jax.Array:
    def block_norms(block: Any) -> jax.Array:
        return jnp.stack([gradient_norms(block[name]) for name in PROJECTIONS])

    groups = zip(model.groups, gradient["blocks"], strict=True)
    return jnp.concatenate(
        [
            block_norms(block)[None] if count == 1 else jax.lax.map(block_norms, block)
            for (_, count), block in groups
        ]
    )


def _gradient(
    model: Decoder,
    sharing: Sharing,
    state: State,
    tokens_BT: jax.Array,
    key: random_bits.Key,
    z_loss: jax.Array,
) -> _Gradients:
    """Returns means over a whole batch, the largest amaxes, and the statistics of the first piece
    on the first device.
    """
    if sharing.devices == 1:
        return _pieces_gradients(model, sharing.pieces, state, tokens_BT, key, z_loss)

    def device_gradients(
        state: State, tokens_BT: jax.Array, key: random_bits.Key, z_loss: jax.Array
    ) -> _Gradients:
        place = jax.lax.axis_index(_AXIS)
        gradients = _pieces_gradients(
            model, sharing.pieces, state, tokens_BT, key.numbered(place, sharing.devices), z_loss
        )
        loss, lm_loss, gradient = _mean((gradients.loss, gradients.lm_loss, gradients.gradient))
        amax, nonfinite = _largest(gradients.report[..., :3]), _sum(gradients.report[..., 3:])
        first_statistics = _sum(jnp.where(place == 0, gradients.statistics, jnp.float32(0)))
        return _Gradients(
            loss, lm_loss, gradient, jnp.concatenate([amax, nonfinite], axis=-1), first_statistics
        )

    specs = (_WHOLE, _SPLIT, _WHOLE, _WHOLE)
    shared = jax.shard_map(
        device_gradients, mesh=sharing.mesh, in_specs=specs, out_specs=_WHOLE, check_vma=False
    )
    result: _Gradients = shared(state, tokens_BT, key, z_loss)
    return result


def _pieces_gradients(
    model: Decoder,
    pieces: int,
    state: State,
    tokens_BT: jax.Array,
    key: random_bits.Key,
    z_loss: jax.Array,
) -> _Gradients:
    """Returns means over a device's pieces, computed one after another."""
    if pieces == 1:
        return _piece_gradients(model, state, tokens_BT, key, z_loss)

    def add(total: _Gradients, piece: tuple[jax.Array, jax.Array]) -> tuple[_Gradients, None]:
        number, tokens_BT = piece
        gradients = _piece_gradients(model, state, tokens_BT, key.numbered(number, pieces), z_loss)
        summed = jax.tree.map(jnp.add, total, gradients)
        amax = jnp.maximum(total.report[..., :3], gradients.report[..., :3])
        statistics = jnp.where(number == 0, gradients.statistics, total.statistics)
        return summed._replace(
            report=jnp.concatenate([amax, summed.report[..., 3:]], axis=-1), statistics=statistics
        ), None

    tokens = tokens_BT.reshape(pieces, -1, tokens_BT.shape[1])
    shapes = jax.eval_shape(partial(_piece_gradients, model), state, tokens[0], key, z_loss)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    total, _ = jax.lax.scan(add, zeros, (jnp.arange(pieces), tokens))
    share = jnp.float32(1 / pieces)
    gradient = jax.tree.map(lambda leaf: leaf * share, total.gradient)
    result: _Gradients = total._replace(
        loss=total.loss * share, lm_loss=total.lm_loss * share, gradient=gradient
    )
    return result


def _piece_gradients(
    model: Decoder, state: State, tokens_BT: jax.Array, key: random_bits.Key, z_loss: jax.Array
) -> _Gradients:
    channels = _channels(state)
    value_and_grad = jax.value_and_grad(loss_and_lm_loss, argnums=(1, 4), has_aux=True)
    (loss, lm_loss), (gradient, channel_gradients) = value_and_grad(
        model, state.parameters, tokens_BT, key, channels, z_loss
    )
    return _Gradients(
        loss, lm_loss, gradient, channel_gradients.report, channel_gradients.statistics
    )


def _channels(state: State) -> Channel:
    """The channels of all linear layers (blocks, projections, ...), with their delayed scales."""
    return quiet_channel(*state.scales.scale.shape[:2])._replace(scale=state.scales.scale)


@partial(jax.jit, static_argnums=0)
def validation_loss(model: Decoder, state: State, batches: jax.Array) -> jax.Array:
    """Mean cross entropy over held-out batches (batches, batch, sequence + 1), with the recipe's
    own forward pass.
    """
    channels = _channels(state)

    def one(tokens: jax.Array) -> jax.Array:
        return loss_and_lm_loss(
            model, state.parameters, tokens, random_bits.key(), channels, jnp.float32(0)
        )[1]

    return jnp.mean(jax.lax.map(one, batches))
