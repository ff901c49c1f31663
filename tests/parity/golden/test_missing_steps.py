"""Steps that a run lacks of its golden, and gaps in the log of a run that is to be one."""

import numpy as np
import pytest

from parity.golden.golden_file import GoldenError, golden_of
from parity.golden.measured import ComparisonFacts
from parity.golden.missing_steps import MissingSteps, first_gap, missing_steps
from parity.golden.rule import judge
from tests.parity.golden.curves import GOLDEN, HONEST, curve, losses, rerun_of

ROWS = 400
LONG = losses(ROWS)
LONG_HONEST = rerun_of(LONG)


def answer_of(missing, loss=LONG_HONEST, **stated):
    line, _ = judge([curve(LONG)], curve(loss, missing=missing), ComparisonFacts(**stated))
    return line.name, line.answer


@pytest.mark.parametrize(
    ("missing", "many"),
    [
        ((), False),
        ((200, 201), False),
        ((200, 201, 202), True),
        ((398, 399), False),
        ((397, 398, 399), True),
        ((1, 2), False),
        ((1, 2, 3), True),
        (range(10, 90, 10), False),
        (range(10, 100, 10), True),
        (range(201, 390), True),
        (sorted(set(range(1, 401)) - set(range(1, 401, 50)) - {400}), True),
    ],
)
def test_a_run_that_lacks_many_steps_is_not_judged(missing, many):
    expected = ("missing steps", "cannot tell") if many else ("all", "numerics only")
    assert answer_of(tuple(missing)) == expected
    if many:
        assert answer_of(tuple(missing), LONG) == expected  # equal elsewhere


def test_a_spike_in_lines_that_are_not_read_does_not_pass():
    """The honest twin lacks a single line."""
    spike = LONG_HONEST * (1.0 + 0.05 * np.isin(np.arange(ROWS), (200, 201, 202)))
    assert answer_of((), spike)[1] == "worse"
    assert answer_of((201, 202, 203), spike)[1] == "cannot tell"
    assert answer_of((201,))[1] == "numerics only"


def test_after_a_resume_steps_before_it_are_not_missing():
    before = tuple(range(1, 101))
    assert answer_of(before) == ("missing steps", "cannot tell")
    assert answer_of(before, changed="resume")[1] == "numerics only"
    assert answer_of(before, changed="resume", saved=100)[1] == "numerics only"
    assert answer_of(before, changed="resume", saved=90) == ("missing steps", "cannot tell")


def test_the_longest_row_of_missing_steps_is_named():
    expected, steps = np.arange(10, 110, 10), np.array([10, 20, 40, 80, 90, 100])
    assert missing_steps(expected, steps) == MissingSteps(
        count=4, total=10, in_a_row=3, first=50, last=70
    )
    assert missing_steps(expected, expected) == MissingSteps(count=0, total=10)


@pytest.mark.parametrize(
    ("steps", "gap"),
    [
        (range(1, 101), None),
        (range(0, 1000, 50), None),
        ([*range(1, 10), *range(10, 200, 10)], None),
        ([1, *range(100, 1100, 100)], None),
        ([*range(0, 400, 50), 399], None),
        ([*range(1, 50), *range(52, 100)], None),
        ([*range(1, 50), *range(53, 100)], (49, 53)),
        ([*range(200), *range(390, 400)], (199, 390)),
        ([*range(390), 399], (389, 399)),
        ([0, *range(10, 100)], (0, 10)),
        ([*range(40), 60, 80, *range(100, 140)], (39, 60)),
        ([*range(0, 1000, 50), *range(1300, 2000, 50)], (950, 1300)),
        ([5], None),
    ],
)
def test_a_regular_interval_is_no_gap(steps, gap):
    assert first_gap(np.array(list(steps))) == gap


def test_a_run_with_a_gap_is_no_golden():
    with pytest.raises(GoldenError, match="between 39 and 61"):
        golden_of(curve(GOLDEN, missing=range(40, 61)), "run", "bf16")
    assert len(golden_of(curve(GOLDEN, missing=(40,)), "run", "bf16").curve.steps) == 99


def test_a_run_that_logs_every_fifth_step_is_judged_by_a_golden_of_these():
    every = tuple(step for step in range(1, 101) if step % 5 != 1)
    run, golden = curve(HONEST, missing=every), curve(GOLDEN)
    assert judge([golden], run, ComparisonFacts())[0].answer == "cannot tell"
    sparse = golden_of(golden, "run", "bf16", every=5).curve
    line, measured = judge([sparse], run, ComparisonFacts())
    assert (line.answer, measured.rows) == ("numerics only", 20)
