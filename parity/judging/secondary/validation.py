"""The gap in validation loss over the window, as advice: few points, so the between-run term of the
training loss does most of the work.

gap = mean over the window's evaluations of candidate minus baseline; SE^2 = SE_run^2 (of the
training loss) + var(d)/n

Can fail: run-to-run noise of validation losses may differ from that of training losses; with one
evaluation the second term is 0.
"""

import math

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import Curve, FloatArray, IntArray, between
from parity.judging.curves.window import Window
from parity.judging.gap.interval import t_quantile
from parity.judging.noise.arm_noise import RunTerm

VALIDATION_LOSS = "validation_loss"


@frozen
class ValidationGap:
    """Mean gap in validation loss (nats, + = candidate worse), its interval, and the number of
    evaluations.

    `last_lo` is the lower end at the last evaluation alone, `infinite` whether the candidate's
    validation loss is infinite anywhere.
    """

    mean: float
    lo: float
    hi: float
    n: int
    last_lo: float
    infinite: bool


def validation_gap(
    baseline: tuple[Curve, ...],
    candidate: tuple[Curve, ...],
    window: Window,
    run: RunTerm,
    confidence: float,
) -> ValidationGap | None:
    """Compare the `validation_loss` columns (NaN between evaluations) inside the window; None where
    no evaluation is common to all runs.
    """
    steps, gap = _common_gap(baseline, candidate, (window.first, window.last))
    if len(steps) == 0:
        return None
    variance = float(gap.var(ddof=1)) if len(gap) > 1 else 0.0
    half = t_quantile(confidence, run.df) * math.sqrt(run.variance + variance / len(gap))
    mean = float(gap.mean())
    infinite = any(np.isinf(item.columns[VALIDATION_LOSS]).any() for item in candidate)
    return ValidationGap(
        mean=mean,
        lo=mean - half,
        hi=mean + half,
        n=len(gap),
        last_lo=_last_lo(gap, run, confidence),
        infinite=infinite,
    )


def gap_before_window(
    baseline: tuple[Curve, ...],
    candidate: tuple[Curve, ...],
    window: Window,
    run: RunTerm,
    confidence: float,
) -> tuple[int, float] | None:
    """Step of the last common evaluation before the window, and the lower end of its gap (nats),
    where the window has none.
    """
    if len(_common_gap(baseline, candidate, (window.first, window.last))[0]):
        return None
    steps, gap = _common_gap(baseline, candidate, (0, window.first - 1))
    if len(steps) == 0:
        return None
    return int(steps[-1]), _last_lo(gap, run, confidence)


def _last_lo(gap: FloatArray, run: RunTerm, confidence: float) -> float:
    """The lower end of the last of (n,) gaps, whose noise is the spread of those before it."""
    variance = float(gap[:-1].var(ddof=1)) if len(gap) > 2 else 0.0
    return float(gap[-1]) - t_quantile(confidence, run.df) * math.sqrt(run.variance + variance)


def _common_gap(
    baseline: tuple[Curve, ...], candidate: tuple[Curve, ...], span: tuple[int, int]
) -> tuple[IntArray, FloatArray]:
    """Steps (n,) within a span at which all runs evaluated, and the arms' mean gap there (n,),
    nats.
    """
    if not all(is_evaluated(item) for item in (*baseline, *candidate)):
        return np.empty(0, dtype=np.int64), np.empty(0)
    series = [[_evaluations(item, span) for item in arm] for arm in (baseline, candidate)]
    steps = series[0][0][0]
    for arm in series:
        for run_steps, _ in arm:
            steps = np.intersect1d(steps, run_steps, assume_unique=True)
    means = [
        np.mean([loss[np.searchsorted(run_steps, steps)] for run_steps, loss in arm], axis=0)
        for arm in series
    ]
    gap: FloatArray = means[1] - means[0]
    return steps, gap


def is_evaluated(run: Curve) -> bool:
    """Whether a run recorded a validation loss."""
    return VALIDATION_LOSS in run.columns and not np.isnan(run.columns[VALIDATION_LOSS]).all()


def evaluated_apart(
    baseline: tuple[Curve, ...], candidate: tuple[Curve, ...], window: Window
) -> bool:
    """Whether all runs have validation losses, some of them in the window, but at no common step of
    it.
    """
    if not all(is_evaluated(item) for item in (*baseline, *candidate)):
        return False
    span = (window.first, window.last)
    some = any(len(_evaluations(item, span)[0]) for item in (*baseline, *candidate))
    return some and len(_common_gap(baseline, candidate, span)[0]) == 0


def _evaluations(run: Curve, span: tuple[int, int]) -> tuple[IntArray, FloatArray]:
    """Steps and values of the finite validation losses within a span of steps (inclusive)."""
    part = between(run.steps, *span)
    values = run.columns[VALIDATION_LOSS][part]
    finite = np.isfinite(values)
    return run.steps[part][finite], values[finite]
