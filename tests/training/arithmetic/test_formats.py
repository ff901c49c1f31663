"""Every rounding against ml_dtypes, bit by bit, jitted and not; the value tables; stochastic
rounding by its statistics.
"""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from training.arithmetic import formats, random_bits
from training.arithmetic.formats import (
    E2M1,
    E4M3,
    E5M2,
    Format,
    corrected_quotient,
    decode,
    e8m0_reciprocal,
    e8m0_round_up,
    e8m0_value,
    encode,
    exact_bfloat16,
    largest_magnitude,
    nearest,
    reciprocal,
    round_bfloat16,
    stochastic,
    values,
)

PEERS = [
    (E2M1, ml_dtypes.float4_e2m1fn),
    (E4M3, ml_dtypes.float8_e4m3fn),
    (E5M2, ml_dtypes.float8_e5m2),
]


def hard_values(fmt: Format) -> np.ndarray:
    """Every value, every midpoint of neighbours and its float32 neighbours, subnormals, and a wide
    random cloud.
    """
    grid = values(fmt)
    grid = np.unique(grid[np.isfinite(grid)])
    middle = (grid[1:] + grid[:-1]) / 2
    near = np.concatenate(
        [np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))]
    )
    random = np.random.default_rng(0)
    cloud = random.standard_normal(20_000) * np.exp2(random.integers(-20, 18, 20_000))
    edge = [0.0, fmt.largest, fmt.largest * 1.01, fmt.largest * 4, -fmt.largest * 4, 1e30, -1e30]
    return np.concatenate([grid, middle, near, cloud, edge]).astype(np.float32)


@pytest.mark.parametrize(("fmt", "peer"), PEERS, ids=lambda p: getattr(p, "name", ""))
@pytest.mark.parametrize("run", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_nearest_and_codes_equal_ml_dtypes(fmt, peer, run):
    x = hard_values(fmt)
    expected = np.clip(x, -fmt.largest, fmt.largest).astype(peer)
    rounded = run(lambda v: nearest(v, fmt))(jnp.asarray(x))
    np.testing.assert_array_equal(np.asarray(rounded), expected.astype(np.float32))
    codes = run(lambda v, s: encode(v, fmt, sign_of=s))(rounded, jnp.asarray(x))
    np.testing.assert_array_equal(np.asarray(codes), expected.view(np.uint8))


@pytest.mark.parametrize(("fmt", "peer"), PEERS, ids=lambda p: getattr(p, "name", ""))
def test_value_table_equals_ml_dtypes(fmt, peer):
    code = np.arange(2 << fmt.sign_bit, dtype=np.uint8)
    expected = code.view(peer).astype(np.float32)
    expected[np.isinf(expected)] = np.nan
    np.testing.assert_array_equal(values(fmt), expected)
    finite = code[np.isfinite(expected)]
    back = encode(decode(jnp.asarray(finite), fmt), fmt, sign_of=decode(jnp.asarray(finite), fmt))
    np.testing.assert_array_equal(np.asarray(back), finite)


@pytest.mark.parametrize("fmt", [E2M1, E4M3, E5M2], ids=lambda f: f.name)
def test_what_is_no_number_stays_visible(fmt):
    rounded = nearest(jnp.asarray([np.nan, np.inf, -np.inf], jnp.float32), fmt)
    assert np.isnan(rounded[0])
    assert rounded[1] == fmt.largest
    assert rounded[2] == -fmt.largest
    assert int(encode(rounded, fmt)[0]) == fmt.nan_code


def test_fp4_ties_go_to_even():
    ties = jnp.asarray([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], jnp.float32)
    np.testing.assert_array_equal(np.asarray(nearest(ties, E2M1)), [0, 1, 1, 2, 2, 4, 4])
    np.testing.assert_array_equal(np.asarray(nearest(-ties, E2M1)), [0, -1, -1, -2, -2, -4, -4])


def test_stochastic_mean_lies_within_four_sigma_and_only_neighbours_occur():
    draws = 1 << 16
    noise = random_bits.centred_uniform(random_bits.key(7), (draws,))
    for x in (0.1, 0.3, 0.9, 1.3, 1.9, 2.05, 2.7, 3.9, 4.4, 5.9, -0.2, -1.45, -4.8):
        drawn = np.asarray(stochastic(jnp.full((draws,), x, jnp.float32), E2M1, noise))
        grid = np.unique(values(E2M1))
        below, above = grid[grid <= x].max(), grid[grid >= x].min()
        assert set(np.unique(drawn)) == {below, above}
        sigma = np.sqrt((above - x) * (x - below) / draws)
        assert abs(drawn.mean() - x) < 4 * sigma


def test_stochastic_never_moves_a_value_of_the_format():
    for fmt in (E2M1, E4M3):
        grid = values(fmt)
        grid = grid[np.isfinite(grid)]
        noise = random_bits.centred_uniform(random_bits.key(3), (4096, 1)) + jnp.zeros(
            (1, grid.size)
        )
        drawn = np.asarray(stochastic(jnp.asarray(np.broadcast_to(grid, noise.shape)), fmt, noise))
        np.testing.assert_array_equal(drawn, np.broadcast_to(grid, drawn.shape))


def test_stochastic_uses_all_sixteen_codes_and_saturates():
    x = jnp.linspace(-9, 9, 1 << 14, dtype=jnp.float32)
    drawn = stochastic(x, E2M1, random_bits.centred_uniform(random_bits.key(1), x.shape))
    assert set(np.asarray(encode(drawn, E2M1, sign_of=x)).tolist()) == set(range(16))
    assert float(jnp.max(jnp.abs(drawn))) == 6.0


@pytest.mark.parametrize("fmt", [E2M1, E4M3, E5M2], ids=lambda f: f.name)
def test_e8m0_rounds_up_to_a_power_of_two(fmt):
    amax = np.abs(
        np.random.default_rng(0).standard_normal(5000) * np.exp2(np.arange(5000) % 200 - 90)
    ).astype(np.float32)
    amax = np.concatenate(
        [amax, np.float32(fmt.largest) * np.exp2(np.arange(-120.0, 100.0)).astype(np.float32)]
    )
    amax = np.concatenate(
        [amax, np.nextafter(amax, np.float32(np.inf)), np.nextafter(amax, np.float32(0))]
    )
    byte = e8m0_round_up(jnp.asarray(amax), fmt)
    # as Transformer Engine's kernels have it, rounding included
    quotient = amax * np.float32(1 / fmt.largest)
    np.testing.assert_array_equal(
        np.asarray(byte), np.ceil(np.log2(quotient.astype(np.float64))).astype(int) + 127
    )
    np.testing.assert_array_equal(
        np.asarray(e8m0_value(byte)) * np.asarray(e8m0_reciprocal(byte)), 1.0
    )
    ends = e8m0_round_up(jnp.asarray([0, 1e-38, np.inf, np.nan], jnp.float32), fmt)
    assert np.asarray(ends).tolist() == [0, 0, 254, 254]


def test_reciprocals_keep_their_subnormals():
    # powers of two, the largest bfloat16
    exact = np.append(np.exp2(np.arange(-120.0, 128.0)), 3.3895313892515355e38).astype(np.float32)
    np.testing.assert_array_equal(
        np.asarray(jax.jit(reciprocal)(jnp.asarray(exact))), np.float32(1) / exact
    )
    x = np.random.default_rng(0).uniform(1e38, 3.4e38, 1000).astype(np.float32)
    np.testing.assert_allclose(
        np.asarray(jax.jit(reciprocal)(jnp.asarray(x))), np.float32(1) / x, rtol=0, atol=1e-45
    )


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("axes", [None, (0,), (1,), (0, 1)])
@pytest.mark.parametrize(("columns", "backend"), [(15, "cpu"), (16, "cpu"), (16, "gpu")])
def test_largest_magnitude_is_that_of_numpy_and_shows_nan(
    monkeypatch, dtype, axes, columns, backend
):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)  # which way of the same arithmetic
    x = jnp.asarray(np.random.default_rng(0).standard_normal((6, columns)), dtype)
    every_axis = (0, 1) if axes is None else axes
    expected = np.max(np.abs(np.asarray(x, np.float32)), axis=every_axis, keepdims=True)
    expected = expected[0, 0] if axes is None else expected
    np.testing.assert_array_equal(np.asarray(largest_magnitude(x, axes)), expected)
    magnitudes = np.asarray(largest_magnitude(x.at[2, 3].set(jnp.nan).at[2, 4].set(-jnp.inf), axes))
    assert np.isnan(magnitudes).sum() == 1


@pytest.mark.parametrize("shape", [(2, 2), (7, 6), (4, 16), (3, 4, 32)])
def test_largest_magnitude_of_neighbours_is_the_same_however_it_is_run(shape):
    bits = np.random.default_rng(1).integers(0, 2**32, shape, np.uint32)
    x = jax.lax.bitcast_convert_type(jnp.asarray(bits), jnp.float32)
    expected = np.max(bits & 0x7FFFFFFF, axis=-1, keepdims=True)

    def largest(v):
        return largest_magnitude(v, (v.ndim - 1,))

    def alternating(v):
        return jax.lax.scan(lambda carry, row: (carry, largest(row)), 0, v)[1]

    for run in (
        largest,
        jax.jit(largest),
        jax.vmap(largest),
        jax.jit(jax.vmap(jax.checkpoint(largest))),
        alternating,
    ):
        magnitudes = run(x)
        assert magnitudes.dtype == jnp.float32
        np.testing.assert_array_equal(np.asarray(magnitudes).view(np.uint32), expected)


def test_exact_values_become_bfloat16_without_a_change():
    x = jnp.asarray(np.random.default_rng(0).standard_normal(999), jnp.bfloat16)
    np.testing.assert_array_equal(
        np.asarray(exact_bfloat16(x.astype(jnp.float32)), np.float32), np.asarray(x, np.float32)
    )


def test_bfloat16_rounding_is_not_dropped_by_the_compiler():
    x = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    expected = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    for run in (lambda f: f, jax.jit):
        np.testing.assert_array_equal(
            np.asarray(run(lambda v: round_bfloat16(v) * 1)(jnp.asarray(x))), expected
        )


@pytest.mark.parametrize("units", [-2, -1, 0, 1, 2])
def test_the_corrected_quotient_is_exact_whatever_the_division_does(monkeypatch, units):
    monkeypatch.setattr(
        formats, "divided", lambda x, y: formats.float_of(formats.bits_of(x / y) + units)
    )
    random = np.random.default_rng(0)
    mantissas = (
        (np.concatenate([np.arange(48), (1 << 23) - 1 - np.arange(48)]) | (127 << 23))
        .astype(np.int32)
        .view(np.float32)
    )
    x, y = (
        np.concatenate([grid.ravel(), bits.view(np.float32)])
        for grid, bits in zip(
            np.meshgrid(mantissas, mantissas),
            random.integers(100 << 23, 150 << 23, (2, 50_000), np.int32),
            strict=True,
        )
    )
    np.testing.assert_array_equal(np.asarray(jax.jit(corrected_quotient)(x, y)), x / y)
    # every normal number below a scale's numerator
    amax = random.integers(1 << 23, 255 << 23, 50_000, np.int32).view(np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(
            np.asarray(jax.jit(corrected_quotient)(jnp.float32(2688), amax)),
            np.float32(2688) / amax,
        )
    edges = np.asarray([0, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(
        np.asarray(corrected_quotient(jnp.float32(448), jnp.asarray(edges))), [np.inf, 0, np.nan]
    )
