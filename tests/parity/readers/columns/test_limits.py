"""Steps that a float holds, and how much of a name an error shows."""

import pytest

from parity.judging.curves.curve import MAX_STEP
from parity.readers.columns.names import listed
from parity.readers.columns.number import step_number
from tests.parity.readers.refusals import is_refused


@pytest.mark.parametrize(("step", "refused"), [(0, False), (-1, True), (2**53, False)])
def test_a_step_is_exact_as_a_float(step: float, refused: bool) -> None:
    assert is_refused(lambda: step_number(float(step), "here")) == refused
    assert MAX_STEP == 2**53
    assert is_refused(lambda: step_number(2.0**53 + 2, "here"))


def test_an_error_shows_60_characters_of_a_name_and_twelve_names() -> None:
    assert listed(["x" * 60]) == repr("x" * 60)
    assert listed(["x" * 61]) == repr("x" * 60 + "…")
    twelve, more = (listed([f"n{at}" for at in range(number)]) for number in (12, 13))
    assert ("n11" in twelve, "n11" in more, "n12" in more) == (True, True, False)
