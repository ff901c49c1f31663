"""Is the series what the trainer measured? Rounded, thinned out or smoothed losses are named, and limit what can be resolved.

quantum: the largest q of 10^-d or 2^-k of which all losses of the window are whole multiples; rounding can move a gap by (q_A + q_B) / 2
coverage: points in the window over points of a regular grid on the most common stride; below 90 % the series is a sample of the run
smoothing: a = 1 - V(1)/V(10), V(k) = median squared k-step change; white batch noise has a = 0, an exponential average of weight a has a

Can fail: a run with no batch noise looks smoothed (its changes are all trend), so the trend is taken out and noiseless runs are exempt.
Source: von Neumann's ratio (1941); TensorBoard and W&B keep 10,000 and 1,500 points by default.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parity.curve import Curve, FloatArray, completeness_of
from parity.window import Window

MIN_COVERAGE = 0.90
COARSE_QUANTUM = 5e-4  # three decimals or fewer
SMOOTHED_WEIGHT = 0.5
MAX_LAG_SHARE = 0.05  # of the window: a longer memory has not forgotten what came before it
NOISELESS = 1e-6
_QUANTA = tuple(sorted([10.0**-d for d in range(7)] + [2.0**-k for k in range(1, 21)], reverse=True))  # decimals, and bits of bf16 or fp16
SAMPLE = 10_000  # the last so many points show rounding and smoothing as well as all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """Worst values over the runs of both arms: rounding error of the gap (nats), window coverage, smoothing weight and its memory."""

    rounding: float
    quantum: float
    coverage: float
    smoothing: float
    memory_share: float


def resolution(baseline: Sequence[Curve], candidate: Sequence[Curve], window: Window) -> Resolution:
    """Resolution of the window's losses of both arms."""
    late = [[_late(run, window) for run in arm] for arm in (baseline, candidate)]
    quanta = [max((quantum(loss) for _, loss in arm), default=0.0) for arm in late]
    weights = [smoothing_weight(loss) for arm in late for _, loss in arm]
    points = [len(loss) for arm in late for _, loss in arm]
    weight = max(weights, default=0.0)
    return Resolution(
        rounding=sum(quanta) / 2.0,
        quantum=max(quanta),
        coverage=min((coverage for arm in late for coverage, _ in arm), default=1.0),
        smoothing=weight,
        memory_share=weight / (1.0 - weight) / max(min(points, default=1), 1),
    )


def _late(run: Curve, window: Window) -> tuple[float, FloatArray]:
    """Coverage of the window by the run's own grid, and the last finite losses in it."""
    part = window.part(run.steps)
    steps, loss = run.steps[part], run.loss[part]
    return completeness_of(steps).coverage, loss[np.isfinite(loss)][-SAMPLE:]


def quantum(loss: FloatArray) -> float:
    """The step to which (n,) losses are rounded, 0.0 where none is visible (or fewer than 3 distinct values)."""
    if len(loss) == 0 or len(np.unique(loss[:1000])) < 3:
        return 0.0
    noise = 2.0 * float(np.spacing(np.float32(np.abs(loss).max())))  # what storing as float32 adds
    for candidate in _QUANTA:
        if candidate < 8.0 * noise:
            break
        multiples = loss[:16] / candidate
        if (np.abs(multiples - np.round(multiples)) <= noise / candidate).all():  # sixteen values refute most candidates
            multiples = loss / candidate
            if (np.abs(multiples - np.round(multiples)) <= noise / candidate).all():
                return candidate
    return 0.0


def smoothing_weight(loss: FloatArray) -> float:
    """The weight of an exponential average that would give (n,) losses their short memory; 0.0 to below 1."""
    n = len(loss)
    if n < 40:
        return 0.0
    u = np.linspace(-0.5, 0.5, n)
    flat = loss - loss.mean() - u * float(u @ loss) / float(u @ u)
    near, far = float(np.median((flat[1:] - flat[:-1]) ** 2)), float(np.median((flat[10:] - flat[:-10]) ** 2))
    if far <= (NOISELESS * float(np.abs(loss).max())) ** 2:
        return 0.0
    return min(max(1.0 - near / far, 0.0), 0.9999)
