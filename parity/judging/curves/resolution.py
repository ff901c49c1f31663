"""Is the series what the trainer measured? Rounded, thinned out or smoothed losses are named, and
limit what can be resolved.

rounding step  the largest q of 10^-d or 2^-k of which 60 % of a run's changes from step to step are
               whole multiples, wherever it starts; rounding can move a gap by (q_A + q_B) / 2
hole           the longest stretch without a point beyond 2 logging intervals, as a share of the
               window
noise ratio    sigma_step of the candidate over that of the baseline; outside 0.5 to 2 one log holds
               averages, and the other single steps
coverage       points in the window over points of a regular grid on the most common stride (or the
               share of intervals on that grid, if smaller); below 90 % the series is a sample of
               the run
smoothing      a = 1 + 2 corr(x_t - x_{t-1}, x_{t-1} - x_{t-2}); white batch noise has a = 0, an
               exponential average of weight a has a
memory         V(n/8) / V(1) steps, V(k) = mean squared k-step change: 1/(1 - a) for an exponential
               average, w for a mean of w points

Can fail: a run without batch noise looks smoothed (its changes are all trend), so noiseless runs
are exempt. Source: lag-1 correlation of first differences of an AR(1) series; von Neumann's ratio
(1941). TensorBoard keeps 10,000 points by default, W&B's charts 1,500.
"""

from collections.abc import Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.alignment import Aligned
from parity.judging.curves.curve import (
    BoolArray,
    Curve,
    FloatArray,
    IntArray,
    all_usable,
    completeness_of,
    computed_once,
    median,
    usable,
)
from parity.judging.curves.step_noise import MAD_TO_SD, lag1, step_noise
from parity.judging.curves.window import Window

MIN_COVERAGE = 0.90
# EMA 0.99 0.01 to 0.22, means of 10 steps 0.09 to 0.40; honest arms 0.84 to 1.20
MAX_NOISE_RATIO = 2.0
# equal batches show it with a few points
MIN_NOISE_POINTS, MIN_NOISE_POINTS_OTHER, NOISE_OVER_ROUNDING_STEP = 8, 60, 2.0
MAX_HOLE = 0.03  # of the window: 0.6 % of the plan
COARSE_ROUNDING_STEP = 5e-4  # three decimals or fewer
SMOOTHED_WEIGHT = 0.5
MAX_LAG_SHARE = 0.05  # of the window: a longer memory has not forgotten what came before it
NOISELESS = 1e-6
SPIKE_SDS = 6.0
WHOLE_SHARE = 0.6
FEW_VALUES = 0.3  # of the points; a real log with 3 decimals has 0.47, one with 7 digits 0.92
# Decimals, and bits of bf16 or fp16.
ROUNDING_STEPS = np.array(
    sorted([10.0**-d for d in range(7)] + [2.0**-k for k in range(1, 21)], reverse=True)
)
# the last so many points show rounding and smoothing as well as all of them
RESOLUTION_SAMPLE = 10_000


@frozen
class _Late:
    """Of one run in the window: coverage, its longest hole, smoothing weight, and its memory as a
    share of the window's points.
    """

    coverage: float
    hole: float
    smoothing: float
    memory_share: float


@frozen
class Resolution(_Late):
    """Worst values over all runs, and of the rounding: the gap's error and the coarsest step,
    nats.
    """

    rounding: float
    rounding_step: float


def resolution(baseline: Sequence[Curve], candidate: Sequence[Curve], window: Window) -> Resolution:
    """Resolution of the window's losses of both arms."""
    late = [_late(run, window) for run in (*baseline, *candidate)]
    rounding_steps = [max(map(_run_rounding_step, arm)) for arm in (baseline, candidate)]
    return Resolution(
        rounding=sum(rounding_steps) / 2.0,
        rounding_step=max(rounding_steps),
        coverage=min(run.coverage for run in late),
        hole=max(run.hole for run in late),
        smoothing=max(run.smoothing for run in late),
        memory_share=max(
            (run.memory_share for run in late if run.smoothing >= SMOOTHED_WEIGHT), default=0.0
        ),
    )


@computed_once
def _run_rounding_step(run: Curve) -> float:
    return rounding_step(finite(run.loss)[-RESOLUTION_SAMPLE:])


def _late(run: Curve, window: Window) -> _Late:
    """What the window shows of one run; computed once, though a run is in several comparisons."""
    known = _known(run)
    if window not in known:
        part = window.part(run.steps)
        loss = finite(run.loss[part])[-RESOLUTION_SAMPLE:]
        known[window] = _Late(
            coverage=regular_share(run.steps[part]),
            hole=longest_hole(run.steps, window),
            smoothing=smoothing_weight(loss),
            memory_share=memory_steps(loss) / max(len(loss), 1),
        )
    return known[window]


@computed_once
def _known(_run: Curve) -> dict[Window, _Late]:
    return {}


def finite(loss: FloatArray) -> FloatArray:
    """The usable ones of (n,) losses."""
    return loss if all_usable(loss) else loss[usable(loss)]


def noise_ratio(aligned: Aligned, rounding_step: float, *, same_batches: bool) -> float | None:
    """The batch noise of the candidate's runs over that of the baseline's, at the common steps of
    the last half; None where it isn't known.

    `rounding_step` is that of the losses, `same_batches` whether it is shown that the arms read the
    same batches.
    """
    late = slice(max(len(aligned.steps) // 2, len(aligned.steps) - RESOLUTION_SAMPLE), None)
    if len(aligned.steps[late]) < (MIN_NOISE_POINTS if same_batches else MIN_NOISE_POINTS_OTHER):
        return None
    noise = [
        float(np.median([step_noise(run) for run in arm[:, late]]))
        for arm in (aligned.baseline, aligned.candidate)
    ]
    least = max(rounding_step, NOISELESS * float(np.abs(aligned.baseline[0, late]).max()))
    if max(noise) > 0.0 and max(noise) >= NOISE_OVER_ROUNDING_STEP * least:
        return noise[1] / max(noise[0], 1e-300)
    return None


def regular_share(steps: IntArray) -> float:
    """The smaller of coverage and of the share of intervals that are whole multiples of the stride,
    for (n,) increasing steps.
    """
    completeness = completeness_of(steps)
    if not completeness.stride or completeness.stride == 1:
        return completeness.coverage
    return min(completeness.coverage, float(np.mean(np.diff(steps) % completeness.stride == 0)))


def longest_hole(steps: IntArray, window: Window) -> float:
    """The longest stretch of the window without one of (n,) increasing steps, as a share of it; 0.0
    for a regular grid.
    """
    part = window.part(steps)
    # with the step before the window, from which a hole may reach into it
    inside = steps[max(part.start - 1, 0) : part.stop]
    if len(inside) < 3:
        return 0.0
    distance = np.diff(inside)
    starts = np.maximum(inside[:-1], window.first - 1)
    longest = int((inside[1:] - starts).max()) - 2 * int(np.median(distance))
    return max(0.0, longest / (window.last - window.first + 1))


def rounding_step(loss: FloatArray) -> float:
    """The step to which (n,) losses are rounded, 0.0 where none is visible (or fewer than 3
    distinct values).
    """
    if len(loss) == 0 or len(np.unique(loss[:1000])) < 3:
        return 0.0
    change = np.diff(loss)
    noise = 4.0 * float(np.spacing(np.float32(np.abs(loss).max())))  # what storing as float32 adds
    steps = ROUNDING_STEPS[8.0 * noise <= ROUNDING_STEPS]
    # a few changes refute most steps
    steps = steps[_whole(change[:64, None] / steps, noise / steps)]
    for step in steps:
        if _whole(change / step, noise / step):
            return float(step)
    values = np.unique(loss)
    # an odd step, as of 0.05 or of 8 bits
    return float(np.median(np.diff(values))) if len(values) < FEW_VALUES * len(loss) else 0.0


def _whole(multiples: FloatArray, tolerance: FloatArray) -> BoolArray:
    """Whether most values of (n, ...) are whole numbers: a stretch that was moved or bent does not
    undo the rounding of the others.
    """
    whole: BoolArray = (
        np.mean(np.abs(multiples - np.round(multiples)) <= tolerance, axis=0) >= WHOLE_SHARE
    )
    return whole


def smoothing_weight(loss: FloatArray) -> float:
    """The weight of an exponential average that would give (n,) losses their short memory; 0.0 to
    below 1.
    """
    n = len(loss)
    if n < 40:
        return 0.0
    change = np.diff(_without_spikes(loss))
    change -= change.mean()
    if float(np.abs(change).max()) <= NOISELESS * float(np.abs(loss).max()):
        return 0.0
    return min(max(1.0 + 2.0 * lag1(change), 0.0), 1.0)


def _without_spikes(loss: FloatArray) -> FloatArray:
    """The (n,) losses capped at 6 robust standard deviations about their median: a spike decays
    smoothly, in a log of single steps, too.
    """
    middle = median(loss)
    width = SPIKE_SDS * MAD_TO_SD * median(np.abs(loss - middle))
    if width == 0.0 or (
        float(loss.max()) - middle <= width and middle - float(loss.min()) <= width
    ):
        return loss
    capped: FloatArray = np.clip(loss, middle - width, middle + width)
    return capped


def memory_steps(loss: FloatArray) -> float:
    """How many points (n,) losses remember: their slow variance over that of single steps, 1.0 for
    white noise.
    """
    far = len(loss) // 8
    if far < 5:
        return 1.0
    loss = _without_spikes(loss)
    near = float(np.mean((loss[1:] - loss[:-1]) ** 2))
    if near > 0.0:
        return float(np.mean((loss[far:] - loss[:-far]) ** 2)) / near
    return 1.0
