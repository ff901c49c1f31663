"""Do two logs that begin late part from nearly equal losses, as forks of one run do? A pair that
trained apart from the first step has a gap there that is as large as later. The mean square of the
first n gaps against that of the last half, which honest pairs reach in 0.3 %.
"""

from parity.judging.curves.alignment import Aligned
from parity.judging.curves.arms import Arms
from parity.judging.curves.outside_plan import MAX_LATE, late_start
from parity.judging.curves.window import Window

# n points, and the share of the later mean square: chi-squared by n at 0.002 to 0.004
PARTING = ((4, 0.025), (8, 0.12), (16, 0.28))


def parts_late(arms: Arms, aligned: Aligned, window: Window) -> bool:
    """Whether both logs begin late, and part from there."""
    if late_start(arms.runs, window) is None or not len(aligned.steps):
        return False
    starts = [min(int(run.steps[0]) for run in arm) for arm in arms.both_runs]
    if min(starts) - window.origin <= MAX_LATE * window.planned_steps:
        return False
    baseline, candidate = aligned.arm_means()
    squares = (candidate - baseline) ** 2
    later = float(squares[len(squares) // 2 :].mean())
    return any(
        len(squares) >= 4 * n and float(squares[:n].mean()) < share * later for n, share in PARTING
    )
