"""Is it faster on equal hardware, and does that pay? Step speed and time to the target, each a
ratio with Welch's interval of its log.

ratio = exp(mean ln t_baseline - mean ln t_candidate), above 1 where the candidate is faster; per
    hardware that ran both arms
net  = the same of the times to the target: what is left of the step speed after the token tax,
     measured and not computed

Can fail: runs of one machine share its clock and its cooling, so few machines say little about
others; times of runs that never reached the target are missing, and an arm that lacks one gets no
net ratio.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.document_types import EstimateDocument
from parity.judging.evaluations.group_means import difference
from parity.judging.evaluations.run_times import RunTimes
from parity.judging.secondary.speed import from_logs

MIN_RUNS = 2


@frozen
class HardwareSpeed:
    """Step speed and net speed on one hardware, and how many runs of each arm ran there; None where
    a time is missing.
    """

    hardware: str
    runs: tuple[int, int]
    step: EstimateDocument | None
    net: EstimateDocument | None


def speeds(
    baseline: Sequence[RunTimes], candidate: Sequence[RunTimes], confidence: float
) -> tuple[HardwareSpeed, ...]:
    """The ratios on each hardware that at least 2 runs of both arms ran on, in order of its
    name.
    """
    shared = sorted(
        {run.hardware for run in baseline if run.hardware}
        & {run.hardware for run in candidate if run.hardware}
    )
    made = []
    for hardware in shared:
        arms = [[run for run in arm if run.hardware == hardware] for arm in (baseline, candidate)]
        if min(map(len, arms)) >= MIN_RUNS:
            step, net = (
                _ratio(arms, time, confidence)
                for time in (lambda run: run.step_seconds, lambda run: run.seconds_to_target)
            )
            made.append(
                HardwareSpeed(
                    hardware=hardware, runs=(len(arms[0]), len(arms[1])), step=step, net=net
                )
            )
    return tuple(made)


def _ratio(
    arms: list[list[RunTimes]], time: Callable[[RunTimes], float | None], confidence: float
) -> EstimateDocument | None:
    seconds = [[time(run) for run in arm] for arm in arms]
    known = [
        [value for value in arm if value is not None and 0.0 < value < math.inf] for arm in seconds
    ]
    if any(len(times) < len(arm) for times, arm in zip(known, seconds, strict=True)):
        return None
    logs = [np.log(np.array(times)) for times in known]
    gap = difference(logs[1], logs[0])
    return from_logs(gap.mean, *gap.bounds(confidence))
