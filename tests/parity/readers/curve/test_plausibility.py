"""What does not look like one run's loss in nats is said, and refused where it can be read in two
ways.
"""

import itertools
from pathlib import Path

import numpy as np
import pytest

from parity.readers import read_run
from parity.readers.curve.plausibility import check_repeats
from parity.readers.errors import ReadError


def write(folder: Path, text: str, name: str = "run.csv") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def rows(*series: tuple[range, float]) -> str:
    return "step,loss\n" + "".join(
        f"{step},{start - 0.001 * step}\n" for steps, start in series for step in steps
    )


def test_two_runs_one_after_the_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ReadError,
        match=r"500 of 1,000 rows repeat a step with another loss \(first step 0\), so two runs",
    ):
        read_run(write(tmp_path, rows((range(500), 3.0), (range(500), 4.0))))


def test_interleaved_rows_are_refused(tmp_path: Path) -> None:
    pairs = itertools.chain.from_iterable(
        [(range(step, step + 1), 3.0), (range(step, step + 1), 4.0)] for step in range(200)
    )
    with pytest.raises(ReadError, match="200 of 400 rows repeat"):
        read_run(write(tmp_path, rows(*pairs)))


def test_chunks_of_two_runs_are_refused(tmp_path: Path) -> None:
    chunks = [
        (range(start, start + 10), loss) for start in range(0, 200, 10) for loss in (3.0, 4.0)
    ]
    with pytest.raises(ReadError, match="200 of 400 rows repeat"):
        read_run(write(tmp_path, rows(*chunks)))


def test_a_restart_is_said_and_its_rows_count(tmp_path: Path) -> None:
    run = read_run(write(tmp_path, rows((range(500), 3.0), (range(400, 1000), 2.9))))
    assert run.completeness.duplicates == 100
    assert run.loss[450] == pytest.approx(2.45)
    assert "100 rows repeat a step after 1 restart; the later row counts" in run.notes


def test_a_few_repeated_steps_are_no_second_run(tmp_path: Path) -> None:
    text = rows((range(1000), 3.0), (range(500, 505), 2.9))
    assert read_run(write(tmp_path, text)).completeness.duplicates == 5


def test_copies_of_several_ranks_count_once(tmp_path: Path) -> None:
    run = read_run(
        write(
            tmp_path, rows(*[(range(step, step + 1), 3.0) for step in range(300) for _ in range(4)])
        )
    )
    assert run.completeness.count == 300
    assert "900 rows repeat a step with the same loss and count once" in run.notes


def test_nan_equals_nan_and_shuffled_rows_are_one_run() -> None:
    steps = np.repeat(np.arange(50.0), 2)
    assert check_repeats(steps, np.where(steps > 40, np.nan, 2.0), "x") == (
        "50 rows repeat a step with the same loss and count once",
    )
    order = np.random.default_rng(0).permutation(50)
    assert check_repeats(np.arange(50.0)[order], np.arange(50.0)[order], "x") == ()


@pytest.mark.parametrize(
    ("loss", "values"),
    [(lambda step: 40.0 + step, "40 to 139"), (lambda step: -2.0 + 0.001 * step, "-2 to -1.901")],
)
def test_values_that_cannot_be_nats_are_refused(loss, values: str, tmp_path: Path) -> None:
    text = "step,loss\n" + "".join(f"{step},{loss(step)}\n" for step in range(100))
    with pytest.raises(
        ReadError, match=rf"every value in column 'loss' is outside 0 to 30 nats \({values}\)"
    ):
        read_run(write(tmp_path, text))


def test_some_values_outside_are_said(tmp_path: Path) -> None:
    run = read_run(write(tmp_path, "step,loss\n0,31\n1,2.5\n2,-1\n3,nan\n4,1e9\n"))
    assert run.loss[4] == 1e9
    assert "3 of 5 losses are outside 0 to 30 nats" in run.notes


@pytest.mark.parametrize(
    "name", ["ppl", "train/perplexity", "val_acc", "accuracy", "Top-1 Accuracy"]
)
def test_a_column_that_is_named_as_something_else_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        ReadError, match=f"column '{name}' is named as an? (perplexity|accuracy), not as a loss"
    ):
        read_run(write(tmp_path, f"step,{name}\n0,2.0\n"), columns={"loss": name})


def test_an_unnamed_value_that_may_be_an_accuracy(tmp_path: Path) -> None:
    """TensorBoard's download has the columns Wall time, Step and Value, whatever the scalar was."""
    text = "Wall time,Step,Value\n" + "".join(
        f"1,{step},{0.1 + 0.008 * step}\n" for step in range(100)
    )
    file = write(tmp_path, text)
    with pytest.raises(
        ReadError,
        match=r"column 'Value' rises from 0.1 to 0.892 within 0 to 1.* --column loss=Value",
    ):
        read_run(file)
    assert read_run(file, columns={"loss": "Value"}).loss[0] == 0.1
    falling = "Wall time,Step,Value\n" + "".join(
        f"1,{step},{3.0 - 0.008 * step}\n" for step in range(100)
    )
    assert read_run(write(tmp_path, falling)).notes == ("loss read from 'Value', step from 'Step'",)


def test_a_table_without_a_header(tmp_path: Path) -> None:
    run = read_run(write(tmp_path, "0,3.5\n1,3.0\n"))
    assert (
        run.notes[1]
        == "no header line: the first column is read as the step, the second as the loss"
    )
    for text in ("0,1\n1,2\n2,3\n", "10,0\n9,1\n8,2\n"):
        with pytest.raises(ReadError, match="no header, and both columns could be the step"):
            read_run(write(tmp_path, text))
    with pytest.raises(ReadError, match=r"line 1: step 3.5 is not a whole number"):
        read_run(write(tmp_path, "3.5,0\n3.0,1\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step,loss,lr\n0,3.0,fast\n1,2.9,0.1\n", "line 2: 'fast' in the learning_rate column"),
        (
            "step,loss,val_loss\n0,3.0,\n1,2.9,2.8s\n",
            "line 3: '2.8s' in the validation_loss column",
        ),
        ("step,loss\n0,3.0\n1,2.9*\n", "line 3: '2.9[*]' in the loss column"),
        (
            "step,loss\n0,3,5\n1,3,25\n",
            "line 2: 3 cells; expected 2, as in line 1 [(]write decimals with a point[)]",
        ),
        ("step;loss\n0;3,5,5\n", "line 2: '3,5,5' in the loss column"),
        ("step;loss\n1,000;3,5\n", "line 2: '1,000' in the step column"),
        ("step loss\n0 3.5 9\n1 3.25 9\n", "line 2: 3 cells; expected 2"),
        ("step,loss,loss\n0,3.5,3.0\n", "2 columns could be 'loss'"),
        ("step,loss\n0,3.0\n1,low\n", "line 3: 'low' in the loss column"),
        (
            '{"step": 0, "loss": 3.0, "grad_norm": "1.0 (clipped)"}\n',
            "line 1: 'grad_norm' is '1.0 [(]clipped[)]'",
        ),
    ],
)
def test_a_cell_that_is_no_number_is_named_by_its_line(
    text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ReadError, match=message):
        read_run(write(tmp_path, text, "run.jsonl" if text.startswith("{") else "run.csv"))


def test_a_delimiter_at_the_end_of_each_row_is_no_cell(tmp_path: Path) -> None:
    assert read_run(write(tmp_path, "step,loss\n0,3.0,\n1,2.5,\n")).loss.tolist() == [3.0, 2.5]


def test_two_columns_of_one_name_are_refused_when_named(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="2 columns are called 'ce'"):
        read_run(write(tmp_path, "step,ce,ce\n0,3.5,3.0\n"), columns={"loss": "ce"})


def test_missing_values_of_other_columns_are_nothing(tmp_path: Path) -> None:
    run = read_run(write(tmp_path, "step,loss,lr,grad_norm\n0,3.0,,None\n1,2.9,0.1,null\n"))
    assert np.isnan(run.columns["learning_rate"][0])
    assert np.isnan(run.columns["grad_norm"]).all()


@pytest.mark.parametrize(
    "losses", [[2.5, 2.75, 3.5], [5, 4, 3], [3, 3, 3], [3], [2.0, 3.0, 3.5]], ids=str
)
def test_two_bare_columns_are_read_where_the_second_can_only_be_the_loss(tmp_path, losses):
    """A rising loss with decimals, and a whole one that does not rise, are no steps."""
    text = "".join(f"{step},{loss}\n" for step, loss in enumerate(losses, 1))
    curve = read_run(write(tmp_path, text))
    assert (curve.steps.tolist(), curve.loss.tolist()) == ([*range(1, len(losses) + 1)], losses)


@pytest.mark.parametrize("bad", ["nan", "inf"])
@pytest.mark.parametrize("more", ["99,2.5\n", "98,2.5\n99,2.5\n"])
def test_a_later_finite_row_hides_no_loss_that_is_not_finite(
    bad: str, more: str, tmp_path: Path
) -> None:
    run = read_run(write(tmp_path, f"{rows((range(99), 3.0))}99,{bad}\n{more}"))
    assert run.steps[-1] == 99
    assert not np.isfinite(run.loss[-1])
    assert run.completeness.duplicates == more.count("\n")


@pytest.mark.parametrize("again", [range(80, 100), range(98, 120)])
def test_a_restart_replaces_a_loss_that_is_not_finite(again: range, tmp_path: Path) -> None:
    later = rows((again, 3.0)).partition("\n")[2]
    run = read_run(write(tmp_path, f"{rows((range(99), 3.0))}99,nan\n{later}"))
    assert np.isfinite(run.loss).all()
