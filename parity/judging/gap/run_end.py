"""The end of the run, judged on its own: what the last steps say is what the model is when training
stops.

tails    the last 1, 2, 4, ... points of the window, up to a quarter of it (below 200 points up to
         8)
rise_k   mean gap of the last k points minus the mean gap of the window's first three quarters
limit_k  false alarms of all m tails and both directions together: 1 %
         from 200 points on: t(df, 1 - 0.01 / (2 m)) sqrt(Omega / k), Omega = n SE^2 of the three
         quarters without their spikes
         below: t(n0 - 1, 1 - 0.01 / (2 m)) s sqrt(1/k + 1/n0), s the standard deviation of the n0
         points before; and the same with these points capped at their upper order statistics: one
         that shows the rise is enough
differs  rise_k > limit_k for some k, and with the run-to-run noise the tail's gap reaches the
         margin: e_k + h > M; or -rise_k > max(limit_k, M); or the mean gap of the last tenth or
         twentieth (at least 16 points of 200) is M or more, though the window's interval is below
above    lo* of the mean gap of the last quarter or the last half is above the margin (`capped`)

A spike returns; what has not returned when the run ends can't be told from a divergence, so it is
never masked and blocks a pass. Measured over 9,042 windows that end anywhere in the last 40 % of
honest pairs (7 public reruns of a 124 M model, two runs of a 15 B model, 8 emulated runs): rise /
noise exceeds 4 in 0.4 % of them; the limit is 4.2 for 350 points. Can fail: a tail whose gap stays
below the margin is seen by the window's interval only.
"""

import math

import numpy as np

from parity.frozen import frozen
from parity.judging import special
from parity.judging.curves.curve import FloatArray, IntArray, mean
from parity.judging.curves.spikes import NEGLIGIBLE, find_spikes
from parity.judging.curves.step_noise import MANY_POINTS, mean_se
from parity.judging.gap.interval import Interval, interval, t_quantile
from parity.judging.gap.robust_bounds import (
    NOTHING_UNLOGGED,
    robust_interval,
)
from parity.judging.policy import POINTS_TO_FAIL

FALSE_ALARMS = 0.01
LATE_PARTS = (4, 2)  # of the window: the last quarter and the last half
HIGH_POINTS = 16  # fewer say nothing on average without their noise
# quarters of the points below any cap: lower ones take away the noise itself
MAX_CAPS, CAPPED_FROM = 20, 3


@frozen
class RunEnd:
    """The tail of the run that stands out most: its `points`, mean `gap`, `rise` from before it,
    the rise's `limit`; nats.

    `differs` says whether it could carry the gap across the margin, `above` whether the run surely
    ends above it.
    """

    points: int
    gap: float
    rise: float
    limit: float
    differs: bool
    above: bool


@frozen(eq=False)
class _Tails:
    """Tails of `lengths` (m,) points: their `means`, and their `rises` from what comes before them
    with the `limits` that noise sets.
    """

    lengths: IntArray
    means: FloatArray
    rises: FloatArray
    limits: FloatArray


def measure_end(
    gap: FloatArray,
    whole: Interval,
    margin: float,
    levels: tuple[float, float],
    nominal: float,
    level: float,
    rounding_step: float,
) -> RunEnd | None:
    """The end of the window's gap series without spikes (n,), nats; None for fewer than 8 points.

    `whole` is the window's interval, `level` the baseline's loss there, `rounding_step` that of the
    losses. `levels` are the confidence of the interval that decides and that of its error within
    pairs, `nominal` the policy's own, at which an end is above the margin: further looks and
    candidates make no fail harder.
    """
    n = len(gap)
    if n < POINTS_TO_FAIL:
        return None
    run_half = t_quantile(levels[0], whole.run.df) * whole.run.variance**0.5
    every = (
        [_tails_of_many_points(gap, level, rounding_step)]
        if n >= MANY_POINTS
        else _tails_of_few_points(gap, level, rounding_step)
    )
    rising = [(tails.means + run_half > margin) & (tails.rises > tails.limits) for tails in every]
    falling = -every[-1].rises > np.maximum(every[-1].limits, margin)
    reaches = [
        up | falling if tails is every[-1] else up for tails, up in zip(every, rising, strict=True)
    ]
    shown, reached = next(
        ((tails, hit) for tails, hit in zip(every, reaches, strict=True) if hit.any()),
        (every[-1], reaches[-1]),
    )
    size = np.abs(shown.rises) - shown.limits
    most = int(
        np.argmax(
            np.where(reached, np.abs(shown.rises), -np.inf)
            if reached.any()
            else size / np.maximum(shown.limits, 1e-300)
        )
    )
    above = late_part_above(gap, whole, margin, (nominal, nominal))
    ends_high = whole.bounds(*levels)[1] < margin and _ends_high(gap, margin)
    return RunEnd(
        points=int(shown.lengths[most]),
        gap=float(shown.means[most]),
        rise=float(shown.rises[most]),
        limit=float(shown.limits[most]),
        differs=bool(reached.any()) or ends_high,
        above=above,
    )


def _tails_of_many_points(gap: FloatArray, level: float, rounding_step: float) -> _Tails:
    """The tails of a series (n,) of 200 points or more, whose long-run variance is known."""
    centre, omega, df = _gap_before_end(
        gap[: len(gap) - len(gap) // LATE_PARTS[0]], level, rounding_step
    )
    lengths = 2 ** np.arange(int(math.log2(len(gap) // LATE_PARTS[0])) + 1)
    z = float(special.stdtrit(df, 1.0 - FALSE_ALARMS / (2.0 * len(lengths))))
    means = _tail_means(gap, lengths)
    limits = np.maximum(z * np.sqrt(omega / lengths), NEGLIGIBLE * abs(level))
    return _Tails(lengths=lengths, means=means, rises=means - centre, limits=limits)


def _tails_of_few_points(gap: FloatArray, level: float, rounding_step: float) -> list[_Tails]:
    """The tails of a series (n,) of fewer points against its first three quarters, with these
    capped in several ways, the last as they are.

    A candidate that is worse somewhere before its end must not widen the noise by which the end is
    judged.
    """
    n = len(gap)
    before = gap[: n - n // LATE_PARTS[0]]
    lengths = np.array([k for k in (1, 2, 4, 8) if k <= n // LATE_PARTS[0]])
    t = float(special.stdtrit(len(before) - 1, 1.0 - FALSE_ALARMS / (2.0 * len(lengths))))
    means = _tail_means(gap, lengths)
    caps = np.sort(before)[CAPPED_FROM * len(before) // 4 :]
    caps = caps[:: 1 + len(caps) // MAX_CAPS]
    tails = []
    for capped in (*np.minimum(before, caps[:, None]), before):
        sd = math.sqrt(float(capped.var(ddof=1)) + rounding_step**2 / 6.0)
        limits = np.maximum(
            t * sd * np.sqrt(1.0 / lengths + 1.0 / len(before)), NEGLIGIBLE * abs(level)
        )
        tails.append(
            _Tails(lengths=lengths, means=means, rises=means - mean(capped), limits=limits)
        )
    return tails


def _tail_means(gap: FloatArray, lengths: IntArray) -> FloatArray:
    return np.cumsum(gap[: -int(lengths[-1]) - 1 : -1])[lengths - 1] / lengths


def _ends_high(gap: FloatArray, margin: float) -> bool:
    """Whether the last tenth or twentieth, at least 16 points, is on average at the margin: no
    noise limit, so that a slow swing counts.
    """
    return any(
        mean(gap[-max(HIGH_POINTS, len(gap) // parts) :]) >= margin
        for parts in (10, 20)
        if len(gap) >= MANY_POINTS
    )


def late_part_above(
    gap: FloatArray, whole: Interval, margin: float, levels: tuple[float, float]
) -> bool:
    """Whether the last quarter or half of a gap series (n,) surely lies above the margin; see
    `measure_end` for the other values.
    """
    return any(
        _is_above(gap[len(gap) - len(gap) // parts :], whole, margin, levels)
        for parts in LATE_PARTS
    )


def _is_above(
    late: FloatArray, whole: Interval, margin: float, levels: tuple[float, float]
) -> bool:
    """Whether the mean of the late points lies above the margin, whatever a few of them do."""
    if len(late) < POINTS_TO_FAIL or mean(late) <= margin:  # no lower end is above the mean
        return False
    plain = interval(mean(late), mean_se(late), whole.run)
    return robust_interval(late, plain, NOTHING_UNLOGGED, ((), ())).bounds(*levels)[0] > margin


def _gap_before_end(
    gap: FloatArray, level: float, rounding_step: float
) -> tuple[float, float, float]:
    """Mean of the gap before the end, its long-run variance Omega, and the degrees of freedom that
    this is known with.
    """
    quiet = find_spikes(gap, level, rounding_step, part_of_run=True).masked_gap
    error = mean_se(quiet)
    return mean(quiet), error.value**2 * len(quiet) + rounding_step**2 / 6.0, error.df
