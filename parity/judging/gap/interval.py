"""How large is the gap, how sure are we, and which margin decides: the interval of the window's
mean gap, and nats per e-fold of tokens.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import lru_cache

import numpy as np

from parity.judging import special
from parity.judging.curves.curve import (
    Curve,
    FloatArray,
    IntArray,
    completeness_of,
    dot,
    mean,
    row_means,
    usable,
)
from parity.judging.curves.schedule import constant_rate, not_at_end, recorded_rates
from parity.judging.curves.step_noise import (
    MANY_POINTS,
    StandardError,
    block_average,
    mean_se,
    mean_ses,
)
from parity.judging.curves.window import Window, make_window
from parity.judging.noise.run_floor import RunFloor, RunTerm
from parity.judging.policy import NOISE_FLOOR, NOISE_FLOOR_DF, PROFILES, Amount, Policy
from parity.structure import frozen
from parity.wording import percent

# How much is a gap worth in tokens? S: the nats that finished runs gain per e-fold of their tokens,
# at the baseline's length.
#
# a gap of g nats costs x more tokens:  g = S ln(1 + x), x = exp(g / S) - 1
# stated         the policy's own S
# shorter run    a finished run of the baseline's recipe with N1 of its N tokens, late loss L1 (the
#                baseline's: L2), r = N / N1, q = 0.5:
#                S = (L1 - L2) q / (r^q - 1), for 0.25 <= N1/N <= 0.5. q is what the loss that is
#                left is taken to fall by: L = E + A N^-q
# constant rate  S = q A of that law, fitted to the last half of the baseline's loss: each of its
#                points is a shorter run. As of the last
#   step
# error of S     from run-to-run noise: sqrt(2) tau q / (r^q - 1), r = 2 within one run, and of the
#                fit; above 25 % of S nothing is said
#
# Never within one schedule that decays: most of what its loss falls is the decay, and S would be
# wrong by -39 to +206 %. Measured on a law of cosine, decay phase and constant rate S is 3 to 8 %
# too small, so a margin in tokens too strict; q left out makes it 6 to 38 % too large. Can fail: a
# law of another power; a shorter run whose loss is too high for another reason (1 % too high: S of
# 0.1 becomes 0.12 at N1 = N/2).

POWER = 0.5
LEAST_SHARE, LARGEST_SHARE = 0.25, 0.5  # of the baseline's steps: what a shorter run may have
MAX_ERROR = 0.25  # of S
MIN_POINTS = 6


@frozen
class TokenSlope:
    """S in nats per e-fold of tokens with its standard error, and what it was taken from, in
    words.
    """

    nats: float
    error: float
    basis: str

    def tokens(self, gap: float) -> float:
        """The share of further tokens that a gap costs (nats): 0.05 is 5 % more, below 0 where the
        candidate saves some.
        """
        return math.expm1(min(gap / self.nats, 700.0))


@frozen
class NoSlope:
    """Why no slope is known: part of a sentence."""

    why: str


def token_slope(
    policy: Policy,
    shorter: Sequence[Curve],
    baseline: Sequence[Curve],
    window: Window,
    level: float,
    tau: float,
) -> TokenSlope | NoSlope:
    """S at the end of `window`, where the baseline's loss is `level` nats and its run-to-run noise
    `tau`.
    """
    stated = policy.margin.slope if policy.margin else None
    if stated is not None:
        return TokenSlope(nats=stated, error=0.0, basis="stated by the policy")
    if shorter:
        slope = _of_shorter(shorter, window, level, tau)
    else:
        slope = _at_constant_rate(baseline, window, tau)
    if isinstance(slope, TokenSlope) and not slope.error <= MAX_ERROR * slope.nats:
        error = f"{slope.nats:.3g} nats per e-fold with an error of {slope.error:.2g}"
        return NoSlope(
            why=f"{slope.basis} gives {error}; expected at most {percent(MAX_ERROR)} of it"
        )
    return slope


def _of_shorter(
    runs: Sequence[Curve], window: Window, level: float, tau: float
) -> TokenSlope | NoSlope:
    lengths = [int(run.steps[-1]) - window.origin + 1 if len(run.steps) else 0 for run in runs]
    if min(lengths) != max(lengths):
        return NoSlope(
            why=f"the shorter baseline runs have {min(lengths):,} to {max(lengths):,} steps; "
            "expected equal lengths"
        )
    share = lengths[0] / (window.last - window.origin + 1)
    if not LEAST_SHARE <= share <= LARGEST_SHARE:
        return NoSlope(
            why=f"the shorter baseline run has {percent(share)} of the baseline's steps; expected "
            "25 to 50 %"
        )
    unfinished = _unfinished(runs)
    if unfinished is not None:
        return NoSlope(why=f"the shorter baseline run did not finish its schedule: {unfinished}")
    own = make_window(lengths[0], window.origin, window.fraction, "declared")
    late = [run.loss[own.part(run.steps)] for run in runs]
    late = [loss[usable(loss)] for loss in late]
    if min(len(loss) for loss in late) < MIN_POINTS:
        return NoSlope(
            why=f"the shorter baseline run has fewer than {MIN_POINTS} points in its late window"
        )
    fall = float(np.mean([loss.mean() for loss in late])) - level
    if fall <= 0.0:
        return NoSlope(why=f"the shorter baseline run ends {-fall:.3g} nats below the baseline")
    factor = POWER / (share**-POWER - 1.0)
    error = factor * tau * math.sqrt(1.0 + 1.0 / len(runs))
    return TokenSlope(
        nats=factor * fall,
        error=error,
        basis=f"a finished baseline run of {percent(share)} of the steps",
    )


def _unfinished(runs: Sequence[Curve]) -> str | None:
    """Why shorter runs are not known to have finished; what the policy states of the schedule is
    said of the compared runs alone.
    """
    if any(recorded_rates(run) is None for run in runs):
        return "no learning rate of it is on record that had decayed"
    return not_at_end(runs)


def _at_constant_rate(runs: Sequence[Curve], window: Window, tau: float) -> TokenSlope | NoSlope:
    if not constant_rate(runs):
        return NoSlope(
            why="it needs a shorter finished run of the baseline, a stated slope, or a learning "
            "rate on record that is constant"
        )
    fits = [
        _fit(run.steps - window.origin + 1, run.loss, window.last - window.origin + 1)
        for run in runs
    ]
    if any(fit is None for fit in fits):
        return NoSlope(why=f"the baseline has fewer than {MIN_POINTS} points in its last half")
    slopes, errors = np.array(fits, dtype=np.float64).T
    run_error = math.sqrt(2.0) * tau * POWER / (2.0**POWER - 1.0)
    error = math.hypot(float(np.linalg.norm(errors)) / len(runs), run_error / math.sqrt(len(runs)))
    return TokenSlope(
        nats=float(slopes.mean()),
        error=error,
        basis="the last half of the baseline, whose learning rate is constant",
    )


def _fit(steps: IntArray, loss: FloatArray, last: int) -> tuple[float, float] | None:
    """S of (n,) losses at (n,) steps counted from 1, and the standard error of the fit; None for
    too few points.
    """
    late = (steps > last // 2) & (steps <= last) & usable(loss)
    if int(late.sum()) < MIN_POINTS:
        return None
    u = (steps[late] / last) ** -POWER
    u -= u.mean()
    power = dot(u, u)
    centred = loss[late] - loss[late].mean()
    slope = dot(u, centred) / power
    score = mean_se(u * (centred - slope * u))
    return POWER * slope, POWER * score.value * len(u) / power


# Which margin decides: the smallest in nats of those the policy states, at the baseline's level in
# the window.
#
# tokens: S ln(1 + x), with the slope S that the policy states or that `token_slope` found
# noise-floor: 3 sqrt(2) tau of the baseline, from reruns with at least 3 degrees of freedom; an
# assumed tau can't be a yardstick, nor one that a single run sets which lies apart from the others
# (`run_floor.one_apart`): a broken baseline must not widen the margin.

NOISE_FLOOR_MULTIPLE = 3.0 * math.sqrt(2.0)


@frozen
class Margin:
    """The largest acceptable gap: nats, share of the baseline's loss, what set it, and the share of
    further tokens that it is worth.

    `tokens` is None where no slope is known.
    """

    nats: float
    rel: float
    source: str
    tokens: float | None = None


def determine_margin(
    policy: Policy, level: float, baseline_floor: RunFloor, slope: TokenSlope | None = None
) -> Margin | None:
    """The deciding margin where the baseline's loss is `level` nats; None for an unmeasured noise
    floor, or tokens without slope.
    """
    if level == 0.0:
        return None
    stated = [(_nats(amount, level, slope), source) for amount, source in stated_margins(policy)]
    if any(math.isnan(nats) for nats, _ in stated):
        return None
    if policy.profile == NOISE_FLOOR:
        if (
            baseline_floor.measured is None
            or baseline_floor.measured_df < NOISE_FLOOR_DF
            or baseline_floor.one_apart
        ):
            return None
        stated.append(
            (
                NOISE_FLOOR_MULTIPLE * baseline_floor.measured,
                f"profile {NOISE_FLOOR}: 3 sqrt(2) x the baseline's run-to-run noise",
            )
        )
    nats, source = min(stated)
    return Margin(
        nats=nats,
        rel=nats / level,
        source=source,
        tokens=None if slope is None else slope.tokens(nats),
    )


def stated_margins(policy: Policy) -> list[tuple[Amount, str]]:
    """The margins that the policy states as amounts, each with its source; a noise floor is not one
    of them.
    """
    stated = [] if policy.margin is None else [(policy.margin, str(policy.margin))]
    amount = PROFILES[policy.profile] if policy.profile is not None else None
    if amount is None:
        return stated
    return [*stated, (amount, f"profile {policy.profile}: {amount}")]


def _nats(amount: Amount, level: float, slope: TokenSlope | None) -> float:
    """The amount in nats at a loss of `level` nats; NaN for tokens whose slope is neither stated
    nor known.
    """
    if amount.unit == "tokens" and amount.slope is None:
        amount = dataclasses.replace(amount, slope=math.nan if slope is None else slope.nats)
    return amount.nats(level)


# How large is the gap, and how sure are we? The interval of the window's mean gap.
#
# gap = mean over the window of d_t = L_candidate(t) - L_baseline(t), nats, positive = candidate
# worse half-width = hypot(t(df_run) SE_run, t(df_within) SE_within) lo* = max over the series made
# better of its lo, hi* = min over the series made worse of its hi (`capped`) P(true gap < m) = (1 +
# sign(m - gap) c) / 2, c solved from |m - gap| = half-width(c): of one look, where every gap is
# equally likely beforehand; above 0.975 exactly where the 95 % interval ends below m
#
# Satterthwaite's joint degrees of freedom would be narrower by a few percent, but below 4 of them
# their quantile falls faster than SE grows, so that more noise within the pair narrows the
# interval. A 95 % two-sided interval is two one-sided tests at 2.5 % each. Can fail: everything
# that makes SE_run wrong (`run_floor`); an interval without that term is not a test of a recipe.
# Source: Schuirmann 1987.

MOST_CERTAIN, HALVINGS = 0.9998, 30  # a chance nearer to 0 or 1 rests on tails that nobody measured


@frozen(eq=False)
class Side:
    """What one end of an interval may rest on: the series as it is (first), and made better (or
    worse) in several ways.

    `means`, `errors` and `dfs` (m,) are those of the changed gap series, `shifts` and `run_terms`
    (r,) those of changed runs; nats.
    """

    means: FloatArray
    errors: FloatArray
    dfs: FloatArray
    shifts: tuple[float, ...]
    run_terms: tuple[RunTerm, ...]

    def ends(self, confidence: float, within_confidence: float, sign: float) -> FloatArray:
        """The end of the interval (r * m,) with each change of runs and of the series: the lower
        one for sign -1, else the upper.
        """
        within = t_quantiles(within_confidence, self.dfs) * self.errors
        run = [
            t_quantile(confidence, term.df) * math.sqrt(term.variance) for term in self.run_terms
        ]
        return np.concatenate(
            [
                self.means + shift + sign * np.hypot(half, within)
                for shift, half in zip(self.shifts, run, strict=True)
            ]
        )


@frozen
class Interval:
    """A mean gap in nats with its standard error, joint degrees of freedom and the two parts of the
    error; `sides` are of lo*, hi*.

    `rounding` is by how much printed digits can move the gap, where a few values decide.
    """

    mean: float
    se: float
    df: float
    within: StandardError
    run: RunTerm
    sides: tuple[Side | None, Side | None] = field(default=(None, None), compare=False, repr=False)
    rounding: float = 0.0

    def half_width(self, confidence: float, within_confidence: float | None = None) -> float:
        """Half the two-sided interval at `confidence` (0 to 1) of the series as it is, nats; the
        error within pairs may have another.
        """
        run, within = math.sqrt(self.run.variance), self.within.value
        other = confidence if within_confidence is None else within_confidence
        return (
            math.hypot(
                t_quantile(confidence, self.run.df) * run,
                t_quantile(other, self.within.df) * within,
            )
            + self.rounding
        )

    def chance_below(self, gap: float) -> float:
        """Probability that the true gap is below `gap` nats, 0.0001 to 0.9999, where every gap is
        equally likely beforehand.
        """
        distance = abs(gap - self.mean)
        low, high = 0.0, MOST_CERTAIN
        for _ in range(HALVINGS if self.half_width(high) > distance else 0):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.half_width(middle) <= distance else (low, middle)
        return 0.5 * (1.0 + math.copysign(high, gap - self.mean))

    def bounds(
        self, confidence: float, within_confidence: float | None = None
    ) -> tuple[float, float]:
        """Lower and upper end of the two-sided interval, nats; its error within pairs may have
        another confidence.
        """
        half = self.half_width(confidence, within_confidence)
        other = confidence if within_confidence is None else within_confidence
        better, worse = self.sides
        if better is None:
            lo = self.mean - half
        else:
            lo = float(better.ends(confidence, other, -1.0).max()) - self.rounding
        if worse is None:
            hi = self.mean + half
        else:
            hi = float(worse.ends(confidence, other, 1.0).min()) + self.rounding
        return lo, hi


@lru_cache(maxsize=4096)
def t_quantile(confidence: float, df: float) -> float:
    """The t value that a two-sided interval at `confidence` reaches to."""
    return float(special.stdtrit(df, 0.5 + confidence / 2.0))


def t_quantiles(confidence: float, df: FloatArray) -> FloatArray:
    """`t_quantile` of each of (m,) degrees of freedom."""
    return np.array([t_quantile(confidence, float(own)) for own in df])


def interval(
    mean: float,
    within: StandardError,
    run: RunTerm,
    sides: tuple[Side | None, Side | None] = (None, None),
) -> Interval:
    """Combine the within-pair error and the between-run term into one interval."""
    v_within, v_run = within.value**2, run.variance
    total = v_within + v_run
    if total == 0.0:
        return Interval(mean=mean, se=0.0, df=run.df, within=within, run=run, sides=sides)
    # As shares of the total, whose squares can't underflow.
    df = 1.0 / ((v_run / total) ** 2 / run.df + (v_within / total) ** 2 / within.df)
    return Interval(mean=mean, se=math.sqrt(total), df=df, within=within, run=run, sides=sides)


def exact_interval(rounding: float, run: RunTerm) -> Interval:
    """The gap of runs that are equal one for one: zero, within what rounding hides (nats); no
    run-to-run noise counts, for none was drawn.
    """
    return Interval(
        mean=0.0,
        se=0.0,
        df=run.df,
        within=StandardError(value=0.0, df=run.df),
        run=dataclasses.replace(run, variance=0.0),
        rounding=rounding,
    )


# The two ends of the interval, so that no few points and no single run undo what all others show.
#
# lo* = max over k of lo(d made better in way k), hi* = min over k of hi(d made worse in way k)
#
# caps min(d, c) at every order statistic c of d (above 60 points at every (1 + n // 60)-th, from
# 200 points on at 20 of them) levels at splits of 1/8 to 7/8 of the points the higher part is
# lowered to the other's mean runs a candidate's run whose gap is above c is shifted down to c, for
# each gap c of a run missing each point of the grid that is not logged counts as the smallest
# logged gap for lo, as the largest for hi hi* is the mirror image. Without them one point of 5
# nats, a ramp or one broken run of three widens the error so far that a fail is undone.
#
# Below 30 points a series made better counts for lo* only where run-to-run noise leads its
# half-width: correlated gaps would fail by it too often (11 to 16 % at a lag-1 correlation of 0.8;
# with run-to-run noise in the lead at most 1.1 %). Long series are averaged in blocks first.

ALL_CAPS, CAPS_OF_MANY, SPLITS = 60, 20, 8
# of a longer series: caps and levels move whole stretches, which means of blocks show as well
BLOCKS = 512
FEW_POINTS = 30  # coverage: benchmarks/calibration.py P1, R1
MAX_RUN_CAPS = 20
NOMINAL = 0.95  # at which the two parts of the half-width are compared

# the shift of the mean gap, nats, and the between-run term that is left
RunChange = tuple[float, RunTerm]
NO_CHANGES: tuple[tuple[()], tuple[()]] = ((), ())
# standard errors and df (b,) of the means of (b, n) values
RowErrors = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


def missing_points(steps: IntArray, window: Window) -> int:
    """How many points of the logging grid the window lacks, of (n,) common steps in it, its
    unlogged ends included.
    """
    stride = completeness_of(steps).stride
    if stride is None:
        return 0
    inside = (int(steps[-1]) - int(steps[0])) // stride + 1 - len(steps)
    return (
        max(inside, 0)
        + max(int(steps[0]) - window.first, 0) // stride
        + max(window.last - int(steps[-1]), 0) // stride
    )


@frozen
class Unlogged:
    """Points of the window that were not logged: how many of the common grid, and `worse`, how many
    of those count for hi* as which gap.

    The others count as the largest gap for hi*, as the smallest for lo*. Gaps in nats.
    """

    points: int = 0
    worse: tuple[tuple[int, float], ...] = ()


NOTHING_UNLOGGED = Unlogged()


def capped_interval(
    gap: FloatArray,
    plain: Interval,
    unlogged: Unlogged,
    runs: tuple[Sequence[RunChange], Sequence[RunChange]],
    *,
    errors_of: RowErrors = mean_ses,
    fewest: int = 4,
) -> Interval:
    """The interval of the mean of (n,) paired gaps with lo* and hi*; `runs` are the changes of runs
    for the better and for the worse.

    `errors_of` gives the standard errors of changed series of `fewest` points and more.
    """
    short = block_average(gap, BLOCKS)
    better, worse = (
        lowered(series) if len(series) >= fewest else np.empty((0, len(series)))
        for series in (short, -short)
    )
    lower = _side(
        gap,
        plain,
        [(unlogged.points, float(gap.min()))],
        runs[0],
        better,
        errors_of,
        careful=len(gap) < FEW_POINTS,
    )
    mirrored = [(-shift, term) for shift, term in runs[1]]
    worse_ones = [(number, -value) for number, value in unlogged.worse]
    others = max(unlogged.points - sum(number for number, _ in worse_ones), 0), -float(gap.max())
    upper = _side(
        -gap,
        interval(-plain.mean, plain.within, plain.run),
        [others, *worse_ones],
        mirrored,
        worse,
        errors_of,
    )
    upper = dataclasses.replace(
        upper, means=-upper.means, shifts=tuple(-shift for shift in upper.shifts)
    )
    return interval(plain.mean, plain.within, plain.run, (lower, upper))


def run_interval(
    plain: Interval, runs: tuple[Sequence[RunChange], Sequence[RunChange]]
) -> Interval:
    """The same where the error within is not that of a series of gaps (arms that are not paired):
    runs alone are changed.
    """
    sides = tuple(
        _of_rows(
            np.array([plain.mean]),
            (np.array([plain.within.value]), np.array([plain.within.df])),
            plain,
            own,
        )
        for own in runs
    )
    return interval(plain.mean, plain.within, plain.run, (sides[0], sides[1]))


def run_changes(
    gaps: FloatArray, changed: Callable[[FloatArray], RunChange]
) -> tuple[list[RunChange], list[RunChange]]:
    """What capping the (K,) gaps of the candidate's runs gives, for the better and for the worse;
    `changed` takes their shifts (K,).
    """
    if len(gaps) < 2:
        return [], []
    caps = np.sort(gaps)[:: 1 + len(gaps) // MAX_RUN_CAPS]
    return [changed(np.minimum(cap - gaps, 0.0)) for cap in caps], [
        changed(np.maximum(cap - gaps, 0.0)) for cap in caps
    ]


@frozen
class RunNoise:
    """The between-run terms of an interval at a loss of `level` nats: of the gap as it is, and with
    each change of runs for the better and for the worse, in the order of `run_changes`.
    """

    level: float
    term: RunTerm
    changed: tuple[tuple[RunTerm, ...], tuple[RunTerm, ...]] = NO_CHANGES

    def at(self, level: float) -> "RunNoise":
        """The same shares of another loss, with their degrees of freedom; the same nats where a
        loss is 0.
        """
        share = level / self.level if self.level else 1.0
        return RunNoise(
            level=level,
            term=_scaled(self.term, share),
            changed=_both([_scaled(term, share) for term in side] for side in self.changed),
        )

    def of_changes(
        self, runs: tuple[Sequence[RunChange], Sequence[RunChange]]
    ) -> tuple[Sequence[RunChange], Sequence[RunChange]]:
        """Changes of as many runs, each with the term that is known of it in place of its own."""
        better, worse = (
            [(shift, term) for (shift, _), term in zip(own, known, strict=True)]
            for own, known in zip(runs, self.changed, strict=True)
        )
        return better, worse


def noise_of(gap: Interval, level: float) -> RunNoise:
    """The run-to-run noise of an interval at a loss of `level` nats."""
    return RunNoise(
        level=level,
        term=gap.run,
        changed=_both(side.run_terms[1:] if side else () for side in gap.sides),
    )


def _scaled(term: RunTerm, share: float) -> RunTerm:
    return dataclasses.replace(term, variance=term.variance * share * share)


def _both(sides: Iterable[Sequence[RunTerm]]) -> tuple[tuple[RunTerm, ...], tuple[RunTerm, ...]]:
    better, worse = (tuple(side) for side in sides)
    return better, worse


def _side(
    gap: FloatArray,
    plain: Interval,
    unlogged: Sequence[tuple[int, float]],
    runs: Sequence[RunChange],
    rows: FloatArray,
    errors_of: RowErrors,
    *,
    careful: bool = False,
) -> Side:
    means, errors, dfs = (
        np.array([plain.mean]),
        np.array([plain.within.value]),
        np.array([plain.within.df]),
    )
    if len(rows):
        own, df = errors_of(rows)
        if careful:
            run_half = t_quantile(NOMINAL, plain.run.df) * plain.run.variance**0.5
            counts = t_quantiles(NOMINAL, df) * own <= run_half
            rows, own, df = rows[counts], own[counts], df[counts]
        means, errors, dfs = (
            np.append(means, row_means(rows)),
            np.append(errors, own),
            np.append(dfs, df),
        )
    total, number = len(gap) * means, len(gap)
    for points, value in unlogged:
        total, number = total + points * min(value, float(gap.min()), plain.mean), number + points
    return _of_rows(total / number, (errors, dfs), plain, runs)


def _of_rows(
    means: FloatArray,
    within: tuple[FloatArray, FloatArray],
    plain: Interval,
    runs: Sequence[RunChange],
) -> Side:
    every = [(0.0, plain.run), *runs]
    return Side(
        means=means,
        errors=within[0],
        dfs=within[1],
        shifts=tuple(shift for shift, _ in every),
        run_terms=tuple(term for _, term in every),
    )


def lowered(gap: FloatArray) -> FloatArray:
    """The series (n,) lowered by each of r caps and levels, (r, n)."""
    n = len(gap)
    every = 1
    if n > ALL_CAPS:
        every = 1 + n // ALL_CAPS if n < MANY_POINTS else -(-n // CAPS_OF_MANY)
    caps = np.sort(gap)[::every]
    rows = np.empty((len(caps) + SPLITS - 1, n))
    np.minimum(gap, caps[:, None], out=rows[: len(caps)])
    for split, row in enumerate(rows[len(caps) :], 1):
        at = split * n // SPLITS
        step = mean(gap[at:]) - mean(gap[:at]) if 0 < at < n else 0.0
        row[:] = gap
        row[slice(at, None) if step > 0.0 else slice(None, at)] -= abs(step)
    return rows
