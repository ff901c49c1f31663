import numpy as np
import pytest

from parity.judging.live.offsets import combine, correlation, spread


def innovation(share: float) -> float:
    return 1.0 + spread(share) ** 2 - 2.0 * correlation(share) * spread(share)


@pytest.mark.parametrize("share", [0.1, 0.4, 0.75, 1.0])
def test_one_pair_counts_with_its_own_gap(share: float) -> None:
    combined = combine([share], 1)
    assert combined.weights == pytest.approx((1.0,))
    assert combined.error == pytest.approx(innovation(share))


def test_pairs_that_have_come_equally_far_are_averaged() -> None:
    combined = combine([0.5, 0.5, 0.5], 3)
    assert combined.weights == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert combined.error == pytest.approx(innovation(0.5) / 3)


def test_a_pair_that_has_not_begun_is_unknown() -> None:
    combined = combine([1.0], 2)
    assert combined.error == pytest.approx(0.5)  # (o2 - o1)/2
    assert combined.weights == pytest.approx((1.0,))


@pytest.mark.parametrize(
    ("shares", "planned"), [([0.3], 1), ([1.0, 0.4], 2), ([0.9, 0.2], 4), ([0.6, 0.5, 0.1], 3)]
)
def test_slow_twin_by_simulation(shares: list[float], planned: int) -> None:
    rng = np.random.default_rng(0)
    end = rng.normal(size=(200_000, planned))
    now = [
        spread(share)
        * (
            correlation(share) * end[:, i]
            + np.sqrt(1 - correlation(share) ** 2) * rng.normal(size=len(end))
        )
        for i, share in enumerate(shares)
    ]
    combined = combine(shares, planned)
    assert sum(combined.weights) == pytest.approx(1.0)
    error = sum(c * o for c, o in zip(combined.weights, now, strict=True)) - end.mean(axis=1)
    assert float(error.var()) == pytest.approx(combined.error, rel=0.02, abs=1e-3)


def test_nothing_is_left_to_predict_at_the_end() -> None:
    assert combine([1.0, 1.0], 2).error == pytest.approx(0.0)
