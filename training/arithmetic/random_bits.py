"""Random bits that need no state: a hash of (seed, counter).

What it answers: which uniform number rounds element i of this tensor at this step? The number must be the same in every
process, cost less than the rounding itself, and differ between layers, GEMMs, steps and replicates.

    bits(i) = finalize(i * 0x9E3779B9 + seed),  finalize = the 32-bit finalizer of MurmurHash3

The assumption that can fail: a 32-bit counter hash is not a cryptographic generator. The streams of two seeds are shifted
copies of one sequence of period 2^32, and a pair overlaps with a chance of (elements drawn)^2 / 2^32. For rounding noise that
is harmless: an overlap repeats noise between two unrelated tensors. Threefry costs ten times as much on a CPU (3 ns per element),
which is more than the whole NVFP4 quantization.

Source: A. Appleby, MurmurHash3 (public domain), `fmix32`; the golden-ratio counter is D. Knuth's multiplicative hash.
"""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

Bits = TypeVar("Bits", jax.Array, npt.NDArray[np.uint32])
_GOLDEN = 0x9E3779B9
_MASK = 0xFFFFFFFF


def finalize(h: Bits) -> Bits:
    """fmix32: every output bit depends on every input bit. uint32 to uint32, any shape, on the device or on the host."""
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def fold(seed: jax.Array, number: jax.Array | int) -> jax.Array:
    """A new seed (uint32 scalar) from a seed and a number, for instance a step, a layer or the name of a GEMM."""
    number = jnp.asarray(number).astype(jnp.uint32)
    folded: jax.Array = finalize(seed ^ finalize(number + jnp.uint32(_GOLDEN)))
    return folded


def counter_bits(seed: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Random uint32 of the given shape, a pure function of (seed, row-major index)."""
    index = jnp.zeros(shape, jnp.uint32)
    stride = 1
    for axis in reversed(range(len(shape))):
        index = index + jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * jnp.uint32(stride & _MASK)
        stride *= shape[axis]
    bits: jax.Array = finalize(index * jnp.uint32(_GOLDEN) + seed)
    return bits


def centred_uniform(seed: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Uniform float32 strictly inside (-1/2, 1/2): the odd multiples of 2^-17.

    The 65,536 values lie symmetric about 0 and never reach the half, so stochastic rounding is unbiased to
    2^-17 of a step and leaves values of the grid where they are.
    """
    mantissa = (counter_bits(seed, shape) >> 16) << 7
    one_to_two = jax.lax.bitcast_convert_type(mantissa | jnp.uint32(0x3F800040), jnp.float32)
    return one_to_two - 1.5


def byte_uniform(seed: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Uniform float32 in [0, 1): the 256 multiples of 2^-8, from the highest eight bits of `counter_bits`."""
    return (counter_bits(seed, shape) >> 24).astype(jnp.float32) * np.float32(2.0**-8)


def integer_fold(*numbers: int, start: int = 0) -> int:
    """`fold` for Python integers: the uint32 hash of a sequence, for salts that are made on the host."""
    h = start
    for number in numbers:
        h = _finalize_integer(h ^ _finalize_integer((number + _GOLDEN) & _MASK))
    return h


def host_bits(seeds: npt.NDArray[np.uint32], count: int) -> npt.NDArray[np.uint32]:
    """`counter_bits` on the host: uint32 (seeds, count), for callers that must not wait for the device."""
    return finalize(np.arange(count, dtype=np.uint32) * np.uint32(_GOLDEN) + seeds[:, None])


def _finalize_integer(h: int) -> int:
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & _MASK
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & _MASK
    return h ^ (h >> 16)
