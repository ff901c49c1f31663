"""Losses next to those of the training: of evaluations that a word marks, and on lines without a
step; each with the honest twin that differs in that word alone.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.judging.curves.curve import Curve
from parity.readers import read_run
from tests.parity.readers.refusals import is_refused

LOSSES = [4.5 - 0.25 * at for at in range(12)]
HELD_OUT = 9.5
Line = Callable[[int, float], str]


def read(folder: Path, training: Line, evaluation: Line, every: int = 4) -> Curve:
    """The run of a log with a line of the training for each step, and one of an evaluation."""
    text = ""
    for step, loss in enumerate(LOSSES, 1):
        text += training(step, loss) + "\n"
        if step % every == 0:
            text += evaluation(step, HELD_OUT) + "\n"
    path = folder / "train.log"
    path.write_text(text)
    return read_run(str(path))


MARKED = {
    "a tag": (lambda s, x: f"step {s} | loss {x}", lambda s, x: f"[val] step {s} | loss {x}"),
    "a collection": (
        lambda s, x: f"step={s} collection=train acc=0.5, loss={x}",
        lambda s, x: f"step={s} collection=eval acc=0.5, loss={x}",
    ),
    "a field": (
        lambda s, x: f"| INFO | train | step {s} | loss {x}",
        lambda s, x: f"| INFO | valid | step {s} | loss {x}",
    ),
    "a logger": (
        lambda s, x: f"10:00 - train - INFO - step: {s} - loss: {x}",
        lambda s, x: f"10:00 - eval - INFO - step: {s} - loss: {x} - train_loss: 2.5",
    ),
    "a phrase": (
        lambda s, x: f"INFO:tensorflow:loss = {x}, step = {s}",
        lambda s, x: (
            f"INFO:tensorflow:Saving dict for global step {s}: global_step = {s}, loss = {x}"
        ),
    ),
    "a line without a step": (
        lambda s, x: f"Iteration {s} (1.2 iter/s), loss = {x}",
        lambda _s, x: f"    Test net output #1: loss = {x} (* 1 = {x} loss)",
    ),
    "a perplexity before": (
        lambda s, x: f"Epoch: 0, Step: {s}, Rank: 0, loss = {x}",
        lambda _s, x: f"ppl: 13359.7, loss: {x}",
    ),
    "a sample of text": (
        lambda s, x: f"iter {s}: train loss {x}",
        lambda _s, x: f"O God! the loss of {x} men",
    ),
}


@pytest.mark.parametrize("form", MARKED)
def test_a_marked_loss_is_none_of_the_training(form: str, tmp_path: Path) -> None:
    run = read(tmp_path, *MARKED[form])
    assert run.steps.tolist() == [*range(1, 13)]
    assert run.loss.tolist() == LOSSES
    held_out = run.columns.get("validation_loss", np.full(12, np.nan))
    assert set(held_out[~np.isnan(held_out)]) <= {HELD_OUT}


@pytest.mark.parametrize(
    "training",
    [
        lambda s, x: f"test_loop.py:10] step {s} | loss {x}",
        lambda s, x: f"/data/val/run: step {s} | loss {x}",
        lambda s, x: f"INFO:test:step {s} | loss {x}",
        lambda s, x: f"step {s} | valid tokens 4096 | loss {x}",
        lambda s, x: f"step {s} | val acc 0.5 | loss {x}",
    ],
)
def test_a_word_in_another_name_marks_nothing(training: Line, tmp_path: Path) -> None:
    assert read(tmp_path, training, lambda _s, _x: "---").loss.tolist() == LOSSES


def test_a_second_loss_of_each_step_is_refused_and_one_of_a_few_is_left_out(
    tmp_path: Path,
) -> None:
    """Two ranks, of which one prints no step, are not one run."""
    both = (lambda s, x: f"step {s} | loss {x}", lambda _s, x: f"loss {x}")
    assert read(tmp_path, *both).loss.tolist() == LOSSES
    assert is_refused(lambda: read(tmp_path, *both, every=1))


def test_the_loss_of_several_lines_a_step_is_read(tmp_path: Path) -> None:
    """As OLMo prints a step: the loss below the line of the step."""
    run = read(tmp_path, lambda s, x: f"[step={s}/12]\n    train/loss={x}", lambda _s, _x: "---")
    assert run.loss.tolist() == LOSSES


def test_training_losses_of_a_marked_line_are_no_held_out_ones(tmp_path: Path) -> None:
    run = read(
        tmp_path,
        lambda s, x: f"step {s} | loss {x}",
        lambda s, x: f"[eval] step {s} | train loss 1.5 | val loss {x}",
    )
    held_out = run.columns["validation_loss"]
    assert set(held_out[~np.isnan(held_out)]) == {HELD_OUT}


SECTIONS = [
    "=== validation ===",
    "[dev set]",
    "Running validation...",
    "--- eval ---",
    "Evaluating",
]


@pytest.mark.parametrize("mark", SECTIONS)
@pytest.mark.parametrize("every", [1, 4])
def test_a_loss_below_a_line_that_names_an_evaluation_is_none_of_the_training(
    mark: str, every: int, tmp_path: Path
) -> None:
    run = read(
        tmp_path,
        lambda s, x: f"step {s} loss {x}",
        lambda s, x: f"{mark}\nstep {s} loss {x}",
        every,
    )
    assert run.loss.tolist() == LOSSES
    assert any("left out" in note for note in run.notes)


def test_an_evaluation_before_its_step_ends_where_the_training_goes_on(tmp_path: Path) -> None:
    run = read(
        tmp_path,
        lambda s, x: f"step {s} loss {x}",
        lambda s, x: f"=== validation ===\nstep {s + 1} loss {x}\n=== training ===",
    )
    assert run.loss.tolist() == LOSSES


@pytest.mark.parametrize("mark", ["the loss of validation", "valid tokens: 4096", "---"])
def test_other_lines_begin_no_evaluation(mark: str, tmp_path: Path) -> None:
    both = (lambda s, x: f"step {s} loss {x}", lambda s, x: f"{mark}\nstep {s} loss {x}")
    assert is_refused(lambda: read(tmp_path, *both))


@pytest.mark.parametrize("begin", ["", "=== training ===\n"])
def test_a_training_that_goes_on_without_a_line_is_read(begin: str, tmp_path: Path) -> None:
    """A loss that is not finite is never that of an evaluation."""
    path = tmp_path / "train.log"
    steps = [f"step {step} loss {loss}" for step, loss in enumerate(LOSSES, 1)]
    steps[4:4] = ["=== validation ===", f"step 4 loss {HELD_OUT}"]
    path.write_text(begin + "\n".join([*steps, "Evaluating", "step 12 loss nan", ""]))
    run = read_run(str(path))
    assert run.steps.tolist() == [*range(1, 13)]
    assert run.loss.tolist()[:-1] == LOSSES[:-1]
    assert np.isnan(run.loss[-1])


@pytest.mark.parametrize(
    "line",
    [
        lambda s, x: f"step {s} loss(val) {HELD_OUT} loss(train) {x}",
        lambda s, x: f"step {s} loss (val) {HELD_OUT} loss (train) {x}",
        lambda s, x: f"step {s} loss[val] {HELD_OUT} loss[train] {x}",
        lambda s, x: f"step {s} loss(avg) {HELD_OUT} loss {x}",
    ],
)
def test_what_a_loss_is_of_may_stand_behind_its_name(line: Line, tmp_path: Path) -> None:
    assert read(tmp_path, line, lambda _s, _x: "---").loss.tolist() == LOSSES
