"""Quantizers: convert a matrix to codes of a small format, with the scales of the codes.

What it answers: which code and which scale does Transformer Engine give every element, and which
bfloat16 number carries the same value into a matrix product?

    tensor (FP8)  one scale a tensor     value = code / S                  S = largest / amax
    mx     (MX)   32 share an E8M0       value = code * 2^(byte - 127)     byte = round up(amax of
           block / largest)
    nvfp4         16 share an E4M3,      value = code * s * (amax / 2688)  s = E4M3(amax of block
                  * S / 6), S = 2688 / amax
                  the tensor a float32   (2688 = 448 * 6; the division is a product with
                    float32(1/2688), as XLA would
                                         make it in some programs and not in others)
    fp8_block     128 share a power of   value = code * 2^(byte - 127)     byte as in mx, but 127
                  for a block of zeros, and the
                  two (a float32)                                          scale of a block that
                    contains infinity is infinite

Variants of nvfp4: `row_scaled` has one S for each line along the contracted axis (a row of x in
fprop, a column in wgrad) instead of one for the tensor; `four_over_six` chooses between two
scales for each block (`training.arithmetic.quantize`). `drops_nan` computes every amax without
the NaN values, and FP4 turns NaN into +6, as NVIDIA's hardware does; FP8 keeps NaN.

One computation with two outputs: `quantize` packs codes and scale bytes (for vectors and tests);
`to_bfloat16` returns code * block scale as bfloat16, and the tensor's float32 factor separately.
code * block scale is exact: E2M1 has 2 significant bits and E4M3 4, together at most 6 of
bfloat16's 8; an FP8 code has at most 4, and a power of two adds none. So a product of bfloat16
matrices with float32 accumulation, times the two factors, is the product of the quantized
matrices.

The assumption that can fail: XLA flushes float32 subnormals (below 1.2e-38) to zero on CPUs. The
codes and scales of a tensor of normal numbers are still right; a subnormal element counts as
zero, and under the rotation one below 4.7e-38; and a tensor with amax below 3.2e-35 (NVFP4), or
an MX block with amax below 2.7e-36, becomes zero in the product.

Shapes: M, K are the matrix; `axis` is the axis that will be contracted, along which the blocks
lie. A size that is not a multiple of the block is padded with zeros, and the result is cut; the
scales keep the padded count. Sources: Transformer Engine 2.20.2,
pytorch/custom_recipes/reference_nvfp4.py and reference_current_scaling.py,
common/recipe/__init__.py; the order of the multiplications in the block scale is that of its CUDA
kernels since 2.14.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from training.arithmetic import formats, hadamard, random_bits
from training.arithmetic.formats import E2M1, E4M3, Format
from training.arithmetic.four_over_six import BLOCK, ErrorMeasure, Tensor, block_scale
from training.frozen import frozen

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
    key: random_bits.Key | None = None,
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
    key: random_bits.Key | None = None,
    scale: jax.Array | None = None,
) -> Quantized:
    """Returns codes and scale bytes of x as the hardware would store them. Arguments as for
    `to_bfloat16`.
    """
    rows, columns = x_MK.shape
    x = _prepared(x_MK, axis, quantizer)
    code, scales = _round(x, axis, quantizer, key, scale)
    sign_of = _zeroed_nan(x.astype(jnp.float32)) if quantizer.drops_nan else x.astype(jnp.float32)
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
        x = hadamard.rotate(x) if axis == 0 else hadamard.rotate(x.T).T
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
    x: jax.Array,
    axis: int,
    quantizer: Quantizer,
    key: random_bits.Key | None,
    scale: jax.Array | None,
) -> tuple[jax.Array, _Scales]:
    """Values of the format (the codes, as float32) in the blocked view, and their scales."""
    noise = None
    if quantizer.stochastic:
        if key is None:
            raise ValueError(
                "key is None, expected that of the tensor: this quantizer rounds stochastically"
            )
        draw = (
            random_bits.byte_uniform
            if quantizer.sr_bits == _FEW_BITS
            else random_bits.centred_uniform
        )
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
        amax = _tensor_amax(_zeroed_nan(x) if quantizer.drops_nan else x)
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
    return formats.largest_magnitude(_zeroed_nan(view) if quantizer.drops_nan else view, within)


def _zeroed_nan(x: jax.Array) -> jax.Array:
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
        scale_encoding = _encode_scale(encode)
        scale = block_scale(view, axis, largest, tensor, scale_encoding, quantizer.four_over_six)
        return _Scales(scale_encoding(scale), scale, formats.encode(scale, E4M3), factor, amax)
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

    def grid_scales(largest: jax.Array, encode: jax.Array) -> tuple[jax.Array, jax.Array]:
        scale = formats.nearest(largest * formats.materialized(encode * _SIXTH)[0], E4M3)
        return _encode_scale(encode)(scale), scale

    if encode.ndim or not formats.on_cpu():
        return grid_scales(largest, encode)
    # a short last axis is slow
    encode_scale, scale = jax.lax.cond(
        encode > _LIFTED, grid_scales, plain, largest.reshape(-1), encode
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
            formats.quotient(lift, _float32_rounded(scale * decode, lift)), _FLOAT32_MAX
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
    near = _float32_rounded(quotient, lift)
    mantissa = (formats.bits_of(encode) & 0x7FFFFF) | (1 << 23)
    units = (near * np.float32(2.0**149 / _LIFT)).astype(jnp.int32)
    doubled = -2 * (units * mantissa)
    units = units + (doubled > mantissa).astype(jnp.int32) - (doubled < -mantissa).astype(jnp.int32)
    return jnp.where(
        quotient < lift * np.float32(2.0**-126),
        units.astype(jnp.float32) * np.float32(_LIFT * 2.0**-149),
        near,
    )


def _float32_rounded(lifted: jax.Array, lift: jax.Array) -> jax.Array:
    """Returns x * lift, rounded as float32 rounds x: below 2^-126 the grid of float32 is 2^-149,
    and XLA on CPUs would return 0.
    """
    magic = lift * np.float32(1.5 * 2.0**-126)
    return jnp.where(lifted < lift * np.float32(2.0**-126), (lifted + magic) - magic, lifted)
