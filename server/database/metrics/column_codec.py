"""Encodes a float64 column as bytes without loss: as float32 if that holds every value, with zstd
if that saves space.

A trainer's losses are float32, so half of their float64 bytes are redundant. Noise does not
compress, and for a million steps unpacking would take longer than reading.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

_LEVEL = 3
# The share of bytes that zstd must save to be worth unpacking, and the bytes below which it is not
# tried: it takes longer than all else.
_WORTH = 0.9
_LEAST = 512
_WIDTHS: dict[bytes, type[np.floating[Any]]] = {b"4": np.float32, b"8": np.float64}
_thread_local = threading.local()


def encode(values: NDArray[np.float64]) -> bytes:
    """The bytes of a column (n,): its width, whether it is compressed, then the values."""
    plain, width = values.tobytes(), b"8"
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = values.astype(np.float32)
    if narrow.astype(np.float64).tobytes() == plain:
        plain, width = narrow.tobytes(), b"4"
    if len(plain) < _LEAST:
        return width + b"r" + plain
    packed = zstandard.compress(plain, _LEVEL)
    if len(packed) < _WORTH * len(plain):
        return width + b"z" + packed
    return width + b"r" + plain


def decode(content: bytes) -> NDArray[np.float64]:
    """The column (n,) that was encoded."""
    return stored(content).astype(np.float64, copy=False)


def stored(content: bytes) -> NDArray[np.floating[Any]]:
    """The column (n,) as it is stored, float32 or float64, for those who widen many at once. Do not
    write to it.
    """
    body = memoryview(content)[2:]
    plain = _decompressor().decompress(body) if content[1:2] == b"z" else body
    return np.frombuffer(plain, _WIDTHS[content[:1]])


def _decompressor() -> zstandard.ZstdDecompressor:
    """One for each thread: making one takes half as long as its work for a chunk, and threads may
    not share one.
    """
    decompressor: zstandard.ZstdDecompressor | None = getattr(_thread_local, "decompressor", None)
    if decompressor is None:
        decompressor = _thread_local.decompressor = zstandard.ZstdDecompressor()
    return decompressor
