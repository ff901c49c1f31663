"""The gap of two arms in their held-out losses, with its error: run-to-run noise measured or
assumed, and the noise of the evaluations themselves.

x_k: run k's mean loss over the n points that are compared; d_i: the difference of the arms' means
at point i
run-to-run noise  tau^2 = (4 tau0^2 + SS) / (3 + K) an arm, SE_run^2 = tau_A^2/K_A + tau_B^2/K_B;
                  pairs of one seed: the spread of their
gaps (`arm_noise`); tau0 comes from single evaluations and has their noise in it
within            both arms have two runs or more (paired: two pairs): nothing, the spread of the
                  runs has it else n < 12: SE_w^2 = c (4 s0^2 + SS_d) / (n + 3) / n, df n + 3, s0 =
                  0.05 % of the loss, SS_d = sum (d_i - mean d)^2, c = 1.5 (1 for n = 1) from n =
                  12: that of any series of gaps (`noise.mean_se`)
rounding          + (q_A + q_B) / 2 on both sides; q is the step to which an arm's losses are
                  printed
lo*, hi*          no single evaluation and no single run undoes what the others show (`capped`)

n = 1, 7, 11, 12, 20, 99, 101 points of a finished pair that rounds to nearest have half-widths of
0.38, 0.36, 0.36, 0.39, 0.37, 0.354 and 0.354 % of the loss. Can fail: evaluations on so few tokens
that s0 is too small, and everything that makes tau0 wrong. Source: coverage on eleven public sets
(docs/evidence.md).
"""

import dataclasses
from collections.abc import Callable, Sequence
from decimal import Decimal

import numpy as np

from parity.judging.curves.curve import Curve, FloatArray, IntArray, mean, usable
from parity.judging.curves.resolution import rounding_step
from parity.judging.curves.step_noise import StandardError, mean_se
from parity.judging.gap.interval import Interval, interval
from parity.judging.gap.robust_bounds import (
    NOTHING_UNLOGGED,
    RunChange,
    RunTerms,
    robust_interval,
    run_changes,
    run_interval,
)
from parity.judging.noise.arm_noise import Prior, RunTerm, arm_noise, run_term, run_term_over_seeds
from parity.judging.policy import POINTS_TO_PASS

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
    noise: RunTerms | None = None,
) -> Interval:
    """The gap of (K_A, n) and (K_B, n) losses, n > 0, in nats; `rounding` is by how much printed
    digits can move it.

    `seeds` pair the runs: those of a seed that one arm lacks are left out; with one seed for all,
    the arms are unpaired. `noise` is the run noise at this loss where it is known already; else it
    is estimated.
    """
    common = np.intersect1d(*seeds)
    kept = [np.isin(run_seeds, common) for run_seeds in seeds]
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
        measured = _single_run_term(
            cand.mean(axis=0) - base.mean(axis=0), run, mean(means[0]), runs
        )
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
    base_noise, base_means = (
        arm_noise(priors[0], base, seeds[0].tolist()),
        np.array([mean(base[chosen]) for chosen in of_seeds[0]]),
    )

    def gap(cand: FloatArray) -> RunChange:
        noise = arm_noise(priors[1], cand, seeds[1].tolist())
        gaps = np.array([mean(cand[chosen]) for chosen in of_seeds[1]]) - base_means
        return mean(gaps), run_term(base_noise, noise) if len(gaps) == 1 else run_term_over_seeds(
            gaps, base_noise, noise
        )

    return gap


def _single_run_term(
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
        return robust_interval(series, plain, NOTHING_UNLOGGED, runs)
    return robust_interval(series, plain, NOTHING_UNLOGGED, runs, errors_of=errors_of, fewest=2)


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
    return float(max(np.median([rounding_step(loss) for loss in finite]), 10.0**-places))
