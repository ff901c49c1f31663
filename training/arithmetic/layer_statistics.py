"""Statistics of the quantization of each linear layer's tensors, on sampled steps.

What it answers: which layer loses small gradients, saturates, or drowns in rounding noise, and
from which step on?

A layer that misbehaves shows here before it shows in the loss. Five copies per layer are watched
as they enter its products, with the same random numbers as the step itself: x and kernel (for
fprop), grad (for dgrad), x_wgrad and grad_wgrad (for wgrad). A copy that is rotated is compared
with the rotated original, since the product cancels the rotation.

    amax                     largest magnitude
    underflow_share          share of the values other than zero that become zero
    saturation_share         share of the values beyond the largest that their scale can represent
    snr_db                   10 log10(sum x^2 / sum (x - Q(x))^2); infinite where nothing was lost
    scale_octaves_{10,50,90} octaves below the largest block scale within which 10, 50 and 90 % of
    the block scales lie
    zero_scale_share         share of the blocks whose scale is 0 (all of their values are lost,
                             or were zero)
    nonfinite                how many values are NaN or infinite
    seen_share               share of the rows that the shares, noise and quantiles are those of

On compared steps, the weight's gradient dw next to the one that x and grad give without
quantization (the same x and grad):

    kernel_grad/cosine   of the angle between the two
    kernel_grad/bias     <dw, reference> / <reference, reference> - 1: how much longer or shorter
                         dw is along the reference
    kernel_grad/snr_db   10 log10(sum reference^2 / sum (dw - reference)^2)

One product more for each layer, so it costs more than all the rest; rounding noise that is
unbiased lowers the cosine and leaves the bias at 0.

Shares, noise and quantiles are those of one group of 16 rows in four (of 32 or 128 in blocks of
such a size), where the rows divide so, else of all; amax and nonfinite are those of all rows. Which
of its four groups a stratum shows changes from one to the next, so that no period of the rows (a
sequence, a head) meets the same part of itself each time:

    group of stratum k = (k + k div 4 + hash(k div 16)) mod 4

Among sixteen strata (1,024 rows) the four groups of the first, second, third and fourth of every
four have their turns, so of sequences of a power of two that fill them, every sixteenth is seen
equally often; the hash keeps other periods from meeting the sixteen (of 32 sequences of any length
up to 2,048, a part is seen at most 0.063 more or less of the time than its share). A row alone is
missed three times in four: where no value but zeros was seen of a tensor that has others,
underflow_share and snr_db are NaN.

How a trainer gets them: under a recipe that is `watched`, the gradient of `Channel.statistics`
(training.arithmetic.linear; zeros of shape (layers..., COLUMNS)) is this table for every layer.
Watched steps are compiled as a separate program: a condition inside a common program kept XLA
from fusing the quantizers with their neighbours, which cost every step about 15 %. The step's
number alone determines whether it is watched, so a run that resumes from a checkpoint repeats its
bits.

The assumption that can fail: sums of squares are taken in float32 relative to amax, so values
below 2^-63 of amax add nothing.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from training.arithmetic import formats, random_bits
from training.arithmetic.quantize import Operand, Quantizer, count_nonfinite, watched

OPERANDS = ("x", "kernel", "grad", "x_wgrad", "grad_wgrad")
STATISTICS = (
    "amax",
    "underflow_share",
    "saturation_share",
    "snr_db",
    "scale_octaves_10",
    "scale_octaves_50",
    "scale_octaves_90",
    "zero_scale_share",
    "nonfinite",
    "seen_share",
)
COMPARISONS = ("cosine", "bias", "snr_db")
COLUMNS = (
    *(f"{operand}/{statistic}" for operand in OPERANDS for statistic in STATISTICS),
    *(f"kernel_grad/{name}" for name in COMPARISONS),
)
"""The names of a layer's statistics in their order."""
OCTAVES = 16
"""The histogram of block scales has this many bins of one octave; the last one holds everything
smaller, and zero.
"""
_QUANTILES = (0.1, 0.5, 0.9)
_TERMS = 64
_ROWS, _STRATUM = 16, 4  # rows of a group; statistics are those of one group in four
_BEYOND = 1 + 2.0**-20  # a scaled amax may miss the largest value by a rounding error


def quiet_statistics(*layers: int) -> jax.Array:
    """Returns zeros in the shape of the layers' statistics (layers..., COLUMNS)."""
    return jnp.zeros((*layers, len(COLUMNS)), jnp.float32)


def layer_statistics(
    watched: bool,
    quantizer: Quantizer | None,
    x_MK: jax.Array,
    operand: Operand,
    axis: int,
    scale: jax.Array,
) -> jax.Array:
    """Returns the ten statistics (float32) of one operand if its layer is watched, else zeros; NaN
    if it is not quantized.

    x_MK: the original; operand: its quantized copy from `quantize.to_bfloat16` along `axis`; scale:
    the scale used under delayed scaling.
    """
    if quantizer is None:
        return jnp.full(len(STATISTICS), jnp.nan, jnp.float32)
    if not watched:
        return jnp.zeros(len(STATISTICS), jnp.float32)
    return statistics(x_MK, operand, axis, quantizer, scale if quantizer.delayed else None)


def statistics(
    x_MK: jax.Array,
    operand: Operand,
    axis: int,
    quantizer: Quantizer,
    scale: jax.Array | None = None,
) -> jax.Array:
    """Returns the ten statistics (float32, in the order of STATISTICS) of one quantized operand;
    arguments as above.

    Zeros that pad a matrix to whole blocks count as elements, and the blocks that they fill as
    blocks; nothing else counts them.
    """
    amax = operand.amax
    group = math.lcm(_ROWS, quantizer.block)
    if quantizer.row_scaled or x_MK.shape[0] % (_STRATUM * group):
        share = 1.0
        seen = watched(x_MK, operand, axis, quantizer, scale)
    else:
        share = 1 / _STRATUM
        part = operand._replace(value=_one_in_four(operand.value, group))
        seen = watched(_one_in_four(x_MK, group), part, axis, quantizer, scale)
    whole = jnp.where((amax > 0) & jnp.isfinite(amax), 1 / amax, jnp.float32(1))
    signal = jnp.sum(_sums(jnp.square(seen.x * whole)))
    noise = jnp.sum(_sums(jnp.square((seen.x - seen.value) * whole)))
    nonzero, lost, saturated = _counts(
        seen.x != 0,
        (seen.x != 0) & (seen.value == 0),
        jnp.abs(seen.x) > seen.unit * np.float32(quantizer.format.largest * _BEYOND),
    )
    (unscaled,) = _counts(seen.unit == 0)
    unseen = (nonzero == 0) & (amax > 0)
    decibels = jnp.where(noise == 0, jnp.float32(np.inf), 10 * jnp.log10(signal / noise))
    return jnp.stack(
        [
            amax,
            jnp.where(unseen, jnp.float32(np.nan), lost / jnp.maximum(nonzero, 1.0)),
            saturated / np.float32(seen.x.size),
            jnp.where(unseen, jnp.float32(np.nan), decibels),
            *_scale_octaves(seen.unit),
            unscaled / np.float32(seen.unit.size),
            count_nonfinite(x_MK, amax, quantizer),
            jnp.float32(share),
        ]
    )


def gradient_comparison(dw_KN: jax.Array, reference_KN: jax.Array) -> jax.Array:
    """Returns cosine, bias and snr_db (float32) of a weight's gradient next to its reference; NaN
    if the reference is zero.
    """
    dw, reference = dw_KN.astype(jnp.float32), reference_KN.astype(jnp.float32)
    whole = 1 / jnp.maximum(
        formats.largest_magnitude(reference), np.float32(np.finfo(np.float32).tiny)
    )
    # so that no square is flushed to zero or overflows
    dw, reference = dw * whole, reference * whole
    dot, square, reference_square, noise = (
        jnp.sum(_sums(a * b))
        for a, b in (
            (dw, reference),
            (dw, dw),
            (reference, reference),
            (dw - reference, dw - reference),
        )
    )
    decibels = jnp.where(noise == 0, jnp.float32(np.inf), 10 * jnp.log10(reference_square / noise))
    return jnp.stack(
        [dot / jnp.sqrt(square * reference_square), dot / reference_square - 1, decibels]
    )


def _one_in_four(x_MK: jax.Array, group: int) -> jax.Array:
    """One group of rows of each stratum of four; see above which."""
    rows, columns = x_MK.shape
    stratum = np.arange(rows // (_STRATUM * group), dtype=np.uint32)
    turn = random_bits.finalize(stratum // _STRATUM**2 + np.uint32(1)) >> 30
    seen = stratum * _STRATUM + (stratum + stratum // _STRATUM + turn) % _STRATUM
    return x_MK.reshape(rows // group, group, columns)[seen].reshape(rows // _STRATUM, columns)


def _sums(x: jax.Array) -> jax.Array:
    """Returns partial sums of up to 64 elements each that cover x, by a product with ones: on CPUs
    twice as fast as XLA's sum.
    """
    terms = math.gcd(x.size, _TERMS)
    return jnp.ones((1, terms), jnp.float32) @ x.reshape(terms, -1)


def _counts(*masks: jax.Array) -> list[jax.Array]:
    """Counts the true elements (float32) of up to three arrays in one pass: three sums of 64 fit
    one float32 as digits to base 256.
    """
    digits = [
        jnp.where(mask, np.float32(256**place), np.float32(0)) for place, mask in enumerate(masks)
    ]
    sums, counts = _sums(sum(digits[1:], digits[0])), []
    for _ in masks:
        rest = jnp.floor(sums / 256)
        counts.append(jnp.sum(sums - 256 * rest))
        sums = rest
    return counts


def _scale_octaves(scale: jax.Array) -> list[jax.Array]:
    """Octaves below the largest scale within which 10, 50 and 90 % of the scales lie, from a
    histogram of whole octaves.
    """
    exponent = formats.bits_of(scale.ravel()) >> 23
    octave = jnp.minimum(jnp.max(exponent) - exponent, OCTAVES - 1)
    near_enough = octave[None, :] <= jnp.arange(OCTAVES)[:, None]
    within = (
        jnp.where(near_enough, jnp.float32(1), jnp.float32(0))
        @ jnp.ones(exponent.size, jnp.float32)
        / np.float32(exponent.size)
    )
    return [jnp.argmax(within >= share).astype(jnp.float32) for share in _QUANTILES]


def gradient_norms(gradient: jax.Array) -> jax.Array:
    """The l2 norm of one layer's gradient (float32 scalar); recorded for every layer at every
    step.
    """
    return jnp.sqrt(jnp.sum(jnp.square(gradient)))
