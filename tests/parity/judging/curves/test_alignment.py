import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.judging.curves.alignment import align, nonfinite, paired_by_seed
from parity.judging.curves.curve import Curve, curve_from_arrays

rows = st.dictionaries(
    st.integers(0, 30), st.sampled_from([1.0, 2.0, float("nan"), float("inf")]), max_size=30
)


def curve(values: dict[int, float], **extra: object) -> Curve:
    return curve_from_arrays(list(values), list(values.values()), **extra)  # type: ignore[arg-type]


@given(rows, rows, rows, st.integers(0, 35))
def test_inner_join_twin(
    a: dict[int, float], b: dict[int, float], c: dict[int, float], last: int
) -> None:
    expected = sorted(
        s
        for s in set(a) & set(b) & set(c)
        if s <= last and all(np.isfinite(run[s]) for run in (a, b, c))
    )
    aligned = align([curve(a), curve(b)], [curve(c)], last)
    assert aligned.steps.tolist() == expected
    assert aligned.baseline.tolist() == [[run[s] for s in expected] for run in (a, b)]
    assert aligned.candidate.tolist() == [[c[s] for s in expected]]


def test_means_are_over_runs_of_a_seed_then_over_seeds() -> None:
    base = [curve({0: value}, seed=seed) for value, seed in ((1.0, 0), (3.0, 0), (7.0, 5))]
    cand = [curve({0: value}, seed=seed) for value, seed in ((2.0, 0), (9.0, 5))]
    left, right = align(base, cand).arm_means()
    assert left.tolist() == [(2.0 + 7.0) / 2]
    assert right.tolist() == [(2.0 + 9.0) / 2]


def test_runs_of_seeds_that_one_arm_lacks_are_left_out() -> None:
    runs = [curve({0: 1.0}, seed=seed) for seed in (0, 1, 2)]
    left, right, unpaired = paired_by_seed(runs, [curve({0: 2.0}, seed=seed) for seed in (1, 5)])
    assert ([run.seed for run in left], [run.seed for run in right], unpaired) == ([1], [1], 3)


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
