"""Four over six: a block of NVFP4 numbers chooses whether its largest becomes 6 or 4.

What it answers: which of two E4M3 scales does a block of sixteen get?

    to 6:  s6 = E4M3(b / 6 * S)            b = amax of the block, S = 6 * bound / amax of the
           tensor
    to 4:  s4 = E4M3(b / 6 * S * 1.5)      bound = 256, or 448 as in plain NVFP4
    err  = sum |code * s * amax / (6 * bound) - x|    (mae), or the sum of its squares (mse), over
         the block
    s4 where its error is smaller, s6 otherwise (a tie too)

The grid of E2M1 is coarse near its end: a value of 5 becomes 4 or 6. Scaled to 4, the largest
value and those near it lie on a finer part of the grid, and the smaller values lose half a bit.
With bound 448 a block close to the tensor's amax has no room for s4, which saturates; 256 leaves
room (256 * 1.5 = 384).

Bits are those of Transformer Engine's reference: both divisions are exact (by a constant, as q +
x's remainder / c, because XLA would replace such a division by a product), a product is rounded
before the next sum, and errors are added one after another along the contracted axis, then, in
square blocks, the sixteen sums in a tree (rows i and i + 8, then i + 4, i + 2, i + 1).

The assumption that can fail: numbers are normal float32. Blocks with amax below 7.1e-38, and
errors (or their squares) below 1.2e-38, count as zero here, and a remainder below that leaves a
quotient off by one unit. So choices begin to differ at an amax of 1e-32 (mae) or 3e-17 (mse).

Source: Transformer Engine 2.20.2, pytorch/custom_recipes/reference_nvfp4.py (NVFP4QuantizerRef)
and pytorch/quantization.py; arXiv 2512.02010 for the idea.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from training.arithmetic import formats
from training.arithmetic.formats import E2M1, E4M3

ErrorMeasure = Literal["mae", "mse"]
BLOCK = 16
BOUND = 256.0
_SQUARE = 4  # axes of the blocked view of square blocks; others have 3
_EXPANSION = np.float32(1.5)
# Powers of two that add up to a divisor.
_PARTS = {6.0: (4.0, 2.0), 1536.0: (1024.0, 512.0), 2688.0: (2048.0, 512.0, 128.0)}


class Tensor(NamedTuple):
    """What the tensor (or each row) gives its blocks: amax, encode scale S, and 6 * bound, with
    which S was made.
    """

    amax: jax.Array
    encode: jax.Array
    both: float


def block_scale(
    view: jax.Array,
    axis: int,
    largest: jax.Array,
    tensor: Tensor,
    encode_scale: Callable[[jax.Array], jax.Array],
    measure: ErrorMeasure,
) -> jax.Array:
    """Returns the scale (an E4M3 value, float32) that each block chooses, in the shape of
    `largest`.

    view: x in the blocked view, along `axis` or square; largest: each block's amax; encode_scale:
    the factor by which x is multiplied under a block scale.
    """
    scale_for_6 = constant_quotient(largest, E2M1.largest) * tensor.encode
    scales = [formats.nearest(scale, E4M3) for scale in (scale_for_6 * _EXPANSION, scale_for_6)]
    x = view.astype(jnp.float32)
    error_4, error_6 = (
        _error(x, axis, scale, encode_scale(scale), tensor, measure) for scale in scales
    )
    return jnp.where(error_4 < error_6, scales[0], scales[1])


def constant_quotient(x: jax.Array, by: float) -> jax.Array:
    """Returns x / by, rounded once, for normal float32 results and for infinity; `by` is 6, 1536 or
    2688.

    The quotient is corrected by its remainder, which is exact: each of its subtractions is of two
    numbers within a factor of 2.
    """
    inverse = np.float32(1 / by)
    quotient = _rounded(x, inverse)
    remainder = x
    for part in _PARTS[by]:
        remainder = remainder - np.float32(part) * quotient
    return jnp.where(jnp.isfinite(x), quotient + remainder * inverse, quotient)


def _error(
    x: jax.Array,
    axis: int,
    scale: jax.Array,
    encode: jax.Array,
    tensor: Tensor,
    measure: ErrorMeasure,
) -> jax.Array:
    """The error of every block under one scale, in the shape of `scale`."""
    code = formats.nearest(x * encode, E2M1)
    difference = constant_quotient(_rounded(tensor.amax, code * scale), tensor.both) - x
    error = _rounded(difference, difference) if measure == "mse" else jnp.abs(difference)
    if x.ndim == _SQUARE:
        along, across = (1, 3) if axis == 0 else (3, 1)
        return _tree_sum(_sequential_sum(error, along), across)
    return _sequential_sum(error, 1 if axis == 0 else 2)


def _rounded(a: jax.Array, b: jax.Array | np.float32) -> jax.Array:
    """a * b, rounded. XLA would fuse a plain product with the sum that follows, and round only
    once.

    The selection never changes a value (NaN times anything is NaN); it keeps product and sum apart.
    """
    return jnp.where(jnp.isnan(a), a, a * b)


def _sequential_sum(error: jax.Array, axis: int) -> jax.Array:
    total = jax.lax.index_in_dim(error, 0, axis)
    for i in range(1, BLOCK):
        total = total + jax.lax.index_in_dim(error, i, axis)
    return total


def _tree_sum(error: jax.Array, axis: int) -> jax.Array:
    while error.shape[axis] > 1:
        half = error.shape[axis] // 2
        error = jax.lax.slice_in_dim(error, 0, half, axis=axis) + jax.lax.slice_in_dim(
            error, half, 2 * half, axis=axis
        )
    return error
