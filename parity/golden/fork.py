"""From which step on a run can differ from its golden: the fork of a resumed run, or the first
difference.
"""

import numpy as np

from parity.golden.common_steps import Common
from parity.judging.curves.curve import Curve


def first_difference(common: Common) -> int:
    """The first row whose losses differ; the number of rows where none does."""
    differ = common.difference != 0.0
    return int(np.argmax(differ)) if differ.any() else len(differ)


def fork_row(common: Common, golden: Curve, run: Curve, saved: int | None) -> int | None:
    """The first row after a resume: behind the step `saved`, the last one before it; else the
    run's first row, where it begins later than its golden; else the first row that its log repeats;
    else the first row that differs, behind rows that are equal. None where nothing shows the fork.
    """
    if saved is not None:
        return int(np.searchsorted(common.steps, saved, side="right"))
    if len(run.steps) and len(golden.steps) and run.steps[0] > golden.steps[0]:
        return 0
    if run.replaced is not None:
        return int(np.searchsorted(common.steps, run.replaced.steps.min()))
    first = first_difference(common)
    return first if first > 0 else None
