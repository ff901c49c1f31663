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

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from training import random_bits
from training.formats import round_bfloat16
from training.quantize import Quantizer, count_nonfinite, to_bfloat16
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
    x, x_factor = _operand(recipe, recipe.fprop_x, x_MK, 1)
    w, w_factor = _operand(recipe, recipe.fprop_w, w_KN, 0)
    y_MN = _finish(product(x, w), x_factor, w_factor, x_MK.dtype)
    x_for_wgrad, x_for_wgrad_factor = _operand(recipe, recipe.wgrad_x, x_MK, 0)
    saved_x = transposed(x_for_wgrad), x_for_wgrad_factor
    saved_w = _operand(recipe, recipe.dgrad_w, w_KN, 1)
    nonfinite = count_nonfinite(x_MK) + count_nonfinite(w_KN) if recipe.quantized else jnp.float32(0)
    return y_MN, (saved_x, saved_w, seed, nonfinite)


def _backward(recipe: LinearRecipe, saved: Any, g_MN: jax.Array) -> tuple[jax.Array, jax.Array, None, jax.Array]:
    (x_KM, x_factor), (w_KN, w_factor), seed, nonfinite = saved
    g, g_factor = _operand(recipe, recipe.dgrad_g, g_MN, 1, random_bits.fold(seed, _DGRAD))
    dx_MK = _finish(product(g, w_KN, transpose_b=True), g_factor, w_factor, g_MN.dtype)
    g, g_factor = _operand(recipe, recipe.wgrad_g, g_MN, 0, random_bits.fold(seed, _WGRAD))
    dw_KN = _finish(product(x_KM, g), x_factor, g_factor, g_MN.dtype)
    if recipe.quantized:
        nonfinite = nonfinite + count_nonfinite(g_MN)
    return dx_MK, dw_KN, None, nonfinite


linear.defvjp(_forward, _backward)


def _operand(
    recipe: LinearRecipe, quantizer: Quantizer | None, x: jax.Array, axis: int, seed: jax.Array | None = None
) -> tuple[jax.Array, jax.Array | None]:
    """One operand in the type of the products, and the factor of its tensor (None: nothing to multiply by)."""
    dtype = jnp.dtype(recipe.products)
    if quantizer is None:
        return x.astype(dtype), None
    value, factor = to_bfloat16(x, axis, quantizer, seed)
    return value.astype(dtype), factor


def _finish(acc: jax.Array, a_factor: jax.Array | None, b_factor: jax.Array | None, dtype: Any) -> jax.Array:
    """The float32 product times the tensor factors, rounded once to `dtype`."""
    factors = [factor for factor in (a_factor, b_factor) if factor is not None]
    if factors:
        acc = acc * math.prod(factors[1:], start=factors[0])
    return round_bfloat16(acc).astype(dtype) if dtype == jnp.bfloat16 else acc


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
