"""Which trained rows have no loss where one is due, by the rhythm of the losses.

A rhythm is local, because intervals of logging change: the gaps between losses, counted in trained
rows, of which three of five around a place must be alike. Of two rows, every second one may be
blank because the loss is logged so, or because it is NaN: then it is NaN.
"""

from itertools import pairwise

import numpy as np

from parity.judging.curves.curve import BoolArray, FloatArray, IntArray

LEAST_RHYTHM = 3  # trained rows from loss to loss
# gaps on each side of a place; how many of them are alike, to a tenth
NEIGHBOURS, ALIKE_SHARE, ALIKE = 5, 0.6, 0.1
EARLY = 0.25  # of an interval, by which a point may come early
NEVER = 1 << 40  # the rhythm of losses of which none is due


def due_losses(steps: FloatArray, blank: BoolArray, irregular: int = 1) -> BoolArray:
    """Which of (n,) trained rows, in the order of a file, have no loss where one is due; rows of
    one step are one.

    A restart begins anew: the rows from one that goes back to an earlier step are a stretch of
    their own, with the rhythm of the rows before where they have none. `irregular` is the rhythm of
    losses that have none.
    """
    due = np.zeros(len(blank), dtype=bool)
    if not len(blank):
        return due
    starts = np.concatenate([[0], np.flatnonzero(steps[1:] < steps[:-1]) + 1, [len(steps)]])
    usual = irregular
    for start, end in pairwise(starts.tolist()):
        # of each row among the distinct steps
        place = np.concatenate([[0], np.cumsum(steps[start + 1 : end] != steps[start : end - 1])])
        with_loss = np.unique(place[~blank[start:end]])
        rhythms = _rhythms(np.diff(with_loss), usual, irregular)
        due_places = _due_places(with_loss, int(place[-1]) + 1, rhythms)
        first = np.concatenate([[True], place[1:] != place[:-1]])  # one row a step
        due[start:end] = first & np.isin(place, due_places)
        usual = int(rhythms[-1])
    return due


def _due_places(with_loss: IntArray, number: int, rhythms: IntArray) -> IntArray:
    """The places from 0 to `number` - 1 at which a loss is due, and not there; `rhythms` are those
    of the gaps between losses, or one.
    """
    if not len(with_loss):
        return _every(-1, number, int(rhythms[0]))
    gaps = np.diff(with_loss)
    places = [_every(int(with_loss[-1]), number, int(rhythms[-1]))]
    head, first = int(with_loss[0]), int(rhythms[0])
    places.append(np.arange(head) if first < LEAST_RHYTHM else head - _every(0, head, first))
    for at in np.flatnonzero(gaps > 1):
        begin, gap, rhythm = int(with_loss[at]), int(gaps[at]), int(rhythms[at])
        if rhythm < LEAST_RHYTHM:
            places.append(np.arange(begin + 1, begin + gap))
        else:
            missing = max(int(gap / rhythm + EARLY) - 1, 0)
            places.append(
                begin + np.round(np.arange(1, missing + 1) * gap / (missing + 1)).astype(np.int64)
            )
    return np.concatenate(places).astype(np.int64)


def _every(after: int, end: int, rhythm: int) -> IntArray:
    """The places after one and before an end that a rhythm gives; all of them for one too short to
    be a rhythm.
    """
    return np.arange(
        after + (1 if rhythm < LEAST_RHYTHM else rhythm),
        end,
        1 if rhythm < LEAST_RHYTHM else rhythm,
    )


def _rhythms(gaps: IntArray, usual: int, irregular: int) -> IntArray:
    """The rhythm (n,) at each of (n,) gaps between losses, by the gaps around it; `irregular` where
    these are not alike.

    The larger one counts where gaps before and after a place differ: an interval of logging may
    change there. One value, the `usual` rhythm, where there are too few gaps to see one.
    """
    n = len(gaps)
    if n < 2:
        return np.array([usual])
    if bool((gaps == gaps[0]).all()):
        return gaps
    width = min(NEIGHBOURS, n)
    windows = np.lib.stride_tricks.sliding_window_view(gaps, width)
    middles = np.sort(windows, axis=1)[:, width // 2]
    alike = (np.abs(windows - middles[:, None]) <= ALIKE * middles[:, None]).mean(
        axis=1
    ) >= ALIKE_SHARE
    rhythm = np.where(alike, middles, irregular)
    at = np.arange(n)
    before, after = (
        rhythm[np.clip(at - width, 0, len(rhythm) - 1)],
        rhythm[np.clip(at + 1, 0, len(rhythm) - 1)],
    )
    larger: IntArray = np.maximum(before, after)
    return larger
