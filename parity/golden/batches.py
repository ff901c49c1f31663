"""Did both runs read the same batches in the same order?

The noise of a batch is the same in two runs that read it. What a curve does slowly is removed by
differences of order k = 1 to 4, scaled so that white noise keeps its size; the order with the least
noise counts. Then

    q = spread of the differences of log(run) - log(golden), over the spread of their own noise
        times sqrt(2)
    r = correlation of both runs' differences, each clipped at 3 of its spreads

q is near 0 for the same batches and near 1 for unrelated ones; r is near 1 and near 0. Both have
one border: half of the variance from step to step is shared, q = sqrt(1/2) and r = 1/2, because
q^2 = 1 - r for noise of one size. It is no fitted number. Batches are unrelated where both say so.
"""

import numpy as np

from parity.frozen import frozen
from parity.golden.common_steps import Common
from parity.judging.curves.curve import FloatArray, dot, median

HALF_SHARED = 0.5**0.5  # q at which half of the variance is shared
HALF_CORRELATED = 0.5
# q of one run against the other, shifted by a step or two: far below the border (a convention)
SHIFTED = 0.35
LAGS = (1, 2)
ORDERS = (1, 2, 3, 4)
MIN_ROWS = 8
ROBUST = 0.6744897501960817  # median |x| of a standard normal x
CLIP = 3.0
# the share of the last rows that are judged by themselves, since batches may change on the way
LATE = 2
# below 2^-9 nats, the rounding of a loss in bf16, a difference has no batch in it
ROUNDING = 2.0**-9


@frozen
class BatchAgreement:
    """How far the noise of two runs agrees: `q` and `r` (see the module), `spread`, the noise from
    step to step of log(golden) and log(run) together, as a share of the loss, and `noise_ratio`,
    that of the run over the golden's.
    """

    q: float
    r: float
    spread: float
    noise_ratio: float = 1.0

    @property
    def is_unrelated(self) -> bool:
        """Both measures say that the noise is not that of the same batches."""
        return self.q > HALF_SHARED and self.r < HALF_CORRELATED

    @property
    def is_shared(self) -> bool:
        """Both measures say that the noise is that of the same batches."""
        return self.q <= HALF_SHARED and self.r >= HALF_CORRELATED


SAME = BatchAgreement(q=0.0, r=1.0, spread=0.0)


def agreement(golden: FloatArray, run: FloatArray) -> BatchAgreement:
    """The agreement of two runs' losses (n,), positive, on the same steps; `SAME` below 8 rows, and
    where neither has noise.
    """
    if len(golden) < MIN_ROWS:
        return SAME
    left, right = np.log(golden), np.log(run)
    best: tuple[float, FloatArray, FloatArray] | None = None
    for order in ORDERS:
        if len(left) < order + MIN_ROWS // 2:
            break
        size = _white_size(order)
        x, y = np.diff(left, order) / size, np.diff(right, order) / size
        spread = float(np.sqrt((_spread(x) ** 2 + _spread(y) ** 2) / 2.0))
        if spread > 0.0 and (best is None or spread < best[0]):
            best = spread, x, y
    if best is None:
        return SAME
    spread, x, y = best
    return BatchAgreement(
        q=_spread(y - x) / (spread * 2.0**0.5),
        r=_correlation(x, y),
        spread=spread,
        noise_ratio=_spread(y) / (_spread(x) or spread),
    )


def late_agreement(common: Common) -> BatchAgreement:
    """The agreement of the whole run or of its last half, whichever is less: other batches from
    the middle on hide in the median of the whole.

    Differences that stay below the rounding of the losses count as the same batches.
    """
    half = common.rows(len(common.steps) // LATE)
    measured = [_beyond_rounding(part) for part in (common, half)]
    unshared = [one for one in measured if not one.is_shared]
    return max(unshared or measured[:1], key=lambda one: one.q)


def _beyond_rounding(common: Common) -> BatchAgreement:
    """The agreement of some rows; `SAME` where they differ by no more than rounding."""
    if len(common.steps) < MIN_ROWS:
        return SAME
    noise = _spread(np.diff(common.difference)) / 2.0**0.5
    return SAME if noise < ROUNDING else agreement(common.golden, common.run)


def shift(common: Common) -> int:
    """By how many rows the run is behind the golden (negative: ahead), where it reads the golden's
    batches so; 0 where no shift of 1 or 2 rows explains it.
    """
    best, rows_behind = SHIFTED, 0
    for lag in LAGS:
        if len(common.steps) - lag < MIN_ROWS:
            break
        for signed, golden, run in (
            (lag, common.golden[:-lag], common.run[lag:]),
            (-lag, common.golden[lag:], common.run[:-lag]),
        ):
            measured = agreement(golden, run)
            if measured.spread > 0.0 and measured.q < best:
                best, rows_behind = measured.q, signed
    return rows_behind


def _white_size(order: int) -> float:
    """The standard deviation of differences of that order of white noise with deviation 1."""
    weights = np.array([1.0])
    for _ in range(order):
        weights = np.convolve(weights, [1.0, -1.0])
    return float(np.sqrt(dot(weights, weights)))


def _spread(values: FloatArray) -> float:
    """The robust standard deviation of values around zero."""
    return median(np.abs(values)) / ROBUST


def _correlation(x: FloatArray, y: FloatArray) -> float:
    """The correlation of two series, each clipped at 3 of its spreads; 0 where one has none."""
    clipped = []
    for values in (x, y):
        limit = CLIP * _spread(values)
        inside = np.clip(values, -limit, limit)
        clipped.append(inside - inside.mean())
    power = dot(clipped[0], clipped[0]) * dot(clipped[1], clipped[1])
    return dot(clipped[0], clipped[1]) / power**0.5 if power > 0.0 else 0.0
