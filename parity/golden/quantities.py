"""What both runs recorded in addition to the loss: learning rates, which must be equal, and
gradient norms, which show faults of scale that Adam hides from the loss.
"""

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import Curve, FloatArray, IntArray, median

LEARNING_RATE, GRADIENT_NORMS = "learning_rate", ("grad_norm", "clipped_grad_norm")
QUANTITIES = (LEARNING_RATE, *GRADIENT_NORMS)
# A schedule is arithmetic, the same on every machine; logs print it with 3 digits and more.
RATE_SHARE = 0.005
MIN_ROWS = 8
# A sum in place of a mean, or a norm over one rank of two, is a factor of sqrt(2) and more; honest
# runs of the trainer stay within 2 % (benchmarks/golden.py).
NORM_SHARE = 0.2


@frozen
class FirstRateDifference:
    """The first step at which the learning rates differ, and both rates."""

    step: int
    golden: float
    run: float


@frozen
class NormRatio:
    """The run's gradient norm over the golden's: at the first common `step`, and the median over
    all; 0 where most of the run's are 0.
    """

    name: str
    step: int
    first: float
    typical: float


def rate_difference(golden: Curve, run: Curve, first_step: int) -> FirstRateDifference | None:
    """The first step from `first_step` on at which recorded learning rates differ by more than 0.5
    %; None where none does, or one run recorded none.
    """
    found = _both(golden, run, LEARNING_RATE, first_step)
    if found is None:
        return None
    steps, left, right = found
    apart = np.abs(right - left) > RATE_SHARE * np.maximum(np.abs(left), np.abs(right))
    if not apart.any():
        return None
    row = int(np.argmax(apart))
    return FirstRateDifference(step=int(steps[row]), golden=float(left[row]), run=float(right[row]))


def norm_ratios(golden: Curve, run: Curve, first_step: int) -> tuple[NormRatio, ...]:
    """The ratios of the gradient norms that both runs recorded, from `first_step` on, in at least 8
    common rows.
    """
    ratios = []
    for name in GRADIENT_NORMS:
        found = _both(golden, run, name, first_step)
        if found is None:
            continue
        steps, left, right = found
        positive = (left > 0.0) & (right > 0.0)
        vanished = (left > 0.0) & (right <= 0.0)
        if int(vanished.sum()) >= max(MIN_ROWS, int(positive.sum())):
            step = int(steps[vanished][0])
            ratios.append(NormRatio(name=name, step=step, first=0.0, typical=0.0))
        elif np.count_nonzero(positive) >= MIN_ROWS:
            logs = np.log(right[positive] / left[positive])
            ratios.append(
                NormRatio(
                    name=name,
                    step=int(steps[positive][0]),
                    first=float(np.exp(logs[0])),
                    typical=float(np.exp(median(logs))),
                )
            )
    return tuple(ratios)


def is_apart(ratio: float) -> bool:
    """Whether a ratio of gradient norms is one of another scale."""
    return ratio <= 0.0 or abs(float(np.log(ratio))) > float(np.log1p(NORM_SHARE))


def _both(
    golden: Curve, run: Curve, name: str, first_step: int
) -> tuple[IntArray, FloatArray, FloatArray] | None:
    """The steps (m,) and both runs' finite values (m,) of a quantity; None where one has none."""
    if name not in golden.columns or name not in run.columns:
        return None
    steps, of_golden, of_run = np.intersect1d(
        golden.steps, run.steps, assume_unique=True, return_indices=True
    )
    left, right = golden.columns[name][of_golden], run.columns[name][of_run]
    kept = np.isfinite(left) & np.isfinite(right) & (steps >= first_step)
    return (steps[kept], left[kept], right[kept]) if kept.any() else None
