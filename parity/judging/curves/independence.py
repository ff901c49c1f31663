"""Is a run a run of its own? A copy or a fork of another run says nothing about how much two runs
differ, and never counts as one.

x, y: losses of two runs of one arm at their n common finite steps; q: the coarser of the steps to
    which they are printed
sigma(z) = 1.4826 MAD(z_t - 2 z_{t+1} + z_{t+2}) / sqrt(6)                            noise that is
    new at every step
T = mean over 8 blocks, from 20 % of the points on, of n_b mean(d_b)^2 / sd(d_b)^2     1 where d = y
    - x has no memory at all

equal  every point (from 200 on 99.5 %) within q/2, for bfloat16 and float16 also cut off. Coarse
       rounding and deterministic reruns do that as well as a file that is given twice: such runs
       count once, and nobody is accused
fork   |d| stays within rounding over the first 5 % of the points and at least 10; 10 equal points
       in a row; or a parent is on record. Asked of logs with 4 decimals or more: coarser ones make
       honest runs equal
late   the log starts after 5 % of the run's last step, where a fork would not show

A copy is named only where it is proven, of at least 24 points, where the sigma of each run is at
    least 20 of its own steps:
filter   least squares of y_t on 1, y_{t-1} and x_{t-1} to x_{t+2}, or of x on y, leave 90 % of the
         points within max(q, sigma/1,000), q as the larger share of its run's sigma: moved, scaled,
         shifted, averaged
derived  second differences of y that are those of x times a factor, but for a residual below 0.5 %
         of them: changed smoothly
little   T < 3 and sigma(d) < 2 % of sigma(x): noise was added to a copy
blend    second differences of y - x that are a mixture of those between 2 other runs or more of its
         arm and seed, but for 10 %

Of 1,128 pairs of 175 B runs, 1,770 of a diffusion model, 1,225 of LoRA and 900 of other reruns none
is named (calibration/honest_runs.py). Real reruns: sigma(d) 3 to 4 % of sigma(x), T from 10 up,
blends 34 % and more; emulated ones: sigma(d) 20 %, T from 0.4 up. Can fail: noise invented with the
size and the memory of a rerun's is counted as one, and a copy whose log is short or coarsely
printed is not named.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.alignment import common_losses
from parity.judging.curves.curve import (
    FORKED_FROM,
    BoolArray,
    Curve,
    FloatArray,
    IntArray,
    all_usable,
    computed_once,
    dot,
    mean,
    median,
    usable,
)
from parity.judging.curves.resolution import rounding_step
from parity.judging.curves.spikes import stretches
from parity.judging.curves.step_noise import mad_sd, second_differences, step_noise
from parity.wording import percent

Relation = Literal["equal", "copy", "fork", "late"]

MIN_COMMON = 8  # points; fewer decide nothing, whatever they are
EQUAL_SHARE, EQUAL_SHARE_FROM = 0.995, 200
COPY_POINTS, NOISE_STEPS = 24, 20.0
FILTER_SHARE, FILTER_EXACT = 0.9, 1e-3  # of the points, and of sigma
BLOCKS, BLOCKS_FROM, MIN_BLOCK_POINTS = 8, 0.2, 5
NO_MEMORY, LITTLE_NOISE = 3.0, 0.02
FORK_SHARE, FORK_POINTS = 0.05, 10
LATE_SHARE = 0.05
FLOAT_SPACINGS = 2.0  # of float32: what storing a loss changes
FINE_ROUNDING_STEP = 2e-4  # four decimals or more
NOISELESS = 1e-6  # of the loss
# of noise, printed: honest arms are then equal at 75 % of the points, never at all of many
VISIBLE_STEPS = 4.0
EQUAL_POINTS, DERIVED, MIXED = 10, 0.005, 0.1
MIXTURE_POINTS = 10  # per run, in the last half of the common points
SAMPLE, FILTERED, LONG = 1_024, 2_048, 16_384  # points that show what all of them would


@frozen
class LeftOut:
    """A run that does not count: its label, what it is to another run, and how that was seen, in
    words.
    """

    label: str
    relation: Relation
    why: str


def same_series(left: Curve, right: Curve) -> bool:
    """Whether two runs have the same steps and the same losses, bit for bit (NaN equals NaN)."""
    a, b = left.loss.view(np.int64), right.loss.view(np.int64)
    # the last differs mostly
    return (
        np.array_equal(a[-1:], b[-1:])
        and np.array_equal(a, b)
        and np.array_equal(left.steps, right.steps)
    )


def resemblance(left: Curve, right: Curve) -> str | None:
    """How the log of one arm was made from that of the other, in words; None where nothing says
    that it was.

    Curves without any noise, at two levels, have nothing by which one could be known as the other.
    """
    if same_series(left, right):
        return "equal at every step"
    _, x, y = _common_losses(left, right)
    if len(x) < MIN_COMMON:
        return None
    rounding_steps = last_rounding_step(left), last_rounding_step(right)
    if _equal_as_printed(x, y, rounding_steps) and step_noise(x[-LONG:]) >= max(
        VISIBLE_STEPS * max(rounding_steps), NOISELESS * abs(float(x[-1]))
    ):
        return "equal as printed"
    if (why := _copied((left, right), (x, y), rounding_steps)) is not None:
        return why
    if not _are_coarse(x, y, rounding_steps) and (points := longest_equal(x, y)) >= EQUAL_POINTS:
        return f"equal at {points:,} points in a row"
    return None


def dependence(first: Curve, second: Curve) -> tuple[Relation, str] | None:
    """What makes `second` no run of its own next to `first`, with the reason in words; None where
    nothing does.
    """
    if same_series(first, second):
        return "equal", "equal at every step"
    if FORKED_FROM in second.context:
        return "fork", f"forked from {second.context[FORKED_FROM]}, as its record says"
    _, x, y = _common_losses(first, second)
    if len(x) < MIN_COMMON:
        # too little in common for anything to be judged, which the comparison will say itself
        return None
    rounding_steps = last_rounding_step(first), last_rounding_step(second)
    if _equal_as_printed(x, y, rounding_steps):
        return "equal", "equal as printed"
    if not _are_coarse(x, y, rounding_steps):
        if (until := shared_start(first, second)) is not None:
            return "fork", f"equal to another run up to step {until:,}"
        if (points := longest_equal(x, y)) >= EQUAL_POINTS:
            return "fork", f"equal to another run at {points:,} points in a row"
    if (why := _copied((first, second), (x, y), rounding_steps)) is not None:
        return "copy", why
    if not starts_late(second):
        return None
    return (
        "late",
        f"its log starts at step {int(second.steps[0]):,}: whether it is a fork can't be seen",
    )


def _equal_as_printed(x: FloatArray, y: FloatArray, rounding_steps: tuple[float, float]) -> bool:
    """Whether two logs (n,) are one, printed with these rounding steps; floats of 8 or 11 bits
    are rounded to one step in each octave.
    """
    few = 0 if len(x) < EQUAL_SHARE_FROM else len(x) - math.ceil(EQUAL_SHARE * len(x))
    float_step = FLOAT_SPACINGS * float(np.spacing(np.float32(max(x.max(), -x.min()))))
    step = max(rounding_steps) * octaves(x, max(rounding_steps)) + float_step
    if _few_points_differ(few, lambda part: np.abs(y[part] - x[part]) > 0.501 * step[part]):
        return True
    if rounding_steps[0] == rounding_steps[1] or not is_binary(max(rounding_steps)):
        return False
    cut = np.abs(x) - np.abs(y) if rounding_steps[1] > rounding_steps[0] else np.abs(y) - np.abs(x)
    return _few_points_differ(
        few, lambda part: (cut[part] < -0.001 * step[part]) | (cut[part] > 1.001 * step[part])
    )


def _few_points_differ(few: int, differ: Callable[[slice], BoolArray]) -> bool:
    """Whether at most `few` points differ; other runs show more than that in their last points
    alone, so those are asked first.
    """
    return all(
        np.count_nonzero(differ(part)) <= few
        for part in (slice(-4 * few - LONG, None), slice(None))
    )


def is_binary(rounding_step: float) -> bool:
    """Whether a step is a negative power of two, as the steps of short floats are."""
    return 0.0 < rounding_step < 1.0 and math.frexp(rounding_step)[0] == 0.5


def octaves(x: FloatArray, rounding_step: float) -> FloatArray:
    """By which factor the step of each of (n,) short floats is larger than that of the last ones; 1
    for decimals.
    """
    if not is_binary(rounding_step):
        return np.ones(len(x))
    exponents = np.frexp(np.abs(x))[1]
    factors: FloatArray = np.ldexp(1.0, exponents - int(np.median(exponents[-SAMPLE:])))
    return np.maximum(factors, 1.0)


def _copied(
    runs: tuple[Curve, Curve],
    losses: tuple[FloatArray, FloatArray],
    rounding_steps: tuple[float, float],
) -> str | None:
    """How the log of one run was made from that of the other, where their common losses (n,) prove
    it.
    """
    x, y = (loss[-LONG:] for loss in losses)
    noise = [
        late_noise(run)
        if len(losses_of_run) == len(run.loss)
        else step_noise(losses_of_run[-LONG:])
        for run, losses_of_run in zip(runs, losses, strict=True)
    ]
    if len(x) < COPY_POINTS or min(noise) == 0.0:
        return None
    printed = max(
        step / noise_of_run for step, noise_of_run in zip(rounding_steps, noise, strict=True)
    )
    if printed > 1.0 / NOISE_STEPS:
        return None
    exact = max(printed, FILTER_EXACT)
    if _is_filter(x, y, exact * noise[1]) or _is_filter(y, x, exact * noise[0]):
        return (
            "the same but for a constant, a factor or an average over a few steps, within "
            f"{percent(exact)} of the batch noise"
        )
    if _derived(x, y, noise[1]):
        return "the same but for a factor or a smooth change"
    return _little_noise(x, y, noise[0])


def _is_filter(x: FloatArray, y: FloatArray, tolerance: float) -> bool:
    """Whether least squares explain y_t by a constant, y_{t-1} and x_{t-1} to x_{t+2}: by Gram and
    Schmidt, on one thread.
    """
    x, y = x[-FILTERED:], y[-FILTERED:]
    known = orthonormal((np.ones(len(x) - 3), x[1:-2], x[:-3], x[2:-1], x[3:], y[:-3]))
    rest = _rest(y[1:-2], known)
    return float(np.count_nonzero(np.abs(rest) <= tolerance)) / len(rest) >= FILTER_SHARE


def orthonormal(columns: Iterable[FloatArray]) -> list[FloatArray]:
    """An orthonormal basis of columns (Q,); zero where one depends on those before it. LAPACK's
    would wait for busy cores.
    """
    basis: list[FloatArray] = []
    for column in columns:
        rest = _rest(column, basis)
        size = math.sqrt(dot(rest, rest))
        basis.append(
            rest / size if size > 1e-12 * math.sqrt(dot(column, column)) else np.zeros(len(rest))
        )
    return basis


def _rest(column: FloatArray, basis: Sequence[FloatArray]) -> FloatArray:
    """What an orthonormal basis leaves of a column (Q,)."""
    rest = column.copy()
    for known in (*basis, *basis):  # twice, so that columns which are nearly alike stay apart
        rest -= dot(known, rest) * known
    return rest


def _little_noise(x: FloatArray, y: FloatArray, batch: float) -> str | None:
    noise, memory = step_noise(y - x), block_memory(y - x)
    if memory is not None and memory < NO_MEMORY and noise < LITTLE_NOISE * batch:
        return f"equal but for noise of {percent(noise / batch)} of the batch noise"
    return None


def _derived(x: FloatArray, y: FloatArray, noise: float) -> bool:
    """Whether the second differences of y are those of x times a factor; `noise` is the step noise
    of y, x has some of its own.
    """
    a, b = second_differences(x), second_differences(y)
    return mad_sd(b - dot(a, b) / dot(a, a) * a) < DERIVED * math.sqrt(6.0) * noise


def longest_equal(x: FloatArray, y: FloatArray) -> int:
    """The most points in a row at which two logs are equal, beyond the first, which reruns share;
    fewer than 10 count as none.
    """
    equal = x[1:] == y[1:]
    if np.count_nonzero(equal) < EQUAL_POINTS:
        return 0
    starts, ends = stretches(equal)
    return int((ends - starts).max())


def is_mixture(run: Curve, others: Sequence[Curve]) -> bool | None:
    """Whether a run's noise is a mixture of that of two other runs or more; None where there are
    too few points for that many runs.
    """
    if len(others) < 2:
        return False
    steps, losses = common_losses((run, *others))
    rows = np.array([loss[len(steps) // 2 :][-LONG:] for loss in losses])
    rows = rows[:, usable(rows).all(axis=0)]
    if rows.shape[1] < MIXTURE_POINTS * len(rows):
        return None
    changes = np.array([second_differences(row - rows[1]) for row in rows])
    target, basis = changes[0], changes[2:].T
    if not target.any():
        return True
    residual = target - basis @ np.linalg.lstsq(basis, target, rcond=None)[0]
    return float(residual.std()) < MIXED * float(target.std())


def shared_start(first: Curve, second: Curve) -> int | None:
    """The last step up to which two runs are equal within rounding; None where they part as soon as
    two runs of their own do.
    """
    steps, x, y = _common_losses(first, second)
    if len(x) < MIN_COMMON:
        return None
    rounding = max(
        last_rounding_step(first),
        last_rounding_step(second),
        FLOAT_SPACINGS * float(np.spacing(np.float32(np.abs(x[:SAMPLE]).max()))),
    )
    shared = max(FORK_POINTS, math.ceil(FORK_SHARE * len(x)))
    if len(x) < shared or float(np.abs(y[:shared] - x[:shared]).max()) > rounding:
        return None
    apart = np.flatnonzero(np.abs(y - x) > rounding)
    until = int(apart[0]) if len(apart) else len(x)
    return int(steps[min(until, len(steps)) - 1])


def starts_late(run: Curve) -> bool:
    """Whether a log starts so late that a fork would not show."""
    return int(run.steps[0]) > LATE_SHARE * int(run.steps[-1])


def block_memory(difference: FloatArray) -> float | None:
    """T of the differences (n,) of two runs: 1 for noise without memory, far above it for a run's
    own offset; None for short series.
    """
    late = difference[int(BLOCKS_FROM * len(difference)) :]
    if len(late) < BLOCKS * MIN_BLOCK_POINTS:
        return None
    blocks = np.array_split(late, BLOCKS)
    # a few spikes must not hide an offset
    variance = median(np.array([mad_sd(block[-LONG // BLOCKS :]) for block in blocks])) ** 2
    if variance == 0.0:
        return 0.0 if not late.any() else math.inf
    return float(np.mean([len(block) * mean(block) ** 2 for block in blocks])) / variance


def _are_coarse(x: FloatArray, y: FloatArray, rounding_steps: tuple[float, float]) -> bool:
    """Whether rounding, to 3 decimals or fewer, explains equal points and small residuals; logs of
    two values are printed so.
    """
    return (
        max(rounding_steps) > FINE_ROUNDING_STEP
        or min(len(np.unique(loss[-SAMPLE:])) for loss in (x, y)) <= 2
    )


@computed_once
def last_rounding_step(run: Curve) -> float:
    """The step to which a run's last losses are rounded, nats: their difference where there are two
    values; 0.0 where none is visible.
    """
    late = run.loss[-SAMPLE:]
    late = late[usable(late)]
    values = np.unique(late)
    if len(values) == 2 and len(late) > 2:
        return float(values[1] - values[0])
    return rounding_step(late)


@computed_once
def late_noise(run: Curve) -> float:
    """Batch noise of a run's last points, nats."""
    return step_noise(run.loss[-LONG:])


def _common_losses(left: Curve, right: Curve) -> tuple[IntArray, FloatArray, FloatArray]:
    """Steps (n,) at which both runs have a usable loss, and the losses there."""
    steps, (x, y) = common_losses((left, right))
    if all_usable(x) and all_usable(y):
        return steps, x, y
    finite = usable(x) & usable(y)
    return steps[finite], x[finite], y[finite]
