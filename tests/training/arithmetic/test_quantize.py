"""Every quantizer against a slow twin in plain numpy, over shapes and ranges; exactness of the
bfloat16 path; edge inputs.
"""

from dataclasses import replace
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import some, some_of, some_pairs
from training.arithmetic import formats, random_bits
from training.arithmetic.formats import E2M1, E4M3, E5M2, stochastic, stochastic_floor, values
from training.arithmetic.hadamard import matrix
from training.arithmetic.quantize import (
    Quantizer,
    count_nonfinite,
    dequantize,
    quantize,
    tensor_scale,
    to_bfloat16,
)

F32 = np.float32
PEER = {E2M1: ml_dtypes.float4_e2m1fn, E4M3: ml_dtypes.float8_e4m3fn, E5M2: ml_dtypes.float8_e5m2}
NVFP4 = Quantizer(format=E2M1, scaling="nvfp4", block=16)
NVFP4_2D = replace(NVFP4, two_dimensional=True)
MXFP8 = Quantizer(format=E4M3, scaling="mx", block=32)
MXFP4 = Quantizer(format=E2M1, scaling="mx", block=32)
MXFP8_E5M2 = Quantizer(format=E5M2, scaling="mx", block=32)
FP8 = Quantizer(format=E4M3, scaling="tensor")
FP8_E5M2 = Quantizer(format=E5M2, scaling="tensor")
FP8_BLOCK = Quantizer(format=E4M3, scaling="fp8_block", block=128)
FP8_BLOCK_E5M2 = replace(FP8_BLOCK, format=E5M2)
FP8_BLOCK_2D = replace(FP8_BLOCK, two_dimensional=True)
NVFP4_ROW = replace(NVFP4, row_scaled=True)
ALL = [
    NVFP4,
    NVFP4_2D,
    NVFP4_ROW,
    MXFP4,
    MXFP8,
    MXFP8_E5M2,
    FP8_BLOCK,
    FP8_BLOCK_E5M2,
    FP8_BLOCK_2D,
    FP8,
    FP8_E5M2,
]
IDS = [
    "nvfp4",
    "nvfp4_2d",
    "nvfp4_row",
    "mxfp4",
    "mxfp8",
    "mxfp8_e5m2",
    "fp8_block",
    "fp8_block_e5m2",
    "fp8_block_2d",
    "fp8",
    "fp8_e5m2",
]

ALONG_AN_AXIS = [
    pytest.param(quantizer, axis, id=f"{name}-{axis}")
    for (name, quantizer), axis in some_pairs(zip(IDS, ALL, strict=True), [0, 1])
]


def cast(scaled: np.ndarray, fmt, uniform: np.ndarray | None = None) -> np.ndarray:
    """The textbook cast: clip, then let ml_dtypes round one element after the other; at random,
    move each by `uniform` steps first.
    """
    scaled = np.clip(scaled, -fmt.largest, fmt.largest).astype(F32)
    if uniform is None:
        return scaled.astype(PEER[fmt])
    exponent = np.maximum(np.frexp(scaled)[1] - 1, fmt.smallest_exponent)
    step = np.exp2(exponent - fmt.mantissa_bits).astype(F32)
    return (np.rint((scaled + uniform * step) / step) * step).astype(PEER[fmt])


def twin(
    x: np.ndarray, axis: int, quantizer: Quantizer, uniform: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes, scale bytes and decoded values by the formulas of the specification, one block at a
    time.
    """
    fmt = quantizer.format
    if quantizer.row_scaled:  # each row along the blocks is a tensor of its own
        lines = np.split(x, x.shape[1 - axis], axis=1 - axis)
        parts = [twin(line, axis, replace(quantizer, row_scaled=False)) for line in lines]
        codes, scales, decoded = (
            np.concatenate(part, axis=1 - axis) for part in zip(*parts, strict=True)
        )
        return codes, scales, decoded
    amax = np.max(np.abs(x))
    if quantizer.scaling == "tensor":
        with np.errstate(over="ignore"):
            scale = (
                min(F32(fmt.largest) / amax, F32(ml_dtypes.finfo(ml_dtypes.bfloat16).max))
                if amax > 0
                else F32(1)
            )
        code = cast(x * scale, fmt, uniform)
        return code.view(np.uint8), np.zeros((1, 1), np.uint8), code.astype(F32) * (F32(1) / scale)
    size = quantizer.block
    rows, columns = (
        (size, size) if quantizer.two_dimensional else ((size, 1) if axis == 0 else (1, size))
    )
    blocks = (-(-x.shape[0] // rows), -(-x.shape[1] // columns))
    codes, scales, decoded = (
        np.zeros(x.shape, np.uint8),
        np.zeros(blocks, np.uint8),
        np.zeros(x.shape, F32),
    )
    for i, j in np.ndindex(*blocks):
        where = np.s_[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
        code, scales[i, j], decoded[where] = twin_block(
            x[where], amax, quantizer, None if uniform is None else uniform[where]
        )
        codes[where] = code.view(np.uint8)
    return codes, scales, decoded


def twin_rotated(x: np.ndarray) -> np.ndarray:
    """Sixteen rows after sixteen rows times the Hadamard matrix, rounded to bfloat16; rows that are
    missing are zeros.
    """
    padded = np.pad(x, ((0, -len(x) % 16), (0, 0)))
    groups = padded.reshape(-1, 16, x.shape[1])
    rotated = np.einsum("gsk,st->gtk", groups.astype(np.float64), matrix().astype(np.float64))
    return rotated.reshape(padded.shape).astype(ml_dtypes.bfloat16).astype(F32)


def twin_block(
    block: np.ndarray, amax: np.floating, quantizer: Quantizer, uniform: np.ndarray | None
) -> tuple[np.ndarray, int, np.ndarray]:
    fmt, b = quantizer.format, np.max(np.abs(block))
    if quantizer.scaling == "mx":
        ratio = b * F32(1 / fmt.largest)
        byte = 0 if ratio == 0 else max(int(np.ceil(np.log2(np.float64(ratio)))) + 127, 0)
        code = cast(block * F32(2.0 ** (127 - byte)), fmt, uniform)
        return code, byte, (code.astype(np.float64) * 2.0 ** (byte - 127)).astype(F32)
    # a float32 that is the largest power of two not above largest / amax; 1 for zeros
    if quantizer.scaling == "fp8_block":
        exponent = (
            min(int(np.floor(np.log2(np.float64(fmt.largest) / np.float64(b)))), 127)
            if b > 0
            else 0
        )
        code = cast(block * F32(2.0**exponent), fmt, uniform)
        return code, 127 - exponent, (code.astype(np.float64) * 2.0**-exponent).astype(F32)
    with np.errstate(over="ignore"):
        encode = min(F32(2688) / amax, np.finfo(F32).max) if amax > 0 else F32(1)
    scale = np.minimum(b * (encode * F32(1 / 6)), F32(448)).astype(ml_dtypes.float8_e4m3fn)
    # scale 0: the reciprocal saturates, and so do the codes
    with np.errstate(divide="ignore", over="ignore"):
        reciprocal = np.minimum(F32(1) / (scale.astype(F32) * (F32(1) / encode)), np.finfo(F32).max)
        code = cast(block * reciprocal, fmt, uniform)
    return (
        code,
        int(scale.view(np.uint8)),
        code.astype(F32) * scale.astype(F32) * (amax * F32(1 / 2688)),
    )


narrow = jax.jit(to_bfloat16, static_argnums=(1, 2))


@partial(jax.jit, static_argnums=(1, 2))
def everything(x_MK, axis, quantizer, key=None):
    ours = quantize(x_MK, axis, quantizer, key)
    return ours, dequantize(ours, axis, quantizer), *to_bfloat16(x_MK, axis, quantizer, key)[:2]


def assert_equals_twin(x: np.ndarray, axis: int, quantizer: Quantizer, dtype=jnp.float32) -> None:
    codes, scales, decoded = twin(x, axis, quantizer)
    ours, ours_decoded, value, factor = everything(jnp.asarray(x, dtype), axis, quantizer)
    np.testing.assert_array_equal(np.asarray(ours.scales), scales)
    np.testing.assert_array_equal(np.asarray(ours.codes), codes)
    np.testing.assert_array_equal(np.asarray(ours_decoded), decoded)
    assert value.dtype == jnp.bfloat16
    np.testing.assert_array_equal(
        np.asarray(value.astype(jnp.float32)) * np.asarray(factor), decoded
    )


def bfloat16_values(shape: tuple[int, int], seed: int, exponent: int, spread: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    x = random.standard_normal(shape) * np.exp2(
        exponent + random.integers(-spread, spread + 1, shape)
    )
    return x.astype(ml_dtypes.bfloat16).astype(F32)


@pytest.mark.parametrize("quantizer", ALL, ids=IDS)
@settings(max_examples=some(36))
@given(
    shape_and_axis=st.sampled_from([((32, 64), 0), ((20, 33), 1)]),
    seed=st.integers(0, 2**31),
    exponent=st.integers(-80, 80),
    spread=st.integers(0, 20),
)
def test_equals_the_slow_twin(quantizer, shape_and_axis, seed, exponent, spread):
    shape, axis = shape_and_axis
    assert_equals_twin(bfloat16_values(shape, seed, exponent, spread), axis, quantizer)


@settings(max_examples=6)  # a program for each
@given(
    quantizer=st.sampled_from(ALL),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    axis=st.integers(0, 1),
    dtype=st.sampled_from([jnp.float32, jnp.bfloat16]),
)
def test_any_shape_equals_the_slow_twin(quantizer, shape, axis, dtype):
    assert_equals_twin(bfloat16_values(shape, 9, 0, 6), axis, quantizer, dtype)


@pytest.mark.parametrize(("quantizer", "axis"), ALONG_AN_AXIS)
@settings(max_examples=some(18))
@given(seed=st.integers(0, 2**31), exponent=st.integers(-120, -100), spread=st.integers(0, 3))
def test_codes_and_scales_of_tiny_tensors_equal_the_slow_twin(
    quantizer, axis, seed, exponent, spread
):
    """Down to 1e-37, where scales and their reciprocals are subnormal in numpy and would be flushed
    in XLA.
    """
    x = bfloat16_values((32, 64), seed, exponent, spread)
    x[np.abs(x) < np.finfo(F32).tiny] = 0
    codes, scales, _ = twin(x, axis, quantizer)
    ours = everything(jnp.asarray(x), axis, quantizer)[0]
    np.testing.assert_array_equal(np.asarray(ours.scales), scales)
    np.testing.assert_array_equal(np.asarray(ours.codes), codes)
    if quantizer.scaling == "tensor":
        with np.errstate(over="ignore"):
            scale = np.minimum(F32(quantizer.format.largest) / np.abs(x).max(), F32(3.3895314e38))
        assert abs(F32(ours.scale_inv) - F32(1) / scale) <= 1e-45  # a step of the subnormals


@pytest.mark.parametrize("amax", [1.2e-35, 1.7e-35, 2.1e-35, 3e-35])
def test_a_subnormal_decode_scale_is_rounded_once(amax):
    """Rounded twice, one tensor in four has a code that is one step off here."""
    for seed in range(20):
        x = bfloat16_values((32, 64), seed, 0, 3)
        x = (x * F32(amax / np.abs(x).max())).astype(ml_dtypes.bfloat16).astype(F32)
        codes, scales, _ = twin(x, 1, NVFP4)
        ours = everything(jnp.asarray(x), 1, NVFP4)[0]
        np.testing.assert_array_equal(np.asarray(ours.scales), scales)
        np.testing.assert_array_equal(np.asarray(ours.codes), codes)


@pytest.mark.parametrize("amax", [1.3e-26, 1e-25])
@pytest.mark.parametrize("quantizer", [NVFP4, NVFP4_ROW], ids=["nvfp4", "nvfp4_row"])
def test_just_above_the_lifted_scales_the_codes_equal_the_slow_twin(monkeypatch, quantizer, amax):
    """Encode scales of 2^94 to 2^100, as a GPU computes them: the decode scale is far from
    subnormal and keeps all its bits.
    """
    x = np.concatenate([bfloat16_values((32, 64), seed, 0, 3) for seed in range(4)])
    x = (x * F32(amax / np.abs(x).max())).astype(ml_dtypes.bfloat16).astype(F32)
    codes, scales, _ = twin(x, 1, quantizer)
    monkeypatch.setattr(formats, "on_cpu", lambda: False)
    ours = jax.jit(lambda x: quantize(x, 1, quantizer))(jnp.asarray(x))
    np.testing.assert_array_equal(np.asarray(ours.scales), scales)
    np.testing.assert_array_equal(np.asarray(ours.codes), codes)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("amax", [1e-34, 1e-33, 5e-33])
def test_a_block_far_below_a_tiny_tensors_amax_equals_the_slow_twin(amax, axis):
    """Its decode scale, which is subnormal, must not be flushed to zero: its codes would all be the
    largest.
    """
    x = (
        np.random.default_rng(0)
        .uniform(1.2e-38, 4.7e-38, (32, 64))
        .astype(ml_dtypes.bfloat16)
        .astype(F32)
    )
    x[0, 0] = F32(amax)
    codes, scales, _ = twin(x, axis, NVFP4)
    ours = everything(jnp.asarray(x), axis, NVFP4)[0]
    np.testing.assert_array_equal(np.asarray(ours.scales), scales)
    np.testing.assert_array_equal(np.asarray(ours.codes), codes)
    assert len(np.unique(codes[16:, 16:])) > 3


@pytest.mark.parametrize(("quantizer", "axis"), ALONG_AN_AXIS)
def test_edges_equal_the_slow_twin(quantizer, axis):
    outlier = bfloat16_values((32, 64), 1, 0, 2)
    outlier[3, 5] = 30_000.0
    dead_block = bfloat16_values((32, 64), 2, 0, 2)
    dead_block[:32, :32] = 0
    huge = bfloat16_values((32, 64), 3, 120, 1)
    for x in (np.zeros((32, 64), F32), outlier, dead_block, huge, np.full((32, 64), -3.5, F32)):
        assert_equals_twin(x, axis, quantizer)


@pytest.mark.parametrize("quantizer", [NVFP4, MXFP4], ids=["nvfp4", "mxfp4"])
@pytest.mark.parametrize(("shape", "axis"), [((32, 48), 0), ((20, 48), 0), ((48, 24), 1)])
@settings(max_examples=6)
@given(seed=st.integers(0, 2**31), exponent=st.integers(-60, 110))
def test_rotated_copies_equal_the_slow_twin(quantizer, shape, axis, seed, exponent):
    x = bfloat16_values(shape, seed, exponent, 1)
    block = quantizer.block
    padded = np.pad(
        x, [(0, -size % block if dimension == axis else 0) for dimension, size in enumerate(shape)]
    )
    spread = twin_rotated(padded) if axis == 0 else twin_rotated(padded.T).T
    codes, scales, _ = twin(spread, axis, quantizer)
    ours = everything(jnp.asarray(x, jnp.bfloat16), axis, replace(quantizer, rotated=True))[0]
    np.testing.assert_array_equal(np.asarray(ours.scales), scales)
    np.testing.assert_array_equal(np.asarray(ours.codes) & 7, codes[: shape[0], : shape[1]] & 7)
    assert float(ours.amax) == np.abs(spread).max()


@pytest.mark.parametrize("quantizer", [NVFP4, MXFP8, FP8_E5M2], ids=["nvfp4", "mxfp8", "fp8_e5m2"])
def test_stochastic_codes_equal_the_slow_twin(quantizer):
    x = bfloat16_values((32, 64), 8, -2, 3)
    uniform = np.asarray(random_bits.centred_uniform(random_bits.key(5), x.shape))
    codes, scales, _ = twin(x, 1, quantizer, uniform)
    ours = everything(jnp.asarray(x), 1, replace(quantizer, stochastic=True), random_bits.key(5))[0]
    np.testing.assert_array_equal(np.asarray(ours.scales), scales)
    np.testing.assert_array_equal(
        values(quantizer.format)[np.asarray(ours.codes)], values(quantizer.format)[codes]
    )
    assert np.any(codes != twin(x, 1, quantizer)[0])


ROTATED_SR = replace(NVFP4, rotated=True, stochastic=True)


WAYS = [
    pytest.param(quantizer, axis, id=name)
    for name, quantizer, axis in (
        ("nvfp4_rht_sr", ROTATED_SR, 0),
        ("nvfp4_2d", NVFP4_2D, 1),
        ("mxfp8", MXFP8, 1),
        ("fp8", FP8, 1),
    )
]


@pytest.mark.parametrize(("quantizer", "axis"), some_of(WAYS, 2, 0))
def test_jit_scan_and_vmap_equal_eager(quantizer, axis):
    x = jnp.asarray(
        np.stack([bfloat16_values((32, 64), seed, -3, 6) for seed in range(3)]), jnp.bfloat16
    )
    key = random_bits.key(3)

    def both(x_MK):
        ours = quantize(x_MK, axis, quantizer, key)
        value, factor, _ = to_bfloat16(x_MK, axis, quantizer, key)
        return (*ours, value.astype(jnp.float32), factor)

    jitted = jax.jit(both)
    eager = [both(x_MK) for x_MK in x]
    # compiled whole: op by op it takes as long as the rest of this file
    mapped = jax.jit(jax.vmap(both))(x)
    scanned = jax.lax.scan(lambda carry, x_MK: (carry, both(x_MK)), 0, x)[1]
    for index, one in enumerate(eager):
        jax.tree.map(np.testing.assert_array_equal, jitted(x[index]), one)
        jax.tree.map(np.testing.assert_array_equal, tuple(part[index] for part in scanned), one)
        jax.tree.map(np.testing.assert_array_equal, tuple(part[index] for part in mapped), one)


def test_every_code_times_every_block_scale_is_exact_in_bfloat16():
    def finite(fmt):
        table = values(fmt)
        return table[np.isfinite(table)].astype(np.float64)

    scales = finite(E4M3)
    powers = np.exp2(np.arange(-100.0, 101.0))
    for code, scale in product((finite(E2M1),), (scales, powers)):
        exact = np.outer(code, scale)
        np.testing.assert_array_equal(exact.astype(ml_dtypes.bfloat16).astype(np.float64), exact)
    for fmt in (E4M3, E5M2):
        exact = np.outer(finite(fmt), powers)
        np.testing.assert_array_equal(exact.astype(ml_dtypes.bfloat16).astype(np.float64), exact)


def test_two_dimensional_scales_are_the_same_under_transpose():
    x = bfloat16_values((48, 64), 5, 0, 4)
    codes = jax.jit(quantize, static_argnums=(1, 2))
    rows, columns = codes(jnp.asarray(x), 1, NVFP4_2D), codes(jnp.asarray(x.T), 1, NVFP4_2D)
    np.testing.assert_array_equal(np.asarray(rows.codes), np.asarray(columns.codes).T)
    np.testing.assert_array_equal(np.asarray(rows.scales), np.asarray(columns.scales).T)
    np.testing.assert_array_equal(
        np.asarray(rows.codes), np.asarray(codes(jnp.asarray(x), 0, NVFP4_2D).codes)
    )


def test_stochastic_rounding_is_unbiased_reproducible_and_leaves_scales_alone():
    x = jnp.asarray(bfloat16_values((32, 64), 6, 0, 1))
    rounding = replace(NVFP4, stochastic=True)
    draw = jax.jit(lambda key: dequantize(quantize(x, 1, rounding, key), 1, rounding))
    draws = np.stack([np.asarray(draw(random_bits.key(seed))) for seed in range(400)])
    np.testing.assert_array_equal(draws[0], np.asarray(draw(random_bits.key(0))))
    assert np.any(draws[0] != draws[1])
    codes = jax.jit(quantize, static_argnums=(1, 2))
    nearest, random = codes(x, 1, NVFP4), codes(x, 1, rounding, random_bits.key(1))
    top = (
        6
        * np.repeat(values(E4M3)[np.asarray(nearest.scales)], 16, axis=1)
        * float(nearest.scale_inv)
    )
    # beyond it the E4M3 scale was rounded down, and the value saturates
    reachable = np.abs(np.asarray(x)) <= top
    step = top / 6 * np.where(np.abs(x) < top / 3, 0.5, np.where(np.abs(x) < top / 1.5, 1, 2))
    error = (draws.mean(axis=0) - np.asarray(x))[reachable]
    assert np.all(np.abs(error) <= 5 * (step / 2 / np.sqrt(len(draws)))[reachable])
    assert abs(np.mean(error)) <= 4 * np.mean(step) / 2 / np.sqrt(len(draws) * error.size)
    np.testing.assert_array_equal(np.asarray(nearest.scales), np.asarray(random.scales))


def test_stochastic_rounding_without_a_key_is_refused():
    with pytest.raises(ValueError, match="key is None"):
        quantize(jnp.zeros((16, 16)), 1, replace(NVFP4, stochastic=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [({"block": 1}, "block is 1"), ({"two_dimensional": True, "rotated": True}, "rotated is True")],
)
def test_a_quantizer_that_cannot_be_says_so(change, message):
    with pytest.raises(ValueError, match=message):
        replace(NVFP4, **change)


def test_nonfinite_values_are_counted():
    sick = np.zeros((16, 32), np.float32)
    sick[1, 2], sick[3, 3], sick[0, 0] = np.nan, np.inf, -np.inf

    @partial(jax.jit, static_argnums=1)
    def count(x, quantizer):
        return count_nonfinite(x, to_bfloat16(x, 0, quantizer).amax, quantizer)

    for quantizer in (
        NVFP4,
        MXFP8,
        FP8,
        FP8_BLOCK,
        *(replace(quantizer, drops_nan=True) for quantizer in (NVFP4, MXFP8, FP8)),
    ):
        assert float(count(jnp.asarray(sick, jnp.bfloat16), quantizer)) == 3
        assert float(count(jnp.full((16, 32), 3e38, jnp.bfloat16), quantizer)) == 0
    assert float(count(jnp.asarray(sick), NVFP4)) == 3


def test_the_scale_of_a_silent_or_overflowing_tensor_is_usable():
    for amax, expected in ((0.0, 1.0), (float("inf"), 1.0), (float("nan"), 1.0), (448.0, 1.0)):
        assert float(tensor_scale(jnp.float32(amax), E4M3)) == expected


@pytest.mark.parametrize(
    "quantizer",
    [NVFP4, NVFP4_2D, NVFP4_ROW, MXFP8, MXFP4, FP8_BLOCK, FP8],
    ids=lambda q: f"{q.scaling}-{q.block}",
)
def test_hardware_ignores_nan_in_an_amax_and_fp4_turns_it_into_six(quantizer):
    x = bfloat16_values((32, 128), 5, 0, 3)
    sick = x.copy()
    sick[2, 3], sick[7, 40] = np.nan, -np.nan
    zeroed = np.where(np.isnan(sick), 0, sick)
    ours = everything(jnp.asarray(sick), 1, replace(quantizer, drops_nan=True))
    plain = everything(jnp.asarray(zeroed), 1, quantizer)
    codes, expected = np.asarray(ours[0].codes), np.asarray(plain[0].codes)
    np.testing.assert_array_equal(np.asarray(ours[0].scales), np.asarray(plain[0].scales))
    np.testing.assert_array_equal(np.asarray(ours[0].amax), np.asarray(plain[0].amax))
    np.testing.assert_array_equal(codes[~np.isnan(sick)], expected[~np.isnan(sick)])
    assert set(codes[np.isnan(sick)].tolist()) == {7 if quantizer.format == E2M1 else 0x7F}
    values_there = np.asarray(ours[1])[np.isnan(sick)]
    assert np.isnan(values_there).all() if quantizer.format == E4M3 else (values_there > 0).all()


def test_by_default_one_nan_is_not_hidden():
    x = np.ones((16, 128), np.float32)
    x[0, 0] = np.nan
    for quantizer in (NVFP4, MXFP8, FP8_BLOCK, FP8):
        assert np.isnan(
            np.asarray(narrow(jnp.asarray(x), 1, quantizer).value.astype(jnp.float32))
        ).any()


def test_infinity_makes_the_scale_of_its_block_infinite_in_fp8_block():
    x = np.ones((2, 256), np.float32)
    x[0, 5] = np.inf
    value = np.asarray(narrow(jnp.asarray(x), 1, FP8_BLOCK).value.astype(jnp.float32))
    assert np.isnan(value[0, :128]).all()
    np.testing.assert_array_equal(value[0, 128:], 1)
    np.testing.assert_array_equal(value[1], 1)


def test_a_row_scaled_factor_multiplies_its_row_or_in_wgrad_its_column():
    x = bfloat16_values((32, 48), 3, 0, 2) * np.exp2(np.arange(32))[:, None].astype(F32)
    for axis, shape in ((1, (32, 1)), (0, (1, 48))):
        operand = narrow(jnp.asarray(x), axis, NVFP4_ROW)
        assert operand.factor.shape == shape
        assert float(operand.amax) == np.abs(x).max()
        np.testing.assert_array_equal(
            np.asarray(operand.factor).ravel(), np.abs(x).max(axis=axis) * F32(1 / 2688)
        )


@pytest.mark.parametrize("quantizer", [NVFP4, MXFP8], ids=["nvfp4", "mxfp8"])
def test_eight_random_bits_cut_as_transformer_engines_software_rounder_does(quantizer):
    x = bfloat16_values((64, 64), 11, 0, 4)
    few = replace(quantizer, stochastic=True, sr_bits=8)
    key = random_bits.key(5)
    codes = np.asarray(everything(jnp.asarray(x), 1, few, key)[0].codes)
    _, scales, _ = twin(x, 1, quantizer)
    draws = np.asarray(random_bits.byte_uniform(key, (64, 64)))
    assert {float(draw) for draw in draws.ravel() * 256} <= set(range(256))
    fmt = quantizer.format
    for i, j in np.ndindex(*scales.shape):
        where = np.s_[i : i + 1, j * quantizer.block : (j + 1) * quantizer.block]
        scaled = _scaled_block(x[where], np.abs(x).max(), quantizer)
        magnitude = np.minimum(np.abs(scaled), fmt.largest)
        step = np.exp2(
            np.maximum(np.frexp(magnitude)[1] - 1, fmt.smallest_exponent) - fmt.mantissa_bits
        ).astype(F32)
        cut = np.floor((magnitude + draws[where] * step).astype(F32) / step) * step
        np.testing.assert_array_equal(np.abs(values(fmt)[codes[where]]), cut)


def _scaled_block(block: np.ndarray, amax: np.floating, quantizer: Quantizer) -> np.ndarray:
    """A block times its encode scale."""
    _, byte, _ = twin_block(block, amax, quantizer, None)
    if quantizer.scaling == "mx":
        return block * F32(2.0 ** (127 - byte))
    scale = np.uint8(byte).view(ml_dtypes.float8_e4m3fn).astype(F32)
    return block * (F32(1) / (scale * (F32(1) / (F32(2688) / amax))))


def test_eight_bits_are_biased_towards_zero_by_a_512th_of_a_step_and_sixteen_are_not():
    # the grid there has step 1
    x = jnp.asarray(np.random.default_rng(4).uniform(2.0, 4.0, (512, 512)).astype(F32))
    key = random_bits.key(3)
    few = jax.jit(lambda x: stochastic_floor(x, E2M1, random_bits.byte_uniform(key, x.shape)) - x)(
        x
    )
    many = jax.jit(lambda x: stochastic(x, E2M1, random_bits.centred_uniform(key, x.shape)) - x)(x)
    deviation = 0.5 / 512  # of the mean of 512 x 512 errors of at most half a step
    assert abs(float(jnp.mean(few)) + 1 / 512) < 3 * deviation / 1.2
    assert abs(float(jnp.mean(many))) < 3 * deviation / 1.2
    low = jnp.float32(2.0)
    assert float(stochastic_floor(low, E2M1, jnp.float32(255 / 256))) == 2.0
    assert float(stochastic_floor(jnp.float32(-5.99), E2M1, jnp.float32(255 / 256))) == -6.0
    assert float(stochastic_floor(jnp.float32(99.0), E2M1, jnp.float32(255 / 256))) == 6.0
