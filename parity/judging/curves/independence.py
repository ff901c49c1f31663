"""Is a run a run of its own? Copies and forks of other runs are found, among the pairs of runs that
may be related at all.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np

from parity.judging.curves.agreement import quantum
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
from parity.judging.curves.pairing import common_losses
from parity.judging.curves.window import (
    MAD_TO_SD,
    mad_sd,
    second_differences,
    step_noise,
    stretches,
)
from parity.structure import frozen
from parity.wording import percent

# Is a run a run of its own? A copy or a fork of another run says nothing about how much two runs
# differ, and never counts as one.
#
# x, y: losses of two runs of one arm at their n common finite steps; q: the coarser of the steps to
# which they are printed sigma(z) = 1.4826 MAD(z_t - 2 z_{t+1} + z_{t+2}) / sqrt(6) noise that is
# new at every step T = mean over 8 blocks, from 20 % of the points on, of n_b mean(d_b)^2 /
# sd(d_b)^2 1 where d = y - x has no memory at all
#
# equal     every point (from 200 on 99.5 %) within q/2, for bfloat16 and float16 also cut off.
#           Coarse rounding and deterministic reruns
#   do
#           that as well as a file that is given twice: such runs count once, and nobody is accused
# fork      |d| stays within rounding over the first 5 % of the points and at least 10; 10 equal
#           points in a row; or a parent is on
#   record.
#           Asked of logs with 4 decimals or more: coarser ones make honest runs equal
# late      the log starts after 5 % of the run's last step, where a fork would not show
#
# A copy is named only where it is proven, of at least 24 points, where the sigma of each run is at
# least 20 of its own steps:
# filter    least squares of y_t on 1, y_{t-1} and x_{t-1} to x_{t+2}, or of x on y, leave 90 % of
#           the points within max(q, sigma/1,000),
#           q as the larger share of its run's sigma: moved, scaled, shifted, averaged
# derived   second differences of y that are those of x times a factor, but for a residual below 0.5
#           % of them: changed smoothly
# little    T < 3 and sigma(d) < 2 % of sigma(x): noise was added to a copy
# blend     second differences of y - x that are a mixture of those between 2 other runs or more of
#           its arm and seed, but for 10 %
#
# Of 1,128 pairs of 175 B runs, 1,770 of a diffusion model, 1,225 of LoRA and 900 of other reruns
# none is named (benchmarks/honest_runs.py). Real reruns: sigma(d) 3 to 4 % of sigma(x), T from 10
# up, blends 34 % and more; emulated ones: sigma(d) 20 %, T from 0.4 up. Can fail: noise invented
# with the size and the memory of a rerun's is counted as one, and a copy whose log is short or
# coarsely printed is not named.

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
FINE_QUANTUM = 2e-4  # four decimals or more
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
    quanta = rounding_step(left), rounding_step(right)
    if _equal_as_printed(x, y, quanta) and step_noise(x[-LONG:]) >= max(
        VISIBLE_STEPS * max(quanta), NOISELESS * abs(float(x[-1]))
    ):
        return "equal as printed"
    if (why := _copied((left, right), (x, y), quanta)) is not None:
        return why
    if not _are_coarse(x, y, quanta) and (points := _longest_equal(x, y)) >= EQUAL_POINTS:
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
    quanta = rounding_step(first), rounding_step(second)
    if _equal_as_printed(x, y, quanta):
        return "equal", "equal as printed"
    if not _are_coarse(x, y, quanta):
        if (until := shared_start(first, second)) is not None:
            return "fork", f"equal to another run up to step {until:,}"
        if (points := _longest_equal(x, y)) >= EQUAL_POINTS:
            return "fork", f"equal to another run at {points:,} points in a row"
    if (why := _copied((first, second), (x, y), quanta)) is not None:
        return "copy", why
    if not starts_late(second):
        return None
    return (
        "late",
        f"its log starts at step {int(second.steps[0]):,}: whether it is a fork can't be seen",
    )


def _equal_as_printed(x: FloatArray, y: FloatArray, quanta: tuple[float, float]) -> bool:
    """Whether two logs (n,) are one, printed to the steps `quanta`; floats of 8 or 11 bits are
    rounded to one step in each octave.
    """
    few = 0 if len(x) < EQUAL_SHARE_FROM else len(x) - math.ceil(EQUAL_SHARE * len(x))
    float_step = FLOAT_SPACINGS * float(np.spacing(np.float32(max(x.max(), -x.min()))))
    step = max(quanta) * octaves(x, max(quanta)) + float_step
    if _at_most(few, lambda part: np.abs(y[part] - x[part]) > 0.501 * step[part]):
        return True
    if quanta[0] == quanta[1] or not is_binary(max(quanta)):
        return False
    cut = np.abs(x) - np.abs(y) if quanta[1] > quanta[0] else np.abs(y) - np.abs(x)
    return _at_most(
        few, lambda part: (cut[part] < -0.001 * step[part]) | (cut[part] > 1.001 * step[part])
    )


def _at_most(few: int, differ: Callable[[slice], BoolArray]) -> bool:
    """Whether at most `few` points differ; other runs show more than that in their last points
    alone, so those are asked first.
    """
    return all(
        np.count_nonzero(differ(part)) <= few
        for part in (slice(-4 * few - LONG, None), slice(None))
    )


def is_binary(quantum: float) -> bool:
    """Whether a step is a negative power of two, as the steps of short floats are."""
    return 0.0 < quantum < 1.0 and math.frexp(quantum)[0] == 0.5


def octaves(x: FloatArray, quantum: float) -> FloatArray:
    """By which factor the step of each of (n,) short floats is larger than that of the last ones; 1
    for decimals.
    """
    if not is_binary(quantum):
        return np.ones(len(x))
    exponents = np.frexp(np.abs(x))[1]
    factors: FloatArray = np.ldexp(1.0, exponents - int(np.median(exponents[-SAMPLE:])))
    return np.maximum(factors, 1.0)


def _copied(
    runs: tuple[Curve, Curve], losses: tuple[FloatArray, FloatArray], quanta: tuple[float, float]
) -> str | None:
    """How the log of one run was made from that of the other, where their common losses (n,) prove
    it.
    """
    x, y = (loss[-LONG:] for loss in losses)
    noise = [
        _late_noise(run) if len(own) == len(run.loss) else step_noise(own[-LONG:])
        for run, own in zip(runs, losses, strict=True)
    ]
    if len(x) < COPY_POINTS or min(noise) == 0.0:
        return None
    printed = max(step / own for step, own in zip(quanta, noise, strict=True))
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
    known = _orthonormal((np.ones(len(x) - 3), x[1:-2], x[:-3], x[2:-1], x[3:], y[:-3]))
    rest = _rest(y[1:-2], known)
    return float(np.count_nonzero(np.abs(rest) <= tolerance)) / len(rest) >= FILTER_SHARE


def _orthonormal(columns: Iterable[FloatArray]) -> list[FloatArray]:
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
    own, memory = step_noise(y - x), block_memory(y - x)
    if memory is not None and memory < NO_MEMORY and own < LITTLE_NOISE * batch:
        return (
            f"different by noise of {percent(own / batch)} of the batch noise only, without an "
            "offset of its own"
        )
    return None


def _derived(x: FloatArray, y: FloatArray, noise: float) -> bool:
    """Whether the second differences of y are those of x times a factor; `noise` is the step noise
    of y, x has some of its own.
    """
    a, b = second_differences(x), second_differences(y)
    return mad_sd(b - dot(a, b) / dot(a, a) * a) < DERIVED * math.sqrt(6.0) * noise


def _longest_equal(x: FloatArray, y: FloatArray) -> int:
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
        rounding_step(first),
        rounding_step(second),
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


def _are_coarse(x: FloatArray, y: FloatArray, quanta: tuple[float, float]) -> bool:
    """Whether rounding, to 3 decimals or fewer, explains equal points and small residuals; logs of
    two values are printed so.
    """
    return max(quanta) > FINE_QUANTUM or min(len(np.unique(loss[-SAMPLE:])) for loss in (x, y)) <= 2


@computed_once
def rounding_step(run: Curve) -> float:
    """The step to which a run's last losses are rounded, nats: their difference where there are two
    values; 0.0 where none is visible.
    """
    late = run.loss[-SAMPLE:]
    late = late[usable(late)]
    values = np.unique(late)
    if len(values) == 2 and len(late) > 2:
        return float(values[1] - values[0])
    return quantum(late)


@computed_once
def _late_noise(run: Curve) -> float:
    """Batch noise of a run's last points, nats."""
    return step_noise(run.loss[-LONG:])


def _common_losses(left: Curve, right: Curve) -> tuple[IntArray, FloatArray, FloatArray]:
    """Steps (n,) at which both runs have a usable loss, and the losses there."""
    steps, (x, y) = common_losses((left, right))
    if all_usable(x) and all_usable(y):
        return steps, x, y
    finite = usable(x) & usable(y)
    return steps[finite], x[finite], y[finite]


# Which pairs of runs may be related at all? 200 runs have 20,000 pairs, and the tests of
# `independence` take a millisecond a pair.
#
# Each rule of `independence` is asked here of 256 to 512 points of both runs, with a wider limit:
# shares 0.25 lower (0.1 for equal logs, 0.15 where half of the points decide), scales and T twice
# as high, 1.5 times for mixtures, 1.25 for averages. These points follow no period, but averages
# are sought over the last 96 points. All points are asked for equal stretches and for means of
# blocks. A pair beyond every limit is not related; of any other the thorough test decides, so no
# run is left out on these grounds. Runs with NaN, of fewer than 64 points, or on other steps than
# the first run are not screened: all their pairs stay.
#
# Mixtures: rows z_i - z_1 of second differences, L the Cholesky factor of their Gram matrix; L_kk^2
# is the sum of squares that rows before k leave of row k. Runs that turn out not to count only add
# rows, which make it smaller: then a thorough test is made that was not needed. Up to 100 runs are
# asked for all their points, because a few common spikes may decide; more runs for at least 2,048.
#
# Can fail: a log that is a copy except at the points that are asked. No rounding, thinning or
# smoothing does that.

POINTS, BLOCK_POINTS, MIN_POINTS = 256, 64, 64
SHARE_LESS, EQUAL_LESS, FACTOR, FILTER_FACTOR, MIXED_FACTOR = 0.25, 0.1, 2.0, 1.25, 1.5
FILTER_POINTS = 96  # in a row
MOST, NOISY_BLOCKS = 0.35, 3  # of the points, where half of all do; of 8 blocks, where half do
MIXTURE_SAMPLE, MIXTURE_PRODUCTS = 2_048, 200_000_000
_GRAM_ROWS = 20
_ONE_THREAD = 2**18  # products of a matrix product up to which OpenBLAS takes one thread
# its multiples, modulo 1, are spread evenly and follow no period
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@frozen(eq=False)
class _Sample:
    """What is asked of one run, or, with one dimension more, of several: losses in nats, P <= 256
    points, 8 blocks of B <= 64 points.

    quantum: step of rounding; noise: batch noise of the last points; size: the largest loss;
    spread, start (P,): points of all and of the first 5 %; steps (P,): what `spread` is printed to;
    changes (P,): second differences; blocks (8, B), means, sizes (8,): of blocks; target, before
    (Q,): the last points and those before each, basis (Q, 5): an orthonormal basis of 1 and of four
    points around each.
    """

    quantum: FloatArray
    noise: FloatArray
    spread: FloatArray
    steps: FloatArray
    target: FloatArray
    before: FloatArray
    basis: FloatArray
    changes: FloatArray
    means: FloatArray
    sizes: FloatArray
    blocks: FloatArray
    start: FloatArray
    size: FloatArray


def may_be_related(
    first: Sequence[Curve], second: Sequence[Curve], before: bool = False
) -> BoolArray:
    """Where `independence` has to look: (F, S), False where none of its tests of two runs' losses
    would relate them.

    With `before`, where both are the same runs, only pairs of a run with a later one are asked, and
    the others stay True. What a run says of itself (a parent on record, a late start) and the
    scales of batch noise are not asked here.
    """
    related = np.ones((len(first), len(second)), dtype=bool)
    grid = first[0].steps
    screened = np.array([j for j, run in enumerate(second) if _is_screened(run, grid)], dtype=int)
    if not len(screened):
        return related
    samples = _stacked([_sample(second[j]) for j in screened])
    some = np.array([_every_few(second[j]) for j in screened])
    for i, run in enumerate(first):
        if not _is_screened(run, grid):
            continue
        start = int(np.searchsorted(screened, i, side="right")) if before else 0
        others = screened[start:]
        if len(others):
            alike = _are_alike(_sample(run), _from(samples, start)) | _are_filters(
                _sample(run), _from(samples, start)
            )
            # Ten equal points in a row have two that are asked here.
            equal = np.count_nonzero(some[start:] == _every_few(run), axis=-1) >= 2
            related[i, others] = alike | [
                may and _longest_equal(run.loss, second[j].loss) >= EQUAL_POINTS
                for may, j in zip(equal.tolist(), others, strict=True)
            ]
    return related


def pairs_to_test(first: Sequence[Curve], second: Sequence[Curve]) -> list[tuple[Curve, Curve]]:
    """The pairs (of first, of second) that may be related, in the order of `second`, then of
    `first`.
    """
    related = may_be_related(first, second)
    return [(first[i], second[j]) for j, i in np.argwhere(related.T)]


def may_be_mixtures(runs: Sequence[Curve]) -> BoolArray:
    """Where `is_mixture` has to look: (R,), False where a run is no mixture of the runs of its seed
    before it.
    """
    mixed = np.ones(len(runs), dtype=bool)
    for seed in {run.seed for run in runs}:
        own = [number for number, run in enumerate(runs) if run.seed == seed]
        rows = [runs[number] for number in own]
        if len(rows) > 1 and all(_is_screened(run, rows[0].steps) for run in rows):
            mixed[own[1:]] = _are_spanned(rows)[1:]
    return mixed


def _are_spanned(runs: Sequence[Curve]) -> BoolArray:
    """(R,): whether a run's second differences are nearly those of a mixture of the runs
    before it.
    """
    late = runs[0].loss[len(runs[0].loss) // 2 :][-LONG:]
    # spikes are few, and decide
    count = max(MIXTURE_SAMPLE, 2 * MIXTURE_POINTS * len(runs), MIXTURE_PRODUCTS // len(runs) ** 2)
    at = _spread(len(runs[0].loss) - len(late), len(runs[0].loss) - 2, count)
    if len(at) < MIXTURE_POINTS * len(runs):
        return np.ones(len(runs), dtype=bool)
    changes = np.array([run.loss[at] - 2.0 * run.loss[at + 1] + run.loss[at + 2] for run in runs])
    changes -= changes[0]
    try:
        unexplained = np.diag(np.linalg.cholesky(gram := _lower_gram(changes[1:]))) ** 2
    except np.linalg.LinAlgError:  # some run is one exactly
        return np.ones(len(runs), dtype=bool)
    return np.append(True, unexplained < (MIXED_FACTOR * MIXED) ** 2 * np.diag(gram))


def _lower_gram(rows: FloatArray) -> FloatArray:
    """The lower triangle of the inner products (R, R) of rows (R, P), in pieces of one thread: BLAS
    would wait for busy cores.
    """
    gram = np.zeros((len(rows), len(rows)))
    for start in range(0, len(rows), _GRAM_ROWS):
        some, before = rows[start : start + _GRAM_ROWS], rows[: start + _GRAM_ROWS]
        points = max(1, _ONE_THREAD // (len(some) * len(before)))
        for first in range(0, rows.shape[1], points):
            piece = slice(first, first + points)
            gram[start : start + len(some), : len(before)] += some[:, piece] @ before[:, piece].T
    return gram


def _is_screened(run: Curve, grid: IntArray) -> bool:
    return len(grid) >= MIN_POINTS and np.array_equal(run.steps, grid) and _is_usable(run)


@computed_once
def _every_few(run: Curve) -> FloatArray:
    return run.loss[:: EQUAL_POINTS // 2].copy()


@computed_once
def _is_usable(run: Curve) -> bool:
    return all_usable(run.loss)


def _spread(start: int, end: int, count: int) -> IntArray:
    """At most `count` distinct indices, ascending, one from each of `count` equal parts of `start`
    to before `end`.

    Where in its part an index lies follows no period, so that what returns every few points is not
    always hit, nor always missed.
    """
    if end - start <= count:
        return np.arange(start, end)
    edges = start + np.arange(count + 1) * (end - start) // count
    inside: IntArray = edges[:-1] + (np.diff(edges) * (np.arange(count) * _GOLDEN % 1.0)).astype(
        int
    )
    return inside


@computed_once
def _sample(run: Curve) -> _Sample:
    loss, n = run.loss, len(run.loss)
    at = _spread(max(0, n - LONG), n - 2, POINTS)
    first = int(BLOCKS_FROM * n)
    size, longer = divmod(n - first, BLOCKS)
    edges = first + size * np.arange(BLOCKS + 1) + np.minimum(np.arange(BLOCKS + 1), longer)
    parts = [loss[start:stop] for start, stop in itertools.pairwise(edges)]
    length = min(BLOCK_POINTS, *(len(part) for part in parts))
    late = [part[-LONG // BLOCKS :] for part in parts]
    quantum, spread, end = rounding_step(run), loss[_spread(0, n, POINTS)], loss[-FILTER_POINTS:]
    return _Sample(
        quantum=np.array(quantum),
        noise=np.array(_late_noise(run)),
        spread=spread,
        steps=quantum
        * (
            octaves(loss, quantum)[_spread(0, n, POINTS)]
            if is_binary(quantum)
            else np.ones(len(spread))
        ),
        target=end[1:-2],
        before=end[:-3],
        basis=np.column_stack(
            _orthonormal((np.ones(len(end) - 3), end[:-3], end[1:-2], end[2:-1], end[3:]))
        ),
        changes=loss[at] - 2.0 * loss[at + 1] + loss[at + 2],
        means=np.array([mean(part) for part in parts]),
        sizes=np.array([len(part) for part in parts], dtype=float),
        blocks=np.array([part[_spread(0, len(part), length)] for part in late]),
        start=loss[_spread(0, max(FORK_POINTS, math.ceil(FORK_SHARE * n)), POINTS)],
        size=np.array(max(loss.max(), -loss.min())),
    )


def _stacked(samples: Sequence[_Sample]) -> _Sample:
    return _Sample(
        **{
            field.name: np.array([getattr(sample, field.name) for sample in samples])
            for field in dataclasses.fields(_Sample)
        }
    )


def _from(samples: _Sample, start: int) -> _Sample:
    if start:
        return _Sample(
            **{
                field.name: getattr(samples, field.name)[start:]
                for field in dataclasses.fields(_Sample)
            }
        )
    return samples


def _are_alike(one: _Sample, others: _Sample) -> BoolArray:
    """(S,): whether a rule of `independence` comes near to holding for one run and each of S
    others.
    """
    related = _may_be_equal(one, others)
    residual = FACTOR * DERIVED * math.sqrt(6.0) * np.maximum(one.noise, others.noise)
    for scale in (
        np.einsum("si,i->s", others.changes, one.changes) / (dot(one.changes, one.changes) or 1.0),
        _ratios(others, one),
    ):
        related |= _are_within(others.changes - scale[:, None] * one.changes, residual, MOST)
    quiet = _are_within(
        others.changes - one.changes, FACTOR * LITTLE_NOISE * math.sqrt(6.0) * one.noise, MOST
    )
    offsets = others.means - one.means
    about = (others.blocks - one.blocks) - offsets[:, :, None]
    asked = quiet & ~related
    if asked.any():
        memory = np.mean(one.sizes * offsets[asked] ** 2, axis=-1)
        least = np.sqrt(memory / (FACTOR * NO_MEMORY))
        noisy = ~_are_within(about[asked], least[:, None], 0.5)
        related[asked] = ~_are_within(about[asked].reshape(len(memory), -1), least, 0.5) | (
            noisy.sum(axis=-1) >= NOISY_BLOCKS
        )
    rounding = np.maximum(
        np.maximum(one.quantum, others.quantum), 2.0 * np.spacing(np.float32(one.size))
    )
    related |= np.abs(others.start - one.start).max(axis=-1) <= rounding
    return related


def _may_be_equal(one: _Sample, others: _Sample) -> BoolArray:
    """(S,): whether two logs are equal at nearly the share of the points that makes them equal as
    printed.
    """
    step = np.where((others.quantum > one.quantum)[:, None], others.steps, one.steps)
    half = 0.501 * step
    cut_off = (others.quantum != one.quantum)[:, None] & (step > half)
    limit = np.where(
        cut_off & np.vectorize(is_binary)(np.maximum(others.quantum, one.quantum))[:, None],
        1.001 * step,
        half,
    )
    limit = limit + FLOAT_SPACINGS * np.spacing(
        np.float32(max(float(one.size), float(others.size.max())))
    )
    equal: BoolArray = (
        np.mean(np.abs(others.spread - one.spread) <= limit, axis=-1) >= EQUAL_SHARE - EQUAL_LESS
    )
    return equal


def _are_filters(one: _Sample, others: _Sample) -> BoolArray:
    """(S,): whether the last points of one run are nearly an average over a few steps of another's,
    either way.

    With the values of the source projected out of the target and of its last values, what is left
    is a fit of one factor.
    """
    printed = np.maximum(_over(one.quantum, one.noise), _over(others.quantum, others.noise))
    found = printed <= FACTOR / NOISE_STEPS
    if len(one.target) + 3 < COPY_POINTS or not found.any():
        return found & False
    from_one = [rows - (rows @ one.basis) @ one.basis.T for rows in (others.target, others.before)]
    to_one = [
        row - np.einsum("spi,si->sp", others.basis, np.einsum("p,spi->si", row, others.basis))
        for row in (one.target, one.before)
    ]
    exact = FILTER_FACTOR * np.maximum(printed, FILTER_EXACT)
    explained = np.zeros(len(found), dtype=bool)
    for (target, before), noise in ((from_one, others.noise), (to_one, one.noise)):
        power = np.einsum("sp,sp->s", before, before)
        factor = np.einsum("sp,sp->s", target, before) / np.where(power > 0.0, power, 1.0)
        residual = np.abs(target - factor[:, None] * before)
        explained |= (
            np.mean(residual <= (exact * noise)[:, None], axis=1) >= FILTER_SHARE - SHARE_LESS
        )
    return found & explained


def _over(steps: FloatArray, noise: FloatArray) -> FloatArray:
    """(...): steps of rounding as shares of the noise; infinite where there is none."""
    share: FloatArray = np.divide(steps, noise, out=np.full(noise.shape, np.inf), where=noise > 0.0)
    return share


def _are_within(values: FloatArray, scale: FloatArray | float, share: float) -> BoolArray:
    """(...): whether this share of the (..., P) values lies within `scale` of zero, a robust
    standard deviation.

    With a share of 0.5 that is their robust standard deviation; to count is faster than a median.
    """
    limit = np.asarray(scale)[..., None] / MAD_TO_SD
    within: BoolArray = np.greater_equal(np.mean(np.abs(values) <= limit, axis=-1), share)
    return within


def _ratios(others: _Sample, one: _Sample) -> FloatArray:
    """(S,): the factor between the second differences of two runs that a few other points do not
    move, as they move a fit to 256.
    """
    moved = np.flatnonzero(one.changes)
    if not len(moved):
        return np.zeros(len(others.changes))
    return np.partition(others.changes[:, moved] / one.changes[moved], len(moved) // 2, axis=-1)[
        :, len(moved) // 2
    ]
