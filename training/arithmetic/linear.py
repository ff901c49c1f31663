"""The quantized linear layer: three GEMMs whose operands are quantized as a recipe says.

What it answers: what are y, dx and dw of one linear layer under a recipe?

    y  = Q(x) Q(w)        fprop          x_MK, w_KN, y_MN; M tokens, K inputs, N outputs
    dx = Q(g) Q(w)^T      dgrad          g_MN is the gradient of y
    dw = Q(x)^T Q(g)      wgrad

x and w are quantized in the forward pass, for fprop and also for the backward products; g is
quantized in the backward pass. The products accumulate in float32, are multiplied by the factors
of both tensors and rounded once to the type of x.

The assumption that can fail: products accumulate in float32, in any order. A matrix unit that
accumulates in fewer bits (such as FP8 tensor cores with their fast accumulator) gives other last
bits.

On a CPU with bfloat16 units the layout decides the speed: the fast kernels compute A B and A B^T,
not A^T B. So wgrad's x is transposed explicitly, in panels of sixteen rows, because XLA folds a
plain transpose back into the slow product.

Source: Transformer Engine 2.20.2, jax/dense.py. docs/arithmetic.md gives the comparison with its
vectors.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from training.arithmetic import formats
from training.arithmetic.layer_statistics import (
    COMPARISONS,
    gradient_comparison,
    layer_statistics,
    quiet_statistics,
)
from training.arithmetic.quantize import Operand, Quantizer, count_nonfinite, to_bfloat16
from training.arithmetic.random_bits import Key
from training.arithmetic.recipes import LinearRecipe

PANEL = 16
DGRAD, WGRAD = range(2)  # the two copies of g are rounded by different random numbers


class Channel(NamedTuple):
    """Additional inputs of a layer; two of them return its measurements as their gradients.

    scale (..., 3): encode scales of x, w and g under delayed scaling, otherwise 1. report (..., 4)
    and statistics (..., COLUMNS) are zeros that change no output; the backward pass returns the
    layer's measurements in place of their gradients. The report contains the amax of x, w and g (0
    for one that is not quantized, that of the rotated copy if it has no other) and how many of
    their values are NaN or infinite. The statistics are those of `layer_statistics`,
    zeros unless the recipe is watched, or compared.
    """

    scale: jax.Array
    report: jax.Array
    statistics: jax.Array


def quiet_channel(*shape: int) -> Channel:
    """Returns a channel for layers of the given shape, without delayed scales."""
    return Channel(
        scale=jnp.ones((*shape, 3), jnp.float32),
        report=jnp.zeros((*shape, 4), jnp.float32),
        statistics=quiet_statistics(*shape),
    )


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def linear(
    recipe: LinearRecipe, x_MK: jax.Array, w_KN: jax.Array, key: Key, channel: Channel
) -> jax.Array:
    """Returns y (M, N) = x (M, K) w (K, N) under a recipe, in x's type; x and w have the type
    `recipe.activations`.

    key: another for every layer and step (stochastic rounding of g). channel: delayed scales go in;
    amaxes and the count of non-finite values come out, so that no such value goes unnoticed.
    """
    y_MN: jax.Array = _forward(recipe, x_MK, w_KN, key, channel)[0]
    return y_MN


# Compiled functions of their own, so that layers of one shape and recipe are traced once.
@partial(jax.jit, static_argnums=0)
def _forward(
    recipe: LinearRecipe, x_MK: jax.Array, w_KN: jax.Array, key: Key, channel: Channel
) -> tuple[jax.Array, Any]:
    x_scale, w_scale, g_scale = channel.scale
    x, w = (
        operand_of(recipe, recipe.fprop_x, x_MK, 1, x_scale),
        operand_of(recipe, recipe.fprop_w, w_KN, 0, w_scale),
    )
    y_MN = finished(product(x.value, w.value), x, w, x_MK.dtype)
    saved_x, saved_w = (
        operand_of(recipe, recipe.wgrad_x, x_MK, 0, x_scale),
        operand_of(recipe, recipe.dgrad_w, w_KN, 1, w_scale),
    )
    x_amax, x_nonfinite = _reported(x_MK, (recipe.fprop_x, x), (recipe.wgrad_x, saved_x))
    w_amax, w_nonfinite = _reported(w_KN, (recipe.fprop_w, w), (recipe.dgrad_w, saved_w))
    amaxes, nonfinite = (x_amax, w_amax), x_nonfinite + w_nonfinite
    x_statistics = layer_statistics(recipe.watched, recipe.fprop_x, x_MK, x, 1, x_scale)
    w_statistics = layer_statistics(recipe.watched, recipe.fprop_w, w_KN, w, 0, w_scale)
    saved_x_statistics = _wgrad_statistics(
        recipe, (recipe.fprop_x, recipe.wgrad_x), x_statistics, x_MK, saved_x, x_scale
    )
    original = x_MK if recipe.compared else None
    return y_MN, (
        (saved_x, saved_w),
        amaxes,
        key,
        channel._replace(scale=g_scale),
        nonfinite,
        (x_statistics, w_statistics, saved_x_statistics),
        original,
    )


@partial(jax.jit, static_argnums=0)
def _backward(
    recipe: LinearRecipe, saved: Any, g_MN: jax.Array
) -> tuple[jax.Array, jax.Array, None, Channel]:
    (
        (x, w),
        amaxes,
        key,
        channel,
        nonfinite,
        (x_statistics, w_statistics, saved_x_statistics),
        original_x,
    ) = saved
    scale = channel.scale
    g = operand_of(recipe, recipe.dgrad_g, g_MN, 1, scale, key.numbered(DGRAD, 2))
    g_statistics = layer_statistics(recipe.watched, recipe.dgrad_g, g_MN, g, 1, scale)
    dx_MK = finished(product(g.value, w.value, transpose_b=True), g, w, g_MN.dtype)
    narrow = g_MN.shape[1] < x.value.shape[1] and g_MN.shape[1] % PANEL == 0
    # on a GPU a branch would wait for the host
    apart = narrow and not recipe.watched and formats.on_cpu()
    amax = g.amax if recipe.dgrad_g is not None else amaxes[0]
    dgrad_g, g = g, _wgrad_g(recipe, g_MN, scale, key.numbered(WGRAD, 2), apart, amax)
    g_amax, g_nonfinite = _reported(g_MN, (recipe.dgrad_g, dgrad_g), (recipe.wgrad_g, g))
    report = jnp.stack([*amaxes, g_amax, nonfinite + g_nonfinite])
    if narrow:  # transpose the narrower of the two
        dw_KN = transposed(finished(product(transposed(g.value), x.value), g, x, g_MN.dtype))
    else:
        dw_KN = finished(
            product(transposed(x.value), g.value), x._replace(factor=x.factor.T), g, g_MN.dtype
        )
    wgrad_g_statistics = _wgrad_statistics(
        recipe, (recipe.dgrad_g, recipe.wgrad_g), g_statistics, g_MN, g, scale
    )
    compared = _compared(recipe, dw_KN, original_x, g_MN)
    statistics = jnp.concatenate(
        [x_statistics, w_statistics, g_statistics, saved_x_statistics, wgrad_g_statistics, compared]
    )
    return dx_MK, dw_KN, None, Channel(jnp.zeros(3, jnp.float32), report, statistics)


linear.defvjp(_forward, _backward)


def operand_of(
    recipe: LinearRecipe,
    quantizer: Quantizer | None,
    x: jax.Array,
    axis: int,
    scale: jax.Array,
    key: Key | None = None,
) -> Operand:
    """Returns one operand in the type of the products; if it is not quantized, its factor is 1 and
    its amax 0.
    """
    dtype = jnp.dtype(recipe.products)
    if quantizer is None:
        return Operand(x.astype(dtype), jnp.float32(1), jnp.float32(0))
    quantized = to_bfloat16(x, axis, quantizer, key, scale if quantizer.delayed else None)
    return quantized._replace(value=quantized.value.astype(dtype))


def _wgrad_g(
    recipe: LinearRecipe, g_MN: jax.Array, scale: jax.Array, key: Key, apart: bool, amax: jax.Array
) -> Operand:
    """Returns wgrad's copy of g; `apart` keeps its rounding out of the loop that writes its
    transpose.

    Otherwise XLA rounds inside the loop that transposes, which takes three times as long as
    rounding first. It cannot fuse into a branch, and cannot know that this branch is always taken.
    """

    def rounded(g_MN: jax.Array, key: Key) -> Operand:
        return operand_of(recipe, recipe.wgrad_g, g_MN, 0, scale, key)

    def nothing(g_MN: jax.Array, key: Key) -> Operand:
        return Operand(
            *(jnp.zeros(part.shape, part.dtype) for part in jax.eval_shape(rounded, g_MN, key))
        )

    if not apart or recipe.wgrad_g is None or not recipe.wgrad_g.stochastic:
        return rounded(g_MN, key)
    operand: Operand = jax.lax.cond(~(amax < -1), rounded, nothing, g_MN, key)
    return operand


def _wgrad_statistics(
    recipe: LinearRecipe,
    quantizers: tuple[Quantizer | None, Quantizer | None],
    other_statistics: jax.Array,
    x: jax.Array,
    operand: Operand,
    scale: jax.Array,
) -> jax.Array:
    """The statistics of the copy for wgrad; those of the other copy if the two have the same codes
    (one scale for the tensor).
    """
    other, quantizer = quantizers
    if quantizer == other and quantizer is not None and quantizer.scaling == "tensor":
        return other_statistics
    return layer_statistics(recipe.watched, quantizer, x, operand, 0, scale)


def _compared(
    recipe: LinearRecipe, dw_KN: jax.Array, x_MK: jax.Array | None, g_MN: jax.Array
) -> jax.Array:
    """The weight's gradient next to that of x and g without quantization; zeros on a step that does
    not compare.
    """
    if x_MK is None:
        return jnp.full(
            len(COMPARISONS), jnp.nan if recipe.watched or not recipe.quantized else 0, jnp.float32
        )
    dtype = jnp.dtype(recipe.products)
    return gradient_comparison(dw_KN, product(transposed(x_MK.astype(dtype)), g_MN.astype(dtype)))


def _reported(
    x: jax.Array, *copies: tuple[Quantizer | None, Operand]
) -> tuple[jax.Array, jax.Array]:
    """The amax of x and its count of non-finite values, from the copy whose scale follows the amax,
    or the first one that is quantized.

    Both are 0 if none is.
    """
    quantized = [(quantizer, operand) for quantizer, operand in copies if quantizer is not None]
    if not quantized:
        return jnp.float32(0), jnp.float32(0)
    quantizer, operand = next((copy for copy in quantized if copy[0].delayed), quantized[0])
    return operand.amax, count_nonfinite(x, operand.amax, quantizer)


def finished(acc: jax.Array, a: Operand, b: Operand, dtype: Any) -> jax.Array:
    """The float32 product times the factors (scalars, or one for each of its rows or columns),
    rounded once to `dtype`.
    """
    acc = acc * (a.factor * b.factor)
    if dtype == jnp.bfloat16:
        return formats.to_bfloat16(acc)
    return acc


def product(a: jax.Array, b: jax.Array, *, transpose_b: bool = False) -> jax.Array:
    """a b, or a b^T, of two matrices, accumulated and returned in float32."""
    dimensions = (((1,), (1 if transpose_b else 0,)), ((), ()))
    return jax.lax.dot_general(a, b, dimensions, preferred_element_type=jnp.float32)


def transposed(x_MK: jax.Array) -> jax.Array:
    """x^T (K, M), on a CPU written out in panels of sixteen rows so that XLA does not fold it into
    a slower product.
    """
    rows, columns = x_MK.shape
    if rows % PANEL or not formats.on_cpu():
        return x_MK.T
    return jnp.moveaxis(x_MK.reshape(rows // PANEL, PANEL, columns), 2, 0).reshape(columns, rows)
