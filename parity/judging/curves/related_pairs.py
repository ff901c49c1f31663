"""Which pairs of runs may be related at all? 200 runs have 20,000 pairs, and the tests of
`independence` take a millisecond a pair.

Each rule of `independence` is asked here of 256 to 512 points of both runs, with a wider limit:
shares 0.25 lower (0.1 for equal logs, 0.15 where half of the points decide), scales and T twice as
high, 1.5 times for mixtures, 1.25 for averages. These points follow no period, but averages are
sought over the last 96 points. All points are asked for equal stretches and for means of blocks. A
pair beyond every limit is not related; of any other the thorough test decides, so no run is left
out on these grounds. Runs with NaN, of fewer than 64 points, or on other steps than the first run
are not screened: all their pairs stay.

Mixtures: rows z_i - z_1 of second differences, L the Cholesky factor of their Gram matrix; L_kk^2
is the sum of squares that rows before k leave of row k. Runs that turn out not to count only add
rows, which make it smaller: then a thorough test is made that was not needed. Up to 100 runs are
asked for all their points, because a few common spikes may decide; more runs for at least 2,048.

Can fail: a log that is a copy except at the points that are asked. No rounding, thinning or
smoothing does that.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import (
    BoolArray,
    Curve,
    FloatArray,
    IntArray,
    all_usable,
    computed_once,
    dot,
    mean,
)
from parity.judging.curves.independence import (
    BLOCKS,
    BLOCKS_FROM,
    COPY_POINTS,
    DERIVED,
    EQUAL_POINTS,
    EQUAL_SHARE,
    FILTER_EXACT,
    FILTER_SHARE,
    FLOAT_SPACINGS,
    FORK_POINTS,
    FORK_SHARE,
    LITTLE_NOISE,
    LONG,
    MIXED,
    MIXTURE_POINTS,
    NO_MEMORY,
    NOISE_STEPS,
    is_binary,
    last_rounding_step,
    late_noise,
    longest_equal,
    octaves,
    orthonormal,
)
from parity.judging.curves.step_noise import MAD_TO_SD

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

    rounding_step: of its losses; noise: batch noise of the last points; size: the largest loss;
    spread, start (P,): points of all and of the first 5 %; steps (P,): what `spread` is printed to;
    changes (P,): second differences; blocks (8, B), means, sizes (8,): of blocks; target, before
    (Q,): the last points and those before each, basis (Q, 5): an orthonormal basis of 1 and of four
    points around each.
    """

    rounding_step: FloatArray
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
            alike = _are_alike(_sample(run), _samples_from(samples, start)) | _are_filters(
                _sample(run), _samples_from(samples, start)
            )
            # Ten equal points in a row have two that are asked here.
            equal = np.count_nonzero(some[start:] == _every_few(run), axis=-1) >= 2
            related[i, others] = alike | [
                may and longest_equal(run.loss, second[j].loss) >= EQUAL_POINTS
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
        numbers = [number for number, run in enumerate(runs) if run.seed == seed]
        rows = [runs[number] for number in numbers]
        if len(rows) > 1 and all(_is_screened(run, rows[0].steps) for run in rows):
            mixed[numbers[1:]] = _are_spanned(rows)[1:]
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
    rounding_step = last_rounding_step(run)
    spread, end = loss[_spread(0, n, POINTS)], loss[-FILTER_POINTS:]
    return _Sample(
        rounding_step=np.array(rounding_step),
        noise=np.array(late_noise(run)),
        spread=spread,
        steps=rounding_step
        * (
            octaves(loss, rounding_step)[_spread(0, n, POINTS)]
            if is_binary(rounding_step)
            else np.ones(len(spread))
        ),
        target=end[1:-2],
        before=end[:-3],
        basis=np.column_stack(
            orthonormal((np.ones(len(end) - 3), end[:-3], end[1:-2], end[2:-1], end[3:]))
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


def _samples_from(samples: _Sample, start: int) -> _Sample:
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
        np.maximum(one.rounding_step, others.rounding_step), 2.0 * np.spacing(np.float32(one.size))
    )
    related |= np.abs(others.start - one.start).max(axis=-1) <= rounding
    return related


def _may_be_equal(one: _Sample, others: _Sample) -> BoolArray:
    """(S,): whether two logs are equal at nearly the share of the points that makes them equal as
    printed.
    """
    step = np.where((others.rounding_step > one.rounding_step)[:, None], others.steps, one.steps)
    half = 0.501 * step
    cut_off = (others.rounding_step != one.rounding_step)[:, None] & (step > half)
    limit = np.where(
        cut_off
        & np.vectorize(is_binary)(np.maximum(others.rounding_step, one.rounding_step))[:, None],
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
    printed = np.maximum(
        _share_of_noise(one.rounding_step, one.noise),
        _share_of_noise(others.rounding_step, others.noise),
    )
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


def _share_of_noise(steps: FloatArray, noise: FloatArray) -> FloatArray:
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
