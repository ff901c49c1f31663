"""Quantizers: a matrix becomes codes of a small format with their scales; with Hadamard transform,
four over six, and delayed scaling.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from training.arithmetic import formats
from training.arithmetic.formats import E2M1, E4M3, E5M2, Format
from training.arithmetic.formats import to_bfloat16 as as_bfloat16
from training.rules import frozen

# The random Hadamard transform (RHT) of NVFP4 training: spread an outlier over sixteen neighbours
# before quantizing.
#
# What it answers: which rotation is applied to the two operands of wgrad, and why does nothing have
# to undo it?
#
#     R = diag(s) H / 4,   H = the 16 x 16 Sylvester matrix of +-1,   s = sixteen fixed signs,   R
#                          R^T = I
#
# wgrad is dw = x^T g, a sum over tokens. Cut the tokens into groups of sixteen and rotate each
# group of x and of g by the same R: (R^T x)^T (R^T g) = x^T R R^T g = x^T g. The product does not
# change, so nothing has to be undone afterwards. Only the quantizer's input changes. Sixteen FP4
# codes share one scale, which the largest of them sets: next to a 64, values near 1 are below half
# of the smallest step (64 / 6 / 2) and become 0. After the rotation the 64 is spread over sixteen
# numbers of 16, each plus or minus a quarter of the sum of the others, which is again near 1: all
# of them land on the grid, and x^T g keeps the contribution of the small values.
#
# H is a Kronecker product of four 2 x 2 butterflies, and so also of two 4 x 4 matrices: H16 = H4
# (x) H4. Four rounds of sums and differences need 4 additions per number, the plain product 15. Two
# stages of 4 x 4, with two rounds each, run faster in XLA than four stages, because every stage is
# a pass over memory.
#
# The assumption that can fail: float32 sums of sixteen bfloat16 numbers are exact while the
# exponents of a group span at most 12 bits; beyond that, the order of summation shows in the last
# bit, before the result is rounded to bfloat16.
#
# Source: Transformer Engine 2.20.2, jax/quantize/hadamard.py (sign vector; R applied to the
# transposed operand, float32 accumulation, result in the input's type); arXiv 2509.25149, section 4
# (wgrad only; one fixed sign vector is enough).

SIZE = 16
SIGNS: tuple[int, ...] = (1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1)


def sylvester(size: int) -> npt.NDArray[np.float32]:
    """The size x size Hadamard matrix of +-1 by Sylvester's doubling; size is a power of two."""
    matrix = np.ones((1, 1), np.float32)
    while matrix.shape[0] < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def matrix() -> npt.NDArray[np.float32]:
    """R (16, 16): a row vector v of sixteen values is rotated as v @ R. Entries +-0.25, exact in
    bfloat16.
    """
    return (np.asarray(SIGNS, np.float32)[:, None] * sylvester(SIZE) / 4).astype(np.float32)


def _stage(parts: list[jax.Array]) -> list[jax.Array]:
    """H4 applied to four arrays: two rounds of sums and differences."""
    a, b, c, d = parts
    ab, cd, a_b, c_d = a + b, c + d, a - b, c - d
    return [ab + cd, a_b + c_d, ab - cd, a_b - c_d]


def rotate(x_MK: jax.Array) -> jax.Array:
    """x (M, K) with every group of sixteen rows rotated by R, in x's type; M is a multiple of 16.

    Column k of group m becomes x[16m:16m+16, k] @ R, summed in float32 and rounded once if x is
    bfloat16.
    """
    if formats.on_cpu():
        return _rotated(x_MK, _by_stages)
    # Whole arrays before and after: otherwise XLA computes x again for each of the sixteen terms,
    # and the terms again for each use.
    return formats.materialized(_rotated(formats.materialized(x_MK)[0], _by_trees))[0]


def _rotated(x_MK: jax.Array, rotation: Callable[[jax.Array], jax.Array]) -> jax.Array:
    rows, columns = x_MK.shape
    rotated = rotation(x_MK.astype(jnp.float32).reshape(rows // SIZE, SIZE, columns)).reshape(
        rows, columns
    )
    if x_MK.dtype == jnp.bfloat16:
        return as_bfloat16(rotated)
    return rotated


def _by_stages(x_GSK: jax.Array) -> jax.Array:
    """x R for every group, by two stages of 4 x 4."""
    groups, _, columns = x_GSK.shape
    # scaled first: sums near the largest float would overflow
    quarter = np.asarray(SIGNS, np.float32).reshape(1, SIZE, 1) / 4
    x_GABK = (x_GSK * quarter).reshape(groups, 4, 4, columns)
    fast = jnp.stack(_stage([x_GABK[:, :, i] for i in range(4)]), axis=2)
    return jnp.stack(_stage([fast[:, i] for i in range(4)]), axis=1).reshape(x_GSK.shape)


def _by_trees(x_GSK: jax.Array) -> jax.Array:
    """x R for every group, each number by itself: sixteen terms, added in the order of the two
    stages, so that the bits are the same.

    On a GPU the stages were several kernels with copies between them, an eighth of a step of NVFP4;
    this is one.
    """
    terms: list[jax.Array] = [
        x_GSK[:, i : i + 1] * row[None, :, None] for i, row in enumerate(matrix())
    ]
    while len(terms) > 1:
        terms = [left + right for left, right in zip(terms[::2], terms[1::2], strict=True)]
    (rotated,) = terms
    return rotated


# Four over six: a block of NVFP4 numbers chooses whether its largest becomes 6 or 4.
#
# What it answers: which of two E4M3 scales does a block of sixteen get?
#
#     to 6:  s6 = E4M3(b / 6 * S)            b = amax of the block, S = 6 * bound / amax of the
#            tensor
#     to 4:  s4 = E4M3(b / 6 * S * 1.5)      bound = 256, or 448 as in plain NVFP4
#     err  = sum |code * s * amax / (6 * bound) - x|    (mae), or the sum of its squares (mse), over
#          the block
#     s4 where its error is smaller, s6 otherwise (a tie too)
#
# The grid of E2M1 is coarse near its end: a value of 5 becomes 4 or 6. Scaled to 4, the largest
# value and those near it lie on a finer part of the grid, and the smaller values lose half a bit.
# With bound 448 a block close to the tensor's amax has no room for s4, which saturates; 256 leaves
# room (256 * 1.5 = 384).
#
# Bits are those of Transformer Engine's reference: both divisions are exact (by a constant, as q +
# x's remainder / c, because XLA would replace such a division by a product), a product is rounded
# before the next sum, and errors are added one after another along the contracted axis, then, in
# square blocks, the sixteen sums in a tree (rows i and i + 8, then i + 4, i + 2, i + 1).
#
# The assumption that can fail: numbers are normal float32. Blocks with amax below 7.1e-38, and
# errors (or their squares) below 1.2e-38, count as zero here, and a remainder below that leaves a
# quotient off by one unit. So choices begin to differ at an amax of 1e-32 (mae) or 3e-17 (mse).
#
# Source: Transformer Engine 2.20.2, pytorch/custom_recipes/reference_nvfp4.py (NVFP4QuantizerRef)
# and pytorch/quantization.py; arXiv 2512.02010 for the idea.

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
    to_6 = constant_quotient(largest, E2M1.largest) * tensor.encode
    scales = [formats.nearest(scale, E4M3) for scale in (to_6 * _EXPANSION, to_6)]
    x = view.astype(jnp.float32)
    error_4, error_6 = (
        _error(x, axis, scale, encode_scale(scale), tensor, measure) for scale in scales
    )
    return jnp.where(error_4 < error_6, scales[0], scales[1])


def constant_quotient(x: jax.Array, by: float) -> jax.Array:
    """Returns x / by, rounded once, for normal float32 results; `by` is 6, 1536 or 2688.

    The quotient is corrected by its remainder, which is exact: each of its subtractions is of two
    numbers within a factor of 2.
    """
    inverse = np.float32(1 / by)
    quotient = _rounded(x, inverse)
    remainder = x
    for part in _PARTS[by]:
        remainder = remainder - np.float32(part) * quotient
    return quotient + remainder * inverse


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
        return _in_tree(_in_order(error, along), across)
    return _in_order(error, 1 if axis == 0 else 2)


def _rounded(a: jax.Array, b: jax.Array | np.float32) -> jax.Array:
    """a * b, rounded. XLA would fuse a plain product with the sum that follows, and round only
    once.

    The selection never changes a value (NaN times anything is NaN); it keeps product and sum apart.
    """
    return jnp.where(jnp.isnan(a), a, a * b)


def _in_order(error: jax.Array, axis: int) -> jax.Array:
    total = jax.lax.index_in_dim(error, 0, axis)
    for i in range(1, BLOCK):
        total = total + jax.lax.index_in_dim(error, i, axis)
    return total


def _in_tree(error: jax.Array, axis: int) -> jax.Array:
    while error.shape[axis] > 1:
        half = error.shape[axis] // 2
        error = jax.lax.slice_in_dim(error, 0, half, axis=axis) + jax.lax.slice_in_dim(
            error, half, 2 * half, axis=axis
        )
    return error


# Quantizers: convert a matrix to codes of a small format, with the scales of the codes.
#
# What it answers: which code and which scale does Transformer Engine give every element, and which
# bfloat16 number carries the same value into a matrix product?
#
#     tensor (FP8)  one scale a tensor     value = code / S                  S = largest / amax
#     mx     (MX)   32 share an E8M0       value = code * 2^(byte - 127)     byte = round up(amax of
#            block / largest)
#     nvfp4         16 share an E4M3,      value = code * s * (amax / 2688)  s = E4M3(amax of block
#                   * S / 6), S = 2688 / amax
#                   the tensor a float32   (2688 = 448 * 6; the division is a product with
#                     float32(1/2688), as XLA would
#                                          make it in some programs and not in others)
#     fp8_block     128 share a power of   value = code * 2^(byte - 127)     byte as in mx, but 127
#                   for a block of zeros, and the
#                   two (a float32)                                          scale of a block that
#                     contains infinity is infinite
#
# Variants of nvfp4: `row_scaled` has one S for each line along the contracted axis (a row of x in
# fprop, a column in wgrad) instead of one for the tensor; `four_over_six` chooses between two
# scales for each block (`training.arithmetic.quantize`). `drops_nan` computes every amax without
# the NaN values, and FP4 turns NaN into +6, as NVIDIA's hardware does; FP8 keeps NaN.
#
# One computation with two outputs: `quantize` packs codes and scale bytes (for vectors and tests);
# `to_bfloat16` returns code * block scale as bfloat16, and the tensor's float32 factor separately.
# code * block scale is exact: E2M1 has 2 significant bits and E4M3 4, together at most 6 of
# bfloat16's 8; an FP8 code has at most 4, and a power of two adds none. So a product of bfloat16
# matrices with float32 accumulation, times the two factors, is the product of the quantized
# matrices.
#
# The assumption that can fail: XLA flushes float32 subnormals (below 1.2e-38) to zero on CPUs. The
# codes and scales of a tensor of normal numbers are still right; a subnormal element counts as
# zero, and under the rotation one below 4.7e-38; and a tensor with amax below 3.2e-35 (NVFP4), or
# an MX block with amax below 2.7e-36, becomes zero in the product.
#
# Shapes: M, K are the matrix; `axis` is the axis that will be contracted, along which the blocks
# lie. A size that is not a multiple of the block is padded with zeros, and the result is cut; the
# scales keep the padded count. Sources: Transformer Engine 2.20.2,
# pytorch/custom_recipes/reference_nvfp4.py and reference_current_scaling.py,
# common/recipe/__init__.py; the order of the multiplications in the block scale is that of its CUDA
# kernels since 2.14.

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_BFLOAT16_MAX = 3.3895313892515355e38
_SIXTH = float(np.float32(1) / np.float32(6))
# of random bits, with which Transformer Engine's software rounder cuts instead of rounding
_FEW_BITS = 8
# beyond this encode scale 1 / scale is taken 2^32 times as large, out of the subnormals
_LIFTED, _LIFT = 2.0**100, 2.0**32


@frozen
class Quantizer:
    """How one operand of one GEMM is quantized. Hashable, so that it can be a static argument of a
    jitted function.
    """

    format: Format
    scaling: Literal["tensor", "mx", "nvfp4", "fp8_block"]
    block: int = 1
    two_dimensional: bool = False
    stochastic: bool = False
    rotated: bool = False
    delayed: bool = False
    row_scaled: bool = False
    four_over_six: ErrorMeasure | None = None
    # the largest block scale of nvfp4 before four over six chooses
    scale_bound: float = E4M3.largest
    sr_bits: Literal[8, 16] = 16
    drops_nan: bool = False

    def __post_init__(self) -> None:
        if self.scaling != "tensor" and self.block < 2:
            raise ValueError(
                f"quantizer.block is {self.block}, expected at least 2 for {self.scaling} scaling; "
                "16 for NVFP4, 32 for MX"
            )
        if self.delayed and self.scaling != "tensor":
            raise ValueError(
                f"quantizer.delayed is True, expected False for {self.scaling} scaling: only a "
                "tensor's scale is delayed"
            )
        if self.rotated and self.two_dimensional:
            raise ValueError(
                "quantizer.rotated is True, expected False for two-dimensional blocks: a weight is "
                "never rotated"
            )
        if self.row_scaled and (self.scaling != "nvfp4" or self.two_dimensional):
            raise ValueError(
                "quantizer.row_scaled is True, expected False: only nvfp4 with one-dimensional "
                "blocks has a scale for each row"
            )
        if self.four_over_six and (
            self.scaling != "nvfp4" or self.block != BLOCK or self.stochastic
        ):
            needed = f"it needs nvfp4 in blocks of {BLOCK}, rounded to nearest"
            raise ValueError(
                f"quantizer.four_over_six is {self.four_over_six}, expected None: {needed}"
            )


class Quantized(NamedTuple):
    """Codes (M, K) uint8; block scale bytes, blocks in place of elements (E4M3 or E8M0); amax and
    scale_inv float32 scalars.

    For a row-scaled quantizer amax and scale_inv are (M, 1), or (1, K) along axis 0.
    """

    codes: jax.Array
    scales: jax.Array
    amax: jax.Array
    scale_inv: jax.Array


class _Scales(NamedTuple):
    """Scales that broadcast to the blocked view: x * encode is rounded to a code, and code * block
    * factor is its value.

    byte: the block scale as stored. factor and amax are scalars of the tensor, or broadcast like
    the others if it is row-scaled.
    """

    encode: jax.Array
    block: jax.Array
    byte: jax.Array
    factor: jax.Array
    amax: jax.Array


class Operand(NamedTuple):
    """Exact bfloat16 numbers (M, K), the float32 factor to multiply them by, and the amax (scalar)
    of the tensor that was quantized.

    The factor is a scalar, or (M, 1), or (1, K), for a row-scaled quantizer along axis 1 or 0.
    """

    value: jax.Array
    factor: jax.Array
    amax: jax.Array


def to_bfloat16(
    x_MK: jax.Array,
    axis: int,
    quantizer: Quantizer,
    key: formats.Key | None = None,
    scale: jax.Array | None = None,
) -> Operand:
    """Quantized x, ready for a matrix product.

    x_MK: bfloat16 or float32; axis: 0 or 1, the contracted axis; key: needed where rounding is
    stochastic; scale: float32 scalar, needed where scaling is delayed
    (`training.arithmetic.quantize`).
    """
    rows, columns = x_MK.shape
    x = _prepared(x_MK, axis, quantizer)
    code, scales = _round(x, axis, quantizer, key, scale)
    value = code if quantizer.scaling == "tensor" else code * scales.block
    exact = formats.exact_bfloat16(value).reshape(x.shape)[:rows, :columns]
    if quantizer.row_scaled:
        return Operand(exact, _per_line(scales.factor, axis), jnp.max(scales.amax))
    return Operand(exact, scales.factor, scales.amax)


def quantize(
    x_MK: jax.Array,
    axis: int,
    quantizer: Quantizer,
    key: formats.Key | None = None,
    scale: jax.Array | None = None,
) -> Quantized:
    """Returns codes and scale bytes of x as the hardware would store them. Arguments as for
    `to_bfloat16`.
    """
    rows, columns = x_MK.shape
    x = _prepared(x_MK, axis, quantizer)
    code, scales = _round(x, axis, quantizer, key, scale)
    sign_of = _without_nan(x.astype(jnp.float32)) if quantizer.drops_nan else x.astype(jnp.float32)
    codes = formats.encode(code.reshape(x.shape), quantizer.format, sign_of=sign_of)[
        :rows, :columns
    ]
    count = [1, 1]
    if quantizer.scaling != "tensor":
        count = [
            size // width for size, width in zip(x.shape, _widths(axis, quantizer), strict=True)
        ]
    if quantizer.row_scaled:
        return Quantized(
            codes,
            scales.byte.reshape(count),
            _per_line(scales.amax, axis),
            _per_line(scales.factor, axis),
        )
    return Quantized(codes, scales.byte.reshape(count), scales.amax, scales.factor)


def dequantize(x: Quantized, axis: int, quantizer: Quantizer) -> jax.Array:
    """The float32 values (M, K) that codes and scales stand for; a rotated tensor stays rotated."""
    value = formats.decode(x.codes, quantizer.format)
    if quantizer.scaling == "tensor":
        return value * x.scale_inv
    if quantizer.scaling == "nvfp4":
        scale = formats.decode(x.scales, E4M3)
    else:
        scale = formats.e8m0_value(x.scales.astype(jnp.int32))
    for dimension, width in enumerate(_widths(axis, quantizer)):
        scale = jnp.repeat(scale, width, axis=dimension)
    return value * scale[: value.shape[0], : value.shape[1]] * x.scale_inv


class Watched(NamedTuple):
    """An operand next to its original, in the blocked view: x, its quantized value, and the value
    of one unit of a code (float32).
    """

    x: jax.Array
    value: jax.Array
    unit: jax.Array


def watched(
    x_MK: jax.Array,
    operand: Operand,
    axis: int,
    quantizer: Quantizer,
    scale: jax.Array | None = None,
) -> Watched:
    """Returns x_MK (rotated, if the quantizer rotates) and its copy from `to_bfloat16` for
    `layer_statistics`, without rounding again.

    The two may be the same whole blocks of a larger matrix, if it is not row-scaled: the tensor's
    scale follows from `operand.amax`.
    """
    x = _prepared(x_MK, axis, quantizer)
    view, scales = _scaled(
        x, axis, quantizer, scale, None if quantizer.row_scaled else operand.amax
    )
    value = _padded(operand.value, axis, quantizer).reshape(view.shape)
    factor = scales.factor if quantizer.row_scaled else operand.factor
    return Watched(
        view.astype(jnp.float32), value.astype(jnp.float32) * factor, scales.block * scales.factor
    )


def block_amax(x_MK: jax.Array, axis: int, quantizer: Quantizer) -> jax.Array:
    """The largest magnitude of every block (float32, blocks in place of elements), after rotation
    where there is one.
    """
    view, within = _blocked(_prepared(x_MK, axis, quantizer), axis, quantizer)
    return jnp.squeeze(_largest(view, within, quantizer), within)


def count_nonfinite(x: jax.Array, amax: jax.Array, quantizer: Quantizer) -> jax.Array:
    """Counts the elements of x that are NaN or infinite (float32 scalar). A CPU skips the count if
    the quantizer's amax is finite.

    It always counts for a quantizer that drops NaN, whose amax does not show one. A GPU always
    counts, in the kernel that finds the amax: to take a branch it would wait for the host.
    """
    if quantizer.drops_nan or not formats.on_cpu():
        return nonfinite(x)
    count: jax.Array = jax.lax.cond(jnp.isfinite(amax), lambda _: jnp.float32(0), nonfinite, x)
    return count


def nonfinite(x: jax.Array) -> jax.Array:
    """How many elements are NaN or infinite (float32 scalar)."""
    return jnp.sum(~jnp.isfinite(x), dtype=jnp.float32)


def _widths(axis: int, quantizer: Quantizer) -> tuple[int, int]:
    """Rows and columns that one block scale covers."""
    if quantizer.two_dimensional:
        return quantizer.block, quantizer.block
    if axis == 0:
        return quantizer.block, 1
    return 1, quantizer.block


def _prepared(x_MK: jax.Array, axis: int, quantizer: Quantizer) -> jax.Array:
    """Returns x padded with zeros to whole blocks, and rotated along the contracted axis if the
    quantizer rotates.
    """
    x = _padded(x_MK, axis, quantizer)
    if quantizer.rotated:
        x = rotate(x) if axis == 0 else rotate(x.T).T
    return x


def _padded(x: jax.Array, axis: int, quantizer: Quantizer) -> jax.Array:
    """Returns x padded with zeros to whole blocks."""
    if quantizer.scaling == "tensor":
        return x
    padding = [
        (0, -size % width) for size, width in zip(x.shape, _widths(axis, quantizer), strict=True)
    ]
    if any(after for _, after in padding):
        return jnp.pad(x, padding)
    return x


def _blocked(x: jax.Array, axis: int, quantizer: Quantizer) -> tuple[jax.Array, tuple[int, ...]]:
    """Returns x reshaped to (block, element of block) along the blocked axes, and the axes of that
    view that run over elements.
    """
    rows, columns = x.shape
    size = quantizer.block
    if quantizer.two_dimensional:
        return x.reshape(rows // size, size, columns // size, size), (1, 3)
    if axis == 0:
        return x.reshape(rows // size, size, columns), (1,)
    return x.reshape(rows, columns // size, size), (2,)


def _round(
    x: jax.Array, axis: int, quantizer: Quantizer, key: formats.Key | None, scale: jax.Array | None
) -> tuple[jax.Array, _Scales]:
    """Values of the format (the codes, as float32) in the blocked view, and their scales."""
    noise = None
    if quantizer.stochastic:
        if key is None:
            raise ValueError(
                "key is None, expected that of the tensor: this quantizer rounds stochastically"
            )
        draw = formats.byte_uniform if quantizer.sr_bits == _FEW_BITS else formats.centred_uniform
        noise = draw(key, x.shape)
    view, scales = _scaled(x, axis, quantizer, scale)
    scaled = view.astype(jnp.float32) * scales.encode
    if quantizer.drops_nan and quantizer.format == E2M1:
        scaled = jnp.where(jnp.isnan(scaled), np.float32(E2M1.largest), scaled)
    if noise is None:
        return formats.nearest(scaled, quantizer.format), scales
    stochastic = formats.stochastic_floor if quantizer.sr_bits == _FEW_BITS else formats.stochastic
    return stochastic(scaled, quantizer.format, noise.reshape(view.shape)), scales


def _scaled(
    x: jax.Array,
    axis: int,
    quantizer: Quantizer,
    scale: jax.Array | None,
    amax: jax.Array | None = None,
) -> tuple[jax.Array, _Scales]:
    """The blocked view of x and its scales; amax: that of the whole tensor, if it is known
    already.
    """
    if (scale is None) == quantizer.delayed:
        raise ValueError(
            f"scale is {scale}, expected one for delayed scaling and none for {quantizer.scaling} "
            "scaling of its own amax"
        )
    if quantizer.scaling == "tensor":
        return x, _tensor_scales(x, quantizer, scale, amax)
    view, within = _blocked(x, axis, quantizer)
    largest = _largest(view, within, quantizer)
    if quantizer.scaling == "nvfp4":
        return view, _nvfp4_scales(largest, quantizer, view, axis, amax)
    return view, _mx_scales(largest, quantizer) if quantizer.scaling == "mx" else _fp8_block_scales(
        largest, quantizer
    )


def _tensor_scales(
    x: jax.Array, quantizer: Quantizer, scale: jax.Array | None, amax: jax.Array | None
) -> _Scales:
    if amax is None:
        amax = _tensor_amax(_without_nan(x) if quantizer.drops_nan else x)
    scale = tensor_scale(amax, quantizer.format) if scale is None else scale
    return _Scales(
        scale,
        jnp.ones((1, 1), jnp.float32),
        jnp.zeros((1, 1), jnp.uint8),
        formats.reciprocal(scale),
        amax,
    )


def _largest(view: jax.Array, within: tuple[int, ...], quantizer: Quantizer) -> jax.Array:
    """Returns the largest magnitude of every block, in the blocked view."""
    return formats.largest_magnitude(_without_nan(view) if quantizer.drops_nan else view, within)


def _without_nan(x: jax.Array) -> jax.Array:
    return jnp.where(jnp.isnan(x), jnp.zeros((), x.dtype), x)


def _per_line(vector: jax.Array, axis: int) -> jax.Array:
    """Returns a number for each line along the contracted axis, from the blocked view, as (M, 1) or
    (1, K).
    """
    return vector.reshape((1, -1) if axis == 0 else (-1, 1))


def _tensor_amax(x: jax.Array) -> jax.Array:
    """Returns max |x| (scalar), in two rounds if the rows allow it, which is faster: over groups of
    sixteen rows, then over the rest.
    """
    if x.shape[0] % 16 == 0:
        x = formats.largest_magnitude(x.reshape(-1, 16, x.size // x.shape[0]), (1,))
    return formats.largest_magnitude(x)


def tensor_scale(amax: jax.Array, fmt: Format) -> jax.Array:
    """Returns the encode scale largest / amax; 1 if amax is 0, NaN or infinite, the largest
    bfloat16 on overflow.
    """
    scale = jnp.minimum(formats.quotient(jnp.float32(fmt.largest), amax), _BFLOAT16_MAX)
    return formats.materialized(jnp.where((amax > 0) & jnp.isfinite(amax), scale, jnp.float32(1)))[
        0
    ]


def _mx_scales(largest: jax.Array, quantizer: Quantizer) -> _Scales:
    byte = formats.e8m0_round_up(largest, quantizer.format)
    return _Scales(
        formats.e8m0_reciprocal(byte),
        formats.e8m0_value(byte),
        byte.astype(jnp.uint8),
        jnp.float32(1),
        jnp.max(largest),
    )


def _fp8_block_scales(largest: jax.Array, quantizer: Quantizer) -> _Scales:
    byte = jnp.where(largest == 0, 127, formats.e8m0_round_up(largest, quantizer.format))
    value = jnp.where(jnp.isposinf(largest), jnp.float32(np.inf), formats.e8m0_value(byte))
    return _Scales(
        formats.e8m0_reciprocal(byte),
        value,
        byte.astype(jnp.uint8),
        jnp.float32(1),
        jnp.max(largest),
    )


def _nvfp4_scales(
    largest: jax.Array, quantizer: Quantizer, view: jax.Array, axis: int, amax: jax.Array | None
) -> _Scales:
    if amax is None:
        if quantizer.row_scaled:
            amax = jnp.max(largest, axis=axis, keepdims=True)
        else:
            amax = _tensor_amax(largest)
    both = quantizer.scale_bound * quantizer.format.largest
    encode = jnp.minimum(formats.quotient(jnp.float32(both), amax), _FLOAT32_MAX)
    encode = jnp.where((amax == 0) | (encode == 0), jnp.float32(1), encode)
    factor = formats.materialized(amax * np.float32(1 / both))[0]
    if quantizer.four_over_six:
        tensor = Tensor(amax, encode, both)
        of_scale = _encode_scale(encode)
        scale = block_scale(view, axis, largest, tensor, of_scale, quantizer.four_over_six)
        return _Scales(of_scale(scale), scale, formats.encode(scale, E4M3), factor, amax)
    encode_scale, scale = _nvfp4_block_scales(largest, encode)
    return _Scales(encode_scale, scale, formats.encode(scale, E4M3), factor, amax)


def _nvfp4_block_scales(largest: jax.Array, encode: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the factor by which every block is multiplied before it is rounded, and its scale,
    both in the shape of `largest`.

    On a CPU a branch keeps what only tiny tensors need out of the others' way. XLA fuses nothing
    into it either, and so computes both numbers once a block; fused into the loop that rounds, the
    scale would be computed again for every element.
    """

    def plain(largest: jax.Array, encode: jax.Array) -> tuple[jax.Array, jax.Array]:
        sixth, decode = formats.materialized(
            encode * _SIXTH, formats.quotient(jnp.float32(1), encode)
        )
        scale = formats.nearest(largest * sixth, E4M3)
        return jnp.minimum(formats.quotient(jnp.float32(1), scale * decode), _FLOAT32_MAX), scale

    def on_the_grid(largest: jax.Array, encode: jax.Array) -> tuple[jax.Array, jax.Array]:
        scale = formats.nearest(largest * formats.materialized(encode * _SIXTH)[0], E4M3)
        return _encode_scale(encode)(scale), scale

    if encode.ndim or not formats.on_cpu():
        return on_the_grid(largest, encode)
    # a short last axis is slow
    encode_scale, scale = jax.lax.cond(
        encode > _LIFTED, on_the_grid, plain, largest.reshape(-1), encode
    )
    return encode_scale.reshape(largest.shape), scale.reshape(largest.shape)


def _encode_scale(encode: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """Returns the function from a block's scale to the factor by which the block is multiplied, for
    tensors of any size.
    """
    lift = jnp.where(encode > _LIFTED, jnp.float32(_LIFT), jnp.float32(1))
    decode = formats.materialized(_decode_scale(encode, lift))[0]

    def encode_scale(scale: jax.Array) -> jax.Array:
        return jnp.minimum(
            formats.quotient(lift, _on_float32_grid(scale * decode, lift)), _FLOAT32_MAX
        )

    return encode_scale


def _decode_scale(encode: jax.Array, lift: jax.Array) -> jax.Array:
    """Returns lift / encode, rounded as float32 rounds 1 / encode: below 2^-126 to a multiple of
    2^-149.

    To round the quotient a second time could end on the wrong side of a tie, so there its multiple,
    an integer, is corrected by the remainder of 2^(299 - exponent of encode) / mantissa. The
    dividend's lowest 32 bits are 0, and those of the remainder are all of it.
    """
    quotient = formats.quotient(lift, encode)
    near = _on_float32_grid(quotient, lift)
    mantissa = (formats.bits_of(encode) & 0x7FFFFF) | (1 << 23)
    units = (near * np.float32(2.0**149 / _LIFT)).astype(jnp.int32)
    doubled = -2 * (units * mantissa)
    units = units + (doubled > mantissa).astype(jnp.int32) - (doubled < -mantissa).astype(jnp.int32)
    return jnp.where(
        quotient < lift * np.float32(2.0**-126),
        units.astype(jnp.float32) * np.float32(_LIFT * 2.0**-149),
        near,
    )


def _on_float32_grid(lifted: jax.Array, lift: jax.Array) -> jax.Array:
    """Returns x * lift, rounded as float32 rounds x: below 2^-126 the grid of float32 is 2^-149,
    and XLA on CPUs would return 0.
    """
    magic = lift * np.float32(1.5 * 2.0**-126)
    return jnp.where(lifted < lift * np.float32(2.0**-126), (lifted + magic) - magic, lifted)


# Delayed scaling: an FP8 tensor is scaled by the largest magnitudes of the last steps.
#
# What it answers: by which scale is x of this layer multiplied at step t, and what is kept for step
# t + 1?
#
#     quantize with the scale S(t), saturating;   history[0] = amax(t);   A = max(history)
#     S(t + 1) = largest / A / 2^margin, kept as it is where A is 0 or not finite;   history rolls
#       by one and history[0] = 0
#
# `most_recent` takes A = amax(t) instead. So the scale of step t comes from earlier steps, and step
# 0 has scale 1. The scale is known before the tensor is computed, which saves a pass over it in
# hardware. The assumption that can fail: a tensor's largest magnitude changes slowly; a tensor that
# outgrows its history, and the room of 2^margin, saturates.
#
# The state is two arrays for the whole model, (block, projection, operand) and the same with a last
# axis for the history. They are stored next to the parameters and are not parameters, so the
# optimizer, clipping and averaging leave them unchanged.
#
# Source: Transformer Engine 2.20.2, DelayedScaling (margin, amax_history_len, amax_compute_algo)
# and jax/quantize/quantizer.py; the defaults are Transformer Engine's.

HISTORY_LENGTH = 1024
OPERANDS = ("x", "kernel", "grad")
FORMATS = (E4M3, E4M3, E5M2)


@frozen
class DelayedScaling:
    """How the next scale follows from the amaxes, and the formats of x, kernel and gradient."""

    margin: int = 0
    history_length: int = HISTORY_LENGTH
    most_recent: bool = False
    formats: tuple[Format, ...] = FORMATS


class Scales(NamedTuple):
    """Encode scales (blocks, projections, 3) and amax histories (blocks, projections, 3, length),
    float32.
    """

    scale: jax.Array
    history: jax.Array


DEFAULT = DelayedScaling()


def initial_scales(blocks: int, projections: int, length: int) -> Scales:
    """Scale 1 and an empty history; a length of 0 keeps every scale at 1 for good."""
    shape = (blocks, projections, len(OPERANDS))
    return Scales(jnp.ones(shape, jnp.float32), jnp.zeros((*shape, length), jnp.float32))


def update(scales: Scales, amax: jax.Array, rule: DelayedScaling = DEFAULT) -> Scales:
    """Returns the state after a step whose tensors had these amaxes (..., operands); `rule` has one
    format per operand.
    """
    if not scales.history.shape[-1]:
        return scales
    history = scales.history.at[..., 0].set(amax)
    largest_seen = amax if rule.most_recent else jnp.max(history, axis=-1)
    usable = (largest_seen > 0) & jnp.isfinite(largest_seen)
    fresh = jnp.stack(
        [tensor_scale(largest_seen[..., i], fmt) for i, fmt in enumerate(rule.formats)], axis=-1
    )
    if rule.margin:
        fresh = fresh * np.float32(2.0**-rule.margin)
    return Scales(
        jnp.where(usable, fresh, scales.scale),
        jnp.roll(history, -1, axis=-1).at[..., 0].set(np.float32(0)),
    )
