"""Finished runs from files: what counts as whole, and a folder of a run that was resumed."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from parity.cli.runs.finished_runs import why_incomplete
from parity.judging.curves.curve import completeness_of
from parity.readers import read_run
from parity.readers.errors import ReadError


def _record(payload: bytes) -> bytes:
    return struct.pack("<Q", len(payload)) + b"\0" * 4 + payload + b"\0" * 4


def _events(path: Path, steps: range, loss: float) -> None:
    """An event file of TensorBoard with one scalar, loss (steps below 128)."""
    value = b"\x0a\x04loss" + b"\x15" + struct.pack("<f", loss)
    summary = b"\x0a" + bytes([len(value)]) + value
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"".join(
            _record(b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary)
            for step in steps
        )
    )


def test_a_restart_replaces_everything_from_its_first_step_on(tmp_path: Path) -> None:
    _events(tmp_path / "train" / "events.out.tfevents.1", range(60), 1.0)
    _events(tmp_path / "train" / "events.out.tfevents.2", range(30, 45), 2.0)
    _events(tmp_path / "train" / "events.out.tfevents.3", range(40, 50), 3.0)
    curve = read_run(str(tmp_path))
    assert curve.steps.tolist() == list(range(50))
    assert curve.loss.tolist() == [1.0] * 30 + [2.0] * 10 + [3.0] * 10
    assert curve.completeness.duplicates == 30 + 5
    (tmp_path / "none").mkdir()
    with pytest.raises(ReadError, match="contains no TensorBoard event file"):
        read_run(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("steps", "planned", "words"),
    [
        (range(100), 100, None),
        (range(1, 101), 100, None),
        (range(0, 100, 10), 100, None),
        (range(10, 101, 10), 100, None),
        (
            [*range(50), *range(60, 100)],
            100,
            "10 of 100 steps are missing between step 0 and 99, in 1 gaps",
        ),
        (range(25, 100), 100, "begins at step 25"),
        (range(90), 100, "ends at step 89, but this run takes 100 steps"),
        ([], 100, "0 steps"),
        ([5], 100, "1 steps"),
    ],
)
def test_what_is_not_a_whole_run(steps: list[int], planned: int, words: str | None) -> None:
    problem = why_incomplete(completeness_of(np.array(steps, np.int64)), planned)
    assert (problem is None) if words is None else (words in str(problem))


def test_every_kind_of_file_is_proven_whole(data: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    steps, loss = list(range(60)), [3 - step / 100 for step in range(60)]
    parquet.write_table(
        pytest.importorskip("pyarrow").table({"step": steps, "loss": loss}),
        tmp_path / "run.parquet",
    )
    (tmp_path / "run.jsonl").write_text(
        "".join(json.dumps({"step": step, "loss": loss[step]}) + "\n" for step in steps)
    )
    (tmp_path / "run.csv").write_text(
        "step,loss\n" + "".join(f"{step},{loss[step]!r}\n" for step in steps)
    )
    for kind in ("parquet", "jsonl", "csv"):
        curve = read_run(str(tmp_path / f"run.{kind}"))
        assert (curve.steps.tolist(), curve.loss.tolist()) == (steps, loss)
        assert why_incomplete(curve.completeness, 60) is None
        assert (
            why_incomplete(curve.completeness, 61)
            == "it ends at step 59, but this run takes 61 steps"
        )
    assert why_incomplete(read_run(str(data / "maxtext_session.jsonl.gz")).completeness, 85) is None
    emptied = read_run(str(data / "maxtext_eval_truncates.jsonl")).completeness
    assert why_incomplete(emptied, 150) == "it begins at step 100, expected the beginning: 0 to 1"
