"""Two logs that do not fit together for a reason that has a name: steps shifted or counted in
another unit, losses in another unit.

shifted   batch noise correlates below 0.5 at equal steps and at least 0.5 once one log is moved by
          1 or 2 points, or aligned point by point
scaled    the logs have other strides and as many points (within 2 %), and aligned point by point
          their batch noise correlates at least 0.5: the strides' ratio is the steps' unit (tokens
          or samples per step)
ratio     candidate / baseline over the first 8 points is log 2 or 1 / log 2 (within 2 %: bits
          against nats), or more than 20 % from 1 in logs that begin at the start, when both models
          still have the same loss; and its median over the run is within 10 % of that
start     the first losses of two logs that begin at step 0 or 1 differ by more than 1.5 %: the same
          model and batch give equal ones
rounding  share of the second differences' variance that rounding to q explains: (q^2 / 12) /
          sigma_step^2

Can fail: a log that is both thinned and shifted has neither name, and stays a mismatch of the data.
"""

import math
from collections.abc import Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.alignment import Aligned, common_steps
from parity.judging.curves.curve import (
    Curve,
    FloatArray,
    usable,
)
from parity.judging.curves.data_order import SAME_ORDER, pair_correlation
from parity.judging.curves.step_noise import step_noise

LAGS = (1, -1, 2, -2)
SAME_LENGTH = 0.02
COMMON_SHARE = 0.5
RATIO_SPREAD, RATIO_CHANGE, RATIO_FROM_ONE, START_SHARE = 0.02, 0.1, 0.2, 0.05
BITS = 1.0 / math.log(2.0)
FIRST_GAP = 0.006  # of the first loss: more than any recipe on record explains (0.0055)
# real reruns: 0; NVFP4 against FP8, emulated with 0.1 M parameters: 0.0055
START_DIFFERENCE = 0.015
SAMPLE = 4_096
ROUNDING_EXPLAINS = 0.5


@frozen
class FirstGap:
    """By how much the candidate's first loss differs, in nats and as a share of the baseline's."""

    nats: float
    share: float


@frozen
class Mismatch:
    """What makes two logs unfit for a comparison, each None where it does not.

    `shift` is how many steps the candidate's numbers are ahead, `factor` how many of its steps are
    one of the baseline's, `ratio` how many of its units are one of the baseline's, `start` by which
    share its first loss differs, `first_gap` the same where no recipe explains it. `rounding_hides`
    says that rounding is too coarse for the batches to be recognised.
    """

    shift: int | None = None
    factor: float | None = None
    ratio: float | None = None
    start: float | None = None
    first_gap: FirstGap | None = None
    rounding_hides: bool = False


def find_mismatch(
    baseline: Sequence[Curve],
    candidate: Sequence[Curve],
    aligned: Aligned,
    r_pair: float | None,
    rounding_step: float,
) -> Mismatch:
    """Why the first runs of two arms don't fit together; `r_pair` is their correlation at equal
    steps, `rounding_step` that of their losses.
    """
    base, cand = baseline[0], candidate[0]
    if min(len(base.steps), len(cand.steps)) < 2:
        return Mismatch()
    shift, factor = None, None
    few = len(common_steps(base.steps, cand.steps)) < COMMON_SHARE * min(
        len(base.steps), len(cand.steps)
    )
    other_batches = r_pair is not None and r_pair < SAME_ORDER
    if few or (other_batches and base.completeness.stride != cand.completeness.stride):
        shift, factor = _point_by_point(base, cand)
    elif other_batches:
        shift = _shifted(aligned)
    return Mismatch(
        shift=shift,
        factor=factor,
        ratio=_loss_ratio(aligned, base) if len(aligned.steps) >= 8 else None,
        start=start
        if (start := _start(base, cand)) is not None and abs(start) > START_DIFFERENCE
        else None,
        first_gap=FirstGap(nats=start * float(base.loss[0]), share=start)
        if start is not None and abs(start) > FIRST_GAP
        else None,
        rounding_hides=_rounding_share(aligned, rounding_step) > ROUNDING_EXPLAINS,
    )


def _point_by_point(base: Curve, cand: Curve) -> tuple[int | None, float | None]:
    """Shift or unit of the steps of two logs that share few of them, where their points belong
    together one by one.
    """
    n = min(len(base.steps), len(cand.steps))
    strides = base.completeness.stride, cand.completeness.stride
    if abs(len(base.steps) - len(cand.steps)) > SAME_LENGTH * n or None in strides:
        return None, None
    pairs = [(base.loss[:n], cand.loss[:n]), (base.loss[-n:], cand.loss[-n:])]
    if not any(_same_batches(x, y) for x, y in pairs):
        return None, None
    if strides[0] == strides[1]:
        return (int(cand.steps[0]) - int(base.steps[0])) or None, None
    return None, (strides[1] or 1) / (strides[0] or 1)


def _shifted(aligned: Aligned) -> int | None:
    """By how many steps the candidate's numbers are ahead of the baseline's, where moving it by a
    point or two shows the same batches.
    """
    base, cand = aligned.baseline[0], aligned.candidate[0]
    stride = int(np.median(np.diff(aligned.steps[:SAMPLE]))) if len(aligned.steps) > 2 else 1
    for lag in LAGS:
        x, y = (base[:-lag], cand[lag:]) if lag > 0 else (base[-lag:], cand[:lag])
        if _same_batches(x, y):
            return lag * stride
    return None


def _same_batches(x: FloatArray, y: FloatArray) -> bool:
    finite = usable(x) & usable(y)
    correlation = pair_correlation(x[finite], y[finite])
    return correlation is not None and correlation >= SAME_ORDER


def _loss_ratio(aligned: Aligned, base: Curve) -> float | None:
    sample = slice(None, None, 1 + len(aligned.steps) // SAMPLE)
    x, y = aligned.baseline[0, sample], aligned.candidate[0, sample]
    if not (x > 0.0).all() or not (y > 0.0).all():
        return None
    early, ratio = (float(np.median(part)) for part in ((y / x)[:8], y / x))
    if abs(ratio / early - 1.0) > RATIO_CHANGE:
        return None
    if any(abs(early / unit - 1.0) <= RATIO_SPREAD for unit in (BITS, 1.0 / BITS)):
        return early  # a candidate in another unit may be worse as well
    from_start = int(base.steps[0]) <= START_SHARE * int(base.steps[-1])
    if from_start and not 1.0 - RATIO_FROM_ONE <= early <= 1.0 / (1.0 - RATIO_FROM_ONE):
        return early
    return None


def _start(base: Curve, cand: Curve) -> float | None:
    """By which share the candidate's first loss differs, where both logs begin with one of the
    first two steps.
    """
    if int(base.steps[0]) != int(cand.steps[0]) or int(base.steps[0]) > 1 or not base.loss[0] > 0.0:
        return None
    return float(cand.loss[0] / base.loss[0]) - 1.0


def _rounding_share(aligned: Aligned, rounding_step: float) -> float:
    """Share of the noise of single steps that rounding explains, in the noisier arm's favour."""
    if rounding_step == 0.0:
        return 0.0
    late = slice(len(aligned.steps) // 2, None)
    noise = max(
        step_noise(aligned.baseline[0, late][:SAMPLE]),
        step_noise(aligned.candidate[0, late][:SAMPLE]),
    )
    if noise <= rounding_step / math.sqrt(12.0):
        return 1.0
    return (rounding_step / noise) ** 2 / 12.0
