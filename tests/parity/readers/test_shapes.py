"""One run in the shapes that trackers, trainers and spreadsheets give it: all are read to the last
digit, or refused in one line.
"""

import json
import math
import zipfile
from pathlib import Path

import pytest

from parity.readers import read_run
from parity.readers.errors import ReadError

LOSSES = [10.8125 - 0.3 * i for i in range(6)]
ROWS = [{"step": i, "loss": loss, "lr": 3e-4} for i, loss in enumerate(LOSSES)]
CSV = "step,loss\n" + "".join(f"{i},{loss!r}\n" for i, loss in enumerate(LOSSES))
SHAPES = {
    "a list of objects": json.dumps(ROWS),
    "a list of dicts, printed": repr(ROWS),
    "a history, printed": "\n"
    + repr([{**row, "epoch": 0.1} for row in ROWS] + [{"eval_loss": 3.5, "step": 3}])
    + "\n",
    "rows": json.dumps([[i, loss] for i, loss in enumerate(LOSSES)]),
    "rows with more columns": json.dumps([[i, loss, 0.5, 7] for i, loss in enumerate(LOSSES)]),
    "rows of TensorBoard": json.dumps([[1.7e9 + i, i, loss] for i, loss in enumerate(LOSSES)]),
    "an object of lists": json.dumps(
        {"step": list(range(6)), "loss": LOSSES, "name": "run 7"}, indent=2
    ),
    "golden values": json.dumps(
        {
            "lm loss": {
                "start_step": 0,
                "end_step": 5,
                "step_interval": 1,
                "values": dict(zip(map(str, range(6)), LOSSES, strict=True)),
            },
            "iteration-time": {
                "start_step": 0,
                "end_step": 5,
                "step_interval": 5,
                "values": {"0": "nan", "5": 0.25},
            },
        }
    ),
    "decimal commas": CSV.replace(",", ";").replace(".", ","),
    "decimal commas and tabs": CSV.replace(",", "\t").replace(".", ","),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_is_read_to_the_last_digit(shape: str, tmp_path: Path) -> None:
    path = tmp_path / "run.txt"
    path.write_text(SHAPES[shape])
    run = read_run(str(path))
    assert run.steps.tolist() == list(range(6))
    assert run.loss.tolist() == LOSSES


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16-le", "utf-16-be", "utf-16"])
def test_a_spreadsheets_encodings(encoding: str, tmp_path: Path) -> None:
    mark = {"utf-16-le": "\ufeff", "utf-16-be": "\ufeff"}.get(encoding, "")
    path = tmp_path / "run.csv"
    path.write_bytes((mark + CSV).encode(encoding))
    assert read_run(str(path)).loss.tolist() == LOSSES


def test_an_archive_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metrics.csv", CSV)
    run = read_run(str(path))
    assert (run.loss.tolist(), run.label) == (LOSSES, "run")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other.csv", CSV)
    with pytest.raises(ReadError, match="2 files in the archive; expected one; unpack it"):
        read_run(str(path))
    path.write_text("no archive")
    with pytest.raises(ReadError, match="damaged, encrypted or not a zip archive"):
        read_run(str(path))


def test_a_name_with_one_value_twice_is_read(tmp_path: Path) -> None:
    """As loggers that write a field of their own again do; two values of one name are refused
    (test_readers.py).
    """
    path = tmp_path / "run.jsonl"
    path.write_text(
        '{"step": 0, "loss": 4.5, "loss": 4.5}\n{"step": 1, "loss": NaN, "step": 1, "loss": NaN}\n'
    )
    assert repr(read_run(str(path)).loss.tolist()) == "[4.5, nan]"


def test_nan_is_data_in_what_python_prints(tmp_path: Path) -> None:
    path = tmp_path / "run.txt"
    path.write_text(
        repr(
            [
                {"step": 0, "loss": 4.5},
                {"step": 1, "loss": math.nan},
                {"step": 2, "loss": -math.inf},
            ]
        )
    )
    assert repr(read_run(str(path)).loss.tolist()) == "[4.5, nan, -inf]"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[1, 2.5], [2]]", "not a list of records"),
        ("[{'step': 1, 'loss': open('x')}]", "not a list of dicts as Python prints it"),
        ("[[1," * 100_000, "not valid JSON"),
        ('{"lm loss": {"values": {"one": 2.5}}}', "no step column among 'lm loss/values/one'"),
        ('{"step": [1, 2], "loss": [2.5]}', "the list 'step' has not the length of 'loss'"),
    ],
)
def test_what_cannot_be_read_is_one_line(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ReadError, match=words) as refused:
        read_run(str(path))
    assert "\n" not in str(refused.value)
