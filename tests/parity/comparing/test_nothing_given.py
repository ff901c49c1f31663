"""A list of runs that has none is refused by name, wherever runs are given; one run is enough."""

from typing import Any

import numpy as np
import pytest

import parity
from parity.comparing.statements import InputError

LOSS = 3.0 + np.random.default_rng(0).normal(0.0, 0.1, 100)
OTHER = LOSS + np.random.default_rng(1).normal(0.0, 0.001, 100)


def compared(base: Any, candidate: Any, **options: Any) -> parity.Comparison:
    return parity.compare(base, candidate, margin="1%", planned_steps=100, **options)


@pytest.mark.parametrize(
    ("base", "candidate", "named"),
    [([], OTHER, "baseline"), ([LOSS], [], "candidate"), ([], [], "baseline")],
)
def test_an_arm_without_a_run_is_refused(base: Any, candidate: Any, named: str) -> None:
    with pytest.raises(InputError, match=named):
        compared(base, candidate)
    assert compared([LOSS], [OTHER]).document["baseline"]["runs"] == 1


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"controls": []}, "controls"),
        ({"shorter_baseline": []}, "shorter_baseline"),
        ({"short_reruns": {"candidate": []}}, "short_reruns"),
    ],
)
def test_further_runs_of_which_there_is_none_are_refused(
    options: dict[str, Any], named: str
) -> None:
    with pytest.raises(InputError, match=named):
        compared(LOSS, OTHER, **options)


@pytest.mark.parametrize("arm", [0, 1])
def test_a_run_without_a_step_is_compared_and_named(arm: int) -> None:
    runs = [LOSS, OTHER]
    runs[arm] = np.array([])
    assert compared(*runs).document["codes"][0] == "EMPTY"


@pytest.mark.parametrize(("candidates", "allowed"), [(0, False), (1, True), (True, False)])
def test_at_least_one_candidate_shares_the_error(candidates: Any, allowed: bool) -> None:
    if allowed:
        assert compared(LOSS, OTHER, candidates=candidates).document["gap"]["confidence"] == 0.95
    else:
        with pytest.raises(InputError, match="candidates"):
            compared(LOSS, OTHER, candidates=candidates)


@pytest.mark.parametrize("candidates", [1, 2, 12])
def test_each_candidate_of_several_calls_has_its_share_of_the_error(candidates: int) -> None:
    confidence = compared(LOSS, OTHER, candidates=candidates).document["gap"]["confidence"]
    assert 1.0 - confidence == pytest.approx(0.05 / candidates)
