import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from parity.judging.curves.alignment import align, paired_by_seed
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
