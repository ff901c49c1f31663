"""Does one run of the candidate alone end above the margin? Other runs of the arm must not average it away, nor must it be left out.

gap_i = mean loss of run i over its window minus the baseline's, and the same over the last tenth of the window; the larger one, nats
limit = margin + t(df_B, confidence) sqrt(tau_B^2 + tau_A^2 / K_A)         the margin, and what one run differs by chance

Every given run counts here: also those of a seed that the baseline lacks, and those that depend on another run.
Can fail: a run of another seed reads other batches, whose noise (its standard deviation over the root of the points) is not in the limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parity.judging.curve import Curve, FloatArray, IntArray, usable
from parity.judging.inputs.alignment import Aligned
from parity.judging.interval import t_quantile
from parity.judging.window import Window
from parity.judging.window_statistics import WindowStatistics

LAST_PARTS = (1, 10)  # the whole window, and its last tenth


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGap:
    """The candidate's run with the largest gap to the baseline's mean, and the most that one run may have; nats."""

    label: str
    gap: float
    limit: float

    @property
    def is_above(self) -> bool:
        """Whether the run alone is above the margin by more than run noise."""
        return self.gap > self.limit


def worst_run(given: Sequence[Curve], aligned: Aligned, window: Window, statistics: WindowStatistics, confidence: float) -> RunGap | None:
    """The worst of the given runs of the candidate; None for a single run, which the interval judges, and where there is no margin."""
    if len(given) < 2 or statistics.margin is None:
        return None
    base_floor, cand_floor = statistics.floors
    noise = t_quantile(confidence, cand_floor.df) * (cand_floor.tau**2 + base_floor.tau**2 / base_floor.runs) ** 0.5
    base = aligned.arm_means()[0]
    gaps = [(_gap(run, aligned.steps, base, window), run.label or f"run {number}") for number, run in enumerate(given, 1)]
    gap, label = max(gaps)
    return RunGap(label=label, gap=gap, limit=statistics.margin.nats + noise)


def _gap(run: Curve, steps: IntArray, base: FloatArray, window: Window) -> float:
    """The larger of the run's gaps over the window and over its last tenth; minus infinity where it has no point there."""
    gaps = [-np.inf]
    for parts in LAST_PARTS:
        first = window.last - (window.last - window.first + 1) // parts + 1
        own, common = run.steps >= first, steps >= first
        loss = run.loss[own & (run.steps <= window.last)]
        loss = loss[usable(loss)]
        if len(loss) and common.any():
            gaps.append(float(loss.mean()) - float(base[common].mean()))
    return max(gaps)
