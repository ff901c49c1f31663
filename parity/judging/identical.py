"""Are all runs of two arms of one recipe equal, one for one? Then another revision or environment
trains exactly alike, whatever the noise.

equal  each run of the candidate has the steps and losses of a run of the baseline of its seed, bit
       for bit, as many of each kind
shown  every loss is finite; batch noise of 4 printed steps and more, as no learning rate or step
       number has; a step of at most a tenth of the margin (without one, and below 12 points in the
       window: of at most 1e-4 nats): nothing larger can hide in equal digits

Within an arm runs may be equal (a deterministic trainer), but none may be a copy or a fork of
another. Can fail: a log that is given for both arms, or a run that claims a revision that it was
not trained at, is equal, too: what trained is the record's to say.
"""

from collections import Counter
from collections.abc import Sequence

from parity.frozen import frozen
from parity.judging.curves.arms import Arms
from parity.judging.curves.curve import (
    Curve,
    all_usable,
)
from parity.judging.curves.independence import (
    MIN_COMMON,
    NOISELESS,
    VISIBLE_STEPS,
    last_rounding_step,
)
from parity.judging.curves.step_noise import step_noise
from parity.judging.gap.window_statistics import WindowStatistics
from parity.judging.policy import POINTS_TO_PASS

MARGIN_STEPS, FINE_STEP = 10.0, 1e-4  # printed steps in a margin; nats


@frozen
class Identical:
    """All runs of the candidate are runs of the baseline, one for one: how many, at how many logged
    steps, what rounding hides (nats).
    """

    runs: int
    steps: int
    rounding: float


def find_identical(arms: Arms, statistics: WindowStatistics) -> Identical | None:
    """That all runs of the candidate are equal to the baseline's; None where one is not, or where
    equal digits show too little.
    """
    runs, base = arms.candidate.given, arms.baseline.given
    if any(run.relation != "equal" for arm in arms.both for run in arm.left_out) or not _are_equal(
        base, runs
    ):
        return None
    if min(len(run.steps) for run in runs) < MIN_COMMON or not all(
        all_usable(run.loss) for run in (*base, *runs)
    ):
        return None
    printed = max(map(last_rounding_step, runs))
    if any(
        step_noise(run.loss) < max(VISIBLE_STEPS * printed, NOISELESS * abs(float(run.loss[-1])))
        for run in runs
    ):
        return None
    margin = statistics.margin
    if (margin is None or statistics.n < POINTS_TO_PASS) and printed > FINE_STEP * (1.0 + 1e-9):
        return None
    if margin is not None and MARGIN_STEPS * printed > margin.nats:
        return None
    return Identical(
        runs=len(arms.candidate.runs), steps=min(len(run.steps) for run in runs), rounding=printed
    )


def _are_equal(baseline: Sequence[Curve], candidate: Sequence[Curve]) -> bool:
    """Whether each run of the candidate is one of the baseline's of its seed; a seed has as many
    runs of each kind in both arms.
    """
    seeds = {run.seed for run in candidate}
    base, cand = (
        Counter((run.seed, run.digest()) for run in arm if run.seed in seeds)
        for arm in (baseline, candidate)
    )
    return base == cand
