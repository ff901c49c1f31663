"""Resumes of the project's trainer, honest and with a fault in what was restored."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from benchmarks.golden.trained import (
    SAVED,
    Saved,
    resumed,
    resumed_with_restarted_schedule,
)
from parity.judging.curves.curve import Curve
from training.trainer import optimizer
from training.trainer.data import Corpus
from training.trainer.step import State

OTHER_DATA_SEED = 12345


def _moments(state: State, change: Callable[[jax.Array], jax.Array], *names: str) -> State:
    """The state with some of Adam's moments changed."""
    changed = {name: jax.tree.map(change, getattr(state.moments, name)) for name in names}
    return state._replace(moments=state.moments._replace(**changed))


def _weights(state: State, change: Callable[[str, jax.Array], jax.Array]) -> State:
    """The state with weights changed, by the names of their places."""

    def by_name(path: object, weight: jax.Array) -> jax.Array:
        return change(jax.tree_util.keystr(path), weight)  # type: ignore[arg-type]

    return state._replace(parameters=jax.tree_util.tree_map_with_path(by_name, state.parameters))


def _truncated(weight: jax.Array) -> jax.Array:
    """A weight without the digits that bf16 does not have, towards zero: biased rounding."""
    bits = jax.lax.bitcast_convert_type(weight, jnp.uint32) & jnp.uint32(0xFFFF0000)
    return jax.lax.bitcast_convert_type(bits, jnp.float32)


def lost_optimizer(state: State, _: State) -> State:
    """Adam begins again."""
    return state._replace(moments=optimizer.initial_state(state.parameters))


def lost_second_moment(state: State, _: State) -> State:
    """Second moments are zero."""
    return _moments(state, jnp.zeros_like, "nu")


def lost_first_moment(state: State, _: State) -> State:
    """First moments are zero."""
    return _moments(state, jnp.zeros_like, "mu")


def lost_count(state: State, _: State) -> State:
    """Adam counts its steps from 0, and corrects its moments for it."""
    return state._replace(moments=state.moments._replace(count=jnp.zeros_like(state.moments.count)))


def wrong_scales(state: State, _: State) -> State:
    """Scales and history of delayed scaling as of operands that are 64 times as large."""
    scales = state.scales
    return state._replace(
        scales=scales._replace(scale=scales.scale / 64.0, history=scales.history * 64.0)
    )


def overflowing_scales(state: State, _: State) -> State:
    """Scales as of operands that are 64 times as small: the quantizer clips, for a step."""
    return state._replace(scales=state.scales._replace(scale=state.scales.scale * 64.0))


def biased_rounding(state: State, _: State) -> State:
    """Weights whose lower digits were cut."""
    return _weights(state, lambda _, weight: _truncated(weight))


def lost_master_weights(state: State, _: State) -> State:
    """Weights that went through bf16, to nearest."""
    return _weights(state, lambda _, weight: weight.astype(jnp.bfloat16).astype(jnp.float32))


def one_layer_not_restored(state: State, initial: State) -> State:
    """A matrix of the last block is that before step 0."""
    blocks = [*state.parameters["blocks"]]
    blocks[1] = {**blocks[1], "down": initial.parameters["blocks"][1]["down"]}
    return state._replace(parameters={**state.parameters, "blocks": blocks})


def embeddings_not_restored(state: State, initial: State) -> State:
    """The embeddings are those before step 0."""
    return state._replace(parameters={**state.parameters, "embed": initial.parameters["embed"]})


def half_weights_of_another_rank(state: State, _: State) -> State:
    """Half of a matrix is that of the other half, as with ranks that are mixed up."""

    def swap(name: str, weight: jax.Array) -> jax.Array:
        half = weight.shape[-1] // 2
        return jnp.roll(weight, half, axis=-1) if "'up'" in name and "[0]" in name else weight

    return _weights(state, swap)


RESUME_FAULTS: Mapping[str, Callable[[Saved, Corpus], Curve]] = {
    "optimizer state lost": lambda saved, text: resumed(saved, text, lost_optimizer),
    "first moments lost": lambda saved, text: resumed(saved, text, lost_first_moment),
    "second moments lost": lambda saved, text: resumed(saved, text, lost_second_moment),
    "step count of Adam lost": lambda saved, text: resumed(saved, text, lost_count),
    "data one step late": lambda saved, text: resumed(saved, text, offset=-1),
    "data restarted": lambda saved, text: resumed(saved, text, offset=-SAVED),
    "random state of the data lost": lambda saved, text: resumed(
        saved, text, data_seed=OTHER_DATA_SEED
    ),
    "schedule restarted": resumed_with_restarted_schedule,
    "scales 64 times too small": lambda saved, text: resumed(saved, text, wrong_scales),
    "scales 64 times too large": lambda saved, text: resumed(saved, text, overflowing_scales),
    "weights truncated to bf16": lambda saved, text: resumed(saved, text, biased_rounding),
    "master weights lost": lambda saved, text: resumed(saved, text, lost_master_weights),
    "one layer not restored": lambda saved, text: resumed(saved, text, one_layer_not_restored),
    "embeddings not restored": lambda saved, text: resumed(saved, text, embeddings_not_restored),
    "halves of a matrix swapped": lambda saved, text: resumed(
        saved, text, half_weights_of_another_rank
    ),
    "checkpoint of ten steps before": lambda saved, text: resumed(
        saved, text, lambda _, __: saved.earlier
    ),
}
"""Resumes with a fault, by what is wrong."""

HONEST_RESUMES: Mapping[str, Callable[[Saved, Corpus], Curve]] = {
    "same machine": resumed,
    "other rounding": lambda saved, text: resumed(saved, text, draw=1),
    "other rounding, again": lambda saved, text: resumed(saved, text, draw=2),
}
"""Honest resumes: to the bit, and with weights moved by one part in a million."""
