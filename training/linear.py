"""The quantized linear layer: three GEMMs whose operands are quantized as a recipe says.

What it answers: what are y, dx and dw of one linear layer under a recipe?

    y  = Q(x) Q(w)        fprop          x_MK, w_KN, y_MN; M tokens, K inputs, N outputs
    dx = Q(g) Q(w)^T      dgrad          g_MN is the gradient of y
    dw = Q(x)^T Q(g)      wgrad

x and w are quantized in the forward pass, for fprop and already for the backward products; g in the backward pass. The
products accumulate in float32, are multiplied by the two tensor factors and rounded once to the type of x.

The assumption that can fail: float32 accumulation in any order. A matrix unit that accumulates in fewer bits (as FP8
tensor cores with their fast accumulator do) gives other last bits.

Layouts decide the speed on a CPU with bfloat16 units: the fast kernels take A B and A B^T, not A^T B, so wgrad's x is
transposed by hand, in panels of sixteen rows, because XLA folds a plain transpose back into the slow product.

Source: Transformer Engine 2.20.2, jax/dense.py. docs/numerics.md gives the comparison with its vectors.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from training import formats, random_bits
from training.quantize import Operand, Quantizer, count_nonfinite, to_bfloat16
from training.recipes import LinearRecipe

_PANEL = 16
_DGRAD, _WGRAD = 1, 2  # salts: the two copies of g are rounded by different random numbers


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def linear(recipe: LinearRecipe, x_MK: jax.Array, w_KN: jax.Array, seed: jax.Array, probe: jax.Array) -> jax.Array:
    """y (M, N) = x (M, K) w (K, N) under a recipe, in x's type; x and w have the type `recipe.activations`.

    seed: uint32 scalar, other for every layer and step (stochastic rounding of g). probe: float32 scalar 0; it does not
    change y, but its gradient is the number of non-finite values in x, w and g, so that no such value stays hidden.
    """
    y_MN, _ = _forward(recipe, x_MK, w_KN, seed, probe)
    return y_MN


def _forward(recipe: LinearRecipe, x_MK: jax.Array, w_KN: jax.Array, seed: jax.Array, probe: jax.Array) -> tuple[jax.Array, Any]:
    del probe
    x, w = _operand(recipe, recipe.fprop_x, x_MK, 1), _operand(recipe, recipe.fprop_w, w_KN, 0)
    y_MN = _finish(product(x.value, w.value), x, w, x_MK.dtype)
    nonfinite = _nonfinite(recipe.fprop_x, x_MK, x) + _nonfinite(recipe.fprop_w, w_KN, w)
    return y_MN, (_operand(recipe, recipe.wgrad_x, x_MK, 0), _operand(recipe, recipe.dgrad_w, w_KN, 1), seed, nonfinite)


def _backward(recipe: LinearRecipe, saved: Any, g_MN: jax.Array) -> tuple[jax.Array, jax.Array, None, jax.Array]:
    x, w, seed, nonfinite = saved
    g = _operand(recipe, recipe.dgrad_g, g_MN, 1, random_bits.fold(seed, _DGRAD))
    dx_MK = _finish(product(g.value, w.value, transpose_b=True), g, w, g_MN.dtype)
    nonfinite = nonfinite + _nonfinite(recipe.dgrad_g, g_MN, g)
    g = _operand(recipe, recipe.wgrad_g, g_MN, 0, random_bits.fold(seed, _WGRAD))
    if g_MN.shape[1] < x.value.shape[1] and g_MN.shape[1] % _PANEL == 0:  # write out the narrower of the two
        return dx_MK, transposed(_finish(product(transposed(g.value), x.value), g, x, g_MN.dtype)), None, nonfinite
    return dx_MK, _finish(product(transposed(x.value), g.value), x, g, g_MN.dtype), None, nonfinite


linear.defvjp(_forward, _backward)


def _operand(recipe: LinearRecipe, quantizer: Quantizer | None, x: jax.Array, axis: int, seed: jax.Array | None = None) -> Operand:
    """One operand in the type of the products; unquantized, it has factor and amax 1."""
    dtype = jnp.dtype(recipe.products)
    if quantizer is None:
        return Operand(x.astype(dtype), jnp.float32(1), jnp.float32(1))
    quantized = to_bfloat16(x, axis, quantizer, seed)
    return quantized._replace(value=quantized.value.astype(dtype))


def _nonfinite(quantizer: Quantizer | None, x: jax.Array, operand: Operand) -> jax.Array:
    """How many non-finite values reached the quantizer."""
    return count_nonfinite(x, operand.amax) if quantizer is not None else jnp.float32(0)


def _finish(acc: jax.Array, a: Operand, b: Operand, dtype: Any) -> jax.Array:
    """The float32 product times the tensor factors, rounded once to `dtype`."""
    acc = acc * (a.factor * b.factor)
    return formats.to_bfloat16(acc) if dtype == jnp.bfloat16 else acc


def product(a: jax.Array, b: jax.Array, *, transpose_b: bool = False) -> jax.Array:
    """a b, or a b^T, of two matrices, accumulated and returned in float32."""
    dimensions = (((1,), (1 if transpose_b else 0,)), ((), ()))
    return jax.lax.dot_general(a, b, dimensions, preferred_element_type=jnp.float32)


def transposed(x_MK: jax.Array) -> jax.Array:
    """x^T (K, M), written out in panels of sixteen rows so that XLA does not fold it into a slower product."""
    rows, columns = x_MK.shape
    if rows % _PANEL:
        return x_MK.T
    return jnp.moveaxis(x_MK.reshape(rows // _PANEL, _PANEL, columns), 2, 0).reshape(columns, rows)
