"""Samples to a target, of runs and of a reference: the margin from both sides, and the grid of the
evaluations.
"""

import numpy as np
import pytest

from parity.judging.evaluations.convergence import ConvergenceSide, judge_convergence
from parity.judging.evaluations.samples_to_target import Reached

MARGIN, CONFIDENCE = 0.10, 0.95
REFERENCE = (98.0, 99.0, 100.0, 101.0, 102.0) * 4


def side(samples, grid=0.5, beyond=None):
    return ConvergenceSide(
        runs=[Reached(samples=value, beyond=beyond) for value in samples], grid=grid
    )


def verdict(samples, reference=REFERENCE, grid=0.5, margin=MARGIN):
    return judge_convergence(side(samples, grid), side(reference, grid), margin, CONFIDENCE)


@pytest.mark.parametrize(
    ("factor", "expected"),
    [(0.9, "pass"), (1.0, "pass"), (1.08, "pass"), (1.1, "inconclusive"), (1.12, "fail")],
)
def test_the_interval_is_compared_with_the_margin(factor, expected):
    answer = verdict([factor * value for value in REFERENCE])
    assert answer.verdict == expected
    assert answer.tax.estimate == pytest.approx(factor - 1.0, abs=1e-3)
    assert answer.tax.lo < answer.tax.estimate < answer.tax.hi


def test_equal_runs_of_a_coarse_grid_are_known_to_one_step_of_it():
    answer = verdict([100.0] * 10, [100.0] * 20, grid=12.0)
    assert (answer.tax.lo, answer.tax.hi) == pytest.approx((88.0 / 100.0 - 1.0, 100.0 / 88.0 - 1.0))
    assert (answer.verdict, answer.reason) == ("inconclusive", "evaluations are too far apart")
    assert verdict([100.0] * 10, [100.0] * 20, grid=12.0, margin=0.14).verdict == "pass"


def test_a_grid_that_noise_dithers_widens_nothing():
    spread = (80.0, 90.0, 100.0, 110.0, 120.0) * 20
    fine, coarse = (verdict(spread, spread, grid=grid).tax for grid in (0.1, 10.0))
    assert coarse.hi - coarse.lo == pytest.approx(fine.hi - fine.lo, rel=0.1)


def test_a_coarser_grid_of_the_runs_is_no_reason_to_fail():
    runs, reference = side([112.0, 130.0, 148.0] * 6, 18.0), side([98.0, 100.0, 102.0] * 6, 1.0)
    answer = judge_convergence(runs, reference, 0.2, CONFIDENCE)
    assert answer.tax.estimate == pytest.approx(0.2, abs=0.02)  # not 0.3: each run ended late
    assert answer.verdict == "inconclusive"


def with_unreached(reached, unreached, grid=0.5):
    runs = [*side(reached).runs, *side(unreached, beyond="above").runs]
    return ConvergenceSide(runs=runs, grid=grid)


def mixed_verdict(reached, unreached, reference=None):
    return judge_convergence(
        with_unreached(reached, unreached), reference or side(REFERENCE), MARGIN, CONFIDENCE
    )


@pytest.mark.parametrize("trained", [20.0, 99.0, 100.0, 101.0, 140.0, 1000.0])
@pytest.mark.parametrize("reached", [(99.0, 101.0), (99.0, 100.0, 101.0) * 3, (100.0,) * 6])
@pytest.mark.parametrize("unreached", [1, 4, 8])
def test_runs_beside_one_that_never_reached_the_target_do_not_pass(reached, unreached, trained):
    assert verdict(reached * 5).verdict == "pass"
    answer = mixed_verdict(reached, [trained] * unreached)
    assert answer.verdict in ("inconclusive", "fail" if trained > 110.0 else "inconclusive")
    assert answer.reason


@pytest.mark.parametrize("trained", [20.0, 140.0])
def test_slow_runs_fail_beside_one_that_never_reached_the_target(trained):
    answer = mixed_verdict([139.0, 140.0, 141.0] * 3, [trained])
    assert (answer.verdict, answer.tax is not None) == ("fail", True)


def test_as_many_unreached_runs_as_the_reference_has_may_pass():
    reference = with_unreached(REFERENCE, [101.0] * 2)
    answers = [
        mixed_verdict([98.0, 99.0, 100.0, 101.0, 102.0] * 4, [101.0] * count, reference)
        for count in (2, 3)
    ]
    assert [answer.verdict for answer in answers] == ["pass", "inconclusive"]


@pytest.mark.parametrize(("trained", "expected"), [(112.0, "inconclusive"), (112.4, "fail")])
def test_runs_that_all_trained_beyond_the_margin_without_the_target_fail(trained, expected):
    answer = judge_convergence(
        side([trained] * 5, beyond="above"), side(REFERENCE), MARGIN, CONFIDENCE
    )
    assert (answer.verdict, answer.tax) == (expected, None)


def test_two_runs_decide_nothing():
    assert verdict([100.0, 101.0]).verdict == "inconclusive"
    assert verdict([150.0, 151.0]).verdict == "inconclusive"
    assert verdict([100.0] * 5, [100.0, 101.0]).verdict == "inconclusive"


def test_epochs_beside_samples_are_noticed():
    answer = verdict([value / 1000.0 for value in REFERENCE])
    assert (answer.verdict, answer.tax) == ("inconclusive", None)
    assert "epochs" in answer.reason


@pytest.mark.parametrize("spread", [0.001, 0.03, 0.1])
def test_runs_at_the_margin_seldom_pass_or_fail(spread):
    """Runs stop at the first evaluation after their true crossing, wherever the grid lies."""
    random = np.random.default_rng(1)
    grid, verdicts = 8.0, []
    for _ in range(800):
        place = random.uniform(60.0, 140.0)
        crossings = [
            place * shift * np.exp(spread * random.standard_normal(runs))
            for runs, shift in ((10, 1.0 + MARGIN), (20, 1.0))
        ]
        seen = [grid * np.ceil(values / grid) for values in crossings]
        verdicts.append(verdict(seen[0].tolist(), seen[1].tolist(), grid=grid).verdict)
    # 2.5 % on each side, and three standard errors of 800 draws
    assert verdicts.count("pass") / 800 < 0.042
    assert verdicts.count("fail") / 800 < 0.042
