"""Margins in tokens: the slope of finished runs, what it is taken from, how well it is known, and
where it is refused.
"""

import dataclasses
import math

import numpy as np
import pytest

from parity.judging.bundles.read_bundle import case_of
from parity.judging.bundles.verification import verify
from parity.judging.bundles.write_bundle import bundle_bytes
from parity.judging.case import Case
from parity.judging.curves.curve import curve_from_arrays
from parity.judging.curves.window import make_window
from parity.judging.gap.token_slope import NoSlope, TokenSlope, token_slope
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import judge

FLOOR, SCALE, POWER = 2.0, 3.0, 0.5
STEPS = 2000


def cosine(steps):
    return 0.5 * (1.0 + np.cos(np.pi * np.arange(steps) / steps))


def flat(steps):
    return np.minimum(np.arange(1, steps + 1) / 20, 1.0)


def run(steps, rate=cosine, gap=0.0, seed=0, first=1):
    """A run whose loss follows L = E + A t^-0.5, with a little noise of its own and that of its
    batches.
    """
    batch = np.random.default_rng(99).normal(0.0, 0.01, 10_000)[:steps]
    own = np.random.default_rng(seed).normal(0.0, 0.001, steps)
    t = np.arange(1, steps + 1)
    loss = FLOOR + SCALE * t**-POWER + batch + own + gap
    columns = {} if rate is None else {"learning_rate": 1e-3 * rate(steps)}
    return curve_from_arrays(t - 1 + first, loss, recipe="fp8_current", columns=columns)


def judged(margin, shorter=(), rate=cosine, gap=0.0, steps=2000, **keys):
    policy = Policy(margin=margin, **keys)
    return judge(
        [run(steps, rate)],
        {"c": [run(steps, rate, gap, seed=1)]},
        policy,
        planned_steps=steps,
        shorter=shorter,
    )[0]


def slope_of(verdict):
    return verdict.measurements.statistics.token_slope


def test_a_shorter_finished_run_gives_the_slope_of_the_law():
    verdict = judged("5% tokens", [run(800)])
    slope = slope_of(verdict)
    truth = POWER * SCALE * 2000**-POWER
    assert isinstance(slope, TokenSlope)
    # the late windows lie a tenth before the ends
    assert slope.nats == pytest.approx(truth, rel=0.12)
    late = [np.mean(one.loss[-len(one.loss) // 5 :]) for one in (run(800), run(2000))]
    assert slope.nats == pytest.approx((late[0] - late[1]) * 0.5 / (2.5**0.5 - 1.0), rel=1e-3)
    assert verdict.margin.nats == pytest.approx(slope.nats * math.log(1.05))
    assert verdict.margin.tokens == pytest.approx(0.05)
    assert verdict.margin.source == "5 % tokens"


def test_the_error_of_the_slope_is_that_of_the_runs_that_it_is_taken_from():
    verdict = judged("5% tokens", [run(800), run(800, seed=5)])
    tau = verdict.measurements.statistics.noises[0].tau
    assert slope_of(verdict).error == pytest.approx(0.5 / (2.5**0.5 - 1.0) * tau * math.sqrt(1.5))


def test_a_stated_slope_needs_no_run_and_is_known_before():
    verdict = judged("5% tokens at 0.2 nats")
    assert verdict.margin.nats == pytest.approx(0.2 * math.log(1.05))
    assert verdict.advisory.token_tax.hi == pytest.approx(
        math.expm1(verdict.gap.bounds(0.95)[1] / 0.2)
    )


def test_a_constant_rate_gives_the_slope_as_of_the_last_step():
    verdict = judged("5% tokens", rate=flat)
    assert slope_of(verdict).nats == pytest.approx(POWER * SCALE * 2000**-POWER, rel=0.05)
    assert not verdict.measurements.schedule.finished


def test_the_fit_at_a_constant_rate_is_least_squares():
    base = run(2000, flat)
    late = base.steps > 1000
    u = (base.steps[late] / 2000.0) ** -0.5
    slope = np.polyfit(u, base.loss[late], 1)[0]
    assert slope_of(judged("5% tokens", rate=flat)).nats == pytest.approx(0.5 * slope)


@pytest.mark.parametrize(
    ("shorter", "rate"),
    [
        ([run(400)], cosine),  # a fifth
        ([run(1200)], cosine),  # more than half
        ([run(800, flat)], cosine),  # not at the end of its schedule
        ([run(800, None)], cosine),  # nobody knows
        ([run(800, gap=-1.0)], cosine),  # better than the baseline
        ([run(800), run(700)], cosine),  # two lengths
        ([run(8)], cosine),
        ([], cosine),  # within one schedule that decays there is no slope
        ([], None),
    ],
)
def test_no_slope_no_margin_in_tokens(shorter, rate):
    verdict = judged("5% tokens", shorter, rate)
    assert isinstance(slope_of(verdict), NoSlope)
    assert verdict.verdict == "inconclusive"
    assert "MARGIN_UNDETERMINED" in verdict.codes


def test_a_slope_that_run_noise_leaves_open_by_more_than_a_quarter_is_refused():
    verdict = judged("5% tokens", [run(800)], baseline_run_noise="0.02 nats")
    assert isinstance(slope_of(verdict), NoSlope)


def test_what_is_stated_of_the_compared_runs_says_nothing_of_the_shorter_one():
    assert isinstance(
        slope_of(judged("5% tokens", [run(800, None)], None, schedule="decayed")), NoSlope
    )
    assert isinstance(
        slope_of(judged("5% tokens", [run(800, flat)], None, schedule="decayed")), NoSlope
    )
    assert isinstance(
        slope_of(judged("5% tokens", [run(800)], None, schedule="decayed")), TokenSlope
    )


def test_a_margin_in_percent_is_told_in_tokens_and_changes_no_answer():
    plain, told = judged("1%"), judged("1%", [run(800)])
    assert plain.margin.tokens is None
    assert told.margin.tokens == pytest.approx(math.expm1(told.margin.nats / slope_of(told).nats))
    assert dataclasses.replace(told.margin, tokens=None) == plain.margin
    assert told.codes == plain.codes


def test_a_candidate_that_costs_more_tokens_than_allowed_fails():
    assert judged("10% tokens", [run(800)], gap=0.05).verdict == "fail"


def test_the_document_holds_the_slope_and_the_bundle_the_runs(tmp_path):
    case = Case(
        baseline=[run(2000)],
        candidates={"c": [run(2000, seed=1)]},
        policy=Policy(margin="20% tokens"),
        planned_steps=2000,
        shorter=[run(800)],
    )
    (document,) = case.documents()
    assert document["token_slope"]["nats"] > 0.0
    path = tmp_path / "case.zip"
    path.write_bytes(bundle_bytes(case, [document]))
    assert verify(str(path)).differences == ()
    again = case_of(str(path))
    assert isinstance(again, Case)
    assert len(again.shorter) == 1


@pytest.mark.parametrize("runs", [1, 3])
def test_at_a_constant_rate_run_noise_adds_that_of_the_fall_over_the_last_half(runs: int) -> None:
    """The slope is p A T^-p, taken from a fall of A ((T/2)^-p - T^-p) nats; run noise of tau at
    both ends puts an error of sqrt(2) tau on that fall.
    """
    t = np.arange(1, STEPS + 1)
    drawn = np.random.default_rng(0).normal(0.0, 0.01, (runs, STEPS))
    baseline = [
        curve_from_arrays(t, 2.0 + 3.0 * t**-POWER + own, columns={"learning_rate": np.ones(STEPS)})
        for own in drawn
    ]
    window = make_window(STEPS, 1, 0.2, "declared")
    exact, noisy = (
        token_slope(Policy(margin="5% tokens"), [], baseline, window, 2.07, tau)
        for tau in (0.0, 0.002)
    )
    assert isinstance(exact, TokenSlope)
    assert isinstance(noisy, TokenSlope)
    assert noisy.nats == exact.nats
    at_half, at_end = (3.0 * (STEPS * part) ** -POWER for part in (0.5, 1.0))
    truth = POWER * at_end
    expected = math.sqrt(2.0) * 0.002 * truth / (at_half - at_end) / math.sqrt(runs)
    assert math.sqrt(noisy.error**2 - exact.error**2) == pytest.approx(expected)
