"""Training and held-out losses in one column: a column that tells them apart is believed, and what
was left out is said.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from parity.comparing.in_memory import curve_in_memory
from parity.judging.curves.curve import Curve
from parity.readers import read_run
from tests.parity.readers.refusals import is_refused

LOSSES = [4.5 - 0.25 * at for at in range(12)]
HELD_OUT = 9.5
Row = Mapping[str, object]


def rows(column: str, training: object, held_out: object, every: int = 4) -> list[Row]:
    """A row of the training for each step, and some of an evaluation."""
    found: list[Row] = []
    for step, loss in enumerate(LOSSES, 1):
        found.append({"step": step, column: training, "loss": loss})
        if step % every == 0:
            found.append({"step": step, column: held_out, "loss": HELD_OUT})
    return found


def csv(table: list[Row]) -> str:
    cells = [",".join(str(cell) for cell in row.values()) for row in table]
    return "\n".join([",".join(table[0]), *cells, ""])


def long_csv(table: list[Row]) -> str:
    column = [*table[0]][1]
    cells = [f"loss,{row['loss']},{row['step']},{row[column]}" for row in table]
    return "\n".join([f"metric,value,step,{column}", *cells, ""])


FORMS: Mapping[str, tuple[str, Callable[[list[Row]], str]]] = {
    "CSV": ("run.csv", csv),
    "a long CSV": ("run.csv", long_csv),
    "JSON lines": ("run.jsonl", lambda table: "".join(f"{json.dumps(row)}\n" for row in table)),
    "a JSON list": ("run.json", json.dumps),
}
MARKS = [
    ("split", "train", "val"),
    ("phase", "training", "validation"),
    ("kind", "Train", "Eval"),
    ("mode", "train", "test"),
    ("is_val", False, True),
    ("is_train", 1, 0),
]


def read(folder: Path, form: str, table: list[Row]) -> Curve:
    file, write = FORMS[form]
    path = folder / file
    path.write_text(write(table))
    return read_run(str(path))


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("column", "training", "held_out"), MARKS)
def test_the_rows_of_training_are_read(
    column: str, training: object, held_out: object, form: str, every: int, tmp_path: Path
) -> None:
    run = read(tmp_path, form, rows(column, training, held_out, every))
    assert run.steps.tolist() == [*range(1, 13)]
    assert run.loss.tolist() == LOSSES


@pytest.mark.parametrize("form", ["CSV", "JSON lines"])
def test_what_was_left_out_is_said(form: str, tmp_path: Path) -> None:
    run = read(tmp_path, form, rows("split", "train", "val"))
    assert any("3 rows of val left out, by 'split'" in note for note in run.notes)


def test_held_out_losses_at_steps_of_their_own_are_none_of_the_training(tmp_path: Path) -> None:
    table: list[Row] = [
        {"step": 2 * step + at, "split": split, "loss": loss}
        for step, loss in enumerate(LOSSES)
        for at, (split, loss) in enumerate((("train", loss), ("val", HELD_OUT)))
    ]
    assert read(tmp_path, "CSV", table).loss.tolist() == LOSSES


def test_frames_are_read_alike() -> None:
    table = rows("split", "train", "val")
    data = {name: [row[name] for row in table] for name in table[0]}
    assert curve_in_memory(data, "run", {}).loss.tolist() == LOSSES


@pytest.mark.parametrize(
    ("column", "training", "held_out"),
    [("split", "a", "val"), ("split", "train", "more"), ("color", "train", "val")],
)
@pytest.mark.parametrize("form", ["CSV", "JSON lines"])
def test_other_columns_tell_nothing_apart(
    column: str, training: str, held_out: str, form: str, tmp_path: Path
) -> None:
    table = rows(column, training, held_out)
    assert is_refused(lambda: read(tmp_path, form, table))
