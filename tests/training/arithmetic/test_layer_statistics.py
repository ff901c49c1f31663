"""The statistics of a layer against plain numpy, and that looking at a step does not change it."""

import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import some_pairs
from training.arithmetic import random_bits
from training.arithmetic.formats import E2M1, E4M3, values
from training.arithmetic.hadamard import rotate
from training.arithmetic.layer_statistics import (
    COLUMNS,
    COMPARISONS,
    OPERANDS,
    STATISTICS,
    gradient_comparison,
    gradient_norms,
    statistics,
)
from training.arithmetic.linear import linear, quiet_channel
from training.arithmetic.quantize import Quantizer, dequantize, quantize, to_bfloat16
from training.arithmetic.recipes import linear_recipe

NVFP4 = Quantizer(format=E2M1, scaling="nvfp4", block=16)
FP8 = Quantizer(format=E4M3, scaling="tensor")
DELAYED = replace(FP8, delayed=True)
MXFP8 = Quantizer(format=E4M3, scaling="mx", block=32)


@partial(jax.jit, static_argnums=(1, 2))
def look(x, axis, quantizer, scale=None):
    ours = quantize(x, axis, quantizer, None, scale)
    return (
        statistics(x, to_bfloat16(x, axis, quantizer, None, scale), axis, quantizer, scale),
        ours,
        dequantize(ours, axis, quantizer),
    )


def turn(number: int) -> int:
    """The highest two bits of a number's hash, fmix32 of MurmurHash3."""
    number = (number ^ number >> 16) * 0x85EBCA6B % 2**32
    number = (number ^ number >> 13) * 0xC2B2AE35 % 2**32
    return (number ^ number >> 16) // 2**30


def seen_rows(rows: int, group: int = 16) -> np.ndarray:
    """The rows whose statistics are taken, one after the other."""
    if rows % (4 * group):
        return np.arange(rows)
    seen = []
    for stratum in range(rows // (4 * group)):
        shown = (stratum + stratum // 4 + turn(stratum // 16 + 1)) % 4
        seen += [group * (4 * stratum + shown) + row for row in range(group)]
    return np.array(seen)


def twin(x, quantizer, ours, value):
    """The same numbers from codes and scale bytes, in float64."""
    x, value = np.asarray(x, np.float64), np.asarray(value, np.float64)
    amax, nonfinite = np.abs(x).max(), np.sum(~np.isfinite(x))
    unit = np.full((1, 1), float(ours.scale_inv))
    if quantizer.scaling == "nvfp4":
        unit = values(E4M3)[np.asarray(ours.scales)].astype(np.float64) * unit
    elif quantizer.scaling == "mx":
        unit = np.exp2(np.asarray(ours.scales).astype(float) - 127)
    seen = seen_rows(len(x), math.lcm(16, quantizer.block))
    share = len(seen) / len(x)
    whole = unit
    for dimension in (0, 1):
        whole = np.repeat(whole, x.shape[dimension] // unit.shape[dimension], axis=dimension)
    unit = unit[np.unique(seen // (len(x) // len(unit)))]
    x, value, whole = x[seen], value[seen], whole[seen] if len(whole) > 1 else whole
    unknown = amax > 0 and not x.any()
    with np.errstate(divide="ignore", invalid="ignore"):
        octave = np.minimum(np.floor(np.log2(unit.max())) - np.floor(np.log2(unit.ravel())), 15)
        decibels = 10 * np.log10(np.sum(x**2) / np.sum((x - value) ** 2))
    octave = np.where(unit.ravel() == unit.max(), 0, octave)
    return [
        amax,
        np.nan if unknown else np.sum((x != 0) & (value == 0)) / max(np.sum(x != 0), 1),
        np.mean(np.abs(x) > quantizer.format.largest * whole * (1 + 2.0**-20)),
        decibels,
        *(np.quantile(octave, share, method="inverted_cdf") for share in (0.1, 0.5, 0.9)),
        np.mean(unit == 0),
        nonfinite,
        share,
    ]


@pytest.mark.parametrize(
    ("case", "axis"),
    some_pairs(
        [
            (NVFP4, None),
            (replace(NVFP4, two_dimensional=True), None),
            (MXFP8, None),
            (FP8, None),
            (DELAYED, 300.0),
        ],
        [0, 1],
    ),
)
def test_equals_plain_numpy(case, axis):
    quantizer, scale = case
    random = np.random.default_rng(4)
    x = jnp.asarray(
        random.standard_normal((64, 96)) * np.exp2(random.integers(-9, 4, (64, 96))), jnp.bfloat16
    )
    x = x.at[:32, :32].multiply(2.0**-30)  # blocks whose scale is 0 in NVFP4
    statistics, ours, value = look(
        x, axis, quantizer, None if scale is None else jnp.float32(scale)
    )
    np.testing.assert_allclose(
        np.asarray(statistics), twin(x, quantizer, ours, value), rtol=2e-4, atol=1e-7
    )


def named(x: np.ndarray) -> dict[str, float]:
    return dict(
        zip(
            STATISTICS,
            np.asarray(look(jnp.asarray(x, jnp.bfloat16), 1, NVFP4)[0]).tolist(),
            strict=True,
        )
    )


def test_nothing_lost_nothing_there_and_nothing_finite():
    exact = named(np.full((16, 32), 6.0))
    assert exact["snr_db"] > 140
    assert (exact["underflow_share"], exact["saturation_share"]) == (0, 0)
    silent = named(np.zeros((16, 32)))
    assert (
        silent["amax"],
        silent["underflow_share"],
        silent["snr_db"],
        silent["zero_scale_share"],
    ) == (0, 0, np.inf, 1)
    sick = np.ones((16, 32))
    sick[3, 3], sick[4, 4] = np.nan, np.inf
    assert named(sick)["nonfinite"] == 2
    assert np.isnan(named(sick)["amax"])


RECIPE = linear_recipe("nvfp4", fast_bf16=True)
MATRICES = tuple(
    np.random.default_rng(i).standard_normal(shape).astype(jnp.bfloat16)
    for i, shape in enumerate(((64, 32), (32, 48), (64, 48)))
)


@partial(jax.jit, static_argnums=0)
def layer(recipe):
    """y, dx and dw, and the statistics."""
    x, w, g = MATRICES
    y, pull = jax.vjp(
        lambda x, w, c: linear(recipe, x, w, random_bits.key(1), c), x, w, quiet_channel()
    )
    dx, dw, channel = pull(g)
    return (y, dx, dw), channel.statistics


def test_a_layer_says_its_statistics_when_watched_and_zeros_when_not():
    x, w, g = MATRICES
    products, silent = layer(RECIPE)
    watched_products, statistics = layer(replace(RECIPE, watched=True))
    jax.tree.map(np.testing.assert_array_equal, products, watched_products)
    assert statistics.shape == (len(COLUMNS),)
    assert np.all(np.isnan(np.asarray(statistics[-len(COMPARISONS) :])))
    statistics = statistics[: -len(COMPARISONS)].reshape(len(OPERANDS), len(STATISTICS))
    assert not np.any(np.asarray(silent))
    for row, tensor, quantizer, axis in (
        (0, x, RECIPE.fprop_x, 1),
        (1, w, RECIPE.fprop_w, 0),
        (3, x, RECIPE.wgrad_x, 0),
    ):
        np.testing.assert_allclose(
            np.asarray(statistics[row]), np.asarray(look(tensor, axis, quantizer)[0]), rtol=1e-6
        )
    snr = STATISTICS.index("snr_db")
    # SR adds noise
    assert float(statistics[2, snr]) < float(
        look(g, 1, replace(RECIPE.dgrad_g, stochastic=False))[0][snr]
    )


def test_the_statistics_of_a_layer_that_is_not_quantized_are_no_numbers():
    recipe = linear_recipe("bf16", fast_bf16=True)
    x = jnp.ones((16, 16), jnp.bfloat16)
    statistics = jax.vjp(lambda c: linear(recipe, x, x, random_bits.key(0), c), quiet_channel())[1](
        x
    )[0].statistics
    assert statistics.shape == (len(COLUMNS),)
    assert np.all(np.isnan(np.asarray(statistics)))


def test_norm_of_a_gradient():
    g = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    np.testing.assert_allclose(float(gradient_norms(jnp.asarray(g))), np.linalg.norm(g), rtol=1e-6)


def test_a_rotated_copy_is_compared_with_the_rotated_original():
    rotated = replace(NVFP4, rotated=True)
    values = np.random.default_rng(2).standard_normal((48, 48))
    values[5] *= 40
    x = jnp.asarray(values, jnp.bfloat16)
    seen = np.asarray(look(x, 0, rotated)[0])
    np.testing.assert_array_equal(seen, np.asarray(look(rotate(x), 0, NVFP4)[0]))
    lost = STATISTICS.index("underflow_share")
    assert seen[lost] < np.asarray(look(x, 0, NVFP4)[0])[lost]  # what the rotation is for


ROWS = 2560


def small_part(period, part, parts=16, rows=ROWS):
    """Rows that become zero in one part of each sequence."""
    x = np.random.default_rng(rows + period + part).standard_normal((rows, 32))
    return np.where((np.arange(rows) % period * parts // period == part)[:, None], x * 2.0**-18, x)


def wave(period, rows=ROWS):
    """Rows whose size swings over 24 octaves within a period."""
    x = np.random.default_rng(period).standard_normal((rows, 32))
    return x * np.exp2(12 * np.sin(2 * np.pi * np.arange(rows) / period))[:, None]


def one_row(row, size, others, rows=ROWS):
    """One row of another size than all others."""
    x = others * np.random.default_rng(row).standard_normal((rows, 32))
    x[row] = size * np.random.default_rng(rows).standard_normal(32)
    return x


ADVERSARIAL = {
    "the second half of sequences of 128 is small": small_part(128, 1, 2),
    "the second half of sequences of 64 is small": small_part(64, 1, 2),
    "the second half of sequences of 256 is small": small_part(256, 1, 2),
    "the second half of sequences of 160 is small": small_part(160, 1, 2),
    "the second half of sequences of 96 is small": small_part(96, 1, 2),
    "the second half of sequences of 1024 is small": small_part(1024, 1, 2),
    "the first part of sequences of 128 is small": small_part(128, 0),
    "the third part of sequences of 128 is small": small_part(128, 2),
    "the last part of sequences of 128 is small": small_part(128, 15),
    "the middle of sequences of 512 is small": small_part(512, 8),
    "a wave of 128": wave(128),
    "a wave of 100": wave(100),
    "a wave of 17": wave(17),
    "a wave of 61, and large": wave(61) * 2.0**60,
    "one row alone, the first": one_row(0, 1, 0),
    "one row alone, the last": one_row(ROWS - 1, 1, 0),
    "one row alone, of the third group": one_row(40, 1, 0),
    "one large row, the fourth": one_row(3, 200, 1),
    "one large row, of the third group": one_row(35, 200, 1),
    "one small row": one_row(ROWS - 1, 2.0**-18, 1),
    "rows that no group divides": small_part(128, 1, 2, rows=1000),
    "rows that no four groups divide": small_part(64, 1, 2, rows=224),
    "fewer rows than a group": wave(3, rows=8),
    "one row": one_row(0, 1, 0, rows=1),
    "one stratum": small_part(64, 1, 2, rows=64),
}


@pytest.mark.parametrize("name", ADVERSARIAL)
@pytest.mark.parametrize(
    ("quantizer", "axis"),
    some_pairs([NVFP4, replace(NVFP4, two_dimensional=True), FP8, MXFP8], [0, 1]),
)
def test_equals_the_twin_on_the_rows_that_are_seen(name, quantizer, axis):
    rows = ADVERSARIAL[name]
    block = quantizer.block if axis == 0 or quantizer.two_dimensional else 1
    x = jnp.asarray(np.pad(rows, ((0, -len(rows) % block), (0, 0))), jnp.bfloat16)
    measured, ours, value = look(x, axis, quantizer)
    np.testing.assert_allclose(
        np.asarray(measured), twin(x, quantizer, ours, value), rtol=2e-4, atol=1e-7
    )


@pytest.mark.parametrize("period", [64, 128, 160, 256, 320, 640])
@pytest.mark.parametrize("part", [0, 3])
def test_what_underflows_is_seen_wherever_in_a_sequence_it_is(period, part):
    x = jnp.asarray(small_part(period, part, parts=4), jnp.bfloat16)
    measured, _, value = look(x, 1, NVFP4)
    everywhere = np.mean((np.asarray(x) != 0) & (np.asarray(value) == 0))
    assert everywhere > 0.2
    assert measured[STATISTICS.index("underflow_share")] == pytest.approx(everywhere, abs=0.1)


def shares_seen(length: int, sequences: int, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """How often each part of the sequences is seen, and how long it is, as shares."""
    part = np.arange(length) * parts // length
    seen = part[seen_rows(sequences * length) % length]
    return np.bincount(seen, minlength=parts) / len(seen), np.bincount(part) / length


@pytest.mark.parametrize("length", [64, 128, 256, 512, 1024, 2048, 4096])
@pytest.mark.parametrize("sequences", [4, 16, 32])
def test_of_sequences_of_a_power_of_two_each_sixteenth_is_seen_equally_often(length, sequences):
    share, size = shares_seen(length, max(sequences, 1024 // length), 16)
    np.testing.assert_array_equal(share, size)


@pytest.mark.parametrize("parts", [2, 4, 16])
def test_of_thirty_two_other_sequences_each_part_is_seen_about_as_often_as_it_is_long(parts):
    for length in range(48, 2049, 16):
        share, size = shares_seen(length, 32, parts)
        np.testing.assert_allclose(share, size, atol=0.063, err_msg=f"sequences of {length}")


def test_nothing_is_said_of_a_tensor_whose_only_values_are_not_seen():
    first = int(seen_rows(ROWS)[0])
    seen, unseen = named(one_row(first, 1, 0)), named(one_row((first + 16) % 64, 1, 0))
    assert np.isnan([unseen["underflow_share"], unseen["snr_db"]]).all()
    assert np.isfinite([seen["underflow_share"], seen["snr_db"]]).all()
    assert unseen["amax"] > 0


def test_the_share_of_the_rows_that_are_seen_is_told():
    assert named(np.ones((64, 32)))["seen_share"] == 0.25
    assert named(np.ones((40, 32)))["seen_share"] == 1


def test_a_gradient_is_compared_with_the_one_of_unquantized_operands():
    random = np.random.default_rng(0)
    reference = random.standard_normal((32, 48))
    for size in (1.0, 1e-30, 1e30):
        dw = (0.9 * reference + 0.1 * random.standard_normal((32, 48))) * size
        cosine, bias, snr = np.asarray(
            gradient_comparison(
                jnp.asarray(dw, jnp.float32), jnp.asarray(reference * size, jnp.float32)
            )
        )
        assert cosine == pytest.approx(
            np.sum(dw * reference) / np.linalg.norm(dw) / np.linalg.norm(reference), rel=1e-5
        )
        assert bias == pytest.approx(
            np.sum(dw * reference) / np.sum(reference**2) / size - 1, rel=1e-4
        )
        assert snr == pytest.approx(
            20 * np.log10(np.linalg.norm(reference) / np.linalg.norm(dw / size - reference)),
            rel=1e-5,
        )
    assert np.asarray(
        gradient_comparison(jnp.ones((8, 8)), jnp.ones((8, 8)))
    ).tolist() == pytest.approx([1, 0, np.inf])
    assert np.isnan(np.asarray(gradient_comparison(jnp.zeros((8, 8)), jnp.zeros((8, 8))))[:2]).all()


def test_a_compared_layer_says_how_far_its_gradient_is_off_and_computes_the_same():
    x, _, g = MATRICES
    plain, _ = layer(RECIPE)
    products, statistics = layer(replace(RECIPE, watched=True, compared=True))
    jax.tree.map(np.testing.assert_array_equal, plain, products)
    exact = np.asarray(x, np.float64).T @ np.asarray(g, np.float64)
    dw = np.asarray(products[2], np.float64)
    named = dict(zip(COLUMNS, np.asarray(statistics).tolist(), strict=True))
    assert named["kernel_grad/cosine"] == pytest.approx(
        np.sum(dw * exact) / np.linalg.norm(dw) / np.linalg.norm(exact), rel=1e-4
    )
    assert named["kernel_grad/bias"] == pytest.approx(
        np.sum(dw * exact) / np.sum(exact**2) - 1, abs=1e-4
    )
    assert 0.9 < named["kernel_grad/cosine"] < 0.999
    assert np.isfinite(np.asarray(statistics)).all()


@pytest.mark.parametrize("quantizer", [NVFP4, FP8])
@pytest.mark.parametrize("exponent", [-100, -80, 0, 60])
def test_a_power_of_two_changes_the_amax_alone(quantizer, exponent):
    """Also where the squares of the elements are smaller or larger than any float."""
    x = jax.random.normal(jax.random.key(0), (64, 64), jnp.float32)
    first = np.asarray(look(x, 0, quantizer)[0])
    scaled = np.asarray(look(x * np.float32(2.0**exponent), 0, quantizer)[0])
    assert scaled[0] == first[0] * 2.0**exponent
    np.testing.assert_array_equal(scaled[1:], first[1:])


@pytest.mark.parametrize(("beyond", "share"), [(0.0, 0.0), (2.0**-21, 0.0), (2.0**-19, 0.25)])
def test_a_value_is_saturated_where_it_is_beyond_the_largest_by_more_than_rounding(beyond, share):
    """By one part in 2 to the 20; the scale is that of earlier steps, so values may be larger."""
    x = jnp.full((32, 32), 1.0, jnp.float32).at[:, ::4].set(np.float32(448.0 * (1 + beyond)))
    seen = np.asarray(look(x, 0, DELAYED, jnp.float32(1.0))[0])
    assert dict(zip(STATISTICS, seen.tolist(), strict=True))["saturation_share"] == share
