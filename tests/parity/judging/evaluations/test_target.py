import math
import warnings

import numpy as np
import pytest
from scipy import stats

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.evaluations.samples_to_target import Reached, arm_time, samples_to, token_tax


def run(*losses: float) -> Curve:
    return curve_from_arrays(np.arange(1, len(losses) + 1) * 100, losses)


@pytest.mark.parametrize(
    ("losses", "samples", "beyond"),
    [
        ((4.0, 3.5, 3.1), 250.0, None),
        ((4.0, 3.3, 3.1), 200.0, None),
        ((4.0, 3.5, 3.4), 300.0, "above"),
        ((3.2, 3.1, 3.0), 100.0, "below"),
        ((4.0, 3.2, 3.4, 3.1), 187.5, None),
        ((4.0, math.nan, 3.1), 100.0 + 200.0 * 0.7 / 0.9, None),
    ],
)
def test_first_crossing(losses: tuple[float, ...], samples: float, beyond: str | None) -> None:
    got = samples_to(run(*losses), 3.3)
    assert got.samples == pytest.approx(samples)
    assert got.beyond == beyond


def test_without_censoring_it_is_the_plain_mean_of_the_logs() -> None:
    samples = [150.0, 170.0, 160.0, 155.0]
    arm = arm_time([Reached(samples=value, beyond=None) for value in samples])
    logs = np.log(samples)
    assert arm is not None
    assert (arm.mean, arm.se, arm.df) == pytest.approx((logs.mean(), logs.std(ddof=1) / 2.0, 3.0))


def test_censored_twin() -> None:
    """Against scipy's own maximum-likelihood fit of censored data."""
    rng = np.random.default_rng(0)
    truth = rng.normal(5.0, 0.1, 30)
    limit = 5.05
    seen = truth[truth < limit]
    arm = arm_time(
        [
            Reached(samples=math.exp(min(value, limit)), beyond="above" if value >= limit else None)
            for value in truth
        ]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mean, sd = stats.norm.fit(
            stats.CensoredData(uncensored=seen, right=np.full(30 - len(seen), limit))
        )
    assert arm is not None
    assert arm.df == len(seen) - 1
    assert arm.mean == pytest.approx(mean, abs=1e-4)
    assert sd / math.sqrt(30) < arm.se < 2.0 * sd / math.sqrt(30)


def test_censored_runs_widen_the_error_and_raise_the_mean() -> None:
    seen = [Reached(samples=value, beyond=None) for value in (100.0, 110.0, 105.0, 108.0)]
    late = [Reached(samples=110.0, beyond="above")] * 2
    early = [Reached(samples=100.0, beyond="below")] * 2
    plain, above, below = arm_time(seen), arm_time([*seen, *late]), arm_time([*seen, *early])
    assert plain
    assert above
    assert below
    assert below.mean < plain.mean < above.mean


@pytest.mark.parametrize("reached", [0, 1])
def test_too_few_that_reach_the_target(reached: int) -> None:
    runs = [Reached(samples=100.0, beyond=None)] * reached + [
        Reached(samples=120.0, beyond="above")
    ] * 5
    assert arm_time(runs) is None


@pytest.mark.parametrize("reached", [2, 6])
@pytest.mark.parametrize(
    ("bound", "beyond", "known"),
    [
        (100.0, "above", False),
        (50.0, "above", False),
        (100.0, "below", False),
        (150.0, "above", True),
        (50.0, "below", True),
    ],
)
def test_equal_runs_say_nothing_of_others_that_agree_with_them(
    reached: int, bound: float, beyond: str, known: bool
) -> None:
    runs = [Reached(samples=100.0, beyond=None)] * reached
    others = [Reached(samples=bound, beyond=beyond)] * 4
    assert (arm_time([*runs, *others]) is not None) == known


def test_tax_of_a_known_shift() -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(200):
        arms = [
            arm_time(
                [Reached(samples=value, beyond=None) for value in np.exp(rng.normal(mean, 0.05, 8))]
            )
            for mean in (5.0, 5.0 + math.log(1.09))
        ]
        assert arms[0]
        assert arms[1]
        tax = token_tax(arms[0], arms[1], 0.95)
        covered += tax.lo <= 0.09 <= tax.hi
        assert tax.estimate == pytest.approx(tax.geometric[1] / tax.geometric[0] - 1.0)
    assert 180 <= covered <= 199


def test_coverage_where_a_third_is_censored() -> None:
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(200):
        arms = []
        for mean in (5.0, 5.1):
            truth = rng.normal(mean, 0.1, 12)
            arms.append(
                arm_time(
                    [
                        Reached(
                            samples=math.exp(min(x, 5.15)), beyond="above" if x > 5.15 else None
                        )
                        for x in truth
                    ]
                )
            )
        assert arms[0]
        assert arms[1]
        tax = token_tax(arms[0], arms[1], 0.95)
        covered += tax.lo <= math.expm1(0.1) <= tax.hi
    assert covered >= 180


@pytest.mark.parametrize(("seen", "known"), [(1, False), (2, True)])
def test_a_time_to_the_target_is_known_of_two_runs_that_reached_it(seen: int, known: bool) -> None:
    runs = [Reached(samples=100.0 + k, beyond=None) for k in range(seen)]
    runs += [Reached(samples=200.0, beyond="above")]
    assert (arm_time(runs) is not None) == known
