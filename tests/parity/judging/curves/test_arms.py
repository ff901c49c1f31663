"""Which runs of a side count, and against which of them its controls are measured."""

import dataclasses
from collections.abc import Callable

import pytest

from parity.judging.curves.arms import make_arms, usable_controls
from parity.judging.curves.curve import Curve
from parity.judging.curves.window import make_window
from parity.judging.policy import Policy

MakeRun = Callable[..., Curve]


@pytest.mark.parametrize("lowest_first", [True, False])
def test_controls_are_reruns_of_the_lowest_seed(
    make_run: MakeRun, one_percent: Policy, lowest_first: bool
) -> None:
    """Each seed has batches of its own; a rerun of the highest one is no control."""
    base, cand = (
        [
            dataclasses.replace(make_run(500, seed=own + seed, batch_seed=seed), seed=seed)
            for seed in (1, 2)
        ]
        for own in (10, 20)
    )
    of_lowest = make_run(500, seed=31, batch_seed=1, gap=0.01)
    of_highest = make_run(500, seed=32, batch_seed=2)
    window = make_window(500, 0, 0.2, "declared")
    arms = make_arms(("b", "c"), base if lowest_first else base[::-1], cand, one_percent, window)
    found = usable_controls(arms, [of_lowest, of_highest], one_percent, window)
    assert found.used == (of_lowest,)
    assert len(found.left_out) == 1
    assert found.offsets.tolist() == [pytest.approx((of_lowest.loss - base[0].loss)[400:].mean())]
