import jax
import jax.numpy as jnp
import numpy as np

from training.arithmetic.formats import centred_uniform, counter_bits, finalize, fold, integer_fold


def murmur3_finalizer(h: int) -> int:
    h ^= h >> 16
    h = h * 0x85EBCA6B % 2**32
    h ^= h >> 13
    h = h * 0xC2B2AE35 % 2**32
    return h ^ (h >> 16)


def test_finalize_equals_plain_integers():
    numbers = [0, 1, 2, 0x80000000, 0xFFFFFFFF, 123456789]
    assert np.asarray(finalize(jnp.asarray(numbers, jnp.uint32))).tolist() == [murmur3_finalizer(n) for n in numbers]


def test_host_and_device_fold_alike():
    seed = 77
    assert integer_fold(seed, 5) == int(fold(jnp.uint32(integer_fold(seed)), 5))


def test_bits_depend_on_the_flat_index_only_and_on_the_seed():
    flat = np.asarray(counter_bits(jnp.uint32(5), (24,)))
    np.testing.assert_array_equal(np.asarray(counter_bits(jnp.uint32(5), (4, 6))).ravel(), flat)
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda s: counter_bits(s, (2, 3, 4)))(jnp.uint32(5))).ravel(), flat)
    assert not np.any(np.asarray(counter_bits(jnp.uint32(6), (24,))) == flat)


def test_uniform_is_centred_open_and_flat():
    u = np.asarray(centred_uniform(jnp.uint32(9), (1 << 18,)), np.float64)
    assert np.abs(u).max() <= 0.5 - 2.0**-17
    np.testing.assert_array_equal((u * 2**17) % 2, 1)  # odd multiples of 2^-17
    assert abs(u.mean()) < 4 / np.sqrt(12 * u.size)
    counts = np.histogram(u, bins=64, range=(-0.5, 0.5))[0]
    chi2 = np.sum((counts - u.size / 64) ** 2) / (u.size / 64)
    assert chi2 < 63 + 4 * np.sqrt(2 * 63)
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 4 / np.sqrt(u.size)
