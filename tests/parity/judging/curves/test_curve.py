import gc
import hashlib
import struct
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.judging.curves.curve import (
    Completeness,
    Curve,
    CurveError,
    completeness_of,
    computed_once,
    curve_from_arrays,
    mean,
    row_means,
)


def test_sorts_and_keeps_the_last_of_duplicates() -> None:
    run = curve_from_arrays(
        [3, 1, 2, 2, 3], [30.0, 10.0, 20.0, 21.0, 31.0], columns={"grad_norm": [1, 2, 3, 4, 5]}
    )
    assert run.steps.tolist() == [1, 2, 3]
    assert run.loss.tolist() == [10.0, 21.0, 31.0]
    assert run.columns["grad_norm"].tolist() == [2.0, 4.0, 5.0]
    assert run.completeness.duplicates == 2


@pytest.mark.parametrize("n", [1, 7, 8, 9, 127, 128, 129, 8193, 100_001])
def test_means_have_the_bits_of_numpys(n: int) -> None:
    rows = np.random.default_rng(n).normal(2.0, 1.0, (3, 2 * n))
    for values in (rows[:, :n], rows[:, ::2], rows[:, ::-1]):
        assert [mean(row) for row in values] == [float(row.mean()) for row in values]
        assert row_means(values).tobytes() == values.mean(axis=1).tobytes()


@given(st.lists(st.tuples(st.integers(0, 40), st.floats(allow_nan=False, width=32)), max_size=60))
def test_last_value_of_each_step_wins_whatever_the_order(rows: list[tuple[int, float]]) -> None:
    run = curve_from_arrays([step for step, _ in rows], [loss for _, loss in rows])
    assert dict(zip(run.steps.tolist(), run.loss.tolist(), strict=True)) == dict(rows)
    assert run.completeness.count + run.completeness.duplicates == len(rows)


def test_nan_and_inf_are_data() -> None:
    run = curve_from_arrays([1, 2, 3], [float("nan"), float("inf"), 1.0])
    assert np.isnan(run.loss[0])
    assert np.isposinf(run.loss[1])


@pytest.mark.parametrize(
    ("steps", "loss", "says"),
    [
        ([1, -2], [1.0, 1.0], "step -2 is out of range"),
        ([1.5, 2.0], [1.0, 1.0], "step .*1.5.* in row 0 is not a whole number"),
        ([1.0, float("nan")], [1.0, 1.0], "row 1 is not a whole number"),
        ([1, 2**60], [1.0, 1.0], "out of range"),
        ([1, 2], [1.0], "has 1 values for 2 steps"),
        ([[1, 2]], [1.0], "shape"),
        ([1], ["x"], "expected numbers"),
    ],
)
def test_errors_name_the_value_and_the_expectation(
    steps: list[object], loss: list[object], says: str
) -> None:
    with pytest.raises(CurveError, match=says):
        curve_from_arrays(steps, loss, label="a.csv")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], (0, None, None, None, 0)),
        ([7], (1, 7, 7, None, 0)),
        ([0, 5, 10, 15], (4, 0, 15, 5, 0)),
        ([1, 5, 10, 15, 30], (5, 1, 30, 5, 1)),
        ([0, 1, 2, 9, 10, 20], (6, 0, 20, 1, 2)),
    ],
)
def test_completeness(steps: list[int], expected: tuple[object, ...]) -> None:
    completeness = completeness_of(np.array(steps, dtype=np.int64))
    assert (
        completeness.count,
        completeness.first,
        completeness.last,
        completeness.stride,
        completeness.gaps,
    ) == expected


def test_coverage_is_the_share_of_the_regular_grid() -> None:
    assert completeness_of(np.arange(0, 100)).coverage == 1.0
    assert completeness_of(np.array([0, 1, 2, 9])).coverage == pytest.approx(0.4)


def test_digest_is_sha256_of_little_endian_steps_and_losses() -> None:
    run = curve_from_arrays([1, 2], [0.5, float("inf")])
    assert run.digest() == hashlib.sha256(struct.pack("<2q2d", 1, 2, 0.5, float("inf"))).hexdigest()


def test_a_fact_is_computed_once_for_each_run_and_keeps_no_run_alive() -> None:
    asked: list[int] = []

    @computed_once
    def last(run: Curve) -> float:
        asked.append(len(run.loss))
        return float(run.loss[-1])

    first, second = (
        curve_from_arrays([1, 2], [4.0, 3.0]),
        curve_from_arrays([1, 2, 3], [4.0, 3.0, 2.0]),
    )
    assert [last(first), last(second), last(first), last(second)] == [3.0, 2.0, 3.0, 2.0]
    assert asked == [2, 3]
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None


def test_a_curve_does_not_alias_the_callers_array() -> None:
    loss = np.array([1.0, 2.0])
    run = curve_from_arrays([1, 2], loss)
    loss[0] = 9.0
    assert run.loss[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        run.loss[0] = 3.0


def slowly_risen(steps: list[int], loss: list[float]) -> float:
    """Row by row: the rows before each restart whose steps come again later, and how far they lay
    above what replaced them.
    """
    last = {step: row for row, step in enumerate(steps)}
    rises, segment = [0.0], []
    for row, step in enumerate([*steps, -1]):
        goes_on = (
            row < len(steps)
            and last[step] != row
            and (not segment or (segment[-1] == row - 1 and step > steps[row - 1]))
        )
        if segment and not goes_on:
            tail = segment[-max(3, len(segment) // 4) :]
            if len(segment) >= 3:
                rises.append(sum(loss[each] - loss[last[steps[each]]] for each in tail) / len(tail))
            segment = []
        if row < len(steps) and last[step] != row:
            segment.append(row)
    return max(rises)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9)), min_size=1, max_size=40))
def test_what_a_restart_overwrote_is_measured_against_what_replaced_it(
    rows: list[tuple[int, int]],
) -> None:
    steps, loss = [step for step, _ in rows], [float(value) for _, value in rows]
    assert curve_from_arrays(steps, loss).completeness.rolled_back == pytest.approx(
        slowly_risen(steps, loss)
    )


def test_a_loss_that_is_not_a_number_before_a_restart_has_risen_without_bound() -> None:
    nan = float("nan")
    assert (
        curve_from_arrays(
            [0, 1, 2, 3, 1, 2, 3], [3.0, nan, nan, nan, 2.0, 2.0, 2.0]
        ).completeness.rolled_back
        == 1e6 - 2.0
    )


def test_what_a_series_covers_has_no_restart_unless_one_is_said() -> None:
    covered = Completeness(count=3, first=1, last=7, stride=2, duplicates=0, gaps=1)
    assert covered.rolled_back == 0.0
    assert completeness_of(np.array([1, 3, 7])) == covered
    assert curve_from_arrays([1, 3, 7], [3.0, 2.0, 1.0]).completeness == covered
