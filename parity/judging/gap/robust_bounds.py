"""The two ends of the interval, so that no few points and no single run undo what all others show.

lo* = max over k of lo(d lowered in way k), hi* = min over k of hi(d raised in way k)

caps     min(d, c) at every order statistic c of d (above 60 points at every (1 + n // 60)-th, from
         200 points on at 20 of them)
levels   at splits of 1/8 to 7/8 of the points the higher part is lowered to the other's mean
runs     a candidate's run whose gap is above c is shifted down to c, for each gap c of a run
missing  each point of the grid that is not logged counts as the smallest logged gap for lo, as the
         largest for hi

hi* is the mirror image. Without them one point of 5 nats, a ramp or one broken run of three widens
the error so far that a fail is undone.

Below 30 points a lowered series counts for lo* only where run-to-run noise leads its
half-width: correlated gaps would fail by it too often (11 to 16 % at a lag-1 correlation of 0.8;
with run-to-run noise in the lead at most 1.1 %). Long series are averaged in blocks first.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import (
    FloatArray,
    IntArray,
    completeness_of,
    mean,
    row_means,
)
from parity.judging.curves.step_noise import (
    MANY_POINTS,
    block_average,
    mean_ses,
)
from parity.judging.curves.window import Window
from parity.judging.gap.interval import Interval, Side, interval, t_quantile, t_quantiles
from parity.judging.noise.arm_noise import RunTerm

ALL_CAPS, CAPS_OF_MANY, SPLITS = 60, 20, 8
# of a longer series: caps and levels move whole stretches, which means of blocks show as well
BLOCKS = 512
FEW_POINTS = 30  # coverage: benchmarks/calibration P1, R1
MAX_RUN_CAPS = 20
NOMINAL = 0.95  # at which the two parts of the half-width are compared

# the shift of the mean gap, nats, and the between-run term that is left
RunChange = tuple[float, RunTerm]
NO_CHANGES: tuple[tuple[()], tuple[()]] = ((), ())
# standard errors and df (b,) of the means of (b, n) values
RowErrors = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


def missing_points(steps: IntArray, window: Window) -> int:
    """How many points of the logging grid the window lacks, of (n,) common steps in it, its
    unlogged ends included.
    """
    stride = completeness_of(steps).stride
    if stride is None:
        return 0
    inside = (int(steps[-1]) - int(steps[0])) // stride + 1 - len(steps)
    return (
        max(inside, 0)
        + max(int(steps[0]) - window.first, 0) // stride
        + max(window.last - int(steps[-1]), 0) // stride
    )


@frozen
class Unlogged:
    """Points of the window that were not logged: how many of the common grid, and `worse`, how many
    of those count for hi* as which gap.

    The others count as the largest gap for hi*, as the smallest for lo*. Gaps in nats.
    """

    points: int = 0
    worse: tuple[tuple[int, float], ...] = ()


NOTHING_UNLOGGED = Unlogged()


def robust_interval(
    gap: FloatArray,
    plain: Interval,
    unlogged: Unlogged,
    runs: tuple[Sequence[RunChange], Sequence[RunChange]],
    *,
    errors_of: RowErrors = mean_ses,
    fewest: int = 4,
) -> Interval:
    """The interval of the mean of (n,) paired gaps with lo* and hi*; `runs` are the changes of runs
    for the better and for the worse.

    `errors_of` gives the standard errors of changed series of `fewest` points and more.
    """
    short = block_average(gap, BLOCKS)
    better, worse = (
        lowered(series) if len(series) >= fewest else np.empty((0, len(series)))
        for series in (short, -short)
    )
    lower = _side(
        gap,
        plain,
        [(unlogged.points, float(gap.min()))],
        runs[0],
        better,
        errors_of,
        careful=len(gap) < FEW_POINTS,
    )
    mirrored = [(-shift, term) for shift, term in runs[1]]
    worse_ones = [(number, -value) for number, value in unlogged.worse]
    others = max(unlogged.points - sum(number for number, _ in worse_ones), 0), -float(gap.max())
    upper = _side(
        -gap,
        interval(-plain.mean, plain.within, plain.run),
        [others, *worse_ones],
        mirrored,
        worse,
        errors_of,
    )
    upper = dataclasses.replace(
        upper, means=-upper.means, shifts=tuple(-shift for shift in upper.shifts)
    )
    return interval(plain.mean, plain.within, plain.run, (lower, upper))


def run_interval(
    plain: Interval, runs: tuple[Sequence[RunChange], Sequence[RunChange]]
) -> Interval:
    """The same where the error within is not that of a series of gaps (arms that are not paired):
    runs alone are changed.
    """
    sides = tuple(
        _row_bounds(
            np.array([plain.mean]),
            (np.array([plain.within.value]), np.array([plain.within.df])),
            plain,
            run,
        )
        for run in runs
    )
    return interval(plain.mean, plain.within, plain.run, (sides[0], sides[1]))


def run_changes(
    gaps: FloatArray, changed: Callable[[FloatArray], RunChange]
) -> tuple[list[RunChange], list[RunChange]]:
    """What capping the (K,) gaps of the candidate's runs gives, for the better and for the worse;
    `changed` takes their shifts (K,).
    """
    if len(gaps) < 2:
        return [], []
    caps = np.sort(gaps)[:: 1 + len(gaps) // MAX_RUN_CAPS]
    return [changed(np.minimum(cap - gaps, 0.0)) for cap in caps], [
        changed(np.maximum(cap - gaps, 0.0)) for cap in caps
    ]


@frozen
class RunTerms:
    """The between-run terms of an interval at a loss of `level` nats: of the gap as it is, and with
    each change of runs for the better and for the worse, in the order of `run_changes`.
    """

    level: float
    term: RunTerm
    changed: tuple[tuple[RunTerm, ...], tuple[RunTerm, ...]] = NO_CHANGES

    def at(self, level: float) -> "RunTerms":
        """The same shares of another loss, with their degrees of freedom; the same nats where a
        loss is 0.
        """
        share = level / self.level if self.level else 1.0
        return RunTerms(
            level=level,
            term=_scaled(self.term, share),
            changed=_both([_scaled(term, share) for term in side] for side in self.changed),
        )

    def of_changes(
        self, runs: tuple[Sequence[RunChange], Sequence[RunChange]]
    ) -> tuple[Sequence[RunChange], Sequence[RunChange]]:
        """Changes of as many runs, each with the term that is known of it in place of its own."""
        better, worse = (
            [(shift, term) for (shift, _), term in zip(changes, terms, strict=True)]
            for changes, terms in zip(runs, self.changed, strict=True)
        )
        return better, worse


def noise_of(gap: Interval, level: float) -> RunTerms:
    """The run-to-run noise of an interval at a loss of `level` nats."""
    return RunTerms(
        level=level,
        term=gap.run,
        changed=_both(side.run_terms[1:] if side else () for side in gap.sides),
    )


def _scaled(term: RunTerm, share: float) -> RunTerm:
    return dataclasses.replace(term, variance=term.variance * share * share)


def _both(sides: Iterable[Sequence[RunTerm]]) -> tuple[tuple[RunTerm, ...], tuple[RunTerm, ...]]:
    better, worse = (tuple(side) for side in sides)
    return better, worse


def _side(
    gap: FloatArray,
    plain: Interval,
    unlogged: Sequence[tuple[int, float]],
    runs: Sequence[RunChange],
    rows: FloatArray,
    errors_of: RowErrors,
    *,
    careful: bool = False,
) -> Side:
    means, errors, dfs = (
        np.array([plain.mean]),
        np.array([plain.within.value]),
        np.array([plain.within.df]),
    )
    if len(rows):
        row_errors, df = errors_of(rows)
        if careful:
            run_half = t_quantile(NOMINAL, plain.run.df) * plain.run.variance**0.5
            counts = t_quantiles(NOMINAL, df) * row_errors <= run_half
            rows, row_errors, df = rows[counts], row_errors[counts], df[counts]
        means, errors, dfs = (
            np.append(means, row_means(rows)),
            np.append(errors, row_errors),
            np.append(dfs, df),
        )
    total, number = len(gap) * means, len(gap)
    for points, value in unlogged:
        total, number = total + points * min(value, float(gap.min()), plain.mean), number + points
    return _row_bounds(total / number, (errors, dfs), plain, runs)


def _row_bounds(
    means: FloatArray,
    within: tuple[FloatArray, FloatArray],
    plain: Interval,
    runs: Sequence[RunChange],
) -> Side:
    every = [(0.0, plain.run), *runs]
    return Side(
        means=means,
        errors=within[0],
        dfs=within[1],
        shifts=tuple(shift for shift, _ in every),
        run_terms=tuple(term for _, term in every),
    )


def lowered(gap: FloatArray) -> FloatArray:
    """The series (n,) lowered by each of r caps and levels, (r, n)."""
    n = len(gap)
    every = 1
    if n > ALL_CAPS:
        every = 1 + n // ALL_CAPS if n < MANY_POINTS else -(-n // CAPS_OF_MANY)
    caps = np.sort(gap)[::every]
    rows = np.empty((len(caps) + SPLITS - 1, n))
    np.minimum(gap, caps[:, None], out=rows[: len(caps)])
    for split, row in enumerate(rows[len(caps) :], 1):
        at = split * n // SPLITS
        step = mean(gap[at:]) - mean(gap[:at]) if 0 < at < n else 0.0
        row[:] = gap
        row[slice(at, None) if step > 0.0 else slice(None, at)] -= abs(step)
    return rows
