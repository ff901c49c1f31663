import itertools

import pytest

from parity.judging.decision import FAIL, INCONCLUSIVE, PASS, WORST_FIRST, worst


def test_a_fail_is_worse_than_inconclusive_which_is_worse_than_a_pass() -> None:
    assert WORST_FIRST == (FAIL, INCONCLUSIVE, PASS)
    for states in itertools.product(WORST_FIRST, repeat=3):
        expected = FAIL if FAIL in states else INCONCLUSIVE if INCONCLUSIVE in states else PASS
        assert worst(states) == expected


@pytest.mark.parametrize("states", [[], ["pass", "passed"]])
def test_no_state_and_an_unknown_one_are_errors(states: list[str]) -> None:
    with pytest.raises(ValueError, match=r"passed|empty"):
        worst(states)
