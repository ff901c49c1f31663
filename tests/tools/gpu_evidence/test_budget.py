"""The time of a session, by a clock that the test moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.gpu_evidence.budget import CLOSING_SECONDS, SessionBudget, minutes


@pytest.mark.parametrize("text", ["0", "-1", "abc", "nan", "inf", "", "1441"])
def test_a_wrong_number_of_minutes_is_refused_with_what_is_expected(text):
    with pytest.raises(ValueError, match="expected a number above 0 and at most 1440"):
        minutes(text)


def test_minutes_may_have_a_fraction():
    assert minutes("25") == 25
    assert minutes("0.5") == 0.5


@given(st.floats(0.1, 1440), st.floats(0, 100_000))
def test_what_is_left_and_the_closing_never_exceed_the_whole(whole, passed):
    now = [0.0]
    budget = SessionBudget(whole, lambda: now[0])
    now[0] = passed
    assert budget.left() >= 0
    assert budget.left() <= max(0.0, whole * 60 - passed)
    assert (budget.left() == 0) == (whole * 60 - min(CLOSING_SECONDS, whole * 15) - passed <= 0)
