"""A Llama-shaped decoder whose linear layers are quantized as a recipe says.

What it answers: what is the loss of these parameters on these tokens if each linear layer has its
recipe?

    x = embed[tokens]
    per block: x += out(attention(rope(query(n)), rope(key(n)), value(n)))     n = RMSNorm(x)
               x += down(silu(gate(n)) * up(n))
    with qk_norm: query and key of each head = RMSNorm(query), RMSNorm(key), before rope
    loss = mean(lse - logit[target]) + z_loss * mean(lse^2),   logits = RMSNorm(x) E^T,  E = embed
      where tied, else unembed

Recipes never change embedding, logits, norms, rotary positions, softmax and the two products inside
attention: their products are bfloat16 with float32 sums (all float32 under recipe f32).
`training.switches` says which recipe each linear layer has. Master weights and the residual stream
are float32; inputs and outputs of a linear layer are bfloat16.

With `remat` the backward pass recomputes a block from its input instead of storing its activations,
and equal blocks in a row are one loop over stacked parameters: the program and its compile time
hardly grow with depth, and a gradient of the same parameters has the same bits. Without it each
block is compiled by itself, because a loop would copy what a block keeps in and out
(docs/design/arithmetic.md#a-loop-over-blocks-with-remat-alone).

Legend: B batch, T sequence, D d_model, H heads, J key-value heads, G = H / J heads per key-value
head, E head size, F d_ff, V vocabulary, M = B T tokens.

Source: Llama (arXiv 2302.13971, 2407.21783) for the shape, Qwen3 (arXiv 2505.09388) for QK-norm;
MaxText e591f30c for what stays in bfloat16.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from training.arithmetic import delayed_scaling, formats
from training.arithmetic.delayed_scaling import DelayedScaling
from training.arithmetic.linear import Channel, linear
from training.arithmetic.random_bits import Key
from training.arithmetic.recipes import LinearRecipe, layer_recipe, linear_recipe
from training.frozen import frozen
from training.gemm_sizes import linear_sizes
from training.segments import Segment
from training.spec import Model
from training.step_values import PROJECTIONS

Parameters = dict[str, Any]
Layer = Callable[[LinearRecipe, jax.Array, jax.Array, Key, Channel], jax.Array]
_EPSILON = 1e-5
QK_NORMS = ("query_norm", "key_norm")
"""The gains of QK-norm in a block's parameters, one number for each place in a head."""


@frozen
class Decoder:
    """Shape and arithmetic of the model, hashable: everything about the loss that is compiled in.

    `recipes` are the different recipes of its linear layers, and `layers` the number of each
    layer's recipe, by block and projection. `plain` has the types outside the linear layers.
    `layer` computes the quantized linear layers; every engine computes the unquantized ones with
    our own code.
    """

    shape: Model
    plain: LinearRecipe
    recipes: tuple[LinearRecipe, ...]
    layers: tuple[tuple[int, ...], ...]
    remat: bool = False
    layer: Layer = linear

    @property
    def dtype(self) -> Any:
        """The type of the linear layers' inputs and outputs."""
        return jnp.dtype(self.plain.activations)

    @property
    def products(self) -> str:
        """The type that carries operands into the products inside attention and into the logits."""
        return self.plain.products

    @property
    def delayed(self) -> bool:
        """Whether a layer needs the amaxes of earlier steps."""
        return any(recipe.delayed for recipe in self.recipes)

    @property
    def delayed_scaling(self) -> DelayedScaling:
        """How the scales of the next step follow from the amaxes, the same for all layers that need
        them; unused if none does.
        """
        return next(
            (recipe.delayed_scaling for recipe in self.recipes if recipe.delayed),
            delayed_scaling.DEFAULT,
        )

    def watching(self, *, compared: bool) -> Decoder:
        """The same model, whose quantized layers also return the statistics of their quantization;
        compared: and of their gradients.
        """
        return replace(
            self,
            recipes=tuple(
                replace(recipe, watched=recipe.quantized, compared=compared and recipe.quantized)
                for recipe in self.recipes
            ),
        )

    @property
    def groups(self) -> tuple[tuple[int, int], ...]:
        """First block and number of blocks that one loop computes: equal ones in a row where
        `remat` is set, else each block alone.
        """
        first = [
            0,
            *(
                at
                for at in range(1, len(self.layers))
                if not self.remat or self.layers[at] != self.layers[at - 1]
            ),
        ]
        return tuple(
            (at, after - at) for at, after in itertools.pairwise([*first, len(self.layers)])
        )

    def recipe_of(self, block: int, name: str) -> LinearRecipe:
        """Returns the recipe of one linear layer."""
        return self.recipes[self.layers[block][PROJECTIONS.index(name)]]


def decoder(
    shape: Model, segment: Segment, *, fast_bf16: bool, remat: bool = False, layer: Layer = linear
) -> Decoder:
    """Returns the decoder of one segment of a run (`RunSpec.segments`).

    Everything outside the linear layers runs in bfloat16 products (in float32 if the layers' recipe
    is f32).
    """
    whole = {
        layer: layer_recipe(layer, fast_bf16=fast_bf16)
        for span in segment.spans
        for layer in span.layers
    }
    recipes = tuple(dict.fromkeys(whole.values()))
    blocks = [
        tuple(recipes.index(whole[layer]) for layer in span.layers)
        for span in segment.spans
        for _ in range(span.first, span.last + 1)
    ]
    float32 = any(recipe.activations == "float32" for recipe in recipes)
    return Decoder(
        shape=shape,
        plain=linear_recipe("f32" if float32 else "bf16", fast_bf16=fast_bf16),
        recipes=recipes,
        layers=tuple(blocks),
        remat=remat,
        layer=layer,
    )


def linear_shapes(shape: Model) -> dict[str, tuple[int, int]]:
    """(inputs, outputs) of the linear layers of one block."""
    sizes = linear_sizes(
        shape.d_model, shape.d_ff, shape.head_size, (shape.n_heads, shape.n_kv_heads)
    )
    return {name: (inputs.value, outputs.value) for name, (inputs, outputs) in sizes.items()}


def grouped(model: Decoder, tree: Any) -> Any:
    """Returns parameters, or a tree of such trees, in which the blocks of one group are one block
    of stacked arrays.
    """

    def group(blocks: list[Parameters]) -> list[Parameters]:
        return [
            jax.tree.map(lambda *parts: jnp.stack(parts), *blocks[first : first + count])
            if count > 1
            else blocks[first]
            for first, count in model.groups
        ]

    return _blocks_changed(group, tree)


def ungrouped(model: Decoder, tree: Any) -> Any:
    """The inverse of `grouped`."""

    def single(groups: list[Parameters]) -> list[Parameters]:
        return [
            jax.tree.map(lambda part, at=at: part[at], group) if count > 1 else group
            for (_, count), group in zip(model.groups, groups, strict=True)
            for at in range(count)
        ]

    return _blocks_changed(single, tree)


def _blocks_changed(change: Callable[[list[Parameters]], list[Parameters]], tree: Any) -> Any:
    """Returns a tree with every list in it changed: only the blocks of parameters are lists."""
    return jax.tree.map(
        lambda node: change(node) if isinstance(node, list) else node,
        tree,
        is_leaf=lambda node: isinstance(node, list),
    )


def initial_parameters(shape: Model, seed: int, replicate: int) -> Parameters:
    """Returns float32 parameters (numpy); for replicate r > 0 each is changed at random by about
    one part in a million.

    They are normal with standard deviation 1 / sqrt(inputs), divided by sqrt(2 n_layers) for the
    two layers that write to the residual stream. The embedding has 1 / sqrt(d_model), so that
    logits start near 1 (with 0.02 the demo model ends 0.11 nats higher). The same (seed, replicate)
    gives the same values under every recipe.
    """

    def normal(name: str, size: tuple[int, ...], deviation: float) -> npt.NDArray[np.float32]:
        path = [*name.encode()]
        value = np.random.default_rng([seed, *path]).standard_normal(size, np.float32) * np.float32(
            deviation
        )
        if replicate:
            noise = np.random.default_rng([seed, replicate, *path]).standard_normal(
                size, np.float32
            )
            value = value * (1 + np.float32(1e-6) * noise)
        return value

    blocks: list[Parameters] = []
    for index in range(shape.n_layers):
        block: Parameters = {
            "attention_norm": np.ones(shape.d_model, np.float32),
            "mlp_norm": np.ones(shape.d_model, np.float32),
        }
        if shape.qk_norm:
            block |= {name: np.ones(shape.head_size, np.float32) for name in QK_NORMS}
        for name, size in linear_shapes(shape).items():
            narrower = np.sqrt(2 * shape.n_layers) if name in ("out", "down") else 1.0
            block[name] = normal(f"{index}/{name}", size, float(1 / (np.sqrt(size[0]) * narrower)))
        blocks.append(block)
    table, deviation = (shape.vocab_size, shape.d_model), float(shape.d_model**-0.5)
    parameters = {
        "embed": normal("embed", table, deviation),
        "blocks": blocks,
        "final_norm": np.ones(shape.d_model, np.float32),
    }
    if shape.tied_embeddings:
        return parameters
    return {**parameters, "unembed": normal("unembed", table, deviation)}


def nudged(parameters: Parameters, key: tuple[int, ...]) -> Parameters:
    """Returns parameters of which each is changed at random by about one part in a million, a pure
    function of `key` (float32).
    """

    def move(path: Any, value: Any) -> jax.Array:
        name = [*jax.tree_util.keystr(path).encode()]
        noise = np.random.default_rng([*key, *name]).standard_normal(value.shape, np.float32)
        moved: jax.Array = jax.device_put(
            np.asarray(value) * (1 + np.float32(1e-6) * noise),
            value.sharding if value.committed else None,
        )
        return moved

    moved: Parameters = jax.tree_util.tree_map_with_path(move, parameters)
    return moved


def loss_and_lm_loss(
    model: Decoder,
    parameters: Parameters,
    tokens_BT: jax.Array,
    key: Key,
    channels: Channel,
    z_loss: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Returns mean loss and mean cross entropy, in nats per token, for predicting tokens 1..T from
    tokens 0..T-1.

    parameters: as `grouped` gives them. tokens_BT: int32 (batch, sequence + 1). key: of this pass
    (stochastic rounding). channels: of all linear layers, (blocks, projections, ...); their
    gradient contains what the layers measured.
    """
    logits_MV = _logits(model, parameters, tokens_BT[:, :-1], key, channels)
    lse_M = jax.nn.logsumexp(logits_MV, axis=-1)
    target_M = tokens_BT[:, 1:].reshape(-1)
    picked_M = jnp.take_along_axis(logits_MV, target_M[:, None], axis=-1)[:, 0]
    lm_loss = jnp.mean(lse_M - picked_M)
    return lm_loss + z_loss * jnp.mean(jnp.square(lse_M)), lm_loss


def _logits(
    model: Decoder, parameters: Parameters, tokens_BT: jax.Array, key: Key, channels: Channel
) -> jax.Array:
    batch, length = tokens_BT.shape
    angles = _rotary_angles(model.shape, length)
    x_MD = parameters["embed"][tokens_BT.reshape(-1)]
    for group, weights in zip(model.groups, parameters["blocks"], strict=True):
        x_MD = _group(model, group, angles, batch, weights, x_MD, key, channels)
    n_MD = _rms_norm(x_MD, parameters["final_norm"], model.dtype)
    embedding = parameters["embed" if model.shape.tied_embeddings else "unembed"]
    return matmul(model.products, n_MD, _narrow(embedding, model.dtype).T)


def _group(
    model: Decoder,
    group: tuple[int, int],
    angles: tuple[Any, Any],
    batch: int,
    weights: Parameters,
    x_MD: jax.Array,
    key: Key,
    channels: Channel,
) -> jax.Array:
    """Returns the residual stream after the blocks of one of `Decoder.groups`, whose weights are as
    `grouped` gives them.
    """
    first, count = group
    block: Callable[..., jax.Array] = partial(_block, model, first, angles, batch)
    if model.remat:
        # XLA cannot merge the two computations of a block across a loop's ends
        block = jax.checkpoint(block, prevent_cse=count == 1)

    def one(
        x_MD: jax.Array, block_inputs: tuple[Parameters, Any, Channel]
    ) -> tuple[jax.Array, None]:
        weights, index, channel = block_inputs
        return block(weights, x_MD, key.numbered(index, model.shape.n_layers), channel), None

    if count == 1:
        return one(x_MD, (weights, first, jax.tree.map(lambda part: part[first], channels)))[0]
    group_channels = jax.tree.map(lambda part: part[first : first + count], channels)
    result: jax.Array = jax.lax.scan(
        one, x_MD, (weights, jnp.arange(first, first + count), group_channels)
    )[0]
    return result


def _block(
    model: Decoder,
    index: int,
    angles: tuple[Any, Any],
    batch: int,
    weights: Parameters,
    x_MD: jax.Array,
    key: Key,
    channel: Channel,
) -> jax.Array:
    """Returns the residual stream after one block: its input plus the outputs of attention
    and MLP.
    """
    layer = partial(_projection, model, index, weights, key, channel)
    n_MD = _rms_norm(x_MD, weights["attention_norm"], model.dtype)
    query, key_MJE, value = (layer(name, n_MD) for name in ("query", "key", "value"))
    if model.shape.qk_norm:
        query, key_MJE = (
            _norm_of_heads(x, weights[name], model.dtype)
            for x, name in zip((query, key_MJE), QK_NORMS, strict=True)
        )
    mixed = _attention(model, query, key_MJE, value, angles, batch)
    x_MD = x_MD + layer("out", mixed).astype(jnp.float32)
    n_MD = _rms_norm(x_MD, weights["mlp_norm"], model.dtype)
    return x_MD + layer("down", _swiglu(layer("gate", n_MD), layer("up", n_MD))).astype(jnp.float32)


def _projection(
    model: Decoder,
    index: int,
    block: Parameters,
    key: Key,
    channel: Channel,
    name: str,
    x: jax.Array,
) -> jax.Array:
    number = PROJECTIONS.index(name)
    projection_channel = jax.tree.map(lambda part: part[number], channel)
    w = _narrow(block[name], model.dtype)
    recipe = model.recipe_of(index, name)
    layer = model.layer if recipe.quantized else linear
    return layer(recipe, x, w, key.numbered(number, len(PROJECTIONS)), projection_channel)


def _narrow(x: jax.Array, dtype: Any) -> jax.Array:
    """Returns x in the type of the linear layers, rounded exactly once."""
    if dtype == jnp.bfloat16 and x.dtype != dtype:
        return formats.to_bfloat16(x)
    return x


def _rms_norm(x_MD: jax.Array, gain_D: jax.Array, dtype: Any) -> jax.Array:
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(x_MD), axis=-1, keepdims=True) + _EPSILON)
    return _narrow(x_MD * scale * gain_D[None, :], dtype)


def _norm_of_heads(x: jax.Array, gain_E: jax.Array, dtype: Any) -> jax.Array:
    """Queries or keys (M, heads E), each head normalized by itself."""
    return _rms_norm(x.astype(jnp.float32).reshape(-1, gain_E.shape[0]), gain_E, dtype).reshape(
        x.shape
    )


def _swiglu(gate: jax.Array, up: jax.Array) -> jax.Array:
    return _narrow(jax.nn.silu(gate.astype(jnp.float32)) * up.astype(jnp.float32), gate.dtype)


def _rotary_angles(
    shape: Model, length: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Cosine and sine, (T, 1, E / 2) each, of position times frequency theta^(-2 i / E)."""
    half = shape.head_size // 2
    angle = np.arange(length)[:, None] * shape.rope_theta ** (-np.arange(half) / half)
    return np.cos(angle).astype(np.float32)[:, None], np.sin(angle).astype(np.float32)[:, None]


def _rotate(x_BTHE: jax.Array, angles: tuple[Any, Any]) -> jax.Array:
    """Rotary positions: the pair (i, i + E / 2) of every head turns by its angle."""
    cos, sin = (jnp.asarray(part)[None] for part in angles)
    left, right = jnp.split(x_BTHE.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)


def _attention(
    model: Decoder,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    angles: tuple[Any, Any],
    batch: int,
) -> jax.Array:
    """Causal grouped-query attention, (M, H E) to (M, H E). The G query heads of a key-value head
    are stacked as rows of one product.
    """
    shape = model.shape
    heads, groups, size = shape.n_heads, shape.n_kv_heads, shape.head_size
    length = query.shape[0] // batch
    q = _rotate(query.reshape(batch, length, heads, size), angles) / np.float32(np.sqrt(size))
    k = _rotate(key.reshape(batch, length, groups, size), angles)
    q = (
        q.reshape(batch, length, groups, heads // groups, size)
        .transpose(0, 2, 3, 1, 4)
        .reshape(batch, groups, -1, size)
    )
    k = k.transpose(0, 2, 1, 3)
    v = value.reshape(batch, length, groups, size).transpose(0, 2, 1, 3)
    scores = matmul(
        model.products, _narrow(q, model.dtype), _narrow(k, model.dtype).swapaxes(-1, -2)
    )
    scores = scores.reshape(batch, groups, heads // groups, length, length)
    place = jax.lax.broadcasted_iota(jnp.int32, (length, 1), 0)
    # counted in the program: written out, it was most of a program's size
    causal = place >= place.T
    weights = jax.nn.softmax(jnp.where(causal, scores, jnp.float32(-1e30)), axis=-1).reshape(
        batch, groups, -1, length
    )
    mixed = matmul(model.products, _narrow(weights, model.dtype), v)
    mixed = mixed.reshape(batch, groups, heads // groups, length, size).transpose(0, 3, 1, 2, 4)
    return _narrow(mixed.reshape(batch * length, heads * size), model.dtype)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def matmul(products: str, a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns a b over the last two axes with float32 sums; the backward pass rounds its gradient
    to the type of a first.
    """
    return _matmul(products, a, b)


def _matmul(products: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a.astype(products), b.astype(products), preferred_element_type=jnp.float32)


def _matmul_forward(
    products: str, a: jax.Array, b: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _matmul(products, a, b), (a, b)


def _matmul_backward(
    products: str, saved: tuple[jax.Array, jax.Array], g: jax.Array
) -> tuple[jax.Array, jax.Array]:
    a, b = saved
    narrow = _narrow(g, a.dtype)
    da = _matmul(products, narrow, b.swapaxes(-1, -2))
    db = _matmul(products, a.swapaxes(-1, -2), narrow)
    return _narrow(da, a.dtype), _narrow(db, b.dtype)


matmul.defvjp(_matmul_forward, _matmul_backward)
