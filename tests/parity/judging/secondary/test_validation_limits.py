"""The limits of validation losses: their interval, their last evaluation and their window."""

import math

import numpy as np
import pytest
from scipy.stats import t as student

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.window import make_window
from parity.judging.noise.arm_noise import RunTerm
from parity.judging.secondary.validation import gap_before_window, validation_gap

RUN = RunTerm(variance=0.002**2, df=4.0, seeds=1)
T95, T99 = (float(student.ppf(0.5 + level / 2, 4.0)) for level in (0.95, 0.99))


def validated(values: dict[int, float]) -> tuple[Curve, ...]:
    steps = np.arange(100)
    column = np.full(100, np.nan)
    for step, value in values.items():
        column[step] = value
    columns = {"validation_loss": column}
    return (curve_from_arrays(steps, np.full(100, 3.0), columns=columns),)


@pytest.mark.parametrize(("confidence", "t"), [(0.95, T95), (0.99, T99)])
def test_the_interval_of_a_validation_gap_has_the_level_of_the_policy(
    confidence: float, t: float
) -> None:
    window = make_window(100, 0, 0.2, "declared")
    base = validated(dict.fromkeys((80, 85, 90, 99), 3.0))
    cand = validated({80: 3.01, 85: 3.02, 90: 3.03, 99: 3.02})
    gap = validation_gap(base, cand, window, RUN, confidence)
    spread = float(np.var([0.01, 0.02, 0.03, 0.02], ddof=1))
    assert gap.hi - gap.mean == pytest.approx(t * math.sqrt(RUN.variance + spread / 4))
    before = float(np.var([0.01, 0.02, 0.03], ddof=1))
    assert gap.last_lo == pytest.approx(0.02 - t * math.sqrt(RUN.variance + before))


@pytest.mark.parametrize("gaps", [[0.02], [0.01, 0.02]])
def test_a_last_evaluation_of_one_or_two_has_run_to_run_noise_alone(gaps: list[float]) -> None:
    window = make_window(100, 0, 0.2, "declared")
    steps = [90, 99][-len(gaps) :]
    base = validated(dict.fromkeys(steps, 3.0))
    cand = validated({step: 3.0 + gap for step, gap in zip(steps, gaps, strict=True)})
    gap = validation_gap(base, cand, window, RUN, 0.95)
    assert gap.last_lo == pytest.approx(0.02 - T95 * 0.002)
    assert gap.n == len(gaps)


def test_the_window_has_its_first_and_last_step_and_no_other() -> None:
    window = make_window(100, 0, 0.2, "declared")
    assert (window.first, window.last) == (80, 99)
    for step, n in ((79, 0), (80, 1), (99, 1)):
        pair = validated({step: 3.0}), validated({step: 3.02})
        gap = validation_gap(*pair, window, RUN, 0.95)
        assert (0 if gap is None else gap.n) == n
        before = gap_before_window(*pair, window, RUN, 0.95)
        assert (before is None) == (n == 1)
    step, lo = gap_before_window(validated({79: 3.0}), validated({79: 3.02}), window, RUN, 0.95)
    assert step == 79
    assert lo == pytest.approx(0.02 - T95 * 0.002)
