"""What the points of the late window say: level, gap with its interval, noises, decline, drift and
sensitivity.

The gap is the mean over runs (of a seed, then over seeds) of candidate minus baseline at common
steps. Masked steps (`spikes`) count neither for the level nor for the runs' means, and are
interpolated in the gap series.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.alignment import Aligned
from parity.judging.curves.arms import Arms, Controls
from parity.judging.curves.curve import BoolArray, Curve, FloatArray, IntArray, mean
from parity.judging.curves.early_stop_noise import EarlySpread, early_df
from parity.judging.curves.points_in_one_arm import highest_residual, lacking_points
from parity.judging.curves.spikes import Spikes, find_spikes, no_spikes
from parity.judging.curves.step_noise import MANY_POINTS, StandardError, lag1, mean_se, step_noise
from parity.judging.curves.window import SENSITIVITY_FRACTIONS, Window, detrended, drift, ols_change
from parity.judging.document_types import SensitivityDocument
from parity.judging.gap.interval import Interval, exact_interval, interval
from parity.judging.gap.margin import Margin, determine_margin
from parity.judging.gap.robust_bounds import (
    RunChange,
    RunTerms,
    Unlogged,
    missing_points,
    robust_interval,
    run_changes,
    run_interval,
)
from parity.judging.gap.run_end import RunEnd, measure_end
from parity.judging.gap.token_slope import NoSlope, TokenSlope, token_slope
from parity.judging.multiplicity import ONE_LOOK, Multiplicity
from parity.judging.noise.arm_noise import (
    ArmNoise,
    RunTerm,
    arm_noise,
    early_spread,
    own_spread,
    priors_for,
    run_term,
    run_term_over_seeds,
)
from parity.judging.noise.borrowed_priors import NO_SOURCES, NoiseSources, OwnRuns, borrow
from parity.judging.policy import POINTS_TO_FAIL, Policy

MIN_SENSITIVITY_POINTS = POINTS_TO_FAIL
MIN_MEASURED_DF = 4  # of both arms together; as many as the prior of one is worth
MIN_BORROWED_DF = 1.0  # of an arm without reruns: less is what a contradicted family leaves

NoiseBasis = Literal["measured", "borrowed", "assumed"]


@frozen
class ArmStatistics:
    """One arm in the window: mean loss, first loss of the run, least-squares decline; nats."""

    level: float
    first_loss: float
    decline: float


@frozen(eq=False)
class GapNoise:
    """The gap's interval, and the run-to-run noise of baseline and candidate on which it rests."""

    interval: Interval
    noises: tuple[ArmNoise, ArmNoise]

    @property
    def measured_df(self) -> int:
        """Degrees of freedom of data in the between-run term: of both arms' reruns, or of the
        spread of the seeds' gaps.
        """
        seeds = self.interval.run.seeds
        if seeds > 1:
            return seeds - 1
        return sum(noise.measured_df for noise in self.noises)

    @property
    def borrowed_df(self) -> float:
        """Degrees of freedom that families add to the between-run term; arms that borrow the
        same noise count it once.
        """
        baseline, candidate = self.noises
        if self.interval.run.seeds > 1:
            return min(baseline.borrowed_df, candidate.borrowed_df)
        return baseline.borrowed_df + (
            0.0 if baseline.prior == candidate.prior else candidate.borrowed_df
        )

    @property
    def early_df(self) -> float:
        """Degrees of freedom that early-stopped reruns add to the between-run term; both arms share
        what is not known of their ratio.
        """
        if self.interval.run.seeds > 1:
            return 0.0
        return early_df(sum(noise.early.runs for noise in self.noises if noise.early))

    @property
    def data_df(self) -> float:
        """Degrees of freedom of data in the between-run term, measured or borrowed."""
        return self.measured_df + self.early_df + self.borrowed_df

    @property
    def noise_is_assumed(self) -> bool:
        """Whether the between-run term is mostly assumed: fewer than 4 degrees of freedom of data,
        or an arm without any.
        """
        bare = any(
            not noise.has_reruns and noise.borrowed_df < MIN_BORROWED_DF for noise in self.noises
        )
        return (bare and self.interval.run.seeds == 1) or self.data_df < MIN_MEASURED_DF

    @property
    def noise_basis(self) -> NoiseBasis:
        """What the between-run term rests on: the weakest arm's basis."""
        if self.noise_is_assumed:
            return "assumed"
        bare = self.interval.run.seeds == 1 and any(not noise.has_reruns for noise in self.noises)
        if bare or self.measured_df + self.early_df < MIN_MEASURED_DF:
            return "borrowed"
        return "measured"


@frozen(eq=False)
class WindowStatistics(GapNoise):
    """The window's measurements over `n` common points; losses and gaps in nats, a gap positive
    where the candidate is worse.

    `raw_gap` includes the spikes of both arms, `raw_gap_candidate` those of the candidate alone.
    """

    n: int
    baseline: ArmStatistics
    candidate: ArmStatistics
    spikes: Spikes
    raw_gap: float
    raw_gap_candidate: float
    token_slope: TokenSlope | NoSlope
    margin: Margin | None
    sigma_step: float
    sd_paired: float
    rho1: float
    drift: float
    drift_se: float
    end: RunEnd | None
    sensitivity: tuple[SensitivityDocument, ...]

    @property
    def effective_n(self) -> float:
        """Points after lag-1 correlation: n (1 - rho) / (1 + rho), at most n."""
        rho = min(max(self.rho1, 0.0), 0.9999)
        return self.n * (1.0 - rho) / (1.0 + rho)


@frozen(eq=False)
class PairInWindow:
    """A pair of arms and the part of its aligned steps that is measured, at least one step; losses
    in nats.

    `means` holds the mean curve (n,) of baseline and candidate over all n aligned steps,
    `rounding_step` that of the losses, `shorter` finished runs of the baseline's recipe on fewer
    tokens, `noise_sources` the family's noise of each arm that names a family, `early` what
    early-stopped reruns of each arm show, `slope` how steeply the loss of an unfinished baseline
    falls (`schedule.state`; None: finished). `exact` is set where all runs are equal, one for one:
    by how much rounding can hide a gap, nats.
    """

    aligned: Aligned
    means: tuple[FloatArray, FloatArray]
    part: slice
    arms: Arms
    controls: Controls
    policy: Policy
    rounding_step: float
    shorter: Sequence[Curve] = ()
    noise_sources: NoiseSources = NO_SOURCES
    early: tuple[EarlySpread | None, EarlySpread | None] = (None, None)
    multiplicity: Multiplicity = ONE_LOOK
    slope: float | None = None
    exact: float | None = None

    @property
    def levels(self) -> tuple[float, float]:
        """The confidence of the interval that decides, and that of its error within pairs."""
        return self.multiplicity.levels(self.policy.confidence)

    @property
    def steps(self) -> IntArray:
        """Steps of the part (n,)."""
        return self.aligned.steps[self.part]

    @property
    def baseline(self) -> FloatArray:
        """The baseline's mean loss at the part's steps (n,)."""
        return self.means[0][self.part]

    @property
    def candidate(self) -> FloatArray:
        """The candidate's mean loss at the part's steps (n,)."""
        return self.means[1][self.part]

    @property
    def gap(self) -> FloatArray:
        """Candidate minus baseline at the part's steps (n,)."""
        return self.candidate - self.baseline

    def spikes(self) -> Spikes:
        """The spikes of the part; none below 200 points, of which a spike with what surrounds it
        would take too many (`capped` instead).
        """
        if len(self.steps) >= MANY_POINTS:
            return find_spikes(self.gap, mean(self.baseline), self.rounding_step)
        return no_spikes(self.gap)


@frozen(eq=False)
class WindowGap:
    """The gap's interval over one window, with what it rests on: spikes, the points that count
    (n,), and the run-to-run noise of each arm.
    """

    spikes: Spikes
    keep: BoolArray
    noises: tuple[ArmNoise, ArmNoise]
    interval: Interval


def window_gap(pair: PairInWindow, window: Window) -> WindowGap:
    """The gap's interval over the pair's part, which is that of `window`."""
    spikes, keep, base, cand = _run_means(pair)
    noises, run, gaps = _run_terms(pair, base, cand)

    def changed(shifts: FloatArray) -> RunChange:
        _, left, shifted = _run_terms(pair, base, cand + shifts)
        return mean(shifted) - mean(gaps), left

    runs = run_changes(_own_gaps(pair, base, cand), changed)
    return WindowGap(
        spikes=spikes,
        keep=keep,
        noises=noises,
        interval=_gap_interval(pair, window, spikes.masked_gap, run, runs),
    )


def gap_with_noise(pair: PairInWindow, window: Window, noise: RunTerms) -> Interval:
    """The same interval where the run-to-run noise is known already, as a share of the baseline's
    loss: nothing is estimated or borrowed anew.
    """
    if pair.exact is not None:
        return exact_interval(pair.exact, noise.term)
    spikes, keep, base, cand = _run_means(pair)
    known = noise.at(mean(pair.baseline[keep]))
    gaps = _seed_gaps(pair, base, cand)

    def changed(shifts: FloatArray) -> RunChange:
        return mean(_seed_gaps(pair, base, cand + shifts)) - mean(gaps), known.term

    runs = known.of_changes(run_changes(_own_gaps(pair, base, cand), changed))
    return _gap_interval(pair, window, spikes.masked_gap, known.term, runs)


def _run_means(pair: PairInWindow) -> tuple[Spikes, BoolArray, FloatArray, FloatArray]:
    """The part's spikes, the points (n,) that count, and the mean there of each run of baseline
    (K_A,) and candidate (K_B,).
    """
    spikes = pair.spikes()
    keep = ~spikes.mask if not spikes.mask.all() else np.ones(len(spikes.mask), dtype=bool)
    base, cand = (
        arm[:, pair.part][:, keep].mean(axis=1)
        for arm in (pair.aligned.baseline, pair.aligned.candidate)
    )
    return spikes, keep, base, cand


def _own_gaps(pair: PairInWindow, base: FloatArray, cand: FloatArray) -> FloatArray:
    """The gap (K_B,) of each run of the candidate to the baseline's mean of its seed, of run means
    (K,).
    """
    gaps: FloatArray = cand - np.array(
        [
            _mean_of_seed(base, pair.aligned.baseline_seeds, seed)
            for seed in pair.aligned.candidate_seeds
        ]
    )
    return gaps


def _seed_gaps(pair: PairInWindow, base: FloatArray, cand: FloatArray) -> FloatArray:
    """The gap (S,) of each common seed, of run means (K,)."""
    aligned = pair.aligned
    return np.array(
        [
            _mean_of_seed(cand, aligned.candidate_seeds, seed)
            - _mean_of_seed(base, aligned.baseline_seeds, seed)
            for seed in aligned.seeds
        ]
    )


def _gap_interval(
    pair: PairInWindow,
    window: Window,
    gap: FloatArray,
    run: RunTerm,
    runs: tuple[Sequence[RunChange], Sequence[RunChange]],
) -> Interval:
    """The interval of a gap series (n,) without spikes, with the run-to-run noise and what changes
    of runs leave of it.
    """
    if pair.exact is not None:
        return exact_interval(pair.exact, run)
    plain = interval(mean(gap), _within_se(pair, gap), run)
    if pair.policy.is_paired:
        return robust_interval(gap, plain, _unlogged(pair, window, plain.mean), runs)
    return run_interval(plain, runs)


def _unlogged(pair: PairInWindow, window: Window, gap: float) -> Unlogged:
    """The points of the window that were not logged; `gap` is the mean one of those that were,
    nats.
    """
    baseline, candidate = pair.arms.both_runs
    alone = (
        (lacking_points(baseline, candidate, window).points, -pair.baseline),
        (lacking_points(candidate, baseline, window).points, pair.candidate),
    )
    worse = tuple(
        (points, gap + highest_residual(curve, pair.steps)) for points, curve in alone if points
    )
    return Unlogged(
        points=max(missing_points(pair.steps, window), sum(points for points, _ in worse)),
        worse=worse,
    )


def measure_window(pair: PairInWindow, window: Window) -> WindowStatistics:
    """Measure the pair over its part, which is that of `window`."""
    measured = window_gap(pair, window)
    gap = measured.spikes.masked_gap
    change, change_se = drift(gap, pair.steps)
    baseline, candidate = (_arm_statistics(curve, pair, measured.keep) for curve in pair.means)
    noise = measured.noises[0]
    slope = token_slope(
        pair.policy, pair.shorter, pair.arms.baseline.runs, window, baseline.level, noise.tau
    )
    margin = determine_margin(
        pair.policy, baseline.level, noise, slope if isinstance(slope, TokenSlope) else None
    )
    end = None
    if margin is not None:
        nominal = pair.policy.confidence
        end = measure_end(
            gap,
            measured.interval,
            margin.nats,
            pair.levels,
            nominal,
            baseline.level,
            pair.rounding_step,
        )
    return WindowStatistics(
        n=len(pair.steps),
        baseline=baseline,
        candidate=candidate,
        spikes=measured.spikes,
        interval=measured.interval,
        noises=measured.noises,
        raw_gap=mean(pair.gap),
        raw_gap_candidate=mean(np.maximum(pair.gap, gap)),
        token_slope=slope,
        margin=margin,
        sigma_step=float(np.mean([step_noise(row) for row in pair.aligned.baseline[:, pair.part]])),
        sd_paired=float(gap.std()),
        rho1=lag1(gap),
        drift=change,
        drift_se=change_se,
        end=end,
        sensitivity=_sensitivity(pair, window, measured.interval),
    )


def at_margin(
    statistics: WindowStatistics,
    policy: Policy,
    levels: tuple[float, float],
    rounding_step: float,
) -> WindowStatistics:
    """The statistics under a policy that differs in its margin alone, which is no margin in tokens:
    of what is measured, the end of the window looks at the margin.
    """
    level = statistics.baseline.level
    margin = determine_margin(policy, level, statistics.noises[0])
    end = None
    if margin is not None:
        end = measure_end(
            statistics.spikes.masked_gap,
            statistics.interval,
            margin.nats,
            levels,
            policy.confidence,
            level,
            rounding_step,
        )
    return dataclasses.replace(statistics, margin=margin, end=end)


def _within_se(pair: PairInWindow, gap: FloatArray) -> StandardError:
    """SE_within of the mean gap (n,); arms declared unpaired give the sum of their own detrended
    variances instead.
    """
    if pair.policy.is_paired:
        return mean_se(gap)
    arms = [mean_se(detrended(arm, pair.steps)) for arm in (pair.baseline, pair.candidate)]
    return StandardError(
        value=float(np.hypot(arms[0].value, arms[1].value)), df=min(arm.df for arm in arms)
    )


def _arm_statistics(curve: FloatArray, pair: PairInWindow, keep: BoolArray) -> ArmStatistics:
    in_window = curve[pair.part][keep]
    level, first = mean(in_window), float(curve[0])
    decline = -ols_change(in_window, pair.steps[keep])
    return ArmStatistics(level=level, first_loss=first, decline=decline)


def _run_terms(
    pair: PairInWindow, base_means: FloatArray, cand_means: FloatArray
) -> tuple[tuple[ArmNoise, ArmNoise], RunTerm, FloatArray]:
    """Run-to-run noise of each arm, the between-run part of the gap's variance, and the gap of each
    seed (S,), of run means (K,).
    """
    aligned = pair.aligned
    base_seeds, cand_seeds = aligned.baseline_seeds, aligned.candidate_seeds
    base_of = {seed: _mean_of_seed(base_means, base_seeds, seed) for seed in aligned.seeds}
    gaps = _seed_gaps(pair, base_means, cand_means)
    size = abs(float(np.mean(list(base_of.values()))))
    control_means = (
        pair.controls.offsets + base_of[aligned.seeds[0]] if len(pair.controls.used) else None
    )
    priors = priors_for(pair.arms.both, pair.policy, size, pair.slope)
    if pair.noise_sources != NO_SOURCES:
        spreads = (
            own_spread(base_means, base_seeds, control_means),
            own_spread(cand_means, cand_seeds),
        )
        early = early_spread(pair.early[0], base_means), early_spread(pair.early[1], cand_means)
        measured = OwnRuns(
            squares=(spreads[0][0] + early[0][0], spreads[1][0] + early[1][0]),
            df=(spreads[0][1] + early[0][1], spreads[1][1] + early[1][1]),
            gap_squares=float(np.sum((gaps - mean(gaps)) ** 2)),
            gap_df=len(gaps) - 1,
            gap_runs=(len(base_means) / len(gaps), len(cand_means) / len(gaps)),
        )
        priors = borrow(priors, pair.noise_sources, measured, size)
    noises = (
        arm_noise(priors[0], base_means, base_seeds, control_means, pair.early[0]),
        arm_noise(priors[1], cand_means, cand_seeds, None, pair.early[1]),
    )
    return noises, run_term(*noises) if len(gaps) == 1 else run_term_over_seeds(gaps, *noises), gaps


def _mean_of_seed(means: FloatArray, seeds: tuple[int, ...], seed: int) -> float:
    return mean(
        np.array(
            [run_mean for run_mean, run_seed in zip(means, seeds, strict=True) if run_seed == seed]
        )
    )


def _sensitivity(
    pair: PairInWindow, window: Window, in_window: Interval
) -> tuple[SensitivityDocument, ...]:
    """C3: the interval over the last 10, 20, 30 and 50 % of the plan, with the window's own
    between-run term.
    """
    entries = []
    for fraction in SENSITIVITY_FRACTIONS:
        other = dataclasses.replace(pair, part=window.at(fraction).part(pair.aligned.steps))
        points = other.part.stop - other.part.start
        if fraction == window.fraction and window.decay_from is None:
            of_fraction = in_window
        elif points < MIN_SENSITIVITY_POINTS:
            continue
        else:
            gap = other.spikes().masked_gap
            of_fraction = interval(mean(gap), _within_se(other, gap), in_window.run)
            of_fraction = dataclasses.replace(of_fraction, rounding=in_window.rounding)
        lo, hi = of_fraction.bounds(*pair.levels)
        entries.append(
            SensitivityDocument(fraction=fraction, n=points, mean=of_fraction.mean, lo=lo, hi=hi)
        )
    return tuple(entries)
