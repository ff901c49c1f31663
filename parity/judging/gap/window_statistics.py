"""What the late window says: level, gap with its interval, noises, drift, the last steps, and each
run of the candidate alone.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from parity.judging import special
from parity.judging.curves.alignment import Aligned, align
from parity.judging.curves.arms import Arms, Controls
from parity.judging.curves.curve import BoolArray, Curve, FloatArray, IntArray, mean
from parity.judging.curves.early_stop_noise import EarlySpread, early_df
from parity.judging.curves.lacking import highest_residual, lacking_points
from parity.judging.curves.spikes import NEGLIGIBLE, Spikes, find_spikes, no_spikes
from parity.judging.curves.step_noise import MANY_POINTS, StandardError, lag1, mean_se, step_noise
from parity.judging.curves.window import SENSITIVITY_FRACTIONS, Window, detrended, drift, ols_change
from parity.judging.document_types import SensitivityDocument
from parity.judging.gap.interval import (
    NO_CHANGES,
    NOTHING_UNLOGGED,
    Interval,
    Margin,
    NoSlope,
    RunChange,
    RunNoise,
    TokenSlope,
    Unlogged,
    capped_interval,
    determine_margin,
    exact_interval,
    interval,
    missing_points,
    run_changes,
    run_interval,
    t_quantile,
    token_slope,
)
from parity.judging.noise.run_floor import (
    NO_LENDERS,
    Lending,
    OwnRuns,
    RunFloor,
    RunTerm,
    borrow,
    early_spread,
    own_spread,
    priors_for,
    run_floor,
    run_term,
    run_term_over_seeds,
)
from parity.judging.policy import ONE_LOOK, POINTS_TO_FAIL, Multiplicity, Policy
from parity.structure import frozen

# The end of the run, judged on its own: what the last steps say is what the model is when training
# stops.
#
# tails      the last 1, 2, 4, ... points of the window, up to a quarter of it (below 200 points up
#            to 8)
# rise_k     mean gap of the last k points minus the mean gap of the window's first three quarters
# limit_k    false alarms of all m tails and both directions together: 1 %
#            from 200 points on   t(df, 1 - 0.01 / (2 m)) sqrt(Omega / k), Omega = n SE^2 of the
#                                 three quarters without their spikes
#            below                t(n0 - 1, 1 - 0.01 / (2 m)) s sqrt(1/k + 1/n0), s the standard
#                                 deviation of the n0 points before;
#                                 and the same with these points capped at their upper order
#                                 statistics: one that shows the rise is enough
# differs    rise_k > limit_k for some k, and with the run-to-run noise the tail's gap reaches the
#            margin: e_k + h > M; or -rise_k >
# max(limit_k,
#   M);
#            or the mean gap of the last tenth or twentieth (at least 16 points of 200) is M or
#            more, though the window's interval is
#   below
# above      lo* of the mean gap of the last quarter or the last half is above the margin (`capped`)
#
# A spike returns; what has not returned when the run ends can't be told from a divergence, so it is
# never masked and blocks a pass. Measured over 9,042 windows that end anywhere in the last 40 % of
# honest pairs (7 public reruns of a 124 M model, two runs of a 15 B model, 8 emulated runs): rise /
# noise exceeds 4 in 0.4 % of them; the limit is 4.2 for 350 points. Can fail: a tail whose gap
# stays below the margin is seen by the window's interval only.

FALSE_ALARMS = 0.01
LATE_PARTS = (4, 2)  # of the window: the last quarter and the last half
HIGH_POINTS = 16  # fewer say nothing on average without their noise
# quarters of the points below any cap: lower ones take away the noise itself
MAX_CAPS, CAPPED_FROM = 20, 3


@frozen
class RunEnd:
    """The tail of the run that stands out most: its `points`, mean `gap`, `rise` from before it,
    the rise's `limit`; nats.

    `differs` says whether it could carry the gap across the margin, `above` whether the run surely
    ends above it.
    """

    points: int
    gap: float
    rise: float
    limit: float
    differs: bool
    above: bool


@frozen(eq=False)
class _Tails:
    """Tails of `lengths` (m,) points: their `means`, and their `rises` from what comes before them
    with the `limits` that noise sets.
    """

    lengths: IntArray
    means: FloatArray
    rises: FloatArray
    limits: FloatArray


def measure_end(
    gap: FloatArray,
    whole: Interval,
    margin: float,
    levels: tuple[float, float],
    nominal: float,
    level: float,
    quantum: float,
) -> RunEnd | None:
    """The end of the window's gap series without spikes (n,), nats; None for fewer than 8 points.

    `whole` is the window's interval, `level` the baseline's loss there, `quantum` the step to which
    losses are rounded. `levels` are the confidence of the interval that decides and that of its
    error within pairs, `nominal` the policy's own, at which an end is above the margin: further
    looks and candidates make no fail harder.
    """
    n = len(gap)
    if n < POINTS_TO_FAIL:
        return None
    run_half = t_quantile(levels[0], whole.run.df) * whole.run.variance**0.5
    every = [_of_many(gap, level, quantum)] if n >= MANY_POINTS else _of_few(gap, level, quantum)
    rising = [(tails.means + run_half > margin) & (tails.rises > tails.limits) for tails in every]
    falling = -every[-1].rises > np.maximum(every[-1].limits, margin)
    reaches = [
        up | falling if tails is every[-1] else up for tails, up in zip(every, rising, strict=True)
    ]
    shown, reached = next(
        ((tails, hit) for tails, hit in zip(every, reaches, strict=True) if hit.any()),
        (every[-1], reaches[-1]),
    )
    size = np.abs(shown.rises) - shown.limits
    most = int(
        np.argmax(
            np.where(reached, np.abs(shown.rises), -np.inf)
            if reached.any()
            else size / np.maximum(shown.limits, 1e-300)
        )
    )
    above = late_part_above(gap, whole, margin, (nominal, nominal))
    ends_high = whole.bounds(*levels)[1] < margin and _ends_high(gap, margin)
    return RunEnd(
        points=int(shown.lengths[most]),
        gap=float(shown.means[most]),
        rise=float(shown.rises[most]),
        limit=float(shown.limits[most]),
        differs=bool(reached.any()) or ends_high,
        above=above,
    )


def _of_many(gap: FloatArray, level: float, quantum: float) -> _Tails:
    """The tails of a series (n,) of 200 points or more, whose long-run variance is known."""
    centre, omega, df = _before(gap[: len(gap) - len(gap) // LATE_PARTS[0]], level, quantum)
    lengths = 2 ** np.arange(int(math.log2(len(gap) // LATE_PARTS[0])) + 1)
    z = float(special.stdtrit(df, 1.0 - FALSE_ALARMS / (2.0 * len(lengths))))
    means = _tail_means(gap, lengths)
    limits = np.maximum(z * np.sqrt(omega / lengths), NEGLIGIBLE * abs(level))
    return _Tails(lengths=lengths, means=means, rises=means - centre, limits=limits)


def _of_few(gap: FloatArray, level: float, quantum: float) -> list[_Tails]:
    """The tails of a series (n,) of fewer points against its first three quarters, with these
    capped in several ways, the last as they are.

    A candidate that is worse somewhere before its end must not widen the noise by which the end is
    judged.
    """
    n = len(gap)
    before = gap[: n - n // LATE_PARTS[0]]
    lengths = np.array([k for k in (1, 2, 4, 8) if k <= n // LATE_PARTS[0]])
    t = float(special.stdtrit(len(before) - 1, 1.0 - FALSE_ALARMS / (2.0 * len(lengths))))
    means = _tail_means(gap, lengths)
    caps = np.sort(before)[CAPPED_FROM * len(before) // 4 :]
    caps = caps[:: 1 + len(caps) // MAX_CAPS]
    tails = []
    for capped in (*np.minimum(before, caps[:, None]), before):
        sd = math.sqrt(float(capped.var(ddof=1)) + quantum**2 / 6.0)
        limits = np.maximum(
            t * sd * np.sqrt(1.0 / lengths + 1.0 / len(before)), NEGLIGIBLE * abs(level)
        )
        tails.append(
            _Tails(lengths=lengths, means=means, rises=means - mean(capped), limits=limits)
        )
    return tails


def _tail_means(gap: FloatArray, lengths: IntArray) -> FloatArray:
    return np.cumsum(gap[: -int(lengths[-1]) - 1 : -1])[lengths - 1] / lengths


def _ends_high(gap: FloatArray, margin: float) -> bool:
    """Whether the last tenth or twentieth, at least 16 points, is on average at the margin: no
    noise limit, so that a slow swing counts.
    """
    return any(
        mean(gap[-max(HIGH_POINTS, len(gap) // parts) :]) >= margin
        for parts in (10, 20)
        if len(gap) >= MANY_POINTS
    )


def late_part_above(
    gap: FloatArray, whole: Interval, margin: float, levels: tuple[float, float]
) -> bool:
    """Whether the last quarter or half of a gap series (n,) surely lies above the margin; see
    `measure_end` for the other values.
    """
    return any(
        _is_above(gap[len(gap) - len(gap) // parts :], whole, margin, levels)
        for parts in LATE_PARTS
    )


def _is_above(
    late: FloatArray, whole: Interval, margin: float, levels: tuple[float, float]
) -> bool:
    """Whether the mean of the late points lies above the margin, whatever a few of them do."""
    if len(late) < POINTS_TO_FAIL or mean(late) <= margin:  # no lower end is above the mean
        return False
    plain = interval(mean(late), mean_se(late), whole.run)
    return capped_interval(late, plain, NOTHING_UNLOGGED, ((), ())).bounds(*levels)[0] > margin


def _before(gap: FloatArray, level: float, quantum: float) -> tuple[float, float, float]:
    """Mean of the gap before the end, its long-run variance Omega, and the degrees of freedom that
    this is known with.
    """
    quiet = find_spikes(gap, level, quantum, part_of_run=True).masked_gap
    error = mean_se(quiet)
    return mean(quiet), error.value**2 * len(quiet) + quantum**2 / 6.0, error.df


# What the points of the late window say: level, gap with its interval, noises, decline, drift and
# sensitivity.
#
# The gap is the mean over runs (of a seed, then over seeds) of candidate minus baseline at common
# steps. Masked steps (`spikes`) count neither for the level nor for the runs' means, and are
# interpolated in the gap series.

MIN_SENSITIVITY_POINTS = POINTS_TO_FAIL
MIN_MEASURED_DF = 4  # of both arms' floors together; as many as the prior of one is worth
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
    floors: tuple[RunFloor, RunFloor]

    @property
    def measured_df(self) -> int:
        """Degrees of freedom of data in the between-run term: of both arms' reruns, or of the
        spread of the seeds' gaps.
        """
        seeds = self.interval.run.seeds
        if seeds > 1:
            return seeds - 1
        return sum(floor.measured_df for floor in self.floors)

    @property
    def borrowed_df(self) -> float:
        """Degrees of freedom that families add to the between-run term; arms that share one loan
        count it once.
        """
        baseline, candidate = self.floors
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
        return early_df(sum(floor.early.runs for floor in self.floors if floor.early))

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
            not floor.has_reruns and floor.borrowed_df < MIN_BORROWED_DF for floor in self.floors
        )
        return (bare and self.interval.run.seeds == 1) or self.data_df < MIN_MEASURED_DF

    @property
    def noise_basis(self) -> NoiseBasis:
        """What the between-run term rests on: the weakest arm's basis."""
        if self.noise_is_assumed:
            return "assumed"
        bare = self.interval.run.seeds == 1 and any(not floor.has_reruns for floor in self.floors)
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

    `means` holds the mean curve (n,) of baseline and candidate over all n aligned steps, `quantum`
    the step to which losses are rounded, `shorter` finished runs of the baseline's recipe on fewer
    tokens, `lending` the family's floor of each arm that names a family, `early` what early-stopped
    reruns of each arm show, `slope` how steeply the loss of an unfinished baseline falls
    (`schedule.state`; None: finished). `exact` is set where all runs are equal, one for one: by how
    much rounding can hide a gap, nats.
    """

    aligned: Aligned
    means: tuple[FloatArray, FloatArray]
    part: slice
    arms: Arms
    controls: Controls
    policy: Policy
    quantum: float
    shorter: Sequence[Curve] = ()
    lending: Lending = NO_LENDERS
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
            return find_spikes(self.gap, mean(self.baseline), self.quantum)
        return no_spikes(self.gap)


@frozen(eq=False)
class WindowGap:
    """The gap's interval over one window, with what it rests on: spikes, the points that count
    (n,), and the run-to-run noise of each arm.
    """

    spikes: Spikes
    keep: BoolArray
    floors: tuple[RunFloor, RunFloor]
    interval: Interval


def window_gap(pair: PairInWindow, window: Window) -> WindowGap:
    """The gap's interval over the pair's part, which is that of `window`."""
    spikes, keep, base, cand = _run_means(pair)
    floors, run, gaps = _between_runs(pair, base, cand)

    def changed(shifts: FloatArray) -> RunChange:
        _, left, shifted = _between_runs(pair, base, cand + shifts)
        return mean(shifted) - mean(gaps), left

    runs = run_changes(_own_gaps(pair, base, cand), changed)
    return WindowGap(
        spikes=spikes,
        keep=keep,
        floors=floors,
        interval=_gap_interval(pair, window, spikes.masked_gap, run, runs),
    )


def gap_with_noise(pair: PairInWindow, window: Window, noise: RunNoise) -> Interval:
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
    own: FloatArray = cand - np.array(
        [
            _mean_of_seed(base, pair.aligned.baseline_seeds, seed)
            for seed in pair.aligned.candidate_seeds
        ]
    )
    return own


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
        return capped_interval(gap, plain, _unlogged(pair, window, plain.mean), runs)
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
    floor = measured.floors[0]
    slope = token_slope(
        pair.policy, pair.shorter, pair.arms.baseline.runs, window, baseline.level, floor.tau
    )
    margin = determine_margin(
        pair.policy, baseline.level, floor, slope if isinstance(slope, TokenSlope) else None
    )
    end = None
    if margin is not None:
        nominal = pair.policy.confidence
        end = measure_end(
            gap, measured.interval, margin.nats, pair.levels, nominal, baseline.level, pair.quantum
        )
    return WindowStatistics(
        n=len(pair.steps),
        baseline=baseline,
        candidate=candidate,
        spikes=measured.spikes,
        interval=measured.interval,
        floors=measured.floors,
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


def _between_runs(
    pair: PairInWindow, base_means: FloatArray, cand_means: FloatArray
) -> tuple[tuple[RunFloor, RunFloor], RunTerm, FloatArray]:
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
    if pair.lending != NO_LENDERS:
        spreads = (
            own_spread(base_means, base_seeds, control_means),
            own_spread(cand_means, cand_seeds),
        )
        early = early_spread(pair.early[0], base_means), early_spread(pair.early[1], cand_means)
        own = OwnRuns(
            squares=(spreads[0][0] + early[0][0], spreads[1][0] + early[1][0]),
            df=(spreads[0][1] + early[0][1], spreads[1][1] + early[1][1]),
            gap_squares=float(np.sum((gaps - mean(gaps)) ** 2)),
            gap_df=len(gaps) - 1,
            gap_runs=(len(base_means) / len(gaps), len(cand_means) / len(gaps)),
        )
        priors = borrow(priors, pair.lending, own, size)
    floors = (
        run_floor(priors[0], base_means, base_seeds, control_means, pair.early[0]),
        run_floor(priors[1], cand_means, cand_seeds, None, pair.early[1]),
    )
    return floors, run_term(*floors) if len(gaps) == 1 else run_term_over_seeds(gaps, *floors), gaps


def _mean_of_seed(means: FloatArray, seeds: tuple[int, ...], seed: int) -> float:
    return mean(np.array([each for each, own in zip(means, seeds, strict=True) if own == seed]))


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


# Does one run of the candidate alone end above the margin? Other runs of the arm must not average
# it away, nor must it be left out.
#
# d        the run's losses minus those of its own pair: the baseline's run of its seed (their mean,
#          where it has several), nats
# half     hypot(t tau0 hypot(r_A, r_B), t SE_within(d)): what one run and its pair differ by
#          chance; tau0 is the prior of `run_floor`,
#   never
#          what the candidate's runs show, which a broken one would widen; r = 1.5 where an arm
#          rounds stochastically
# above    lo* of the mean of d (`capped`) is above the margin, over the window or, from 16 points
#          on, over its last half
#
# A run without a pair is compared with the baseline's mean, and read other batches: the noise of
# both is then in d, and in its error, once the trend is taken away. Every given run counts here,
# also one of a seed that the baseline lacks, and one that depends on another run. Measured on three
# seeds of a byte-level trainer, AA7 and AA38: no honest run is above; one of three at two margins
# is found in 88 % to 100 % with its pair, and in 15 % to 52 % of 200 points without. Can fail: a
# prior that is too small for the recipe.

LAST_HALF_FROM = 16  # points of the window


@frozen
class RunGap:
    """The candidate's run that is furthest above its pair, and the most that one run may be;
    nats.
    """

    label: str
    gap: float
    limit: float

    @property
    def is_above(self) -> bool:
        """Whether the run alone is above the margin by more than noise."""
        return self.gap > self.limit


def worst_run(
    arms: Arms, window: Window, policy: Policy, slope: float | None, level: float, margin: float
) -> RunGap | None:
    """The worst of all given runs of the candidate; None for a single run, which the interval
    judges.

    `slope` is that of an unfinished run (`schedule.state`), `level` the baseline's loss in the
    window, `margin` the deciding one in nats.
    """
    given = arms.candidate.given
    if len(given) < 2:
        return None
    floors = priors_for(arms.both, policy, level, slope)
    term = RunTerm(
        variance=floors[0].tau ** 2 + floors[1].tau ** 2, df=policy.run_noise_df, seeds=1
    )
    gaps = []
    for number, run in enumerate(given, 1):
        for part in _parts(run, arms.baseline.runs, window, paired=policy.is_paired):
            plain = interval(mean(part), mean_se(part), term)
            lo = capped_interval(part, plain, NOTHING_UNLOGGED, NO_CHANGES).bounds(
                policy.confidence
            )[0]
            gaps.append((lo, plain.mean, run.label or f"run {number}"))
    if not gaps:
        return None
    lo, gap, label = max(gaps)
    return RunGap(label=label, gap=gap, limit=margin + gap - lo)


def _parts(
    run: Curve, baseline: Sequence[Curve], window: Window, *, paired: bool
) -> list[FloatArray]:
    """The run's gap to its pair over the window and over its last half; none without a common point
    there.
    """
    pair = [other for other in baseline if other.seed == run.seed] if paired else []
    both = align(pair or baseline, [run], window.last)
    part = window.part(both.steps)
    gap: FloatArray = both.candidate[0, part] - both.baseline[:, part].mean(axis=0)
    if not len(gap):
        return []
    parts = [(gap, both.steps[part])]
    if len(gap) >= LAST_HALF_FROM:
        half = len(gap) // 2
        parts.append((gap[half:], both.steps[part][half:]))
    return [own if pair else detrended(own, steps) for own, steps in parts]
