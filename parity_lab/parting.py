"""Where the records of a pair part in a way that other data or a broken resume cause, and precision
rarely does.

x'(t)  = x(t) - median of the AROUND steps before
data   the spread over SPAN steps of (candidate's loss - baseline's)', over the larger of the two
       runs' own spreads: sqrt(2) for other batches, far below 1 for the same ones
jump   |x'(t)| over the scaled median absolute deviation of x' in its stretch of STRETCH steps,
       where it is not 0; x is the log of the ratio of the update norms, or the step of that of
       the weights' norms

Source: experiments/why_outside.py. Of 400 steps of 0.1 million parameters, pairs without such a
cause had at most 0.6 and 10; other data had at least 0.9, and states broken at a resume 15 and
more, but for weights 1 % off, which it misses.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from parity.frozen import frozen
from parity.judged_loss import JUDGED_LOSS
from parity.judging.curves.curve import FloatArray
from parity_lab.replay import WINDOW

AROUND, SPAN, STRETCH = 16, 24, 128
FIRST_SEEN = 50
OTHER_DATA, JUMP = 0.8, 12.0
COLUMNS = (JUDGED_LOSS, "param_norm", "update_norm")
_SD_PER_MAD, _FEWEST = 1.4826, 16


@frozen
class Parting:
    """The step at which the record of a pair parts, and how."""

    step: int
    how: str


def parts_at(
    baseline: Mapping[str, FloatArray], candidate: Mapping[str, FloatArray]
) -> Parting | None:
    """Where two runs part; COLUMNS (steps,) of each from step 0 on. None also for fewer than 2
    STRETCH steps, and without the norms.
    """
    count = min(len(record[name]) for record in (baseline, candidate) for name in COLUMNS)
    if count < 2 * STRETCH:
        return None
    (ours, theirs) = (
        {name: record[name][:count] for name in COLUMNS} for record in (baseline, candidate)
    )
    spreads = (
        _spread(_away(loss))
        for loss in (
            theirs[JUDGED_LOSS] - ours[JUDGED_LOSS],
            theirs[JUDGED_LOSS],
            ours[JUDGED_LOSS],
        )
    )
    pair_spread, candidate_spread, baseline_spread = spreads
    found = []
    is_other = pair_spread > OTHER_DATA * np.maximum(candidate_spread, baseline_spread)
    if is_other[FIRST_SEEN - AROUND :].any():
        step = FIRST_SEEN + int(np.argmax(is_other[FIRST_SEEN - AROUND :]))
        found.append(Parting(step=step, how="their losses vary as on other data"))
    with np.errstate(divide="ignore", invalid="ignore"):
        updates, weights = (
            np.log(theirs[name] / ours[name]) for name in ("update_norm", "param_norm")
        )
    for values in (updates, np.diff(weights, prepend=weights[:1])):
        if np.isfinite(values).all():
            is_jump = _is_jump(_away(values))[FIRST_SEEN - AROUND :]
            if is_jump.any():
                found.append(
                    Parting(
                        step=FIRST_SEEN + int(np.argmax(is_jump)), how="weights or updates jump"
                    )
                )
    return min(found, key=lambda parting: parting.step, default=None)


def _away(values: FloatArray) -> FloatArray:
    """How far each value from AROUND on is from the median of those before it."""
    before: FloatArray = np.median(sliding_window_view(values, AROUND)[:-1], axis=1)
    return values[AROUND:] - before


def _spread(values: FloatArray) -> FloatArray:
    spread: FloatArray = np.sqrt(np.mean(sliding_window_view(values, SPAN) ** 2, axis=1))
    return spread


def _is_jump(values: FloatArray) -> npt.NDArray[np.bool_]:
    """Whether each value is a jump among those of its stretch; the last stretch is a whole one."""
    found = np.zeros(len(values), np.bool_)
    for first in range(0, len(values), STRETCH):
        changes = (
            values[first : first + STRETCH] if first + STRETCH <= len(values) else values[-STRETCH:]
        )
        changes = changes[changes != 0.0]  # the runs are equal until something differs
        if len(changes) >= _FEWEST:
            scale = _SD_PER_MAD * float(np.median(np.abs(changes - np.median(changes))))
            found[first : first + STRETCH] = np.abs(values[first : first + STRETCH]) > JUMP * scale
    return found


def replay_steps(results: Mapping[str, Any]) -> float:
    """The cost of the replays and reruns on record, in steps of training."""
    steps = sum(
        int(result["compared"]) for key, result in results.items() if key.startswith("replay/")
    )
    return steps + WINDOW * sum(key.startswith("rerun/") for key in results)
