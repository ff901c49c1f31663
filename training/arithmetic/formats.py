"""The number formats of low-precision training, and how a float32 becomes one of their values.

What it answers: which values can E2M1 (FP4), E4M3, E5M2 (FP8) and E8M0 (a power-of-two scale)
hold, and which of them is nearest to x?

A format with m mantissa bits has, between 2^e and 2^(e+1), the grid of multiples of 2^(e-m);
below its smallest normal exponent the grid stays at 2^(emin-m) (the subnormals). So rounding is
one question: what is the step of the grid at x?

    | format | sign exponent mantissa bits | bias | values                                    |
      largest |
    | ------ | --------------------------- | ---- | ----------------------------------------- |
    ------- |
    | E2M1   | 1 2 1                       | 1    | 0 .5 1 1.5 2 3 4 6                        | 6
             |
    | E4M3   | 1 4 3                       | 7    | 2^-9 (subnormal) ... 448, no infinity     |
             448     |
    | E5M2   | 1 5 2                       | 15   | 2^-16 (subnormal) ... 57344               |
             57344   |
    | E8M0   | 0 8 0                       | 127  | 2^-127 ... 2^127, no sign, no zero        |
             2^127   |

Rounding to nearest even without a branch: adding C = 1.5 * 2^(e-m+23) to y pushes every bit below
2^(e-m) out of a float32, whose own rounding is to nearest even; subtracting C again leaves the
rounded y. The exponent e is read from y's own bits. Six cheap vector operations, seven times the
speed of XLA's conversion to float8 and back.

    E2M1 of 2.3: 2 <= 2.3 < 4, so e = 1, and with m = 1 the grid there is 2, 3, 4, of step 2^(1-1)
    = 1. C = 1.5 * 2^(1-1+23) = 12582912, where neighbouring float32 are 1 apart: 2.3 + C rounds
    to 12582914, and less C that is 2.

The assumption that can fail: the compiler must keep (y + C) - C. XLA keeps it by default; with a
fast-math flag it would not. `tests/training/arithmetic/test_formats.py` compares every rounding
with ml_dtypes bit by bit, jitted and not.

Sources: OCP Microscaling Formats (MX) v1.0, sections 5.3 and 6.3; Transformer Engine 2.20.2 for
saturation and for the rounding up of E8M0. Casts saturate here: XLA's own casts give NaN (E4M3)
or infinity (E5M2) beyond the largest value.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from training.frozen import frozen

_EXPONENT_MASK = 0x7F800000
_MANTISSA_MASK = 0x7FFFFF
_FLOAT32_BIAS = 127
_FLOAT32_MANTISSA = 23


@frozen
class Format:
    """A signed floating-point format of at most eight bits, described by what rounding and packing
    need.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    largest: float
    nan_code: int

    @property
    def smallest_exponent(self) -> int:
        """Exponent of the smallest normal value; the grid gets no finer below it."""
        return 1 - self.bias

    @property
    def sign_bit(self) -> int:
        return self.exponent_bits + self.mantissa_bits


# FP4 has no NaN: the hardware conversion turns one into +6, which is code 7.
E2M1 = Format(name="e2m1", exponent_bits=2, mantissa_bits=1, bias=1, largest=6.0, nan_code=0x7)
E4M3 = Format(name="e4m3", exponent_bits=4, mantissa_bits=3, bias=7, largest=448.0, nan_code=0x7F)
E5M2 = Format(
    name="e5m2", exponent_bits=5, mantissa_bits=2, bias=15, largest=57344.0, nan_code=0x7E
)


def bits_of(x: jax.Array) -> jax.Array:
    """The bit pattern of a float32 array as int32, same shape."""
    return jax.lax.bitcast_convert_type(x, jnp.int32)


def float_of(bits: jax.Array) -> jax.Array:
    """The float32 array whose bit pattern is the given int32 array, same shape."""
    return jax.lax.bitcast_convert_type(bits, jnp.float32)


def _exponent_bits_of(y: jax.Array, fmt: Format) -> jax.Array:
    """y's exponent in place (mantissa cleared), not below the smallest normal exponent of the
    format.
    """
    return jnp.maximum(
        bits_of(y) & _EXPONENT_MASK, (_FLOAT32_BIAS + fmt.smallest_exponent) << _FLOAT32_MANTISSA
    )


def _magic(exponent: jax.Array, fmt: Format) -> jax.Array:
    """C = 1.5 * 2^(e - m + 23): the half keeps y + C inside one binade for either sign of y."""
    return float_of(
        exponent + (((_FLOAT32_MANTISSA - fmt.mantissa_bits) << _FLOAT32_MANTISSA) | 0x400000)
    )


def nearest(x: jax.Array, fmt: Format) -> jax.Array:
    """Returns the value of `fmt` nearest to x, with ties to even and saturation.

    x: float32, any shape. Returns float32 values of the format in the same shape; NaN stays NaN,
    infinity saturates.
    """
    y = jnp.clip(x, -fmt.largest, fmt.largest)
    magic = _magic(_exponent_bits_of(y, fmt), fmt)
    return (y + magic) - magic


def _step_and_magic(y: jax.Array, fmt: Format) -> tuple[jax.Array, jax.Array]:
    """The step of the grid at y, 2^(e - m), and C."""
    exponent = _exponent_bits_of(y, fmt)
    return float_of(exponent - (fmt.mantissa_bits << _FLOAT32_MANTISSA)), _magic(exponent, fmt)


def stochastic(x: jax.Array, fmt: Format, uniform: jax.Array) -> jax.Array:
    """Returns one of the two values of `fmt` around x at random, so that the mean is x; saturates.

    x: float32; uniform: float32 of the same shape, strictly inside (-1/2, 1/2) and a multiple of
    2^-17 (`random_bits.centred_uniform`). A value of the format never changes: an offset below half
    a step rounds back to it, and 17 bits are few enough for y + uniform * step to be exact even for
    the largest y. The step is that of y itself, so 2.05 becomes 2 or 3 and never 1.5.
    """
    y = jnp.clip(x, -fmt.largest, fmt.largest)
    step, magic = _step_and_magic(y, fmt)
    return ((y + uniform * step) + magic) - magic


def stochastic_floor(x: jax.Array, fmt: Format, uniform: jax.Array) -> jax.Array:
    """Returns one of the two values of `fmt` around x at random: moves |x| away from zero by
    `uniform` steps and cuts; saturates.

    x: float32; uniform: float32 of the same shape, a multiple of 2^-8 in [0, 1)
    (`random_bits.byte_uniform`). The mean is 1/512 of a step nearer to zero than x, because the
    mean of `uniform` is 255/512. The step is that of x itself; NaN stays NaN.
    """
    y = jnp.minimum(jnp.abs(x), fmt.largest)
    step, magic = _step_and_magic(y, fmt)
    moved = y + uniform * step
    rounded = (moved + magic) - magic
    cut = jnp.where(rounded > moved, rounded - step, rounded)
    return jnp.where(x < 0, -cut, cut)


def encode(value: jax.Array, fmt: Format, sign_of: jax.Array | None = None) -> jax.Array:
    """The codes (uint8) of float32 values that `fmt` holds exactly: sign, exponent, mantissa from
    the highest bit down.

    `nearest` returns +0 for every value that rounds to zero; give the unrounded array as `sign_of`
    to keep -0.
    """
    bits = bits_of(value)
    negative = bits_of(value if sign_of is None else sign_of) < 0
    magnitude = jnp.abs(value)
    field = ((bits & _EXPONENT_MASK) >> _FLOAT32_MANTISSA) - _FLOAT32_BIAS + fmt.bias
    mantissa = (bits >> (_FLOAT32_MANTISSA - fmt.mantissa_bits)) & ((1 << fmt.mantissa_bits) - 1)
    normal = (field << fmt.mantissa_bits) | mantissa
    subnormal = (magnitude * 2.0 ** (fmt.mantissa_bits - fmt.smallest_exponent)).astype(jnp.int32)
    sign = jnp.where(negative, 1 << fmt.sign_bit, 0)
    code = jnp.where(jnp.isnan(value), fmt.nan_code, sign | jnp.where(field < 1, subnormal, normal))
    return code.astype(jnp.uint8)


def values(fmt: Format) -> npt.NDArray[np.float32]:
    """The float32 value of every code of the format, by the textbook formula; codes that stand for
    no number are NaN.
    """
    code = np.arange(2 << fmt.sign_bit)
    mantissa = code & ((1 << fmt.mantissa_bits) - 1)
    field = (code >> fmt.mantissa_bits) & ((1 << fmt.exponent_bits) - 1)
    fraction = mantissa / 2.0**fmt.mantissa_bits
    magnitude = np.where(
        field == 0,
        fraction * 2.0**fmt.smallest_exponent,
        (1 + fraction) * 2.0 ** (field - fmt.bias),
    )
    magnitude = np.where(magnitude > fmt.largest, np.nan, magnitude)
    return np.where(code >> fmt.sign_bit, -magnitude, magnitude).astype(np.float32)


def decode(code: jax.Array, fmt: Format) -> jax.Array:
    """The float32 values of uint8 codes."""
    return jnp.asarray(values(fmt))[code]


def largest_magnitude(x: jax.Array, axes: tuple[int, ...] | None = None) -> jax.Array:
    """Returns max |x| over `axes` as float32, for float32 or bfloat16 input; NaN if there is a NaN.

    The reduced axes keep size 1; without `axes` the result is a scalar. Magnitudes are compared as
    integers, which have the same order as the floats without their sign (NaN above infinity): XLA
    compiles an integer reduction to a vectorized loop, and calls a library for float ones, which is
    slower for bfloat16 and for every axis but the last. bfloat16 is compared in 16 bits if the last
    axis is not reduced, else two neighbours at a time, as the halves of one integer (1024 x 256 in
    groups of sixteen: 36 us, one at a time 67). Pairs are formed on CPUs only: XLA forms them by a
    reduction of their own, which LLVM turns into one load and a GPU's compiler may write to memory.
    """
    keep = axes is not None
    is_paired = x.ndim > 0 and x.shape[-1] % 2 == 0 and on_cpu()
    last = axes is None or x.ndim - 1 in axes
    if x.dtype == jnp.bfloat16 and not last:
        magnitude = jax.lax.bitcast_convert_type(x, jnp.uint16) & jnp.uint16(0x7FFF)
        return float_of(jnp.max(magnitude, axis=axes, keepdims=keep).astype(jnp.int32) << 16)
    if x.dtype == jnp.bfloat16 and is_paired:
        pairs = jax.lax.bitcast_convert_type(x.reshape(*x.shape[:-1], -1, 2), jnp.int32)
        larger = jnp.maximum(pairs & 0x7FFF0000, (pairs << 16) & 0x7FFF0000)
        return float_of(jnp.max(larger, axis=axes, keepdims=keep))
    if x.dtype == jnp.float32 and is_paired and axes == (x.ndim - 1,):
        return _largest_of_pairs(x)
    if x.dtype == jnp.float32 and last:
        return jnp.max(jnp.abs(x), axis=axes, keepdims=keep)
    return float_of(jnp.max(bits_of(x.astype(jnp.float32)) & 0x7FFFFFFF, axis=axes, keepdims=keep))


def _largest_of_pairs(x: jax.Array) -> jax.Array:
    """Returns max |x| over the last axis, which keeps size 1; two neighbours are loaded as one
    integer of 64 bits.

    XLA vectorizes over the blocks, so it loads each element by itself; half as many loads take 68
    us instead of 118 (1024 x 512). The halves are separated before the maximum, not after it: code
    that reads a 64-bit result would be vectorized half as wide.
    """
    magnitude = np.int32(0x7FFFFFFF)
    with jax.enable_x64(True):
        pairs = jax.lax.bitcast_convert_type(x.reshape(*x.shape[:-1], -1, 2), jnp.int64)
        larger = jax.lax.max(
            (pairs >> np.int64(32)).astype(jnp.int32) & magnitude,
            pairs.astype(jnp.int32) & magnitude,
        )
    return jnp.expand_dims(
        float_of(jax.lax.reduce(larger, np.int32(0), jax.lax.max, (x.ndim - 1,))), x.ndim - 1
    )


def materialized(*values: jax.Array) -> tuple[jax.Array, ...]:
    """Returns the values unchanged, and stops XLA from merging them algebraically with later
    expressions, which would round differently.

    It does not prevent fusion: the barrier is removed before that pass, so a value may still be
    recomputed inside a loop.
    """
    result: tuple[jax.Array, ...] = jax.lax.optimization_barrier(values)  # type: ignore[no-untyped-call]
    return result


def e8m0_round_up(amax: jax.Array, fmt: Format) -> jax.Array:
    """The exponent byte (int32, 0..254) of the smallest power of two that is not below amax /
    fmt.largest (float32, >= 0).

    2^(byte - 127). Rounding up is Transformer Engine's choice and keeps the largest element of a
    block in range; the floor of the OCP text would saturate it. An amax of 0 gives byte 0, NaN and
    infinity give 254. Exponents are subtracted and mantissas compared, so that no quotient can
    round or be flushed.
    """
    bits, largest = bits_of(amax), np.float32(fmt.largest).view(np.int32)
    above = (bits & _MANTISSA_MASK) > (largest & _MANTISSA_MASK)
    byte = (
        (bits >> _FLOAT32_MANTISSA)
        - ((largest >> _FLOAT32_MANTISSA) - _FLOAT32_BIAS)
        + above.astype(jnp.int32)
    )
    return jnp.where(bits >= _EXPONENT_MASK, 254, jnp.clip(byte, 0, 254))


def e8m0_value(byte: jax.Array) -> jax.Array:
    """2^(byte - 127) as float32. Byte 0 (2^-127, a float32 subnormal that XLA flushes to 0) belongs
    to all-zero blocks.
    """
    return float_of(jnp.where(byte == 0, 0x400000, byte << _FLOAT32_MANTISSA))


def e8m0_reciprocal(byte: jax.Array) -> jax.Array:
    """2^(127 - byte) as float32, for bytes up to 253: multiply by it, since dividing by a flushed
    2^-127 is 0/0.
    """
    return float_of((254 - byte) << _FLOAT32_MANTISSA)


def reciprocal(x: jax.Array) -> jax.Array:
    """1 / x of a float32 above 0, subnormal results included (to their last bit): XLA on CPUs would
    make 0 of 1 / 2^127.
    """
    lifted = quotient(jnp.float32(2.0**64), x)
    subnormal = jnp.round(lifted * np.float32(2.0 ** (149 - 64))).astype(jnp.int32)
    return jnp.where(
        lifted < np.float32(2.0 ** (64 - 126)), float_of(subnormal), quotient(jnp.float32(1), x)
    )


def on_cpu() -> bool:
    """Whether the program that is being traced is for CPUs. A GPU needs other code where its
    division or its layouts differ.
    """
    return jax.default_backend() == "cpu"


def quotient(x: jax.Array, y: jax.Array) -> jax.Array:
    """x / y rounded to the nearest float32, on every device. x: normal and above 0; y: at least 0;
    the result normal or beyond float32.

    XLA divides exactly on CPUs only. On NVIDIA GPUs it emits `div.full.f32` (openxla/xla#37181),
    which is up to two units in the last place off, and a scale that is one unit off moves every
    code of its block that is near a tie.
    """
    return x / y if on_cpu() else corrected_quotient(x, y)


def corrected_quotient(x: jax.Array, y: jax.Array) -> jax.Array:
    """`quotient` from a division that may be off by some units in the last place, corrected by an
    exact remainder.

    With 24-bit integers X and Y for the mantissas, the quotient's own mantissa is the integer Q
    nearest to X 2^s / Y, where s is 23, or 24 if X < Y. The remainder Q Y - X 2^s needs 48 bits,
    but near the solution it is below a few times 2^24, so its lowest 32 bits, which integer
    products keep, are all of it. Every half Y that it is too large or too small moves Q by one.
    There are no ties: the quotient of two numbers of 24 bits never lies halfway between two others
    (J.-M. Muller et al., Handbook of Floating-Point Arithmetic, 2nd edition, section 4.3).

    Only the mantissas are divided by the device, since `div.full` also returns 0 for a divisor
    above 2^126.
    """
    x_bits, y_bits = bits_of(x), bits_of(y)
    one = np.int32(_FLOAT32_BIAS << _FLOAT32_MANTISSA)
    x_mantissa, y_mantissa = x_bits & _MANTISSA_MASK, y_bits & _MANTISSA_MASK
    near = divided(float_of(x_mantissa | one), float_of(y_mantissa | one))
    smaller = (x_mantissa < y_mantissa).astype(jnp.int32)
    implicit = np.int32(1 << _FLOAT32_MANTISSA)
    q = jnp.round(near * jnp.where(smaller > 0, np.float32(2.0**24), np.float32(2.0**23))).astype(
        jnp.int32
    )
    divisor = y_mantissa | implicit
    doubled = 2 * (q * divisor - ((x_mantissa | implicit) << (_FLOAT32_MANTISSA + smaller)))
    for halves in (1, 3, 5):
        q = (
            q
            - (doubled > halves * divisor).astype(jnp.int32)
            + (doubled < -halves * divisor).astype(jnp.int32)
        )
    exponent = (
        (x_bits >> _FLOAT32_MANTISSA) - (y_bits >> _FLOAT32_MANTISSA) - smaller + _FLOAT32_BIAS
    )
    value = float_of((exponent << _FLOAT32_MANTISSA) + (q - implicit))
    # by 0, or a subnormal number
    value = jnp.where(
        (y_bits < 1 << _FLOAT32_MANTISSA) | (exponent > 254), jnp.float32(np.inf), value
    )
    value = jnp.where(y_bits == _EXPONENT_MASK, jnp.float32(0), value)
    return jnp.where(jnp.isnan(y), y, value)


def divided(x: jax.Array, y: jax.Array) -> jax.Array:
    """x / y as the device divides; tests disturb it."""
    return x / y


def round_bfloat16(x: jax.Array) -> jax.Array:
    """x (float32) rounded to the nearest bfloat16, ties to even, kept as float32.

    A pair of conversions float32 -> bfloat16 -> float32 may be dropped by XLA ("excess precision");
    this may not.
    """
    return jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)


def exact_bfloat16(x: jax.Array) -> jax.Array:
    """float32 values that bfloat16 holds exactly, as bfloat16: the upper halves of their bits.

    Twice the speed of XLA's conversion on CPUs, which rounds and looks for NaN once more.
    """
    upper = jax.lax.bitcast_convert_type(x, jnp.uint32) >> 16
    return jax.lax.bitcast_convert_type(upper.astype(jnp.uint16), jnp.bfloat16)


@jax.custom_jvp
def to_bfloat16(x: jax.Array) -> jax.Array:
    """x (float32) rounded to the nearest bfloat16. Its derivative is 1: a gradient passes through
    unrounded.
    """
    return round_bfloat16(x).astype(jnp.bfloat16)


@to_bfloat16.defjvp
def _to_bfloat16_jvp(
    primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    return to_bfloat16(primals[0]), tangents[0].astype(jnp.bfloat16)
