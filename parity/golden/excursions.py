"""Spikes and humps: rows in which a run leaves its golden and comes back.

D is the difference in % of the golden's loss. Over w rows it is excessive by

    mean of D over these rows - max(median of D before them, median of D after them)

so a drift or a shift is no excursion. Near the ends there is one side alone.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from parity.frozen import frozen
from parity.golden.common_steps import Common
from parity.judging.curves.curve import FloatArray, median

# In 431 honest pairs of Megatron-LM golden files, in both directions, 99.5 % stay below 0.77 % over
# one row, of which this is twice, and below 0.58 % over a tenth of the rows.
ROW_PCT = 1.5
WIDE_PCT = 0.8
# Downwards by this factor more: such a dip is an excursion of the golden that the run lacks, which
# harms nobody, and two honest pairs of 245 have one of 1.3 and 1.8 % over a tenth of the rows.
DIP_FACTOR = 2.5
FEW_ROWS = 4  # a spike that takes some rows to come back, at the limit of one row
WIDE_SHARE = 10  # a hump has a tenth of the rows
SIDE_ROWS = 10  # before and after, and 2 rows for each row of the hump
MIN_SIDE = 3
# A convention: the largest of 5,000 honest differences is at 4.3 of their deviations.
STEP_NOISES = 6.0
# Where the golden itself leaves its running median a run may differ by as much, since honest runs
# did by half: by more than 5 of its usual deviations, which batch noise alone seldom reaches.
NEAR, UNUSUAL = 3, 5.0
ROBUST = 0.6744897501960817


@frozen
class Excursion:
    """The largest excursion: how far, in % of the loss, at which `step`, over how many `rows`; its
    limit is `limit_pct`.
    """

    pct: float
    limit_pct: float
    step: int
    rows: int

    @property
    def is_beyond(self) -> bool:
        """It is beyond its limit."""
        return self.pct > self.limit_pct


def largest_excursion(common: Common, sign: float = 1.0) -> Excursion:
    """The excursion that is most beyond its limit, upwards (sign 1) or downwards (-1); `pct` is
    positive in both.
    """
    differences = sign * common.percent
    wide = max(2, len(differences) // WIDE_SHARE)
    noise = median(np.abs(np.diff(differences))) / ROBUST / 2.0**0.5
    own = _own_excursions(common.golden)
    excursions = []
    factor = 1.0 if sign > 0.0 else DIP_FACTOR
    for rows, least in ((1, ROW_PCT), (FEW_ROWS, ROW_PCT), (wide, WIDE_PCT)):
        if rows >= len(differences):
            continue
        beyond = _beyond_sides(differences, rows)
        limits = np.maximum(
            max(factor * least, STEP_NOISES * noise / rows**0.5),
            _moving_max(own, rows)[: len(beyond)],
        )
        at = int(np.argmax(beyond - limits))
        step = int(common.steps[at + int(np.argmax(differences[at : at + rows]))])
        excursions.append(
            Excursion(pct=float(beyond[at]), limit_pct=float(limits[at]), step=step, rows=rows)
        )
    return max(excursions, key=lambda excursion: excursion.pct - excursion.limit_pct)


def _beyond_sides(values: FloatArray, rows: int) -> FloatArray:
    """By how much the mean of each `rows` values is above the medians before and after, (n - rows +
    1,).
    """
    n = len(values)
    means = sliding_window_view(values, rows).mean(axis=1)
    side = min(SIDE_ROWS + 2 * rows, n)
    filled = np.concatenate([np.full(side, np.nan), values, np.full(side, np.nan)])
    sides = _medians(sliding_window_view(filled, side))
    before = sides[: n - rows + 1]  # the `side` values that end before row t
    after = sides[side + rows : side + rows + n - rows + 1]
    count = np.arange(n - rows + 1)
    before = np.where(count >= MIN_SIDE, before, after if rows == 1 else np.inf)
    after = np.where(count + rows <= n - MIN_SIDE, after, before)
    beyond: FloatArray = means - np.maximum(before, after)
    return beyond


def _medians(windows: FloatArray) -> FloatArray:
    """The median of each row of (m, k) values without its NaN; NaN for a row that has nothing
    else.
    """
    ordered = np.sort(windows, axis=1)  # NaN last
    counts = np.sum(~np.isnan(ordered), axis=1)
    lower = np.take_along_axis(ordered, np.maximum((counts - 1) // 2, 0)[:, None], axis=1)
    upper = np.take_along_axis(ordered, np.maximum(counts // 2, 0)[:, None], axis=1)
    middle: FloatArray = np.where(counts > 0, (lower[:, 0] + upper[:, 0]) / 2.0, np.nan)
    return middle


def _own_excursions(golden: FloatArray) -> FloatArray:
    """How far the golden itself is from its running median where that is unusual, % of the loss,
    the largest near each row (n,).
    """
    logs = 100.0 * np.log(golden)
    width = min(2 * SIDE_ROWS // 2 + 1, len(logs))
    half = width // 2
    padded = np.pad(logs, (half, width - 1 - half), constant_values=np.nan)
    own = np.abs(logs - _medians(sliding_window_view(padded, width)))
    own[own <= UNUSUAL * median(own) / ROBUST] = 0.0
    return _moving_max(np.pad(own, NEAR), 2 * NEAR + 1)


def _moving_max(values: FloatArray, rows: int) -> FloatArray:
    """The largest of each `rows` neighbours, (n - rows + 1,)."""
    largest: FloatArray = sliding_window_view(values, rows).max(axis=1)
    return largest
