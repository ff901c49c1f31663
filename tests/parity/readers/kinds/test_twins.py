"""Files that look like a kind that is read, and are not: they are refused, or what is left out of
them is counted.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from parity.judging.curves.curve import PLANNED_STEPS
from parity.readers import ReadError, SeveralRunsError, read_run, read_runs
from parity.readers.columns.names import HELD_OUT_LOSS
from tests.parity.readers.kinds.kind import LOSSES, RATES, ROWS, STEPS, lines, records

NAMED = {str(step): loss for step, loss in zip(STEPS, LOSSES, strict=True)}
REFUSED = {
    "nested loss of an evaluation": (
        records(lambda s, x, _: {"eval": {"loss": x}, "step": s}),
        "no loss column",
    ),
    "nested losses of two models": (
        records(
            lambda s, x, _: {"step": s, "train": {"student": {"loss": x}, "teacher": {"loss": x}}}
        ),
        "no loss column",
    ),
    "a nested name and the same name joined": (
        records(lambda s, x, _: {"step": s, "train": {"loss": x}, "train/loss": x + 1}),
        "in one object",
    ),
    "lists of other lengths": (
        json.dumps({"losses": LOSSES, "steps": [*STEPS][:-1]}),
        "has not the length",
    ),
    "held-out losses alone": (
        json.dumps({"val": {"loss": LOSSES, "step": [*STEPS]}}),
        "no loss column|no step column",
    ),
    "a step with two losses": (
        '{"train_loss": {"1": 2.5, "1": 2.75, "2": 2.25}}',
        "in one object",
    ),
    "epochs that go back": (lines("Epoch [{e}/4], Step [{i}/10], Loss: {x}") * 2, "mixed"),
    "steps that restart without an epoch": (lines("[{i}/10] loss {x}"), "mixed"),
    "steps that restart within an epoch": (
        lines("Epoch [1/4], Step [{i}/10], Loss: {x}"),
        "mixed",
    ),
    "epochs of two lengths": (
        lines("Epoch [{e}/4], Step [{i}/10], Loss: {x}").replace(
            "[4/4], Step [1/10]", "[4/4], Step [1/9]"
        ),
        "mixed",
    ),
    "rows that may be numbered by a column": (
        lines("{s},{x}", "n,loss\n"),
        "no step column",
    ),
    "rows of two runs, by their epochs": (
        lines("{e},{x}", "epoch,loss\n") + lines("{e},{x}"),
        "goes back",
    ),
    "two tables between bars": (
        lines("| {s} | {x} |", "| step | loss |\n|---|---|\n")
        + lines("| {s} | {worse} |", "\n| step | loss |\n|---|---|\n"),
        "a second table",
    ),
    "a row with a bar too many": (
        lines("| {s} | {x} |", "| step | loss |\n|---|---|\n") + "| 41 | 2.5 | 1 |\n",
        "3 cells",
    ),
    "a row of words between the rows": (
        lines("{s},{x}", "step,loss\n") + "step,objective\n41,2.5\n",
        "'step' in the step column",
    ),
    "steps with points between thousands or decimals": (
        "step;loss\n1.500;4.5\n2.500;4.25\n",
        "not a whole number",
    ),
    "whole numbers alone": (lines("{s}"), "whole numbers"),
    "shares that rise": (lines("0.{s:04d}1"), "accuracy"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_twin_is_refused(name: str, tmp_path: Path) -> None:
    text, words = REFUSED[name]
    (tmp_path / "run.log").write_text(text)
    with pytest.raises(ReadError, match=words) as refused:
        read_run(str(tmp_path / "run.log"))
    assert "\n" not in str(refused.value)


def test_tables_of_two_runs_are_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    other = [loss + 0.1 for loss in LOSSES]
    runs = {"bf16": LOSSES, "fp8": other}
    path.write_text(
        json.dumps({run: {"step": [*STEPS], "loss": losses} for run, losses in runs.items()})
    )
    with pytest.raises(SeveralRunsError, match="2 tables"):
        read_run(str(path))
    assert [run.loss.tolist() for run in read_runs(str(path))] == [LOSSES, other]
    assert read_run(f"{path}:fp8").loss.tolist() == other


def test_series_of_two_runs_are_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    path.write_text(json.dumps({"bf16": NAMED, "fp8": dict.fromkeys(NAMED, 1.5)}))
    with pytest.raises(ReadError, match="no loss column among 'step', 'bf16', 'fp8'"):
        read_run(str(path))
    assert read_run(f"{path}:bf16").loss.tolist() == LOSSES


@pytest.mark.parametrize("name", ["lr", "learning_rate", "step"])
def test_a_column_of_another_quantity_is_no_run(name: str, tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text(lines("{s},{x},{r}", "step,loss,lr\n"))
    with pytest.raises(ReadError, match="no column names the run"):
        read_run(f"{tmp_path / 'run.csv'}:{name}")


@pytest.mark.parametrize(
    ("totals", "plan"),
    [([40] * 40, "40"), ([20] * 40, None), ([40] * 20 + [80] * 20, None), ([-1] * 40, None)],
)
def test_a_total_is_the_plan_where_all_rows_agree_and_no_step_exceeds_it(
    totals: list[int], plan: str | None, tmp_path: Path
) -> None:
    rows = [
        {"current_steps": s, "total_steps": total, "loss": x}
        for (s, x, _), total in zip(ROWS, totals, strict=True)
    ]
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert read_run(str(tmp_path / "log.jsonl")).context.get(PLANNED_STEPS) == plan


def test_a_bar_of_one_epoch_states_no_plan(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(lines("Epoch 1: 10%|# | {s}/40 [00:02<00:04, loss={x}]"))
    assert PLANNED_STEPS not in read_run(str(tmp_path / "run.log")).context


@pytest.mark.parametrize("name", ["lr_scheduler", "max_lr", "base/lr", "lr-AdamW/pg1-momentum"])
def test_another_rate_is_not_the_learning_rate(name: str, tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text(lines("{s},{x},{r}", f"step,loss,{name}\n"))
    assert "learning_rate" not in read_run(str(tmp_path / "run.csv")).columns


@pytest.mark.parametrize("typed", ["train/my_loss", "train.my_loss", "Train/My-Loss"])
def test_a_column_is_named_in_any_spelling(typed: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(records(lambda s, x, _: {"step": s, "train": {"my_loss": x}}))
    assert read_run(str(path), columns={"loss": typed}).loss.tolist() == LOSSES


def test_a_blank_in_numbered_rows_is_a_nan(tmp_path: Path) -> None:
    (tmp_path / "loss.csv").write_text("loss\n4.5\n\n4.25\n4.125\n\n")
    run = read_run(str(tmp_path / "loss.csv"))
    assert repr(run.loss.tolist()) == "[4.5, nan, 4.25, 4.125]"


def test_evaluations_do_not_number_rows(tmp_path: Path) -> None:
    rows = [{"loss": x, "epoch": s / 40, "learning_rate": r} for s, x, r in ROWS]
    rows.insert(20, {"eval_loss": 3.5, "epoch": 0.5})
    (tmp_path / "log.json").write_text(json.dumps(rows))
    run = read_run(str(tmp_path / "log.json"))
    assert run.steps.tolist() == list(STEPS)
    assert run.columns["validation_loss"][19] == 3.5
    assert np.array_equal(run.columns["learning_rate"], RATES)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ('step,loss\n"1,000",4.5\n"2,000",4.25\n', [1000, 2000]),
        ("step;loss\n1.000;4,5\n2.000;4,25\n", [1000, 2000]),
        ("step;loss\n1.0;4,5\n2.0;4,25\n", [1, 2]),
        ("step;loss\n1.000;4.5\n2.000;4.25\n", [1, 2]),
    ],
)
def test_signs_between_thousands_are_told_by_the_decimal_mark(
    text: str, steps: list[int], tmp_path: Path
) -> None:
    (tmp_path / "run.csv").write_text(text)
    run = read_run(str(tmp_path / "run.csv"))
    assert run.steps.tolist() == steps
    assert run.loss.tolist() == [4.5, 4.25]


def test_a_table_in_a_log_is_not_its_run(tmp_path: Path) -> None:
    table = lines("| {s} | {worse} |", "| step | loss |\n|---|---|\n")
    (tmp_path / "train.log").write_text(lines("step {s} loss {x}") + table)
    assert read_run(str(tmp_path / "train.log")).loss.tolist() == LOSSES


def test_the_trainers_own_step_counts_before_a_loggers_counter(tmp_path: Path) -> None:
    rows = [{"_step": 3 * s, "train/loss": x, "train/global_step": s} for s, x, _ in ROWS]
    (tmp_path / "history.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    path = str(tmp_path / "history.jsonl")
    assert read_run(path).steps.tolist() == list(STEPS)
    assert read_run(path, columns={"step": "_step"}).steps.tolist() == [3 * s for s in STEPS]


@pytest.mark.parametrize("name", ["offline-run-20260101_120000-ab12", "kept"])
def test_a_folder_of_wandb_without_its_file_is_called_so(name: str, tmp_path: Path) -> None:
    files = tmp_path / name / "files"
    files.mkdir(parents=True)
    (files / "wandb-summary.json").write_text("{}")
    with pytest.raises(ReadError, match="a W&B run without its file"):
        read_run(str(tmp_path / name))
    (tmp_path / "events").mkdir()
    with pytest.raises(ReadError, match="no TensorBoard event file"):
        read_run(str(tmp_path / "events"))


def test_a_lone_held_out_loss_is_read_where_that_is_stated(tmp_path: Path) -> None:
    stated = {"loss": HELD_OUT_LOSS}
    (tmp_path / "one.csv").write_text(lines("{s},{x}", "step,val_loss\n"))
    assert read_run(str(tmp_path / "one.csv"), columns=stated).loss.tolist() == LOSSES
    (tmp_path / "two.csv").write_text(lines("{s},{x},{worse}", "step,val_loss,eval/loss\n"))
    with pytest.raises(ReadError, match="no loss column"):
        read_run(str(tmp_path / "two.csv"), columns=stated)
    (tmp_path / "both.csv").write_text(lines("{s},{x},{worse}", "step,loss,val_loss\n"))
    assert read_run(str(tmp_path / "both.csv"), columns=stated).loss.tolist() == LOSSES
