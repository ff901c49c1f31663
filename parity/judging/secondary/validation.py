"""The gap in validation loss over the window, as advice: few points, so the between-run term of the training loss does most of the work.

gap = mean over the window's evaluations of candidate minus baseline; SE^2 = SE_run^2 (of the training loss) + var(d)/n

Can fail: a run floor of validation losses may differ from that of training losses; with one evaluation the second term is 0.
"""

import math
from dataclasses import dataclass

import numpy as np

from parity.judging.curve import Curve, FloatArray, IntArray
from parity.judging.interval import t_quantile
from parity.judging.run_floor import RunTerm
from parity.judging.window import Window

VALIDATION_LOSS = "validation_loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationGap:
    """Mean gap in validation loss (nats, + = candidate worse), its interval, and the number of evaluations.

    `last_lo` is the lower end at the last evaluation alone, `infinite` whether the candidate's validation loss is infinite anywhere.
    """

    mean: float
    lo: float
    hi: float
    n: int
    last_lo: float
    infinite: bool


def validation_gap(
    baseline: tuple[Curve, ...], candidate: tuple[Curve, ...], window: Window, run: RunTerm, confidence: float
) -> ValidationGap | None:
    """Compare the `validation_loss` columns (NaN between evaluations) inside the window; None where no evaluation is common to all runs."""
    if not all(VALIDATION_LOSS in item.columns for item in (*baseline, *candidate)):
        return None
    series = [[_evaluations(item, window) for item in arm] for arm in (baseline, candidate)]
    steps = series[0][0][0]
    for arm in series:
        for own, _ in arm:
            steps = np.intersect1d(steps, own, assume_unique=True)
    if len(steps) == 0:
        return None
    means = [np.mean([loss[np.searchsorted(own, steps)] for own, loss in arm], axis=0) for arm in series]
    gap: FloatArray = means[1] - means[0]
    variance = float(gap.var(ddof=1)) if len(gap) > 1 else 0.0
    t = t_quantile(confidence, run.df)
    half = t * math.sqrt(run.variance + variance / len(gap))
    mean = float(gap.mean())
    spread = t * math.sqrt(run.variance + float(gap[:-1].var(ddof=1)) if len(gap) > 2 else run.variance)
    infinite = any(np.isinf(item.columns[VALIDATION_LOSS]).any() for item in candidate)
    return ValidationGap(mean=mean, lo=mean - half, hi=mean + half, n=len(gap), last_lo=float(gap[-1]) - spread, infinite=infinite)


def evaluated_apart(baseline: tuple[Curve, ...], candidate: tuple[Curve, ...], window: Window) -> bool:
    """Whether both arms have validation losses in the window, but at no common step."""
    if not all(VALIDATION_LOSS in item.columns for item in (*baseline, *candidate)):
        return False
    arms = [[set(_evaluations(item, window)[0].tolist()) for item in arm] for arm in (baseline, candidate)]
    return all(any(arm) for arm in arms) and not set.intersection(*arms[0], *arms[1])


def _evaluations(run: Curve, window: Window) -> tuple[IntArray, FloatArray]:
    """Steps and values of the finite validation losses in the window."""
    part = window.part(run.steps)
    values = run.columns[VALIDATION_LOSS][part]
    finite = np.isfinite(values)
    return run.steps[part][finite], values[finite]
