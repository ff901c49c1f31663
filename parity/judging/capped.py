"""The two ends of the interval, so that no few points and no single run undo what all others show.

lo* = max over k of lo(d made better in way k), hi* = min over k of hi(d made worse in way k)

caps     min(d, c) at every order statistic c of d (above 60 points at every (1 + n // 60)-th, from 200 points on at 20 of them)
levels   at splits of 1/8 to 7/8 of the points the higher part is lowered to the other's mean
runs     a candidate's run whose gap is above c is shifted down to c, for each gap c of a run
missing  each point of the grid that is not logged counts as the smallest logged gap for lo, as the largest for hi
hi* is the mirror image. Without them one point of 5 nats, a ramp or one broken run of three widens the error so far that a fail is undone.

Below 30 points a series made better counts for lo* only where run noise leads its half-width: correlated gaps would fail by it too often
(11 to 16 % at a lag-1 correlation of 0.8; with run noise in the lead at most 1.1 %). Long series are averaged in blocks first.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from parity.judging.curve import FloatArray, IntArray, completeness_of
from parity.judging.interval import Interval, Side, interval, t_quantile, t_quantiles
from parity.judging.noise import MANY_POINTS, mean_ses
from parity.judging.run_floor import RunTerm
from parity.judging.window import Window

ALL_CAPS, CAPS_OF_MANY, SPLITS = 60, 20, 8
BLOCKS = 512  # of a longer series: caps and levels move whole stretches, which means of blocks show as well
FEW_POINTS = 30  # coverage of lo* in docs/method.md
MAX_RUN_CAPS = 20
NOMINAL = 0.95  # at which the two parts of the half-width are compared

RunChange = tuple[float, RunTerm]  # the shift of the mean gap, nats, and the between-run term that is left
RowErrors = Callable[[FloatArray], tuple[FloatArray, FloatArray]]  # standard errors and df (b,) of the means of (b, n) values


def missing_points(steps: IntArray, window: Window) -> int:
    """How many points of the logging grid the window lacks, of (n,) common steps in it, its unlogged ends included."""
    stride = completeness_of(steps).stride
    if stride is None:
        return 0
    inside = (int(steps[-1]) - int(steps[0])) // stride + 1 - len(steps)
    return max(inside, 0) + max(int(steps[0]) - window.first, 0) // stride + max(window.last - int(steps[-1]), 0) // stride


def capped_interval(
    gap: FloatArray,
    plain: Interval,
    missing: int,
    runs: tuple[Sequence[RunChange], Sequence[RunChange]],
    *,
    errors_of: RowErrors = mean_ses,
    fewest: int = 4,
) -> Interval:
    """The interval of the mean of (n,) paired gaps with lo* and hi*; `runs` are the changes of runs for the better and for the worse.

    `errors_of` gives the standard errors of changed series of `fewest` points and more.
    """
    short = gap if len(gap) <= 2 * BLOCKS else _blocks(gap)
    better, worse = (lowered(series) if len(series) >= fewest else [] for series in (short, -short))
    mirrored = [(-shift, term) for shift, term in runs[1]]
    sides = (
        _side(gap, plain, missing, runs[0], better, errors_of, careful=len(gap) < FEW_POINTS),
        _side(-gap, _mirrored(plain), missing, mirrored, worse, errors_of),
    )
    return interval(plain.mean, plain.within, plain.run, (sides[0], _mirror(sides[1])))


def run_interval(plain: Interval, runs: tuple[Sequence[RunChange], Sequence[RunChange]]) -> Interval:
    """The same where the error within is not that of a series of gaps (arms that are not paired): runs alone are changed."""
    sides = tuple(
        _of_rows(np.array([plain.mean]), (np.array([plain.within.value]), np.array([plain.within.df])), plain, own) for own in runs
    )
    return interval(plain.mean, plain.within, plain.run, (sides[0], sides[1]))


def run_changes(gaps: FloatArray, changed: Callable[[FloatArray], RunChange]) -> tuple[list[RunChange], list[RunChange]]:
    """What capping the (K,) gaps of the candidate's runs gives, for the better and for the worse; `changed` takes their shifts (K,)."""
    if len(gaps) < 2:
        return [], []
    caps = np.sort(gaps)[:: 1 + len(gaps) // MAX_RUN_CAPS]
    return [changed(np.minimum(cap - gaps, 0.0)) for cap in caps], [changed(np.maximum(cap - gaps, 0.0)) for cap in caps]


def _side(
    gap: FloatArray,
    plain: Interval,
    missing: int,
    runs: Sequence[RunChange],
    rows: Sequence[FloatArray],
    errors_of: RowErrors,
    *,
    careful: bool = False,
) -> Side:
    means, errors, dfs = np.array([plain.mean]), np.array([plain.within.value]), np.array([plain.within.df])
    if rows:
        changed = np.array(rows)
        own, df = errors_of(changed)
        if careful:
            run_half = t_quantile(NOMINAL, plain.run.df) * plain.run.variance**0.5
            counts = t_quantiles(NOMINAL, df) * own <= run_half
            changed, own, df = changed[counts], own[counts], df[counts]
        means, errors, dfs = np.append(means, changed.mean(axis=1)), np.append(errors, own), np.append(dfs, df)
    least = min(float(gap.min()), plain.mean)
    return _of_rows((len(gap) * means + missing * least) / (len(gap) + missing), (errors, dfs), plain, runs)


def _of_rows(means: FloatArray, within: tuple[FloatArray, FloatArray], plain: Interval, runs: Sequence[RunChange]) -> Side:
    every = [(0.0, plain.run), *runs]
    return Side(
        means=means,
        errors=within[0],
        dfs=within[1],
        shifts=tuple(shift for shift, _ in every),
        run_terms=tuple(term for _, term in every),
    )


def lowered(gap: FloatArray) -> list[FloatArray]:
    """The series (n,) lowered by caps and levels, each (n,)."""
    n = len(gap)
    every = 1
    if n > ALL_CAPS:
        every = 1 + n // ALL_CAPS if n < MANY_POINTS else -(-n // CAPS_OF_MANY)
    caps = np.sort(gap)[::every]
    rows = list(np.minimum(gap, caps[:, None]))
    for split in range(1, SPLITS):
        at = split * n // SPLITS
        step = float(gap[at:].mean() - gap[:at].mean()) if 0 < at < n else 0.0
        row = gap.copy()
        row[slice(at, None) if step > 0.0 else slice(None, at)] -= abs(step)
        rows.append(row)
    return rows


def _blocks(gap: FloatArray) -> FloatArray:
    size = len(gap) // BLOCKS
    means: FloatArray = gap[len(gap) % size :].reshape(-1, size).mean(axis=1)
    return means


def _mirrored(plain: Interval) -> Interval:
    return interval(-plain.mean, plain.within, plain.run)


def _mirror(side: Side) -> Side:
    return dataclasses.replace(side, means=-side.means, shifts=tuple(-shift for shift in side.shifts))
