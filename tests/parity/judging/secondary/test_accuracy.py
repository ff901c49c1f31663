import numpy as np
import pytest

from parity.judging.decision import state_of
from parity.judging.secondary.accuracy import accuracy_gap, paired_accuracy


def test_newcombes_published_example() -> None:
    """56/70 against 48/80: 0.20, interval 0.0524 to 0.3339 (Newcombe 1998, table II, method 10)."""
    gap = accuracy_gap((48, 80), (56, 70))
    assert (gap.gap, gap.lo, gap.hi) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)


def test_unpaired_agrees_with_statsmodels() -> None:
    from statsmodels.stats.proportion import confint_proportions_2indep

    gap = accuracy_gap((700, 1000), (680, 1000))
    assert (gap.lo, gap.hi) == pytest.approx(
        confint_proportions_2indep(680, 1000, 700, 1000, method="newcomb", compare="diff"), abs=1e-9
    )


@pytest.mark.parametrize(
    ("worse", "margin", "state"),
    [(0, 0.01, "pass"), (10, 0.02, "pass"), (60, 0.02, "fail"), (20, 0.02, "inconclusive")],
)
def test_paired_states(worse: int, margin: float, state: str) -> None:
    base = np.array([True] * 700 + [False] * 300)
    cand = base.copy()
    cand[:worse] = False
    gap = paired_accuracy(base.tolist(), cand.tolist())
    assert gap.gap == pytest.approx(-worse / 1000)
    assert state_of(passes=gap.lo > -margin, fails=gap.hi < -margin) == state


def test_pairing_narrows_the_interval() -> None:
    rng = np.random.default_rng(0)
    base = rng.random(2000) < 0.7
    cand = np.where(rng.random(2000) < 0.95, base, ~base)
    paired = paired_accuracy(base.tolist(), cand.tolist())
    loose = accuracy_gap((int(base.sum()), 2000), (int(cand.sum()), 2000))
    assert paired.hi - paired.lo < 0.6 * (loose.hi - loose.lo)


def test_coverage_of_the_paired_interval() -> None:
    rng, hits = np.random.default_rng(1), 0
    for _ in range(500):
        base = rng.random(400) < 0.7
        cand = np.where(rng.random(400) < 0.1, rng.random(400) < 0.5, base)
        gap = paired_accuracy(base.tolist(), cand.tolist())
        hits += gap.lo <= 0.1 * (0.5 - 0.7) <= gap.hi
    assert 0.92 <= hits / 500 <= 0.98


def test_bad_counts() -> None:
    for bad in ((5, 4), (-1, 4), (0, 0)):
        with pytest.raises(ValueError, match="expected 0 <= correct <= items"):
            accuracy_gap(bad, (1, 2))
    with pytest.raises(ValueError, match="same items"):
        paired_accuracy([True], [True, False])
