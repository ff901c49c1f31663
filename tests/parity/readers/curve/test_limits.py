"""The limits of what is plausible, each from both sides."""

from typing import Any

import numpy as np
import pytest

from parity.judging.curves.curve import curve_from_arrays
from parity.readers.curve.plausibility import check_repeats, check_values
from parity.readers.curve.step_unit import other_unit, unit_change
from tests.parity.readers.refusals import is_refused


@pytest.mark.parametrize(
    ("loss", "is_noted"),
    [(0.0, False), (-1e-9, True), (30.0, False), (30.000001, True)],
)
def test_a_loss_in_nats_is_from_0_to_30(loss: float, is_noted: bool) -> None:
    notes = check_values(np.array([2.0, loss]), "loss", "a.csv")
    assert bool(notes) == is_noted
    alone = is_refused(lambda: check_values(np.array([loss]), "loss", "a.csv"))
    assert alone == is_noted


@pytest.mark.parametrize(
    ("rows", "repeated", "refused"),
    [(50, 2, False), (50, 3, True), (990, 10, False), (990, 11, True)],
)
def test_two_rows_or_one_in_a_hundred_may_repeat_a_step(
    rows: int, repeated: int, refused: bool
) -> None:
    """Each row that repeats stands behind the one that it repeats, as rows of two ranks do."""
    steps = np.sort(np.concatenate([np.arange(rows), np.arange(repeated)])).astype(float)
    loss = np.linspace(3.0, 2.0, len(steps))
    assert is_refused(lambda: check_repeats(steps, loss, "a.csv")) == refused


def _curve(*steps: int) -> Any:
    return curve_from_arrays(np.array(steps, float), np.full(len(steps), 2.0), label="a")


@pytest.mark.parametrize(("stride", "other"), [(49, False), (50, True)])
def test_strides_that_differ_50_fold_are_of_two_units(stride: int, other: bool) -> None:
    left, right = _curve(*range(1, 21)), _curve(*range(1000, 1000 + 20 * stride, stride))
    assert other_unit(left, right) == other


@pytest.mark.parametrize(("number", "other"), [(20, False), (21, True)])
def test_runs_with_one_step_in_twenty_in_common_are_of_one_unit(number: int, other: bool) -> None:
    left, right = _curve(*range(number)), _curve(*range(0, 50 * number, 50))
    assert other_unit(left, right) == other


@pytest.mark.parametrize(("before", "after", "seen"), [(21, 21, True), (20, 21, False)])
def test_a_change_of_unit_is_seen_with_twenty_strides_on_each_side(
    before: int, after: int, seen: bool
) -> None:
    for left, right in ((before, after), (after, before)):
        steps = [*range(1, left + 1), *(100_000 * at for at in range(1, right + 1))]
        assert (unit_change(np.array(steps)) is not None) == seen
