"""Rounding: no printed end lies on another side of zero or the margin than the end itself, nor on
them.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.report.view import GapView
from parity.wording import minus, nats_decimals


@given(st.floats(-0.2, 0.2), st.floats(1e-6, 0.2), st.floats(1e-7, 0.1))
def test_no_end_is_rounded_onto_or_across_zero_or_the_margin(
    lo: float, width: float, margin: float
) -> None:
    hi = lo + width
    decimals = nats_decimals(margin, lo, hi)
    shown = float(f"{margin:.{decimals}f}")
    for end in (lo, hi):
        printed = float(f"{end:.{decimals}f}")
        for line, printed_line in ((0.0, 0.0), (margin, shown)):
            if abs(end - line) > 1e-8:
                assert (printed > printed_line) == (end > line), (end, line, decimals)
                assert printed != printed_line


@pytest.mark.parametrize(
    ("margin", "ends", "decimals"),
    [
        (0.0133, (0.0258, 0.0568), 4),
        (0.004, (0.001, 0.002), 5),
        (0.0133, (-0.00002, 0.01), 5),
        (0.0133, (0.01, 0.013298), 6),
        (None, (0.1,), 4),
    ],
)
def test_decimals(margin: float | None, ends: tuple[float, ...], decimals: int) -> None:
    assert nats_decimals(margin, *ends) == decimals


def test_ends_that_are_not_finite_need_no_digits() -> None:
    assert nats_decimals(0.01, -math.inf, math.inf) == 4
    assert minus("-inf to +0.0100, -0.02") == "−inf to +0.0100, −0.02"


@given(st.floats(-1.0, 1.0), st.floats(0.0, 1.0), st.floats(1e-4, 1.0))
def test_an_interval_is_above_below_or_across(lo: float, width: float, margin: float) -> None:
    gap = GapView(mean=lo, lo=lo, hi=lo + width, rel=None)
    expected = "across"
    if lo + width < margin:
        expected = "below"
    elif lo > margin:
        expected = "above"
    assert gap.against(margin) == expected
