"""Histories that the Hugging Face trainer, Lightning and trackers save, as they write them."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.readers import read_run
from parity.readers.errors import ReadError


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def log_history(runs: int = 1) -> list[dict[str, Any]]:
    """What the Hugging Face trainer logs: a loss every 10 steps, an evaluation every 20, the mean
    of the run at the end.
    """
    history: list[dict[str, Any]] = []
    for run in range(runs):
        for step in range(10, 101, 10):
            history.append(
                {
                    "epoch": step / 100,
                    "grad_norm": 1.5,
                    "learning_rate": 5e-5,
                    "loss": 4.0 + run - 0.01 * step,
                    "step": step,
                }
            )
            if step % 20 == 0:
                history.append(
                    {
                        "epoch": step / 100,
                        "eval_loss": 4.25 - 0.01 * step,
                        "eval_runtime": 1.5,
                        "step": step,
                    }
                )
        history.append(
            {
                "epoch": 1.0,
                "step": 100,
                "total_flos": 1e12,
                "train_loss": 3.45,
                "train_runtime": 60.0,
            }
        )
    return history


def as_json_lines(history: list[dict[str, Any]]) -> tuple[str, str]:
    return "log.jsonl", "".join(json.dumps(record) + "\n" for record in history)


def as_state(history: list[dict[str, Any]]) -> tuple[str, str]:
    document = {
        "best_metric": None,
        "epoch": 1.0,
        "global_step": 100,
        "log_history": history,
        "logging_steps": 10,
        "max_steps": 100,
    }
    return "trainer_state.json", json.dumps(document, indent=2, sort_keys=True) + "\n"


def as_list(history: list[dict[str, Any]]) -> tuple[str, str]:
    return "log.json", json.dumps(history, indent=1)


def as_csv(history: list[dict[str, Any]]) -> tuple[str, str]:
    """pandas.DataFrame(log_history).to_csv(): an index without a name, and empty cells."""
    import io

    names = list(dict.fromkeys(name for record in history for name in record))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["", *names])
    for index, record in enumerate(history):
        writer.writerow([index, *(record.get(name, "") for name in names)])
    return "log.csv", text.getvalue()


every_form = pytest.mark.parametrize("form", [as_json_lines, as_state, as_list, as_csv])


@every_form
def test_log_history(form, tmp_path: Path) -> None:
    """The loss of each step, not the mean of the run; evaluations are validation losses."""
    run = read_run(write(tmp_path, *form(log_history())))
    assert run.steps.tolist() == list(range(10, 101, 10))
    assert run.loss == pytest.approx([4.0 - 0.01 * step for step in range(10, 101, 10)])
    evaluated = run.columns["validation_loss"]
    assert [round(loss, 6) for loss in evaluated[1::2]] == [
        round(4.25 - 0.01 * step, 6) for step in range(20, 101, 20)
    ]
    assert np.isnan(evaluated[::2]).all()
    assert run.columns["learning_rate"][0] == 5e-5
    plan = ", plan of 100 steps" if form is as_state else ""
    assert run.notes[0] == (
        "loss read from 'loss' ('train_loss' could also be the loss), step from 'step', rate from "
        f"'learning_rate'{plan}"
    )
    assert sum(int(note.split()[0]) for note in run.notes if "without a loss" in note) == 6


@every_form
def test_two_runs_in_one_history_are_refused(form, tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="10 of 20 rows repeat a step with another loss"):
        read_run(write(tmp_path, *form(log_history(2))))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            as_state(log_history())[1][:700],
            (
                "trainer_state.json, line [0-9]+: not valid JSON; expected trainer_state.json as "
                "the trainer"
            ),
        ),
        ('{"log_history": {}}', "log_history is not a list of records"),
        (
            '{"log_history": [{"eval_loss": 2.5, "step": 10}]}',
            "no loss column among 'eval_loss', 'step'",
        ),
        ('{"log_history": [{"loss": "2.5!", "step": 10}]}', "record 1: 'loss' is '2.5!'"),
    ],
)
def test_a_history_that_cannot_be_read(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=message):
        read_run(write(tmp_path, "trainer_state.json", text))


def test_lightnings_metrics_with_gaps(tmp_path: Path) -> None:
    """CSVLogger: a row for each kind of metric; losses of a step before means of an epoch;
    evaluations between logged steps.
    """
    rows = ["epoch,lr-AdamW,step,train_loss_epoch,train_loss_step,val_loss"]
    for epoch in range(2):
        for step in range(epoch * 100, epoch * 100 + 100, 10):
            rows += [f",0.001,{step},,,", f"{epoch},,{step},,{3.0 - 0.001 * step},"]
        rows += [
            f"{epoch},,{epoch * 100 + 99},,,{2.5 - epoch}",
            f"{epoch},,{epoch * 100 + 99},2.9,,",
        ]
    run = read_run(write(tmp_path, "metrics.csv", "\n".join(rows) + "\n"))
    assert run.steps.tolist() == list(range(0, 200, 10))
    assert (
        run.notes[0]
        == "loss read from 'train_loss_step' ('train_loss_epoch' could also be the loss), step "
        "from 'step'"
    )
    evaluated = run.columns["validation_loss"]
    assert {int(run.steps[i]): evaluated[i] for i in np.flatnonzero(~np.isnan(evaluated))} == {
        90: 2.5,
        190: 1.5,
    }


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (
            "reduced_train_loss,global_step,consumed_samples,train_step_timing in s",
            "reduced_train_loss",
        ),
        ("train/loss,train/train_loss,global_step,eval/loss", "train/loss"),
        ("lm loss,step,load_balancing_loss,loss scale", "lm loss"),
        ("train_loss,val_loss,step,epoch", "train_loss"),
        ("train_loss,loss,step,epoch", "loss"),
    ],
)
def test_names_of_trackers(names: str, taken: str, tmp_path: Path) -> None:
    columns = names.split(",")
    step = next(i for i, name in enumerate(columns) if name.endswith("step"))
    rows = "".join(
        ",".join(str(row) if i == step else str(1.5 + i) for i in range(len(columns))) + "\n"
        for row in range(5)
    )
    run = read_run(write(tmp_path, "run.csv", f"{names}\n{rows}"))
    assert run.notes[0].startswith(f"loss read from {taken!r}")
    assert run.steps.tolist() == list(range(5))


@pytest.mark.parametrize(
    "name", ["consumed_samples", "consumed_tokens", "tokens", "ntokens_seen", "samples"]
)
def test_samples_and_tokens_are_not_steps(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        ReadError, match=f"no step column among '{name}', 'loss'; read it with --column step={name}"
    ):
        read_run(write(tmp_path, "run.csv", f"{name},loss\n128,2.0\n256,1.9\n"))
