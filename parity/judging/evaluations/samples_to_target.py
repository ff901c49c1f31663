"""How many more samples does the candidate need to reach a loss? The token tax, from each run's
samples to the target.

N = first crossing of the target, linear between the evaluations around it; a run that never reaches
it needs more than it trained (censored), one that is below it at its first evaluation needs at most
that ln N ~ Normal(mu_a, sigma_a) in each arm, by maximum likelihood; tax = exp(mu_B - mu_A) - 1
with Welch's interval of mu_B - mu_A Without censoring mu_a and its error are the plain mean and s /
sqrt(n). With it the error is that of the observed information, widened by sqrt(n / (n - 1)), and
the degrees of freedom are those of the runs that reached the target.

Can fail: runs that stop because they reached the target are no censored runs, but they say nothing
about any later point; a loss that crosses the target, rises and crosses again counts with its first
crossing. Source: Tobin 1958; censored log-normal regression (Kalbfleisch and Prentice 2002, chapter
3).
"""

import math
from collections.abc import Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging import special
from parity.judging.curves.curve import Curve, FloatArray, usable
from parity.judging.evaluations.group_means import GroupEstimate, from_parts

MIN_REACHED = 2  # runs of an arm, below which its spread is unknown

_EQUAL = 1e-9  # spread of log samples, below which they are equal


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


def arm_time(runs: Sequence[Reached]) -> GroupEstimate | None:
    """Mean log samples of an arm's runs; None where fewer than 2 of them were seen to reach the
    target, or where they say nothing about the spread of the others.
    """
    values = np.log(np.array([run.samples for run in runs]))
    # +1: the truth is above; -1: below; 0: seen
    side = np.array([{"above": 1.0, "below": -1.0}.get(run.beyond or "", 0.0) for run in runs])
    seen = values[side == 0.0]
    if len(seen) < MIN_REACHED:
        return None
    df = len(seen) - 1.0
    if len(seen) == len(values):
        return GroupEstimate(
            mean=float(seen.mean()), se=float(seen.std(ddof=1)) / math.sqrt(len(seen)), df=df
        )
    mean, variance = _censored_normal(values, side)
    if not 0.0 < variance < math.inf:
        return None
    return GroupEstimate(mean=mean, se=math.sqrt(variance * len(values) / (len(values) - 1)), df=df)


def token_tax(baseline: GroupEstimate, candidate: GroupEstimate, confidence: float) -> Tax:
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
    mean's variance; NaN where the likelihood has no maximum, as all values agree with one.
    """
    seen = values[side == 0.0]
    scale = float(seen.std(ddof=1))
    if scale < _EQUAL:
        if not (side * (values - seen.mean()) > _EQUAL).any():
            return float(seen.mean()), math.nan
        scale = float(values.std(ddof=1))

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
