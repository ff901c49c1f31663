"""What a reader recorded of a run is compared between the arms: how its file ends, and which column
was the loss.
"""

import dataclasses

import numpy as np
import pytest

from parity.judging.curves.curve import (
    LAST_LINE_CUT,
    LOSS_MEANING,
    LOSS_NAME,
    OTHER_LOSSES,
    SAID_NOT_FINITE,
    SECOND_LOSSES,
    Curve,
    curve_from_arrays,
)
from parity.judging.curves.reading import (
    TRAINING_LOSS,
    cut_last_line,
    different_meanings,
    said_not_finite,
    second_loss,
)


def run(steps: int, *, is_cut: bool = False) -> Curve:
    curve = curve_from_arrays(np.arange(steps), np.full(steps, 2.5))
    return dataclasses.replace(curve, context={LAST_LINE_CUT: "yes"} if is_cut else {})


@pytest.mark.parametrize(
    ("baseline", "candidate", "name"),
    [
        (run(100), run(99, is_cut=True), "fp8"),
        (run(99, is_cut=True), run(100), "bf16"),
        (run(99, is_cut=True), run(99, is_cut=True), "bf16"),
    ],
)
def test_a_cut_last_line_blocks_where_the_other_arm_may_go_on(
    baseline: Curve, candidate: Curve, name: str
) -> None:
    said = cut_last_line([("bf16", [baseline]), ("fp8", [candidate])])
    assert said is not None
    assert said.startswith(f"The file of {name} ends in half a line")


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        (run(100), run(100, is_cut=True)),
        (run(120, is_cut=True), run(100)),
        (run(100), run(99)),
    ],
)
def test_behind_the_end_of_the_other_arm_it_says_nothing(baseline: Curve, candidate: Curve) -> None:
    assert cut_last_line([("bf16", [baseline]), ("fp8", [candidate])]) is None


def read_from(column: str, *others: str) -> Curve:
    context = {LOSS_NAME: column, LOSS_MEANING: TRAINING_LOSS, OTHER_LOSSES: "\n".join(others)}
    return dataclasses.replace(run(100), context=context)


@pytest.mark.parametrize(
    ("baseline", "candidate", "option"),
    [
        (read_from("loss"), read_from("train/loss", "loss"), "fp8:loss=loss"),
        (read_from("train/loss", "aux_loss", "loss"), read_from("Loss"), "bf16:loss=Loss"),
    ],
)
def test_two_columns_are_asked_about_where_one_file_has_both(
    baseline: Curve, candidate: Curve, option: str
) -> None:
    said = different_meanings([("bf16", [baseline]), ("fp8", [candidate])])
    assert said is not None
    assert f"--column {option} reads that one" in said


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        (read_from("loss"), read_from("train/loss")),
        (read_from("loss", "train/loss"), read_from("Loss", "train/loss")),
        (read_from("loss"), read_from("train/loss", "train_loss")),
    ],
)
def test_names_of_two_trainers_are_one_quantity(baseline: Curve, candidate: Curve) -> None:
    assert different_meanings([("bf16", [baseline]), ("fp8", [candidate])]) is None


@pytest.mark.parametrize("others", [("train_loss",), ()])
def test_a_second_training_loss_is_asked_about(others: tuple[str, ...]) -> None:
    read = read_from("loss", *others)
    context = {**read.context, SECOND_LOSSES: "train_loss"}
    candidate = dataclasses.replace(read, context=context)
    said = second_loss([("bf16", [read_from("loss", *others)]), ("fp8", [candidate])])
    assert said is not None
    assert "--column fp8:loss=loss keeps" in said
    assert ("--column fp8:loss=train_loss reads" in said) == bool(others)
    assert second_loss([("bf16", [read]), ("fp8", [read])]) is None


@pytest.mark.parametrize(
    ("bad", "lines", "counts"), [(0, 1, True), (0, 0, False), (1, 3, False), (1, 4, True)]
)
def test_words_of_losses_that_were_nan_count_beyond_three_for_each_that_was_read(
    bad: int, lines: int, counts: bool
) -> None:
    losses = np.full(100, 2.5)
    losses[len(losses) - bad :] = np.nan
    curve = curve_from_arrays(np.arange(100), losses)
    told = dataclasses.replace(curve, context={SAID_NOT_FINITE: str(lines)})
    said = said_not_finite([("bf16", [run(100)]), ("fp8", [told])])
    assert (said is not None) == counts
    assert not counts or said.startswith(f"{lines} record")
