"""Columns come back bit for bit, whatever their bits are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.database.metrics import column_codec


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50))
def test_every_bit_comes_back(bits):
    values = np.array(bits, np.int64).view(np.float64)
    assert column_codec.decode(column_codec.encode(values)).tobytes() == values.tobytes()


@given(st.lists(st.floats(width=32), max_size=50))
def test_float32_comes_back_from_half_the_bytes(numbers):
    values = np.array(numbers, np.float64)
    content = column_codec.encode(values)
    assert column_codec.decode(content).tobytes() == values.tobytes()
    if not np.isnan(values).any():
        assert len(content) <= 2 + 4 * len(values)


@pytest.mark.parametrize(
    ("values", "header"),
    [(np.zeros(4096), b"4z"), (np.random.default_rng(0).normal(size=4096), b"8r")],
)
def test_what_saves_nothing_is_not_packed(values, header):
    assert column_codec.encode(values)[:2] == header
