"""The end of a window, its noise's basis and its worst run, at their limits."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import t as student

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.step_noise import StandardError, mean_se
from parity.judging.gap.interval import interval
from parity.judging.gap.run_end import late_part_above, measure_end
from parity.judging.gap.window_statistics import GapNoise
from parity.judging.noise.contradiction import Agreement
from parity.judging.noise.family_spread import FamilyFloor
from parity.judging.noise.lending import Lender, Loan
from parity.judging.noise.run_floor import RunTerm, prior_for, run_floor, run_term
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import Verdict

MakeRun = Callable[..., Curve]
JudgePair = Callable[..., Verdict]
MARGIN, LEVEL = 0.03, 3.0
NO_RUNS = RunTerm(variance=0.0, df=4.0, seeds=1)


def whole(gap: np.ndarray, run: RunTerm = NO_RUNS) -> object:
    return interval(float(gap.mean()), mean_se(gap), run)


def end(gap: np.ndarray, run: RunTerm = NO_RUNS, levels: tuple[float, float] = (0.95, 0.95)):
    return measure_end(gap, whole(gap, run), MARGIN, levels, 0.95, LEVEL, 0.0)


def quiet(points: int, size: float = 0.001) -> np.ndarray:
    return np.resize([size, -size, size, size, -size, -size], points)


@pytest.mark.parametrize(("points", "is_measured"), [(7, False), (8, True)])
def test_an_end_needs_eight_points(points: int, is_measured: bool) -> None:
    assert (end(quiet(points)) is not None) == is_measured


@pytest.mark.parametrize("points", [40, 400])
@pytest.mark.parametrize(("gap", "differs"), [(0.0299, False), (0.0301, True)])
def test_a_rising_end_differs_where_it_reaches_the_margin(
    points: int, gap: float, differs: bool
) -> None:
    d = quiet(points)
    d[-2:] = gap
    assert end(d).differs == differs


@pytest.mark.parametrize("level", [0.95, 1.0 - 0.05 / 12])
@pytest.mark.parametrize("points", [40, 400])
def test_it_reaches_the_margin_with_run_to_run_noise_at_the_widened_level(
    points: int, level: float
) -> None:
    run = RunTerm(variance=0.002**2, df=4.0, seeds=1)
    half = float(student.ppf(0.5 + level / 2, 4.0)) * 0.002
    for beyond, differs in ((-1e-6, False), (1e-6, True)):
        d = quiet(points)
        d[-2:] = MARGIN - half + beyond
        assert end(d, run, (level, 0.95)).differs == differs


@pytest.mark.parametrize("points", [40, 400])
@pytest.mark.parametrize(("gap", "differs"), [(-0.0299, False), (-0.0305, True)])
def test_a_falling_end_differs_where_it_falls_by_the_margin(
    points: int, gap: float, differs: bool
) -> None:
    d = quiet(points)
    d[-2:] = gap
    assert end(d).differs == differs


@pytest.mark.parametrize("points", [16, 40])
def test_false_alarms_of_few_points_are_one_in_a_hundred(points: int) -> None:
    """The limit of the last point by the formula, for a margin that every gap reaches."""
    d = quiet(points)
    before = d[: points - points // 4]
    tails = len([k for k in (1, 2, 4, 8) if k <= points // 4])
    t = float(student.ppf(1.0 - 0.01 / (2 * tails), len(before) - 1))
    limit = t * float(before.std(ddof=1)) * math.sqrt(1.0 + 1.0 / len(before))
    for beyond, differs in ((-1e-9, False), (1e-9, True)):
        d[len(before) :] = before.mean() - 0.001  # longer tails do not rise
        d[-1] = before.mean() + limit + beyond
        made = measure_end(d, whole(d), -1.0, (0.95, 0.95), 0.95, LEVEL, 0.0)
        assert made.differs == differs


def swinging(points: int, *end: tuple[int, float]) -> np.ndarray:
    """A slow swing, whose own noise would explain any rise, and what so many last points are."""
    d = 0.016 * np.sin(np.arange(points) / points * 30.0) - 0.01
    for last, level in end:
        d[-last:] = level
    return d


@pytest.mark.parametrize(
    ("points", "high", "low", "differs"),
    [
        (400, 20, 0, True),  # a twentieth
        (400, 19, 0, False),
        (400, 40, 20, True),  # a tenth, which ends a little lower
        (400, 39, 20, False),
        (240, 16, 0, True),  # but sixteen points at least
        (240, 15, 0, False),
        (200, 16, 0, True),
        (199, 16, 0, False),  # of two hundred
    ],
)
def test_a_mean_end_at_the_margin_differs(points: int, high: int, low: int, differs: bool) -> None:
    size = MARGIN + 0.001 * (low > 0)
    ends = ((high, size), (low, MARGIN - 0.001)) if low else ((high, size),)
    made = end(swinging(points, *ends))
    assert abs(made.rise) <= made.limit or points < 200
    assert made.differs == differs
    lower = ((high, size - 1e-6), (low, MARGIN - 0.001)) if low else ((high, size - 1e-6),)
    assert not end(swinging(points, *lower)).differs


def test_a_late_part_is_above_by_its_lower_end_at_the_level_it_is_given() -> None:
    run = RunTerm(variance=0.002**2, df=4.0, seeds=1)
    for confidence in (0.95, 0.99):
        half = float(student.ppf(0.5 + confidence / 2, 4.0)) * 0.002
        for beyond, above in ((1e-6, True), (-1e-6, False)):
            d = np.zeros(400)
            d[-100:] = MARGIN + half + beyond
            levels = (confidence, confidence)
            assert late_part_above(d, whole(d, run), MARGIN, levels) == above


@pytest.mark.parametrize(
    ("points", "high", "above"),
    [
        (32, 8, True),
        (31, 7, False),
        (16, 8, True),
        (15, 7, False),
        (400, 100, True),
        (400, 200, True),
    ],
)
def test_the_last_quarter_and_half_count_from_eight_points_on(
    points: int, high: int, above: bool
) -> None:
    d = np.zeros(points)
    d[-high:] = 2.0 * MARGIN
    assert late_part_above(d, whole(d), MARGIN, (0.95, 0.95)) == above


@pytest.mark.parametrize("candidates", [1, 12])
def test_an_end_is_above_at_the_level_of_the_policy(candidates: int) -> None:
    run = RunTerm(variance=0.002**2, df=4.0, seeds=1)
    half = float(student.ppf(0.975, 4.0)) * 0.002
    level = 1.0 - 0.05 / candidates
    for beyond, above in ((1e-6, True), (-1e-6, False)):
        d = np.zeros(400)
        d[-200:] = MARGIN + half + beyond
        assert end(d, run, (level, level)).above == above


# On what does the between-run term rest?


def basis(base_runs: int, cand_runs: int, seeds: int = 1) -> GapNoise:
    prior = prior_for(None, None, Policy(margin="1%"), LEVEL, "nearest")
    rng = np.random.default_rng(0)
    floors = tuple(
        run_floor(prior, LEVEL + rng.normal(0, 0.003, runs), [0] * runs)
        for runs in (base_runs, cand_runs)
    )
    run = dataclasses.replace(run_term(*floors), seeds=seeds)
    return GapNoise(interval=interval(0.0, StandardError(value=0.0, df=4.0), run), floors=floors)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ((3, 3), "measured"),
        ((2, 4), "measured"),
        ((3, 2), "assumed"),
        ((5, 1), "assumed"),
        ((6, 1), "assumed"),  # an arm without a rerun
        ((1, 1), "assumed"),
    ],
)
def test_noise_is_measured_from_four_degrees_of_freedom_on(
    runs: tuple[int, int], expected: str
) -> None:
    made = basis(*runs)
    assert made.measured_df == sum(runs) - 2
    assert made.noise_basis == expected
    assert made.noise_is_assumed == (expected == "assumed")


@pytest.mark.parametrize(("seeds", "expected"), [(4, "assumed"), (5, "measured")])
def test_five_seeds_measure_it(seeds: int, expected: str) -> None:
    made = basis(1, 1, seeds=seeds)
    assert (made.measured_df, made.noise_basis) == (seeds - 1, expected)


@pytest.mark.parametrize(("df", "expected"), [(0.99, "assumed"), (1.0, "borrowed")])
def test_an_arm_without_reruns_borrows_one_degree_of_freedom_at_least(
    df: float, expected: str
) -> None:
    """Next to an arm that has five runs."""
    made = basis(5, 1)
    floor = FamilyFloor(
        share=0.001, df=df, estimated_df=df, groups=4, runs=20, outliers=(), levels=None
    )
    loan = Loan(
        lender=Lender(family="f", floor=floor),
        floor=floor,
        agreement=Agreement(p=1.0, weight=1.0, ratio=None),
    )
    prior = dataclasses.replace(made.floors[1].prior, loan=loan, assumed=False)
    floors = made.floors[0], dataclasses.replace(made.floors[1], prior=prior)
    assert dataclasses.replace(made, floors=floors).noise_basis == expected


# The worst run of a candidate.


def several(
    make_run: MakeRun, runs: int, worse: float, points: int = 400, seed: int = 1
) -> tuple[list[Curve], list[Curve]]:
    """Seeds with one pair each; the last run of the candidate is worse."""
    base = [
        dataclasses.replace(
            make_run(points, batch_seed=number, pair_sd=0.0, seed=number), seed=number
        )
        for number in range(runs)
    ]
    rng = np.random.default_rng(seed)
    cand = [
        dataclasses.replace(run, loss=run.loss + rng.normal(0.0, 0.0005, points), label=f"c{k}")
        for k, run in enumerate(base)
    ]
    cand[-1] = dataclasses.replace(cand[-1], loss=cand[-1].loss + worse)
    return base, cand


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_a_worst_run_is_asked_of_two_runs_and_more(
    runs: int, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    base, cand = several(make_run, runs, 0.1)
    verdict = judge_pair(base, cand)
    worst = verdict.measurements.worst_run
    if runs == 1:
        assert worst is None
    else:
        assert (worst.label, worst.is_above) == (f"c{runs - 1}", True)
    assert ("RUN_ABOVE_MARGIN" in verdict.codes) == (runs > 1)


@pytest.mark.parametrize("runs", [2, 3])
def test_two_runs_of_which_one_is_above_the_margin_do_not_pass(
    runs: int, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    """The limit is the margin and what one run and its pair differ by chance."""
    policy = Policy(margin="0.06 nats", schedule="decayed")
    base, cand = several(make_run, runs, 0.0)
    others = [dataclasses.replace(run, loss=run.loss - 0.06) for run in cand[:-1]]
    clean = judge_pair(base, [*others, cand[-1]], policy)
    level = clean.measurements.statistics.baseline.level
    gap = (cand[-1].loss - base[-1].loss)[-80:]
    limits = []
    for part in (gap, gap[40:]):
        error = mean_se(part)
        run = float(student.ppf(0.975, 4.0)) * 0.0009 * level * math.sqrt(2.0)
        half = math.hypot(run, float(student.ppf(0.975, error.df)) * error.value)
        limits.append(0.06 + half - float(part.mean()))
    shift = min(limits)  # the plain ends; capped ones differ by less than the noise
    for beyond, above in ((-0.0005, False), (0.0005, True)):
        moved = dataclasses.replace(cand[-1], loss=cand[-1].loss + shift + beyond)
        verdict = judge_pair(base, [*others, moved], policy)
        assert ("RUN_ABOVE_MARGIN" in verdict.codes) == above
        assert verdict.verdict != "pass" or not above


@pytest.mark.parametrize(("every", "is_asked"), [(25, True), (27, False)])
def test_the_last_half_of_a_run_is_asked_from_sixteen_points_on(
    every: int, is_asked: bool, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    """A run that is worse over the last half of 400 steps alone, of which 16 or 15 are logged."""
    base, cand = several(make_run, 2, 0.0, 2000)
    late = np.arange(2000) >= 1800
    cand[-1] = dataclasses.replace(cand[-1], loss=cand[-1].loss + 0.05 * late)
    cand[0] = dataclasses.replace(cand[0], loss=cand[0].loss - 0.05 * late)
    thin = [
        [
            curve_from_arrays(
                run.steps[1999 % every :: every],
                run.loss[1999 % every :: every],
                seed=run.seed,
                label=run.label,
                rounding="nearest",
            )
            for run in arm
        ]
        for arm in (base, cand)
    ]
    verdict = judge_pair(*thin, planned_steps=2000)
    assert verdict.measurements.statistics.n == (16 if is_asked else 15)
    assert verdict.measurements.worst_run.is_above == is_asked
