"""Two arms of held-out losses: means with Welch's interval, clusters of runs, the gap with its
error, speed, and samples to a target.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

import numpy as np

from parity.judging import special
from parity.judging.curves.curve import Curve, FloatArray, IntArray, mean, usable
from parity.judging.curves.resolution import quantum
from parity.judging.curves.step_noise import StandardError, mean_se
from parity.judging.document_types import EstimateDocument
from parity.judging.gap.interval import (
    NOTHING_UNLOGGED,
    Interval,
    RunChange,
    RunNoise,
    capped_interval,
    interval,
    run_changes,
    run_interval,
    t_quantile,
)
from parity.judging.noise.run_floor import Prior, RunTerm, run_floor, run_term, run_term_over_seeds
from parity.judging.policy import POINTS_TO_PASS
from parity.judging.secondary.speed import from_logs
from parity.structure import frozen

# Means of two groups of runs: the difference with Welch's interval, and the spread of one group
# with its own.
#
# difference = mean(y) - mean(x), SE^2 = s_x^2/n_x + s_y^2/n_y, df by Welch and Satterthwaite sd:
# from sqrt(df s^2 / chi2) at both ends
#
# Can fail: values that are not independent (runs of one machine, copies); fewer than about 5 runs
# of a heavy-tailed spread. Sources: Welch 1947; Satterthwaite 1946.


@frozen
class Estimate:
    """A mean, or a difference of means, with its standard error and degrees of freedom."""

    mean: float
    se: float
    df: float

    def bounds(self, confidence: float) -> tuple[float, float]:
        """Lower and upper end of the two-sided interval at `confidence` (0 to 1)."""
        half = t_quantile(confidence, self.df) * self.se
        return self.mean - half, self.mean + half


@frozen
class Spread:
    """Standard deviation with its interval; in the values' unit."""

    sd: float
    lo: float
    hi: float


def difference(x: FloatArray, y: FloatArray) -> Estimate:
    """Mean of y (n_y,) minus mean of x (n_x,), Welch; each needs at least 2 values. An error of
    zero keeps the smaller df.
    """
    parts = [(float(group.var(ddof=1)) / len(group), len(group) - 1.0) for group in (x, y)]
    return from_parts(float(y.mean() - x.mean()), parts)


def from_parts(mean: float, parts: Sequence[tuple[float, float]]) -> Estimate:
    """An estimate whose variance is the sum of parts, each a variance with its degrees of freedom
    (Satterthwaite).
    """
    total = sum(part for part, _ in parts)
    if total > 0.0:
        df = 1.0 / sum((part / total) ** 2 / own for part, own in parts)
    else:
        df = min(own for _, own in parts)
    return Estimate(mean=mean, se=math.sqrt(total), df=df)


def spread(values: FloatArray, confidence: float) -> Spread:
    """Standard deviation of (n,) values, n >= 2, with the interval that a normal distribution gives
    it.
    """
    df, sd = len(values) - 1.0, float(values.std(ddof=1))
    tail = (1.0 - confidence) / 2.0
    # chdtri takes the upper tail
    lo, hi = (sd * math.sqrt(df / float(special.chdtri(df, p))) for p in (tail, 1.0 - tail))
    return Spread(sd=sd, lo=lo, hi=hi)


def of_clusters(values: FloatArray, clusters: list[str]) -> dict[str, FloatArray]:
    """The (n,) values by cluster, clusters in order of name."""
    names = np.array(clusters, dtype=object)
    return {name: values[names == name] for name in sorted(set(clusters))}


# The gap where runs come in clusters: runs of one system share its hardware and software, so the
# system is the unit, not the run.
#
# m_aj = mean of arm a's runs in cluster j;  arm's mean = mean of its m_aj over its J_a clusters
# clusters of the arms differ (nested):  s^2 = (SS_A + SS_B) / (J_A + J_B - 2) of the m_aj around
#                                        their arm's mean
#                                        V = s^2 (1/J_A + 1/J_B),   df = J_A + J_B - 2
# every cluster has both arms (crossed): g_j = m_Bj - m_Aj,  V = var(g) / J,  df = J - 1
# V is at least what the runs' own spread inside clusters gives, sum over a, j of s_a^2 / (n_aj
# J_a^2): a few clusters can agree by
#   chance.
#
# Can fail: nested clusters whose spread differs between the arms (one variance is used for both); a
# difference that all clusters of one arm share, and none of the other's, such as another software
# version: no number of clusters shows it. With 2 against 4 clusters there are 4 df. Source: nested
# analysis of variance with the cluster as the experimental unit (Snedecor and Cochran 1989, chapter
# 13).

ByCluster = Mapping[str, FloatArray]


@frozen
class ClusteredGap:
    """The gap over clusters, how many clusters each arm has, and whether every cluster has both
    arms.
    """

    estimate: Estimate
    clusters: tuple[int, int]
    crossed: bool


def clustered_gap(baseline: ByCluster, candidate: ByCluster) -> ClusteredGap | None:
    """The gap of two arms' run values by cluster; None where the clusters leave no degree of
    freedom.
    """
    means = [np.array([values.mean() for values in arm.values()]) for arm in (baseline, candidate)]
    counts = len(means[0]), len(means[1])
    crossed = set(baseline) == set(candidate)
    df = counts[0] - 1 if crossed else sum(counts) - 2
    if df < 1:
        return None
    if crossed:
        variance = float((means[1] - means[0]).var(ddof=1)) / counts[0]
    else:
        squares = sum(float(((arm - arm.mean()) ** 2).sum()) for arm in means)
        variance = squares / df * (1.0 / counts[0] + 1.0 / counts[1])
    variance = max(variance, _runs_alone(baseline) + _runs_alone(candidate))
    gap = float(means[1].mean() - means[0].mean())
    return ClusteredGap(
        estimate=Estimate(mean=gap, se=math.sqrt(variance), df=float(df)),
        clusters=counts,
        crossed=crossed,
    )


def _runs_alone(arm: ByCluster) -> float:
    """Variance of the mean of an arm's cluster means if clusters did not differ, from the runs'
    spread inside them.
    """
    df = sum(len(values) - 1 for values in arm.values())
    if df < 1:
        return 0.0
    spread = sum(float(((values - values.mean()) ** 2).sum()) for values in arm.values()) / df
    return spread * sum(1.0 / len(values) for values in arm.values()) / len(arm) ** 2


# The gap of two arms in their held-out losses, with its error: run-to-run noise measured or
# assumed, and the noise of the evaluations themselves.
#
# x_k: run k's mean loss over the n points that are compared; d_i: the difference of the arms' means
# at point i
# run-to-run noise   tau^2 = (4 tau0^2 + SS) / (3 + K) an arm, SE_run^2 = tau_A^2/K_A + tau_B^2/K_B;
#                    pairs of one seed: the spread of their
# gaps
#             (`run_floor`); tau0 comes from single evaluations and has their noise in it
# within      both arms have two runs or more (paired: two pairs): nothing, the spread of the runs
#             has it
#             else n < 12:  SE_w^2 = c (4 s0^2 + SS_d) / (n + 3) / n, df n + 3, s0 = 0.05 % of the
#                           loss, SS_d = sum (d_i - mean d)^2,
#                           c = 1.5 (1 for n = 1)
#             from n = 12:  that of any series of gaps (`noise.mean_se`)
# rounding    + (q_A + q_B) / 2 on both sides; q is the step to which an arm's losses are printed
# lo*, hi*    no single evaluation and no single run undoes what the others show (`capped`)
#
# n = 1, 7, 11, 12, 20, 99, 101 points of a finished pair that rounds to nearest have half-widths of
# 0.38, 0.36, 0.36, 0.39, 0.37, 0.354 and 0.354 % of the loss. Can fail: evaluations on so few
# tokens that s0 is too small, and everything that makes tau0 wrong. Source: coverage on eleven
# public sets (docs/evidence.md).

# s0, share of the loss: sd of a gap between evaluations of one pair; what it is worth
SINGLE_NOISE, SINGLE_DF = 0.0005, 4.0
FEW_FACTOR = 1.5  # of the variance of 2 to 11 points, which may be correlated
# the column of a loss that was typed: the place of its last digit, nats
PRINTED_STEP = "printed_step"
WRITTEN = 1000  # of an arm's losses show how many decimals are written

# (K_A, n) and (K_B, n), or the runs' means (K_A,) and (K_B,)
Losses = tuple[FloatArray, FloatArray]
Seeds = tuple[IntArray, IntArray]  # of the runs of both arms


def gap_interval(
    losses: Losses,
    priors: tuple[Prior, Prior],
    seeds: Seeds,
    rounding: float,
    noise: RunNoise | None = None,
) -> Interval:
    """The gap of (K_A, n) and (K_B, n) losses, n > 0, in nats; `rounding` is by how much printed
    digits can move it.

    `seeds` pair the runs: those of a seed that one arm lacks are left out; with one seed for all,
    the arms are unpaired. `noise` is the run noise at this loss where it is known already; else it
    is estimated.
    """
    common = np.intersect1d(*seeds)
    kept = [np.isin(own, common) for own in seeds]
    base, cand = losses[0][kept[0]], losses[1][kept[1]]
    own_seeds = seeds[0][kept[0]], seeds[1][kept[1]]
    means = base.mean(axis=1), cand.mean(axis=1)
    over_runs = _over_runs(means[0], priors, own_seeds)
    whole, run = over_runs(means[1])

    def changed(shifts: FloatArray) -> RunChange:
        other, left = over_runs(means[1] + shifts)
        return other - whole, left

    of_partners = np.array([mean(means[0][own_seeds[0] == seed]) for seed in own_seeds[1]])
    runs: tuple[Sequence[RunChange], Sequence[RunChange]] = run_changes(
        means[1] - of_partners, changed
    )
    if noise is not None:
        run, runs = noise.term, noise.of_changes(runs)
    if len(common) == 1 and min(len(base), len(cand)) == 1:
        measured = _of_single_runs(cand.mean(axis=0) - base.mean(axis=0), run, mean(means[0]), runs)
    else:
        measured = run_interval(interval(whole, StandardError(value=0.0, df=run.df), run), runs)
    return dataclasses.replace(measured, rounding=rounding)


def _over_runs(
    base: FloatArray, priors: tuple[Prior, Prior], seeds: Seeds
) -> Callable[[FloatArray], RunChange]:
    """A function of the means of the candidate's runs (K_B,), given those of the baseline's (K_A,):
    the gap over their seeds, and its between-run term.
    """
    of_seeds = [[own_seeds == seed for seed in np.unique(own_seeds)] for own_seeds in seeds]
    base_floor, base_means = (
        run_floor(priors[0], base, seeds[0].tolist()),
        np.array([mean(base[own]) for own in of_seeds[0]]),
    )

    def gap(cand: FloatArray) -> RunChange:
        floor = run_floor(priors[1], cand, seeds[1].tolist())
        gaps = np.array([mean(cand[own]) for own in of_seeds[1]]) - base_means
        return mean(gaps), run_term(base_floor, floor) if len(gaps) == 1 else run_term_over_seeds(
            gaps, base_floor, floor
        )

    return gap


def _of_single_runs(
    series: FloatArray,
    run: RunTerm,
    level: float,
    runs: tuple[Sequence[RunChange], Sequence[RunChange]],
) -> Interval:
    """The interval where the noise of the evaluations shows in the (n,) gaps alone."""

    def errors_of(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        return few_errors(rows, SINGLE_NOISE * abs(level))

    many = len(series) >= POINTS_TO_PASS
    if many:
        within = mean_se(series)
    else:
        values, df = errors_of(series[None])
        within = StandardError(value=float(values[0]), df=float(df[0]))
    plain = interval(float(series.mean()), within, run)
    if many:
        return capped_interval(series, plain, NOTHING_UNLOGGED, runs)
    return capped_interval(series, plain, NOTHING_UNLOGGED, runs, errors_of=errors_of, fewest=2)


def few_errors(rows: FloatArray, sd: float) -> tuple[FloatArray, FloatArray]:
    """SE_w (b,) of the means of (b, n) gaps, n < 12, and its degrees of freedom (b,); `sd` is s0 in
    nats.
    """
    n = rows.shape[1]
    squares = ((rows - rows.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    factor = FEW_FACTOR if n > 1 else 1.0
    df = n - 1 + SINGLE_DF
    return np.sqrt(factor * (SINGLE_DF * sd**2 + squares) / df / n), np.full(len(rows), df)


def printed_step(runs: Sequence[Curve]) -> float:
    """The step to which the losses of an arm are printed, nats: that of their changes, at least the
    last decimal place that is written.
    """
    if all(PRINTED_STEP in run.columns for run in runs):
        return max(float(run.columns[PRINTED_STEP].max()) for run in runs)
    finite = [run.loss[usable(run.loss)] for run in runs]
    values = np.concatenate(finite)[:WRITTEN]
    if len(values) == 0:
        return 0.0
    places = max(
        -min(int(Decimal(repr(value)).as_tuple().exponent), 0) for value in values.tolist()
    )
    return float(max(np.median([quantum(loss) for loss in finite]), 10.0**-places))


# What one run says about its speed: seconds a step, seconds to the target, and the hardware that it
# ran on.


@frozen
class RunTimes:
    """One run's times; `arm` and `run` are the names of its arm and the label of its curve. None
    where a time is not on record.

    A step is whatever the table counts in: an optimizer step, a sample, a sequence. All runs of a
    comparison count in the same.
    """

    arm: str
    run: str
    hardware: str | None
    step_seconds: float | None
    seconds_to_target: float | None


# Is it faster on equal hardware, and does that pay? Step speed and time to the target, each a ratio
# with Welch's interval of its log.
#
# ratio = exp(mean ln t_baseline - mean ln t_candidate), above 1 where the candidate is faster; per
# hardware that ran both arms net = the same of the times to the target: what is left of the step
# speed after the token tax, measured and not computed
#
# Can fail: runs of one machine share its clock and its cooling, so few machines say little about
# others; times of runs that never reached the target are missing, and an arm that lacks one gets no
# net ratio.

MIN_RUNS = 2


@frozen
class HardwareSpeed:
    """Step speed and net speed on one hardware, and how many runs of each arm ran there; None where
    a time is missing.
    """

    hardware: str
    runs: tuple[int, int]
    step: EstimateDocument | None
    net: EstimateDocument | None


def speeds(
    baseline: Sequence[RunTimes], candidate: Sequence[RunTimes], confidence: float
) -> tuple[HardwareSpeed, ...]:
    """The ratios on each hardware that at least 2 runs of both arms ran on, in order of its
    name.
    """
    shared = sorted(
        {run.hardware for run in baseline if run.hardware}
        & {run.hardware for run in candidate if run.hardware}
    )
    made = []
    for hardware in shared:
        arms = [[run for run in arm if run.hardware == hardware] for arm in (baseline, candidate)]
        if min(map(len, arms)) >= MIN_RUNS:
            step, net = (
                _ratio(arms, time, confidence)
                for time in (lambda run: run.step_seconds, lambda run: run.seconds_to_target)
            )
            made.append(
                HardwareSpeed(
                    hardware=hardware, runs=(len(arms[0]), len(arms[1])), step=step, net=net
                )
            )
    return tuple(made)


def _ratio(
    arms: list[list[RunTimes]], time: Callable[[RunTimes], float | None], confidence: float
) -> EstimateDocument | None:
    seconds = [[time(run) for run in arm] for arm in arms]
    known = [
        [value for value in arm if value is not None and 0.0 < value < math.inf] for arm in seconds
    ]
    if any(len(own) < len(arm) for own, arm in zip(known, seconds, strict=True)):
        return None
    logs = [np.log(np.array(own)) for own in known]
    gap = difference(logs[1], logs[0])
    return from_logs(gap.mean, *gap.bounds(confidence))


# How many more samples does the candidate need to reach a loss? The token tax, from each run's
# samples to the target.
#
# N = first crossing of the target, linear between the evaluations around it; a run that never
# reaches it needs more than it trained (censored), one that is below it at its first evaluation
# needs at most that ln N ~ Normal(mu_a, sigma_a) in each arm, by maximum likelihood; tax = exp(mu_B
# - mu_A) - 1 with Welch's interval of mu_B - mu_A Without censoring mu_a and its error are the
# plain mean and s / sqrt(n). With it the error is that of the observed information, widened by
# sqrt(n / (n - 1)), and the degrees of freedom are those of the runs that reached the target.
#
# Can fail: runs that stop because they reached the target are no censored runs, but they say
# nothing about any later point; a loss that crosses the target, rises and crosses again counts with
# its first crossing. Source: Tobin 1958; censored log-normal regression (Kalbfleisch and Prentice
# 2002, chapter 3).

MIN_REACHED = 2  # runs of an arm, below which its spread is unknown


@frozen
class Reached:
    """One run's samples to the target: the value, and whether the truth lies `above` it (never
    reached), `below` it, or at it (None).
    """

    samples: float
    beyond: str | None


@frozen
class Tax:
    """Extra samples as a share (0.09 = 9 % more) with its interval; `geometric` means of the
    samples of both arms.
    """

    estimate: float
    lo: float
    hi: float
    geometric: tuple[float, float]


def samples_to(run: Curve, target: float) -> Reached:
    """A run's samples to the target loss (nats); needs at least one usable evaluation."""
    finite = usable(run.loss)
    samples, loss = run.steps[finite].astype(np.float64), run.loss[finite]
    below = np.flatnonzero(loss <= target)
    if not len(below):
        return Reached(samples=float(samples[-1]), beyond="above")
    at = int(below[0])
    if at == 0:
        return Reached(samples=float(samples[0]), beyond="below")
    share = (loss[at - 1] - target) / (loss[at - 1] - loss[at])
    return Reached(
        samples=float(samples[at - 1] + share * (samples[at] - samples[at - 1])), beyond=None
    )


def arm_time(runs: Sequence[Reached]) -> Estimate | None:
    """Mean log samples of an arm's runs; None where fewer than 2 of them were seen to reach the
    target.
    """
    values = np.log(np.array([run.samples for run in runs]))
    # +1: the truth is above; -1: below; 0: seen
    side = np.array([{"above": 1.0, "below": -1.0}.get(run.beyond or "", 0.0) for run in runs])
    seen = values[side == 0.0]
    if len(seen) < MIN_REACHED:
        return None
    df = len(seen) - 1.0
    if len(seen) == len(values):
        return Estimate(
            mean=float(seen.mean()), se=float(seen.std(ddof=1)) / math.sqrt(len(seen)), df=df
        )
    mean, variance = _censored_normal(values, side)
    return Estimate(mean=mean, se=math.sqrt(variance * len(values) / (len(values) - 1)), df=df)


def token_tax(baseline: Estimate, candidate: Estimate, confidence: float) -> Tax:
    """The tax between the log samples of two arms, with Welch's interval."""
    log_ratio = from_parts(
        candidate.mean - baseline.mean, [(arm.se**2, arm.df) for arm in (baseline, candidate)]
    )
    lo, hi = log_ratio.bounds(confidence)
    return Tax(
        estimate=math.expm1(log_ratio.mean),
        lo=math.expm1(lo),
        hi=math.expm1(hi),
        geometric=(math.exp(baseline.mean), math.exp(candidate.mean)),
    )


def _censored_normal(values: FloatArray, side: FloatArray) -> tuple[float, float]:
    """Maximum-likelihood mean of a normal distribution from (n,) seen and censored values, and the
    mean's variance.
    """
    seen = values[side == 0.0]
    scale = float(seen.std(ddof=1)) or 1e-9 * max(abs(float(seen.mean())), 1.0)

    def cost(point: FloatArray) -> float:
        z = (values - seen.mean() - scale * point[0]) / (scale * math.exp(point[1]))
        likelihood = np.where(side == 0.0, -0.5 * z**2 - point[1], special.log_ndtr(-side * z))
        return -float(likelihood.sum())

    from scipy.optimize import minimize  # noqa: PLC0415

    best = minimize(cost, np.zeros(2), method="BFGS").x
    mean, sd = float(seen.mean() + scale * best[0]), scale * math.exp(best[1])
    return mean, float(np.linalg.inv(_information((values - mean) / sd, side, sd))[0, 0])


def _information(z: FloatArray, side: FloatArray, sd: float) -> FloatArray:
    """Observed information (2, 2) of the mean and of ln sd, from standardized values (n,)."""
    # ln Phi(-side z) of a censored value: its first and second derivative in z
    mills = np.exp(-0.5 * z**2 - 0.5 * math.log(2.0 * math.pi) - special.log_ndtr(-side * z))
    first = np.where(side == 0.0, -z, -side * mills)
    second = np.where(side == 0.0, -1.0, -mills * (mills - side * z))
    mixed = float((second * z + first).sum()) / sd
    return -np.array(
        [[float(second.sum()) / sd**2, mixed], [mixed, float((second * z**2 + first * z).sum())]]
    )
