"""Do both arms train with gradients of the same size? Mean log-ratio of the gradient norms in the
window, and the ratio of their tails.

r_t = ln ||g||_candidate - ln ||g||_baseline;  interval of mean r inside -+ ln 1.10 is parity;  p99
    ratio = p99(candidate) / p99(baseline)
clipped share = steps of the window whose norm after clipping is below the norm before, over all
    steps that have both
The run term is the spread of the runs' own mean logs where both arms have 2 or more, else 0 (said
    in `basis`).

Can fail: norms recorded after clipping are all 1; no public gradient norms were at hand, so this
advises unless the policy says otherwise.
"""

import math

import numpy as np

from parity.judging.curves.curve import Curve, FloatArray, IntArray, median
from parity.judging.curves.step_noise import mean_se
from parity.judging.document_types import (
    GradNormDocument,
    GradNormState,
)
from parity.judging.gap.interval import t_quantile

GRAD_NORM, CLIPPED_GRAD_NORM = "grad_norm", "clipped_grad_norm"
CLIPPED_BELOW = 1.0 - 1e-5  # of the norm before clipping: both may be stored as float32
MOST_RATIO = 1.10  # of the candidate's norm to the baseline's, or the other way round
MIN_POINTS, FEWEST_POINTS = 50, 8


def gradient_parity(
    baseline: tuple[Curve, ...], candidate: tuple[Curve, ...], steps: IntArray, confidence: float
) -> GradNormDocument | None:
    """Compare the gradient norms at the window's (n,) steps; None where a run has none, or fewer
    than 50 usable steps are common.
    """
    if not all(GRAD_NORM in run.columns for run in (*baseline, *candidate)):
        return None
    logs = [np.array([_log_norm(run, steps) for run in arm]) for arm in (baseline, candidate)]
    good = np.isfinite(np.concatenate(logs)).all(axis=0)
    if int(good.sum()) < MIN_POINTS:
        return None
    left, right = (arm[:, good] for arm in logs)
    ratio = right.mean(axis=0) - left.mean(axis=0)
    mean, within = float(ratio.mean()), mean_se(ratio)
    run_variance, df, basis = _run_spread(left, right, within.df)
    half = t_quantile(confidence, df) * math.hypot(within.value, math.sqrt(run_variance))
    lo, hi = mean - half, mean + half
    state: GradNormState = "open"
    limit = math.log(MOST_RATIO)
    if lo > limit or hi < -limit:
        state = "outside"
    elif lo > -limit and hi < limit:
        state = "inside"
    p99 = [float(np.exp(np.quantile(arm, 0.99))) for arm in (left, right)]
    return GradNormDocument(
        ratio=math.exp(mean),
        lo=math.exp(lo),
        hi=math.exp(hi),
        p99_ratio=p99[1] / p99[0],
        n=int(good.sum()),
        state=state,
        basis=basis,
        clipped_share=[_clipped_share(baseline, steps), _clipped_share(candidate, steps)],
    )


def norm_ratio(
    baseline: tuple[Curve, ...], candidate: tuple[Curve, ...], steps: IntArray
) -> float | None:
    """Median ratio of the gradient norms (candidate / baseline) at (n,) steps; None where a run has
    none, or fewer than 8 are usable.
    """
    if not all(GRAD_NORM in run.columns for run in (*baseline, *candidate)):
        return None
    ratio = np.mean([_log_norm(run, steps) for run in candidate], axis=0) - np.mean(
        [_log_norm(run, steps) for run in baseline], axis=0
    )
    ratio = ratio[np.isfinite(ratio)]
    if len(ratio) >= FEWEST_POINTS:
        return float(np.exp(median(ratio)))
    return None


def _clipped_share(arm: tuple[Curve, ...], steps: IntArray) -> float | None:
    """Share of clipped steps over all runs of an arm at (n,) steps."""
    if not all(CLIPPED_GRAD_NORM in run.columns for run in arm):
        return None
    before, after = (
        np.concatenate([run.columns[name][np.searchsorted(run.steps, steps)] for run in arm])
        for name in (GRAD_NORM, CLIPPED_GRAD_NORM)
    )
    both = np.isfinite(before) & np.isfinite(after)
    if not both.any():
        return None
    return float(np.mean(after[both] < CLIPPED_BELOW * before[both]))


def _run_spread(left: FloatArray, right: FloatArray, within_df: float) -> tuple[float, float, str]:
    if len(left) < 2 or len(right) < 2:
        return 0.0, within_df, "one run in an arm: run-to-run noise is not in the interval"
    parts = [float(arm.mean(axis=1).var(ddof=1)) / len(arm) for arm in (left, right)]
    return sum(parts), float(min(len(left), len(right)) - 1), "spread of the runs"


def _log_norm(run: Curve, steps: IntArray) -> FloatArray:
    """ln of the gradient norm at (n,) steps that the run has; NaN where it is not positive and
    finite.
    """
    values = run.columns[GRAD_NORM][np.searchsorted(run.steps, steps)]
    usable = np.isfinite(values) & (values > 0.0)
    log: FloatArray = np.log(np.where(usable, values, 1.0))
    return np.where(usable, log, np.nan)
