"""How many losses of an arm are NaN or infinite, and what that is enough for."""

import numpy as np
import pytest

from parity.judging.curves.curve import curve_from_arrays
from parity.judging.curves.nonfinite import nonfinite


@pytest.mark.parametrize(
    ("bad", "count", "share", "first", "at_end"),
    [
        ([], 0, 0.0, None, False),
        ([5], 1, 0.01, 5, False),
        ([85, 86], 2, 0.1, 85, False),
        ([99], 1, 0.05, 99, True),
    ],
)
def test_nonfinite_share_is_the_worse_of_run_and_window(
    bad: list[int], count: int, share: float, first: int | None, at_end: bool
) -> None:
    loss = np.ones(100)
    loss[bad] = np.nan
    losses = nonfinite([curve_from_arrays(np.arange(100), loss)], 80, 99)
    assert (losses.count, losses.worst_share, losses.first_step, losses.at_end) == (
        count,
        share,
        first,
        at_end,
    )


@pytest.mark.parametrize(
    ("n", "bad", "blocks", "fails"),
    [
        (16, [0], False, False),
        (60, [50], False, False),
        (60, [50, 55], True, False),
        (60, [50, 53, 55], True, True),
        (60, [59], True, True),
        (4000, [10, 20, 30], False, False),
        (4000, list(range(40)), True, True),
        (4000, list(range(39)), False, False),
    ],
)
def test_one_nan_is_no_divergence_two_block_a_pass_and_three_fail_from_one_percent_on(
    n: int, bad: list[int], blocks: bool, fails: bool
) -> None:
    loss = np.ones(n)
    loss[bad] = np.nan
    losses = nonfinite([curve_from_arrays(np.arange(n), loss)], n - n // 5, n - 1)
    assert (losses.blocks, losses.fails) == (blocks, fails)


def test_nonfinite_steps_after_the_plan_do_not_count() -> None:
    loss = np.append(np.ones(100), np.nan)
    assert nonfinite([curve_from_arrays(np.arange(101), loss)], 80, 99).count == 0
