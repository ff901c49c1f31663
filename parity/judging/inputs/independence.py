"""Is a run a run of its own? A copy or a fork of another run says nothing about how much two runs differ, and never counts as one.

x, y: losses of two runs of one arm at their common finite steps; d = y - x, without the batch noise that both share
sigma(z) = 1.4826 MAD(z_t - 2 z_{t+1} + z_{t+2}) / sqrt(6)                            noise that is new at every step
T = mean over 8 blocks, from 20 % of the points on, of n_b mean(d_b)^2 / sd(d_b)^2     1 where d has no memory at all

copy      of all points, or of the last fifth, at least 60 % have |d - median d| <= 0.0001 nats (99.5 %, where both logs are rounded alike),
          or 90 % have |d - median d| <= half the coarser rounding step
little    T < 3 and sigma(d) < 2 % of sigma(x): noise was added to a copy
derived   second differences of y that are those of x times a factor, but for a residual below 0.5 % of them: scaled, or changed smoothly
equal     10 points in a row that are equal, in logs with 4 decimals or more
mixed     second differences of y - x that are a mixture of those between other runs, but for 20 % (real reruns: from 34 % up)
filtered  T < 0.1, or (where the batches are the same) sigma(y) / sigma(x) outside 0.9 to 1.11: a running mean of another run
fork      |d| stays within rounding over the first 2 % of the points and at least 10; or a parent is on record
late      the log starts after 5 % of the run's last step, where a fork would not show

Real reruns on 2 GPU stacks (7 and 2 runs): T from 10 up, sigma(d) 3 to 4 % of sigma(x), scales equal within 2 %, d above rounding from the
second step on; emulated reruns of 0.1 M parameters: sigma(d) 20 %, T from 0.4 up. Can fail: noise invented with the size and the memory of
a rerun's is counted as one, and an honest rerun whose log is thin or coarsely rounded may be left out. When in doubt a run does not count.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from parity.judging.curve import FORKED_FROM, Curve, FloatArray, IntArray, all_usable, once_per_run, usable
from parity.judging.inputs.alignment import common_losses
from parity.judging.inputs.pairing import SAME_ORDER, pair_correlation
from parity.judging.inputs.resolution import quantum
from parity.judging.noise import dot, mad_sd, median, second_differences, step_noise
from parity.judging.spikes import stretches
from parity.wording import percent

Relation = Literal["equal", "copy", "fork", "late"]

COPY_NATS, COPY_SHARE, COPY_POINTS = 1e-4, 0.6, 8  # real reruns: at most 10 % within 0.0001 nats
COPY_SHARE_ALIKE = 0.995  # reruns of the 124 M model are equal at 75 % of the steps with 2 decimals, at 97 % with one
COPY_SHARE_ROUNDED = 0.9  # and within half a step at 70 % of the steps, where one log has 2 decimals
LAST_SHARE = 0.2
BLOCKS, BLOCKS_FROM, MIN_BLOCK_POINTS = 8, 0.2, 5
NO_MEMORY, NEGATIVE_MEMORY, LITTLE_NOISE = 3.0, 0.1, 0.02
SCALE_RATIO = 0.9
FORK_SHARE, FORK_POINTS = 0.02, 10
LATE_SHARE = 0.05
EQUAL_POINTS, DERIVED, MIXED = 10, 0.005, 0.2
MIXTURE_POINTS = 10  # per run, in the last half of the common points
SAMPLE, LONG = 1_024, 16_384  # points that show what all of them would


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A run that does not count: its label, what it is to another run, and how that was seen, in words."""

    label: str
    relation: Relation
    why: str


def same_series(left: Curve, right: Curve) -> bool:
    """Whether two runs have the same steps and the same losses, bit for bit (NaN equals NaN)."""
    return np.array_equal(left.steps, right.steps) and np.array_equal(left.loss.view(np.int64), right.loss.view(np.int64))


def resemblance(left: Curve, right: Curve) -> str | None:
    """How the log of one arm was made from that of the other, in words; None where nothing says that it was.

    Curves without any noise, at two levels, have nothing by which one could be known as the other.
    """
    if same_series(left, right):
        return "equal at every step"
    _, x, y = _common_losses(left, right)
    if len(x) < COPY_POINTS:
        return None
    quanta = rounding_step(left), rounding_step(right)
    tolerance, share = likeness(quanta)
    if _is_copy(x, y, tolerance, share):
        noiseless = step_noise(x[-SAMPLE:]) <= tolerance < abs(median(y[-SAMPLE:] - x[-SAMPLE:]))
        return None if noiseless else f"equal but for {tolerance:.2g} nats or a constant"
    if not _are_coarse(quanta):
        if (points := _longest_equal(x, y)) >= EQUAL_POINTS:
            return f"equal at {points:,} points in a row"
        if _derived(x, y):
            return "the same but for a factor or a smooth change"
    return _little_noise(x, y)


def dependence(first: Curve, second: Curve) -> tuple[Relation, str] | None:
    """What makes `second` no run of its own next to `first`, with the reason in words; None where nothing does."""
    if same_series(first, second):
        return "equal", "equal at every step"
    if FORKED_FROM in second.context:
        return "fork", f"forked from {second.context[FORKED_FROM]}, as its record says"
    _, x, y = _common_losses(first, second)
    if len(x) < COPY_POINTS:
        return None  # too little in common for anything to be judged, which the comparison will say itself
    quanta = rounding_step(first), rounding_step(second)
    tolerance, share = likeness(quanta)
    if _is_copy(x, y, tolerance, share):
        return "copy", f"equal but for {tolerance:.2g} nats or a constant"
    if not _are_coarse(quanta) and _derived(x, y):
        return "copy", "the same but for a factor or a smooth change"
    if (doubt := _filtered(x, y)) is not None:
        return doubt
    if (until := shared_start(first, second)) is not None:
        return "fork", f"equal to another run up to step {until:,}"
    if not _are_coarse(quanta) and (points := _longest_equal(x, y)) >= EQUAL_POINTS:
        return "fork", f"equal to another run at {points:,} points in a row"
    return ("late", f"its log starts at step {int(second.steps[0]):,}: whether it is a fork can't be seen") if starts_late(second) else None


def _filtered(x: FloatArray, y: FloatArray) -> tuple[Relation, str] | None:
    if (why := _little_noise(x, y)) is not None:
        return "copy", why
    correlation, batch = pair_correlation(x, y), step_noise(x)
    ratio = step_noise(y) / batch if batch > 0.0 else 1.0
    if correlation is not None and correlation >= SAME_ORDER and not SCALE_RATIO <= ratio <= 1.0 / SCALE_RATIO:
        return "copy", f"batch noise {ratio:.2f} times that of the other run on the same batches: smoothed"
    return None


def _little_noise(x: FloatArray, y: FloatArray) -> str | None:
    batch, own, memory = step_noise(x[-LONG:]), step_noise(y[-LONG:] - x[-LONG:]), block_memory(y - x)
    if memory is not None and memory < NO_MEMORY and own < LITTLE_NOISE * batch:
        return f"different by noise of {percent(own / batch)} of the batch noise only, without an offset of its own"
    if memory is not None and memory < NEGATIVE_MEMORY:
        return "different by what cancels out, as for a running mean"
    return None


def _derived(x: FloatArray, y: FloatArray) -> bool:
    a, b = second_differences(x[-LONG:]), second_differences(y[-LONG:])
    noise, power = mad_sd(a), dot(a, a)
    return noise > 0.0 and mad_sd(b) > 0.0 and mad_sd(b - dot(a, b) / power * a) < DERIVED * noise


def _longest_equal(x: FloatArray, y: FloatArray) -> int:
    """The most points in a row at which two logs are equal, beyond the first, which reruns share; fewer than 10 count as none."""
    equal = x[1:] == y[1:]
    if np.count_nonzero(equal) < EQUAL_POINTS:
        return 0
    starts, ends = stretches(equal)
    return int((ends - starts).max())


def is_mixture(run: Curve, others: Sequence[Curve]) -> bool | None:
    """Whether a run's noise is a mixture of that of two other runs or more; None where there are too few points for that many runs."""
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
    """The last step up to which two runs are equal within rounding; None where they part as soon as two runs of their own do."""
    steps, x, y = _common_losses(first, second)
    if len(x) < COPY_POINTS:
        return None
    rounding = max(rounding_step(first), rounding_step(second), 2.0 * float(np.spacing(np.float32(np.abs(x[:SAMPLE]).max()))))
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
    """T of the differences (n,) of two runs: 1 for noise without memory, far above it for a run's own offset; None for short series."""
    late = difference[int(BLOCKS_FROM * len(difference)) :]
    if len(late) < BLOCKS * MIN_BLOCK_POINTS:
        return None
    blocks = np.array_split(late, BLOCKS)
    variance = median(np.array([mad_sd(block[-LONG // BLOCKS :]) for block in blocks])) ** 2  # a few spikes must not hide an offset
    if variance == 0.0:
        return 0.0 if not late.any() else math.inf
    return float(np.mean([len(block) * float(block.mean()) ** 2 for block in blocks])) / variance


def _is_copy(x: FloatArray, y: FloatArray, tolerance: float, share: float) -> bool:
    last = max(COPY_POINTS, round(LAST_SHARE * len(x)))
    return _share_equal(x, y, tolerance) >= share or _share_equal(x[-last:], y[-last:], tolerance) >= share


def _share_equal(x: FloatArray, y: FloatArray, tolerance: float) -> float:
    stride = 1 + len(x) // SAMPLE
    sample = y[::stride] - x[::stride]  # evenly spread, and enough for a share
    return float(np.mean(np.abs(sample - median(sample)) <= tolerance))


def likeness(quanta: tuple[float, float]) -> tuple[float, float]:
    """How far the points of two copies lie apart at most, nats, and which share of them does: rounding alike makes honest runs alike too.

    `quanta` are the steps to which both are rounded.
    """
    if quanta[0] == quanta[1]:
        return COPY_NATS, COPY_SHARE_ALIKE if quanta[0] > COPY_NATS else COPY_SHARE
    half = 0.501 * max(quanta)
    return (half, COPY_SHARE_ROUNDED) if half > COPY_NATS else (COPY_NATS, COPY_SHARE)


def _are_coarse(quanta: tuple[float, float]) -> bool:
    """Whether rounding, to 3 decimals or fewer, explains equal points and small residuals."""
    return max(quanta) > 2 * COPY_NATS


@once_per_run
def rounding_step(run: Curve) -> float:
    """The step to which a run's last losses are rounded, nats; 0.0 where none is visible."""
    late = run.loss[-SAMPLE:]
    return quantum(late[usable(late)])


def _common_losses(left: Curve, right: Curve) -> tuple[IntArray, FloatArray, FloatArray]:
    """Steps (n,) at which both runs have a usable loss, and the losses there."""
    steps, (x, y) = common_losses((left, right))
    if all_usable(x) and all_usable(y):
        return steps, x, y
    finite = usable(x) & usable(y)
    return steps[finite], x[finite], y[finite]
