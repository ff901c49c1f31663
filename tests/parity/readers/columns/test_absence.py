"""Which rows without a loss are NaN losses, and which are no records, with the honest twin of
each.
"""

from collections.abc import Mapping

import numpy as np
import pytest

from parity.readers.columns.absence import kinds_of_rows

STEPS = np.arange(200.0)
LOSS = 3.0 - STEPS / 100.0
EVERY = np.ones(200, dtype=bool)


def at(*steps: int) -> np.ndarray:
    return np.isin(STEPS, steps)


def kinds(blank: np.ndarray, others: Mapping[str, np.ndarray], **options: object) -> dict[str, int]:
    rows = kinds_of_rows(STEPS, np.where(blank, np.nan, LOSS), others, **options)
    return {
        name: number
        for name in ("nan", "between", "evaluations", "others", "not_trained")
        if (number := getattr(rows, name))
    }


@pytest.mark.parametrize(
    ("blank", "others", "expected"),
    [
        (STEPS >= 191, {"lr": EVERY}, {"nan": 9}),
        (STEPS >= 191, {}, {"nan": 9}),
        (at(50, 77, 120), {"lr": EVERY}, {"nan": 3}),
        (STEPS % 2 == 1, {"lr": EVERY}, {"nan": 100}),
        (STEPS % 10 > 0, {"lr": EVERY, "grad_norm": EVERY}, {"between": 180}),
        (STEPS % 10 > 0, {}, {"nan": 180}),
        ((STEPS % 10 > 0) | at(100), {"lr": EVERY}, {"between": 180, "nan": 1}),
        ((STEPS % 10 > 0) | (STEPS > 160), {"lr": EVERY}, {"between": 180, "nan": 3}),
        ((STEPS % 10 > 0) & (STEPS >= 50), {"lr": EVERY}, {"between": 135}),
        (
            at(40, 80, 120),
            {"val_loss": at(40, 80, 120), "lr": ~at(40, 80, 120)},
            {"evaluations": 3},
        ),
        (at(199), {"val_loss": EVERY}, {"nan": 1}),
        (at(3, 7), {"gpu_util": at(3, 7), "lr": ~at(3, 7), "run": EVERY}, {"others": 2}),
        (STEPS % 2 == 1, {"lr": STEPS % 2 == 1}, {"others": 100}),
        (
            STEPS > 150,
            {"iteration-time": STEPS <= 150, "num-zeros": STEPS <= 150},
            {"not_trained": 49},
        ),
        (STEPS > 150, {"iteration-time": EVERY, "num-zeros": STEPS <= 150}, {"nan": 49}),
        (STEPS > 150, {"grad_norm": STEPS <= 150}, {"nan": 49}),
        (STEPS > 150, {"fp8_loss": EVERY}, {"between": 49}),
    ],
    ids=[
        *(
            "last rows beside a rate",
            "last rows alone",
            "single rows",
            "every second row",
            "every tenth step is logged",
            "loss alone",
        ),
        *(
            "a due point of every tenth",
            "the last due points",
            "the interval changes",
            "evaluations",
            "an evaluation beside each loss",
        ),
        *(
            "system metrics",
            "loss and rate in rows of their own",
            "steps that were not run",
            "steps that were run",
        ),
        *("a gradient that diverged, too", "another run's loss"),
    ],
)
def test_what_a_row_without_a_loss_is(
    blank: np.ndarray, others: Mapping[str, np.ndarray], expected: dict[str, int]
) -> None:
    losses = [name for name in others if name == "fp8_loss"]
    assert kinds(blank, others, losses=losses) == expected


def test_nan_that_is_written_beside_another_loss_is_nan() -> None:
    blank = STEPS > 150
    assert kinds(blank, {"loss": EVERY}, losses=["loss"], written=blank) == {"nan": 49}


def test_of_a_held_out_loss_none_is_due_without_a_rhythm_but_what_is_written() -> None:
    blank = ~at(1, 2, 4, 8, 16, 32, 64, 128)
    assert kinds(blank, {"lr": EVERY}, held_out=True) == {"between": 192}
    assert kinds(blank, {"lr": EVERY}, held_out=True, written=at(150))["nan"] == 1


def test_a_restart_whose_losses_are_blank_is_nan() -> None:
    steps = np.concatenate([STEPS, np.arange(191.0, 200.0)])
    loss = np.concatenate([LOSS, np.full(9, np.nan)])
    rows = kinds_of_rows(steps, loss, {"lr": np.ones(209, dtype=bool)})
    assert rows.is_record[-9:].all()
    assert rows.nan == 9


def twice(at_step: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps of which one has a NaN loss first, and then a finite one; where NaN is written."""
    at_row = at_step + 1
    return np.insert(STEPS, at_row, at_step), np.insert(np.zeros(200, dtype=bool), at_step, True)


def test_nan_that_is_written_counts_beside_another_loss_of_its_step() -> None:
    steps, is_nan = twice(120)
    loss = np.where(is_nan, np.nan, 2.0)
    others = {"lr": np.ones(201, dtype=bool)}
    rows = kinds_of_rows(steps, loss, others, written=np.ones(201, dtype=bool))
    assert rows.is_record.all()
    assert rows.nan == 1
    blank = kinds_of_rows(steps, loss, others, written=~is_nan)
    assert blank.is_record.sum() == 200


def test_nan_beside_finite_losses_of_the_last_half_is_no_way_of_writing() -> None:
    steps = np.concatenate([STEPS, STEPS[100:]])
    order = np.argsort(steps, kind="stable")
    loss = np.concatenate([np.where(STEPS < 100, 2.0, np.nan), np.full(100, 2.0)])
    others = {"lr": np.ones(300, dtype=bool)}
    rows = kinds_of_rows(steps[order], loss[order], others, written=np.ones(300, dtype=bool))
    assert rows.nan == 100


def test_of_steps_that_have_two_rows_each_the_one_without_the_loss_is_no_record() -> None:
    steps = np.repeat(STEPS, 2)
    loss = np.where(np.arange(400) % 2, 2.0, np.nan)
    others = {"lr": np.ones(400, dtype=bool)}
    rows = kinds_of_rows(steps, loss, others, written=np.ones(400, dtype=bool))
    assert rows.is_record.sum() == 200
    assert rows.nan == 0


@pytest.mark.parametrize(("lr", "nan"), [(True, 5), (False, 0)])
def test_a_trained_row_is_no_evaluation_because_it_has_a_held_out_value(lr: bool, nan: int) -> None:
    blank = STEPS >= 195
    others = {"lr": ~blank | lr, "val_loss": blank}
    rows = kinds_of_rows(STEPS, np.where(blank, np.nan, LOSS), others)
    assert (rows.nan, rows.evaluations) == (nan, 5 - nan)


@pytest.mark.parametrize("place", [0, 100, 199])
def test_an_evaluation_with_a_rate_beside_the_loss_of_its_step_is_one(place: int) -> None:
    steps = np.insert(STEPS, place + 1, STEPS[place])
    is_evaluation = np.insert(np.zeros(200, dtype=bool), place + 1, values=True)
    others = {"lr": np.ones(201, dtype=bool), "val_loss": is_evaluation}
    rows = kinds_of_rows(steps, np.where(is_evaluation, np.nan, 2.0), others)
    assert (rows.nan, rows.evaluations) == (0, 1)


def test_an_evaluation_between_the_points_of_a_loss_is_none_of_them() -> None:
    blank = STEPS % 10 > 0
    others = {"lr": STEPS % 5 == 0, "val_loss": STEPS % 10 == 5}
    kept = ~blank | (STEPS % 10 == 5)
    rows = kinds_of_rows(
        STEPS[kept],
        np.where(blank, np.nan, LOSS)[kept],
        {name: here[kept] for name, here in others.items()},
    )
    assert (rows.nan, rows.evaluations) == (0, 20)
