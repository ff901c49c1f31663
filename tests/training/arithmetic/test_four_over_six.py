"""Four over six against a slow twin in plain numpy; test_vectors has the codes of Transformer
Engine's reference.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from training.arithmetic.formats import E2M1
from training.arithmetic.four_over_six import BOUND, constant_quotient
from training.arithmetic.quantize import Quantizer, quantize, to_bfloat16

F32 = np.float32
codes_of = jax.jit(quantize, static_argnums=(1, 2))
PLAIN = Quantizer(format=E2M1, scaling="nvfp4", block=16)
MAE = replace(PLAIN, four_over_six="mae", scale_bound=BOUND)
VARIANTS = {
    "mae": MAE,
    "mse": replace(MAE, four_over_six="mse"),
    "448": replace(MAE, scale_bound=448.0),
    "2d": replace(MAE, two_dimensional=True),
}


def twin_block(block, sequential, amax, quantizer):
    """The codes (as values) and the scale of one block: both candidates in full, and the one with
    the smaller error.
    """
    both = F32(6 * quantizer.scale_bound)
    encode = both / amax
    tries = []
    for expansion in (F32(1.5), F32(1)):
        base = np.max(np.abs(block)) / F32(6) * encode
        scale = np.minimum(base * expansion, F32(448)).astype(ml_dtypes.float8_e4m3fn).astype(F32)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            reciprocal = np.minimum(F32(1) / (scale * (F32(1) / encode)), np.finfo(F32).max)
            code = np.clip(block * reciprocal, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(F32)
        error = np.abs(code * scale * amax / both - block)
        error = error * error if quantizer.four_over_six == "mse" else error
        along = np.moveaxis(error, sequential, 0)
        total = along[0]
        for part in along[1:]:
            total = total + part
        while total.size > 1:
            total = total[: total.size // 2] + total[total.size // 2 :]
        tries.append((total.item(), code, scale))
    scaled_to_4, scaled_to_6 = tries
    return scaled_to_4[1:] if scaled_to_4[0] < scaled_to_6[0] else scaled_to_6[1:]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("name", "size"), [*((name, 1.0) for name in VARIANTS), ("mae", 3e-27), ("2d", 3e-27)]
)
def test_equals_the_slow_twin(name, size, axis):
    quantizer = VARIANTS[name]
    x = (
        (np.random.default_rng(3).standard_normal((32, 48)) * size)
        .astype(ml_dtypes.bfloat16)
        .astype(F32)
    )
    amax = np.max(np.abs(x))
    rows, columns = (16, 16) if quantizer.two_dimensional else ((16, 1) if axis == 0 else (1, 16))
    values, scales = np.zeros_like(x), np.zeros((32 // rows, 48 // columns), F32)
    for i, j in np.ndindex(*scales.shape):
        where = np.s_[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
        values[where], scales[i, j] = twin_block(x[where], axis, amax, quantizer)
    ours = codes_of(jnp.asarray(x), axis, quantizer)
    ours_scales = np.asarray(ours.scales).view(ml_dtypes.float8_e4m3fn).astype(F32)
    np.testing.assert_array_equal(ours_scales, scales)
    np.testing.assert_array_equal(np.asarray(ours.codes) & 7, encode_magnitude(values))


def encode_magnitude(values):
    return np.searchsorted(np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], F32), np.abs(values)).astype(
        np.uint8
    )


def test_some_blocks_choose_four_and_none_gets_a_larger_error():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((64, 64)).astype(F32))
    chosen, sixes = codes_of(x, 1, MAE), codes_of(x, 1, replace(MAE, four_over_six=None))
    scaled_to_4 = np.asarray(chosen.scales) != np.asarray(sixes.scales)
    assert 0.1 < scaled_to_4.mean() < 0.9

    def errors(quantizer):
        operand = jax.jit(to_bfloat16, static_argnums=(1, 2))(x, 1, quantizer)
        return (
            np.abs(np.asarray(operand.value.astype(jnp.float32) * operand.factor - x))
            .reshape(64, 4, 16)
            .sum(axis=2)
        )

    assert (errors(MAE) <= errors(replace(MAE, four_over_six=None)) * (1 + 1e-6)).all()


@pytest.mark.parametrize("by", [6.0, 1536.0, 2688.0])
def test_quotients_by_a_constant_are_rounded_once(by):
    random = np.random.default_rng(1)
    x = (random.standard_normal(200_000) * np.exp2(random.integers(-90, 90, 200_000))).astype(F32)
    np.testing.assert_array_equal(
        np.asarray(jax.jit(constant_quotient, static_argnums=1)(jnp.asarray(x), by)), x / F32(by)
    )


@pytest.mark.parametrize(
    "change",
    [{"stochastic": True}, {"block": 32}, {"scaling": "mx", "block": 16}],
    ids=["stochastic", "block", "mx"],
)
def test_what_four_over_six_does_not_have_is_refused(change):
    with pytest.raises(ValueError, match="four_over_six is mae, expected None"):
        replace(MAE, **change)


# Squares (the seed of their numbers, and one element that is changed) whose two errors are so near
# each other that the order in which they are added decides.
NEAR_TIES = (
    (1373, 11, 3, -1.2677154541015625),
    (2181, 2, 5, -1.8117365837097168),
    (2591, 3, 12, -1.644141674041748),
)


def test_the_errors_of_a_square_are_added_along_the_axis_of_the_product_first():
    amax = np.zeros((16, 16), F32)
    amax[0, 0] = 8
    squares = [amax]
    for seed, row, column, value in NEAR_TIES:
        square = np.random.default_rng(seed).standard_normal((16, 16)).astype(F32)
        square[row, column] = value
        squares.append(square)
    x, scales = jnp.asarray(np.concatenate(squares, axis=1)), []
    for axis in (0, 1):
        ours = np.asarray(codes_of(x, axis, VARIANTS["2d"]).scales)
        scales.append(ours.view(ml_dtypes.float8_e4m3fn).astype(F32).ravel())
        twins = [twin_block(square, axis, F32(8), VARIANTS["2d"])[1] for square in squares]
        np.testing.assert_array_equal(scales[-1], twins)
    np.testing.assert_array_equal(scales[0] != scales[1], [False, True, True, True])
