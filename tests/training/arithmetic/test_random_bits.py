import jax
import jax.numpy as jnp
import numpy as np
import pytest

from training.arithmetic import random_bits
from training.arithmetic.random_bits import (
    Key,
    centred_uniform,
    counter_bits,
    finalize,
    fold,
    integer_fold,
)
from training.trainer.run import rounding_words


def murmur3_finalizer(h: int) -> int:
    h ^= h >> 16
    h = h * 0x85EBCA6B % 2**32
    h ^= h >> 13
    h = h * 0xC2B2AE35 % 2**32
    return h ^ (h >> 16)


def test_finalize_equals_plain_integers():
    numbers = [0, 1, 2, 0x80000000, 0xFFFFFFFF, 123456789]
    assert np.asarray(finalize(jnp.asarray(numbers, jnp.uint32))).tolist() == [
        murmur3_finalizer(n) for n in numbers
    ]


def test_host_and_device_fold_alike():
    seed = 77
    assert integer_fold(seed, 5) == int(fold(jnp.uint32(integer_fold(seed)), 5))


def test_bits_are_those_of_the_written_rule():
    high, low = (int(word) for word in random_bits.key(5, (7, 2**32 - 1)).words())
    fold_of = [
        integer_fold(*numbers, start=start)
        for start, numbers in ((5, (7, 2**32 - 1)), (2**32 - 1, (5, 7)))
    ]
    assert [high, low] == fold_of

    def slow(index: int) -> int:
        h = (index * 0x9E3779B9 + low) % 2**32
        h = ((h ^ (h >> 16)) * 0x85EBCA6B + high) % 2**32
        h = (h ^ (h >> 13)) * 0xC2B2AE35 % 2**32
        return h ^ (h >> 16)

    assert np.asarray(
        counter_bits(random_bits.key(5, (7, 2**32 - 1)), (3, 5))
    ).ravel().tolist() == [slow(index) for index in range(15)]


def test_bits_depend_on_the_flat_index_only_and_on_the_seed():
    flat = np.asarray(counter_bits(random_bits.key(5), (24,)))
    np.testing.assert_array_equal(
        np.asarray(counter_bits(random_bits.key(5), (4, 6))).ravel(), flat
    )
    np.testing.assert_array_equal(
        np.asarray(jax.jit(lambda key: counter_bits(key, (2, 3, 4)))(random_bits.key(5))).ravel(),
        flat,
    )
    assert not np.any(np.asarray(counter_bits(random_bits.key(6), (24,))) == flat)


def test_uniform_is_centred_open_and_flat():
    u = np.asarray(centred_uniform(random_bits.key(9), (1 << 18,)), np.float64)
    assert np.abs(u).max() <= 0.5 - 2.0**-17
    np.testing.assert_array_equal((u * 2**17) % 2, 1)  # odd multiples of 2^-17
    assert abs(u.mean()) < 4 / np.sqrt(12 * u.size)
    counts = np.histogram(u, bins=64, range=(-0.5, 0.5))[0]
    chi2 = np.sum((counts - u.size / 64) ** 2) / (u.size / 64)
    assert chi2 < 63 + 4 * np.sqrt(2 * 63)
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 4 / np.sqrt(u.size)


RUNS, STEPS, BLOCKS, PROJECTIONS, GEMMS = 8, 1000, 9, 7, 2  # 1,008,000 tensors
ELEMENTS = 1 << 20


@pytest.fixture(scope="module")
def words():
    """Where the counters of each tensor begin: high and low, (runs, tensors)."""

    def run_words(run):
        step, block, projection, gemm = (
            axis.ravel() for axis in jnp.indices((STEPS, BLOCKS, PROJECTIONS, GEMMS))
        )
        key = (
            Key(run, step.astype(jnp.uint32))
            .numbered(block, BLOCKS)
            .numbered(projection, PROJECTIONS)
            .numbered(gemm, GEMMS)
        )
        return jnp.stack(key.words())

    runs = [
        rounding_words(seed, replicate) for seed in (0, 1, 7, 2**31 - 1) for replicate in (0, 1)
    ]
    return np.asarray(jax.vmap(run_words)(jnp.asarray(runs, jnp.uint32))).transpose(1, 0, 2)


def test_no_two_tensors_of_a_run_share_a_counter(words):
    high, _ = words
    assert high.shape == (RUNS, STEPS * BLOCKS * PROJECTIONS * GEMMS)
    assert high.size > 10**6
    for run_words in high:
        assert len(np.unique(run_words)) == run_words.size


def test_tensors_of_different_runs_do_not_overlap_either(words):
    """Sorted by high word and place: the next tensor with the same high word begins after the last
    element of the one before.
    """
    inverse = pow(0x9E3779B9, -1, 2**32)
    high, low = (part.ravel().astype(np.uint64) for part in words)
    # the element at which a common sequence would begin
    place = (low * np.uint64(inverse)) % np.uint64(2**32)
    begins = np.sort((high << np.uint64(32)) | place)
    met = begins[:-1] >> np.uint64(32) == begins[1:] >> np.uint64(32)
    assert np.any(met)  # of a million numbers of 32 bits some pairs are equal
    assert np.all(np.diff(begins)[met] >= ELEMENTS)


def test_tensors_whose_low_words_agree_draw_unrelated_numbers():
    """The worst case: every element of two tensors differs in the high word of its counter
    alone.
    """
    count, index = 1 << 16, jnp.arange(1 << 16, dtype=jnp.uint32) * jnp.uint32(0x9E3779B9)
    high = np.asarray(
        jax.vmap(lambda tensor: random_bits.key()._replace(tensor=tensor).words()[0])(
            jnp.arange(40, dtype=jnp.uint32)
        )
    )
    drawn = np.stack(
        [
            np.asarray(
                random_bits._second(random_bits._first(index) + jnp.uint32(word)) >> 16, np.float64
            )
            for word in high
        ]
    )
    correlation = np.asarray(np.corrcoef(drawn))[np.triu_indices(len(drawn), 1)]
    assert np.abs(correlation).max() < 5 / np.sqrt(count)
    assert np.mean(correlation**2) * count < 1.3


def test_bits_of_neighbouring_tensors_are_unrelated():
    drawn = np.stack(
        [
            np.asarray(centred_uniform(random_bits.key(tensor), (1 << 14,)), np.float64)
            for tensor in range(60)
        ]
    )
    correlation = np.asarray(np.corrcoef(drawn))[np.triu_indices(len(drawn), 1)]
    assert np.abs(correlation).max() < 5 / np.sqrt(1 << 14)
    assert abs(np.mean(correlation)) < 5 / np.sqrt(correlation.size * (1 << 14))


def test_more_elements_than_counters_are_refused():
    with pytest.raises(ValueError, match=r"expected at most 2\^32 elements"):
        jax.eval_shape(lambda key: counter_bits(key, (2**17, 2**16)), random_bits.key())
