"""Columns of numbers as bytes: NumPy's .npy format, one dimension, 64-bit integers or floats, and
nothing else.
"""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.judging.curves.curve import (
    FloatArray,
    IntArray,
)

_TYPES = ("<i8", "<f8")
_MAX_HEADER = 1024


def pack_array(array: NDArray[Any]) -> bytes:
    """The bytes of a column (n,)."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def unpack_array(data: bytes, name: str) -> IntArray | FloatArray:
    """The column (n,) in some bytes, read-only and without a copy. Raises ValueError where the
    header promises anything else.
    """
    stream = io.BytesIO(data[: 12 + _MAX_HEADER])  # magic, version, length
    try:
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError("another version of the format")
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream, max_header_size=_MAX_HEADER)
    except Exception:  # noqa: BLE001
        raise ValueError(f"{name} is not a NumPy array of version 1.0") from None
    content = len(data) - stream.tell()
    if dtype.str not in _TYPES or len(shape) != 1 or shape[0] * 8 != content:
        header = f"type {dtype.str} and shape {shape}"
        raise ValueError(
            f"{name} has {header} in {content:,} bytes; expected one dimension of "
            f"{' or '.join(_TYPES)}"
        )
    return np.frombuffer(data, dtype=dtype, offset=stream.tell())
