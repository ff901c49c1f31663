import io

import numpy as np
import pytest

from parity.judging.bundles.columns import pack_array, unpack_array


@pytest.mark.parametrize(
    "column",
    [np.arange(5), np.array([1.5, np.nan, -np.inf]), np.empty(0), np.arange(100_000) * 0.5],
)
def test_a_column_comes_back_bit_for_bit(column: np.ndarray) -> None:
    back = unpack_array(pack_array(column), "x.npy")
    assert back.dtype == column.dtype
    assert back.tobytes() == column.tobytes()


def saved(array: np.ndarray, **options: object) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)  # type: ignore[arg-type]
    return buffer.getvalue()


def headed(header: str, content: bytes = bytes(16), version: bytes = b"\1\0") -> bytes:
    padded = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY" + version + len(padded).to_bytes(2, "little") + padded + content


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nothing",
        b"\x93NUMPY\1\0",
        saved(np.zeros((2, 2))),
        saved(np.float64(1.0)),
        saved(np.zeros(3, np.float32)),
        saved(np.zeros(3, np.complex128)),
        saved(np.zeros(3, ">f8")),
        saved(np.array(["a"])),
        saved(np.array([{}], dtype=object), allow_pickle=True),
        saved(np.zeros(2, [("a", "f8")])),
        pack_array(np.zeros(10))[:-1],
        pack_array(np.zeros(10)) + b"\0",
        headed("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"),
        headed("{'descr': '<f8', 'fortran_order': False, 'shape': (-2,), }"),
        headed("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", version=b"\3\0"),
        headed("{'descr': '<f8', 'fortran_order': False, 'shape': " + "(" * 100),
        headed("{'descr': " + "9" * 100),
        headed("__import__('os').getcwd()"),
    ],
)
def test_any_other_array_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^x\.npy "):
        unpack_array(data, "x.npy")
