"""The three customary rules for golden losses: equal to the bit, 5 % at every step, and 10 % at
every step with 3 % at the end and a correlation of 0.95.
"""

from collections.abc import Callable, Mapping

import numpy as np

from parity.judging.curves.curve import FloatArray

Rule = Callable[[FloatArray, FloatArray], bool]


def _is_exact(golden: FloatArray, run: FloatArray) -> bool:
    return bool(np.array_equal(golden, run))


def _is_within_5_percent(golden: FloatArray, run: FloatArray) -> bool:
    return bool((np.abs(run - golden) <= 0.05 * np.abs(golden)).all())


def _is_within_10_and_3_percent(golden: FloatArray, run: FloatArray) -> bool:
    apart = np.abs(run - golden) / np.abs(golden)
    correlation = float(np.corrcoef(golden, run)[0, 1])
    return bool((apart <= 0.10).all()) and apart[-1] <= 0.03 and correlation >= 0.95


CUSTOMARY: Mapping[str, Rule] = {
    "exact": _is_exact,
    "5 %": _is_within_5_percent,
    "10 % and 3 %": _is_within_10_and_3_percent,
}
"""Whether a run passes, by rule."""
