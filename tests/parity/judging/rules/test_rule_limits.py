"""Each limit that a rule of the decision table has: what just keeps to it, and what is just beyond.

A rule sees only what was measured, so one honest pair is measured once and single values are
replaced.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest

from parity.judging.curves.alignment import Aligned
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.mismatch import FirstGap, Mismatch
from parity.judging.curves.points_in_one_arm import EarlyHole, Lacking
from parity.judging.curves.spikes import Spikes
from parity.judging.curves.step_noise import StandardError
from parity.judging.decide import decide
from parity.judging.gap.interval import interval
from parity.judging.gap.margin import Margin
from parity.judging.gap.run_end import RunEnd
from parity.judging.gap.worst_run import RunGap
from parity.judging.measurements import Measurements
from parity.judging.noise.arm_noise import RunTerm
from parity.judging.policy import Policy, policy_from_mapping
from parity.judging.rules.inputs import no_relative_margin
from parity.judging.rules.stability import rolled_back_sentence
from parity.judging.verdict.verdict import Verdict

MakeRun = Callable[..., Curve]
JudgePair = Callable[..., Verdict]
PLAN = 2000


@pytest.fixture(scope="module")
def honest(make_run: MakeRun, judge_pair: JudgePair) -> Measurements:
    """A pair that passes."""
    verdict = judge_pair(make_run(), make_run(seed=2))
    assert verdict.codes[0] == "WITHIN_MARGIN"
    return verdict.measurements


@pytest.fixture(scope="module")
def worse(make_run: MakeRun, judge_pair: JudgePair) -> Measurements:
    """A pair that fails."""
    verdict = judge_pair(make_run(), make_run(seed=2, gap=0.2))
    assert verdict.codes[0] == "GAP_EXCEEDS_MARGIN"
    return verdict.measurements


def first(measurements: Measurements, **changes: object) -> str:
    """The code that decides where these measurements are replaced."""
    return decide(dataclasses.replace(measurements, **changes)).deciding.code


def codes(measurements: Measurements, **changes: object) -> tuple[str, ...]:
    return decide(dataclasses.replace(measurements, **changes)).codes


def with_statistics(measurements: Measurements, **changes: object) -> dict[str, object]:
    return {"statistics": dataclasses.replace(measurements.statistics, **changes)}


def with_resolution(measurements: Measurements, **changes: object) -> dict[str, object]:
    return {"resolution": dataclasses.replace(measurements.resolution, **changes)}


def margin_of(measurements: Measurements) -> float:
    return measurements.statistics.margin.nats


def just_above(value: float) -> float:
    return math.nextafter(value, math.inf)


def just_below(value: float) -> float:
    return math.nextafter(value, -math.inf)


@pytest.mark.parametrize(("beyond", "named"), [(0, False), (1, True)])
def test_steps_beyond_a_million_billion_are_no_steps(
    beyond: int, named: bool, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    steps = np.arange(1, PLAN + 1) * (10**15 // PLAN) + beyond
    base, cand = (curve_from_arrays(steps, make_run(seed=seed).loss) for seed in (1, 2))
    verdict = judge_pair(base, cand, planned_steps=int(steps[-1]))
    assert ("STEPS_TOO_LARGE" in verdict.codes) == named


@pytest.mark.parametrize(
    ("level", "is_known"),
    [(0.3, True), (just_below(0.3), False), (20.0, True), (just_above(20.0), False)],
)
def test_a_relative_margin_needs_a_loss_of_0_3_to_20_nats(
    level: float, is_known: bool, honest: Measurements
) -> None:
    policy = Policy(margin="1%")
    assert (no_relative_margin(level, policy) is None) == is_known
    baseline = dataclasses.replace(honest.statistics.baseline, level=level)
    named = "LOSS_NOT_NATS" in codes(honest, **with_statistics(honest, baseline=baseline))
    assert named != is_known


@pytest.mark.parametrize(("level", "is_known"), [(5e-324, True), (0.0, False), (-1.0, False)])
def test_a_loss_of_another_kind_only_has_to_be_above_zero(level: float, is_known: bool) -> None:
    policy = Policy(margin="1%", loss_unit="other")
    assert (no_relative_margin(level, policy) is None) == is_known


def test_a_margin_of_less_than_four_printed_steps_passes_nothing(honest: Measurements) -> None:
    printed = 0.25 * margin_of(honest)
    fine = with_statistics(honest, sigma_step=0.5 * printed)

    def deciding(step: float, **changes: object) -> str:
        return first(honest, **with_resolution(honest, rounding_step=step), **(changes or fine))

    assert deciding(printed) == "WITHIN_MARGIN"
    assert deciding(just_above(printed)) == "ROUNDED"
    coarse = just_above(printed)
    assert deciding(coarse, **with_statistics(honest, sigma_step=coarse)) == "WITHIN_MARGIN"
    assert deciding(coarse, **with_statistics(honest, sigma_step=just_below(coarse))) == "ROUNDED"


@pytest.mark.parametrize("arm", [0, 1])
@pytest.mark.parametrize(
    ("points", "in_a_row", "decides"),
    [(6, 6, False), (7, 7, True), (12, 1, False), (13, 1, True)],
)
def test_an_arm_that_lacks_many_points_alone_does_not_pass(
    arm: int, points: int, in_a_row: int, decides: bool, honest: Measurements
) -> None:
    """Of 400 and those that are lacking: 1.5 % in a row are 6.09 of 406 and 6.105 of 407 points,
    3 % in all 12.36 of 412 and 12.39 of 413."""
    lacking = [Lacking(), Lacking()]
    lacking[arm] = Lacking(points=points, longest=in_a_row)
    code = first(honest, lacking=tuple(lacking))
    assert code == ("POINTS_IN_ONE_ARM" if decides else "WITHIN_MARGIN")


@pytest.mark.parametrize("arm", [0, 1])
@pytest.mark.parametrize(
    ("points", "share", "decides"),
    [(3, 0.05, True), (3, just_below(0.05), False), (2, 0.5, False), (30, 0.05, True)],
)
def test_a_hole_before_the_window_decides_from_three_points_and_a_share(
    arm: int, points: int, share: float, decides: bool, honest: Measurements
) -> None:
    holes = [EarlyHole(), EarlyHole()]
    holes[arm] = EarlyHole(points=points, after=100, share=share)
    code = first(honest, early_holes=tuple(holes))
    assert code == ("POINTS_IN_ONE_ARM" if decides else "WITHIN_MARGIN")


@pytest.mark.parametrize(
    ("points", "in_a_row", "decides"),
    [(2, 2, False), (3, 3, True), (2, 1, False), (3, 1, True)],
)
def test_two_points_that_one_arm_lacks_of_few_are_not_many(
    points: int,
    in_a_row: int,
    decides: bool,
    make_run: MakeRun,
    judge_pair: JudgePair,
) -> None:
    """Of 40 points 3 % are 1.2."""
    runs = [make_run(seed=seed) for seed in (1, 2)]
    base, cand = (
        curve_from_arrays(r.steps[9::10], r.loss[9::10], rounding="nearest") for r in runs
    )
    m = judge_pair(base, cand, planned_steps=PLAN).measurements
    code = first(m, lacking=(Lacking(), Lacking(points=points, longest=in_a_row)))
    assert code == ("POINTS_IN_ONE_ARM" if decides else "WITHIN_MARGIN")


@pytest.mark.parametrize(("in_a_row", "decides"), [(2, False), (3, True)])
def test_three_points_in_a_row_that_one_arm_lacks_decide_where_three_in_all_do_not(
    in_a_row: int, decides: bool, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    """Of 103 points 3 % are 3.1, and 1.5 % are 1.5."""
    runs = [make_run(seed=seed) for seed in (1, 2)]
    base, cand = (
        curve_from_arrays(run.steps[3::4], run.loss[3::4], rounding="nearest") for run in runs
    )
    m = judge_pair(base, cand, planned_steps=PLAN).measurements
    code = first(m, lacking=(Lacking(), Lacking(points=3, longest=in_a_row)))
    assert code == ("POINTS_IN_ONE_ARM" if decides else "WITHIN_MARGIN")


@pytest.mark.parametrize(("step", "decides"), [(1401, False), (1402, True)])
def test_logs_that_begin_half_a_window_before_it_do_not_pass(
    step: int, decides: bool, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    """Logs that begin so late count from 1: the window is that of steps 1,601 to 2,000."""
    runs = [make_run(seed=seed) for seed in (1, 2)]
    base, cand = (
        curve_from_arrays(r.steps[step:], r.loss[step:], rounding="nearest") for r in runs
    )
    verdict = judge_pair(base, cand, planned_steps=PLAN)
    assert "LOG_STARTS_LATE" in verdict.codes
    assert (verdict.codes[0] == "LOG_STARTS_LATE") == decides


def test_a_gap_grows_where_its_drift_is_above_1_96_errors(honest: Measurements) -> None:
    drift = margin_of(honest)  # which would carry any gap to the margin

    def deciding(error: float) -> str:
        return first(honest, **with_statistics(honest, drift=drift, drift_se=error))

    assert deciding(drift / 1.959) == "WITHIN_MARGIN"
    assert deciding(drift / 1.961) == "GAP_GROWING"


def test_a_gap_grows_where_one_and_a_half_drifts_reach_the_margin(honest: Measurements) -> None:
    reaching = (margin_of(honest) - honest.statistics.interval.mean) / 1.5

    def deciding(drift: float) -> str:
        return first(honest, **with_statistics(honest, drift=drift, drift_se=0.0))

    assert deciding(0.999 * reaching) == "WITHIN_MARGIN"
    assert deciding(1.001 * reaching) == "GAP_GROWING"


def risen(by: float) -> Curve:
    """A run that had risen by so much before it went back to an earlier step."""
    return curve_from_arrays([1, 2], [4.0, 4.0], rolled_back=by)


def test_a_run_that_was_rolled_back_had_risen_by_a_twentieth_of_the_loss() -> None:
    assert rolled_back_sentence("c", [risen(0.2)], 4.0) is None
    assert rolled_back_sentence("c", [risen(0.1), risen(just_above(0.2))], 4.0) is not None
    assert rolled_back_sentence("c", [risen(just_above(0.2))], -4.0) is not None
    assert rolled_back_sentence("c", [risen(0.2)], -4.0) is None


@pytest.mark.parametrize(
    ("ratio", "decides"),
    [(9.99, False), (10.01, True), (1 / 9.99, False), (1 / 10.01, True)],
)
def test_gradient_norms_that_are_ten_times_apart_do_not_pass(
    ratio: float, decides: bool, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    base = make_run(columns={"grad_norm": np.full(PLAN, 2.0)})
    cand = make_run(seed=2, columns={"grad_norm": np.full(PLAN, 2.0 * ratio)})
    code = judge_pair(base, cand).codes[0]
    assert code == ("GRAD_NORM_APART" if decides else "WITHIN_MARGIN")


def begins_behind(
    measurements: Measurements, share: float, level: float | None = None
) -> dict[str, object]:
    """A first loss that is higher by this share, at the baseline's own level or another one."""
    nats = share * float(measurements.arms.baseline.runs[0].loss[0])
    gap = FirstGap(nats=nats, share=share)
    changes: dict[str, object] = {"mismatch": Mismatch(start=share, first_gap=gap)}
    if level is not None:
        baseline = dataclasses.replace(measurements.statistics.baseline, level=level)
        changes |= with_statistics(measurements, baseline=baseline)
    return changes


def test_a_candidate_has_caught_up_from_one_and_a_half_times_its_gap(worse: Measurements) -> None:
    share = 1.5 * worse.statistics.interval.mean / worse.statistics.baseline.level
    assert first(worse, **begins_behind(worse, 0.999 * share)) == "GAP_EXCEEDS_MARGIN"
    assert first(worse, **begins_behind(worse, 1.001 * share)) == "START_DIFFERS"


def test_a_gap_below_the_margin_is_caught_up_to_from_one_and_a_half_margins(
    honest: Measurements,
) -> None:
    ends_above = RunEnd(points=4, gap=0.1, rise=0.1, limit=0.01, differs=True, above=True)
    share = 1.5 * margin_of(honest) / honest.statistics.baseline.level

    def deciding(share: float) -> str:
        changes = begins_behind(honest, share) | with_statistics(honest, end=ends_above)
        return first(honest, **changes)

    assert deciding(0.999 * share) == "ENDS_ABOVE_MARGIN"
    assert deciding(1.001 * share) == "START_DIFFERS"


def test_from_loaded_weights_a_worse_start_explains_no_gap(worse: Measurements) -> None:
    """A baseline that begins below 1.3 times its late loss began with trained weights."""
    level = float(worse.arms.baseline.runs[0].loss[0]) / 1.3
    scratch, loaded = (begins_behind(worse, 0.2, at) for at in (0.999 * level, 1.001 * level))
    assert first(worse, **scratch) == "START_DIFFERS"
    assert first(worse, **loaded) == "GAP_EXCEEDS_MARGIN"


def test_a_first_loss_below_by_half_the_margin_hides_a_gap(honest: Measurements) -> None:
    half = 0.5 * margin_of(honest)

    def deciding(nats: float, sd: float) -> str:
        offset = Mismatch(first_gap=FirstGap(nats=-nats, share=-0.007))
        return first(honest, mismatch=offset, **with_statistics(honest, sd_paired=sd))

    assert deciding(just_below(half), 0.0) == "WITHIN_MARGIN"
    assert deciding(half, 0.0) == "START_OFFSET"
    assert deciding(4.0 * half, just_above(half)) == "WITHIN_MARGIN"
    assert deciding(4.0 * half, half) == "START_OFFSET"


@pytest.mark.parametrize(("until", "decides"), [(198, False), (199, True)])
def test_arms_share_a_start_from_a_tenth_of_the_plan_on(
    until: int, decides: bool, honest: Measurements
) -> None:
    code = first(honest, shared_start=until)  # steps 0 to 199 are 200 of 2,000
    assert code == ("ARMS_SHARE_START" if decides else "WITHIN_MARGIN")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"coverage": 0.9}, "WITHIN_MARGIN"),
        ({"coverage": just_below(0.9)}, "DOWNSAMPLED"),
        ({"hole": 0.03}, "WITHIN_MARGIN"),
        ({"hole": just_above(0.03)}, "DOWNSAMPLED"),
        ({"smoothing": 0.5, "memory_share": 0.05}, "WITHIN_MARGIN"),
        ({"smoothing": 0.5, "memory_share": just_above(0.05)}, "SMOOTHED"),
        ({"smoothing": just_below(0.5), "memory_share": 0.5}, "WITHIN_MARGIN"),
    ],
)
def test_what_a_log_may_lack_before_it_blocks_a_pass(
    changes: dict[str, float], code: str, honest: Measurements
) -> None:
    assert first(honest, **with_resolution(honest, **changes)) == code


@pytest.mark.parametrize(
    ("ratio", "decides"),
    [(2.0, False), (just_above(2.0), True), (0.5, False), (just_below(0.5), True)],
)
def test_batch_noise_of_more_than_twice_or_less_than_half_is_an_average(
    ratio: float, decides: bool, honest: Measurements
) -> None:
    assert first(honest, noise_ratio=ratio) == ("ARM_AVERAGED" if decides else "WITHIN_MARGIN")


@pytest.mark.parametrize(
    ("r", "code"), [(0.5, "WITHIN_MARGIN"), (just_below(0.5), "DATA_ORDER_MISMATCH")]
)
def test_batches_that_agree_by_half_are_one_order(
    r: float, code: str, honest: Measurements
) -> None:
    assert first(honest, r_pair=r, batches_proven=False) == code


@pytest.mark.parametrize(
    ("r", "code"), [(0.9, "BETTER_THAN_BASELINE"), (just_below(0.9), "DATA_ORDER_MISMATCH")]
)
def test_a_better_candidate_needs_batches_that_agree_by_nine_tenths(
    r: float, code: str, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    m = judge_pair(make_run(), make_run(seed=2, gap=-0.2)).measurements
    assert first(m, r_pair=r) == code


@pytest.mark.parametrize(("points", "code"), [(12, "WITHIN_MARGIN"), (11, "TOO_FEW_STEPS")])
def test_a_pass_needs_twelve_points(points: int, code: str, honest: Measurements) -> None:
    assert first(honest, **with_statistics(honest, n=points)) == code


@pytest.mark.parametrize(("points", "code"), [(8, "GAP_EXCEEDS_MARGIN"), (7, "TOO_FEW_STEPS")])
def test_a_fail_needs_eight_points(points: int, code: str, worse: Measurements) -> None:
    assert first(worse, **with_statistics(worse, n=points, end=None)) == code


def spiked(points: int, spikes: int, gap: np.ndarray, baseline: int = 0) -> Spikes:
    """Spikes of the candidate that cover so many points."""
    mask = np.arange(len(gap)) < points
    at = np.arange(spikes)
    return Spikes(
        baseline_at=np.arange(baseline), candidate_at=at, mask=mask, masked_gap=gap.copy()
    )


@pytest.mark.parametrize(("points", "code"), [(40, "WITHIN_MARGIN"), (41, "UNSTABLE")])
def test_spikes_over_more_than_a_tenth_of_the_window_block_a_pass(
    points: int, code: str, honest: Measurements
) -> None:
    spikes = spiked(points, 3, honest.statistics.spikes.masked_gap)
    assert first(honest, **with_statistics(honest, spikes=spikes)) == code


@pytest.mark.parametrize(
    ("points", "spikes", "baseline", "above", "code"),
    [
        (41, 7, 0, 0.001, "CANDIDATE_UNSTABLE"),
        (40, 7, 0, 0.001, "SPIKES_HIDE_GAP"),
        (41, 6, 0, 0.001, "UNSTABLE"),  # six of six are chance in 1.6 %
        (41, 8, 1, 0.001, "UNSTABLE"),  # and eight of nine in 2 %
        (41, 7, 0, -0.001, "UNSTABLE"),
    ],
)
def test_spikes_of_the_candidate_alone_fail_where_they_carry_the_gap_above_the_margin(
    points: int, spikes: int, baseline: int, above: float, code: str, honest: Measurements
) -> None:
    s = honest.statistics
    lo = s.interval.bounds(0.95)[0]
    raw = margin_of(honest) - lo + s.interval.mean + above
    made = spiked(points, spikes, s.spikes.masked_gap, baseline)
    assert first(honest, **with_statistics(honest, spikes=made, raw_gap_candidate=raw)) == code


@pytest.mark.parametrize(("above", "code"), [(-1e-6, "WITHIN_MARGIN"), (1e-6, "SPIKES_HIDE_GAP")])
def test_spikes_that_carry_the_interval_to_the_margin_block_a_pass(
    above: float, code: str, honest: Measurements
) -> None:
    s = honest.statistics
    raw = s.interval.mean + margin_of(honest) - honest.bounds[1] + above
    spikes = spiked(4, 1, s.spikes.masked_gap)
    assert first(honest, **with_statistics(honest, spikes=spikes, raw_gap_candidate=raw)) == code


@pytest.mark.parametrize(("above", "code"), [(-1e-6, "WITHIN_MARGIN"), (1e-6, "ROUNDED")])
def test_digits_that_could_move_the_interval_to_the_margin_block_a_pass(
    above: float, code: str, honest: Measurements
) -> None:
    rounding = margin_of(honest) - honest.bounds[1] + above
    assert first(honest, **with_resolution(honest, rounding=rounding)) == code


@pytest.mark.parametrize(
    ("margin", "policy", "code"),
    [
        ("5%", {}, "WITHIN_MARGIN"),
        ("5.001%", {}, "MARGIN_WIDE"),
        ("5.001%", {"wide_margin": "accept"}, "WITHIN_MARGIN"),
    ],
)
def test_a_margin_above_a_twentieth_of_the_loss_has_to_be_meant(
    margin: str, policy: dict[str, str], code: str, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    stated = policy_from_mapping({"margin": margin, "schedule": "decayed", **policy})
    assert judge_pair(make_run(), make_run(seed=2), stated).codes[0] == code


def test_a_margin_that_is_a_twentieth_exactly_is_not_wide(honest: Measurements) -> None:
    def deciding(share: float) -> str:
        margin = Margin(nats=0.13, rel=share, source="")
        return first(honest, **with_statistics(honest, margin=margin))

    assert deciding(0.05) == "WITHIN_MARGIN"
    assert deciding(just_above(0.05)) == "MARGIN_WIDE"


def flat(mean: float, half: float) -> object:
    """An interval of a mean gap with this half-width at 95 %, in nats."""
    se = half / 2.7764451051977987
    return interval(
        mean,
        StandardError(value=0.0, df=4.0),
        RunTerm(variance=se**2, df=4.0, seeds=1),
    )


@pytest.mark.parametrize(
    ("lo", "hi", "two_sided", "code"),
    [
        (-0.02, 0.0299, False, "WITHIN_MARGIN"),
        (-0.02, 0.0301, False, "CI_STRADDLES_MARGIN"),
        (-0.0299, 0.02, True, "WITHIN_MARGIN"),
        (-0.0301, 0.02, True, "CI_STRADDLES_MARGIN"),
        (-0.0301, 0.02, False, "WITHIN_MARGIN"),
        (0.0299, 0.09, False, "CI_STRADDLES_MARGIN"),
        (0.0301, 0.09, False, "GAP_EXCEEDS_MARGIN"),
        (-0.07, 0.0001, False, "WITHIN_MARGIN"),  # a mean of -0.035, and perhaps no gain
        (-0.07, -0.0001, False, "BETTER_THAN_BASELINE"),
        (-0.0599, -0.0003, False, "BETTER_THAN_BASELINE"),
        (-0.0592, -0.0003, False, "WITHIN_MARGIN"),  # a mean above -0.03
    ],
)
def test_which_ends_of_the_interval_decide(
    lo: float, hi: float, two_sided: bool, code: str, honest: Measurements
) -> None:
    margin = Margin(nats=0.03, rel=0.01, source="")
    measured = flat(0.5 * (lo + hi), 0.5 * (hi - lo))
    policy = dataclasses.replace(honest.policy, two_sided=two_sided)
    statistics = with_statistics(honest, interval=measured, margin=margin)
    assert first(honest, policy=policy, **statistics) == code


@pytest.mark.parametrize(("gap", "code"), [(0.05, "WITHIN_MARGIN"), (0.0501, "RUN_ABOVE_MARGIN")])
def test_one_run_above_its_limit_blocks_a_pass(gap: float, code: str, honest: Measurements) -> None:
    assert first(honest, worst_run=RunGap(label="2", gap=gap, limit=0.05)) == code


def parted(low: slice, gap: float, make_run: MakeRun) -> Aligned:
    """A pair whose last half of 1,000 steps has this gap, but none over one stretch of them."""
    base = make_run()
    late = np.full(1000, gap)
    late[low] = 0.0
    loss = base.loss + np.concatenate([np.full(1000, gap), late])
    return Aligned(
        steps=base.steps,
        baseline=base.loss[None],
        candidate=loss[None],
        baseline_seeds=(0,),
        candidate_seeds=(0,),
    )


@pytest.mark.parametrize(
    ("low", "code"),
    [
        (slice(0, 0), "GAP_EXCEEDS_MARGIN"),
        (slice(250, 500), "DATA_ORDER_MISMATCH"),  # thirds and fifths are above the margin
        (slice(200, 400), "GAP_EXCEEDS_MARGIN"),  # a fifth is not, each quarter is
    ],
)
def test_a_candidate_that_broke_is_worse_in_each_quarter_of_the_last_half(
    low: slice, code: str, worse: Measurements, make_run: MakeRun
) -> None:
    broken = {
        "same_first_batch": True,
        "noise_ratio": 1.0,
        "r_pair": 0.0,
        "batches_proven": False,
    }
    assert first(worse, **broken, aligned=parted(low, 0.2, make_run)) == code


@pytest.mark.parametrize(("steps", "code"), [(2100, "WITHIN_MARGIN"), (2101, "BEYOND_PLAN")])
def test_runs_that_go_on_by_more_than_a_twentieth_of_the_plan_do_not_pass(
    steps: int, code: str, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    verdict = judge_pair(make_run(steps), make_run(steps, seed=2), planned_steps=PLAN)
    assert verdict.codes[0] == code


def test_the_other_windows_are_the_last_10_20_30_and_50_percent(honest: Measurements) -> None:
    entries = honest.statistics.sensitivity
    assert [(entry["fraction"], entry["n"]) for entry in entries] == [
        (0.1, 200),
        (0.2, 400),
        (0.3, 600),
        (0.5, 1000),
    ]
