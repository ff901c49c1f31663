"""Random bits that need no state: a hash of a 64-bit counter.

What it answers: which uniform number rounds element i of this tensor at this step? The number
must be the same in every process, cost less than the rounding itself, and no two tensors of a run
may share one.

    tensor   = (((step D + device) P + piece) L + block) 14 + 2 projection + GEMM      its number
             in the run (`Key.numbered`)
    high     = fold(fold(tensor, a), b)      a, b: two words that name the run
             (`training.trainer.loop`)
    low      the same with tensor and b exchanged: fold(fold(b, tensor), a)
    bits(i)  = second(first(i * 0x9E3779B9 + low) + high)      the two rounds of `finalize`

No two tensors share a counter (high, i * 0x9E3779B9 + low), by construction. Their numbers
differ, because each level counts within the one before; the specification refuses a run with more
than 2^32 of them (`training.rules.check_rounded`). `fold` is a bijection of its first argument,
so within a run different numbers have different `high`. The multiplier is odd, so the elements of
one tensor have different counters. Two runs have different words; their tensors meet with a
chance of 2 (elements of one) / 2^64 a pair. `high` is added because a carry mixes: two tensors
whose `low` agree draw independent numbers, and with an exclusive or some correlated by 0.03.

The assumption that can fail: this is no cryptographic generator. Counters that differ give bits
that pass the tests of this module, and could correlate in one that nobody made. Threefry costs
ten times as much on a CPU (3 ns per element), which is more than the whole NVFP4 quantization.

Source: A. Appleby, MurmurHash3 (public domain), `fmix32`; the golden-ratio counter is D. Knuth's
multiplicative hash.
"""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

Bits = TypeVar("Bits", jax.Array, npt.NDArray[np.uint32])
_GOLDEN = 0x9E3779B9
_MASK = 0xFFFFFFFF


def _first(h: Bits) -> Bits:
    return (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)


def _second(h: Bits) -> Bits:
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def finalize(h: Bits) -> Bits:
    """fmix32: every output bit depends on every input bit. uint32 to uint32, any shape, on the
    device or on the host.
    """
    return _second(_first(h))


def fold(seed: jax.Array, number: jax.Array | int) -> jax.Array:
    """A new seed (uint32) from a seed and a number; for a fixed number a bijection of the seed, and
    the other way round.
    """
    number = jnp.asarray(number).astype(jnp.uint32)
    folded: jax.Array = finalize(seed ^ finalize(number + jnp.uint32(_GOLDEN)))
    return folded


class Key(NamedTuple):
    """From which random bits a tensor is rounded: the two words (2,) that name its run, and its
    number in the run (scalar), uint32.
    """

    run: jax.Array
    tensor: jax.Array

    def numbered(self, number: jax.Array | int, count: int) -> "Key":
        """The key of part `number` of `count` equal parts, such as blocks of a model; parts of
        different keys stay different.
        """
        return self._replace(
            tensor=self.tensor * jnp.uint32(count) + jnp.asarray(number).astype(jnp.uint32)
        )

    def words(self) -> tuple[jax.Array, jax.Array]:
        """Where the tensor's counters begin (high, low), uint32; no other tensor of the run has
        this `high`.
        """
        return fold(fold(self.tensor, self.run[0]), self.run[1]), fold(
            fold(self.run[1], self.tensor), self.run[0]
        )


def key(tensor: int = 0, run: tuple[int, int] = (0, 0)) -> Key:
    """The key of one tensor of a run that these words (uint32) name."""
    return Key(jnp.asarray(run, jnp.uint32), jnp.uint32(tensor))


def counter_bits(key: Key, shape: tuple[int, ...]) -> jax.Array:
    """Random uint32 of the given shape, a pure function of (key, row-major index); at most 2^32 of
    them.
    """
    index = jnp.zeros(shape, jnp.uint32)
    stride = 1
    for axis in reversed(range(len(shape))):
        index = index + jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * jnp.uint32(
            stride & _MASK
        )
        stride *= shape[axis]
    if stride > _MASK + 1:
        raise ValueError(
            f"shape is {shape}, expected at most 2^32 elements: later ones would repeat the random "
            "bits of the first"
        )
    high, low = key.words()
    bits: jax.Array = _second(_first(index * jnp.uint32(_GOLDEN) + low) + high)
    return bits


def centred_uniform(key: Key, shape: tuple[int, ...]) -> jax.Array:
    """Uniform float32 strictly inside (-1/2, 1/2): the odd multiples of 2^-17.

    The 65,536 values lie symmetric about 0 and never reach the half, so stochastic rounding is
    unbiased to 2^-17 of a step and leaves values of the grid where they are.
    """
    mantissa = (counter_bits(key, shape) >> 16) << 7
    one_to_two = jax.lax.bitcast_convert_type(mantissa | jnp.uint32(0x3F800040), jnp.float32)
    return one_to_two - 1.5


def byte_uniform(key: Key, shape: tuple[int, ...]) -> jax.Array:
    """Uniform float32 in [0, 1): the 256 multiples of 2^-8, from the highest eight bits of
    `counter_bits`.
    """
    return (counter_bits(key, shape) >> 24).astype(jnp.float32) * np.float32(2.0**-8)


def integer_fold(*numbers: int, start: int = 0) -> int:
    """`fold` for Python integers: the uint32 hash of a sequence, for salts that are made on the
    host.
    """
    h = start
    for number in numbers:
        h = _finalize_integer(h ^ _finalize_integer((number + _GOLDEN) & _MASK))
    return h


def host_bits(seeds: npt.NDArray[np.uint32], count: int) -> npt.NDArray[np.uint32]:
    """Random uint32 (seeds, count) on the host, a pure function of (seed, index): the batches' own,
    which rounding does not share.
    """
    return finalize(np.arange(count, dtype=np.uint32) * np.uint32(_GOLDEN) + seeds[:, None])


def _finalize_integer(h: int) -> int:
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & _MASK
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & _MASK
    return h ^ (h >> 16)
