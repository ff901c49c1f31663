"""Folders of TensorBoard's event files."""

import struct
from pathlib import Path

import pytest

from parity.readers import read_run, read_runs
from parity.readers.errors import ReadError


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def events(path: Path, steps: range, loss: float, tag: bytes = b"loss") -> None:
    """A TensorBoard event file with one scalar, steps below 128."""

    def record(payload: bytes) -> bytes:
        return struct.pack("<Q", len(payload)) + b"\0" * 4 + payload + b"\0" * 4

    value = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + struct.pack("<f", loss)
    summary = b"\x0a" + bytes([len(value)]) + value
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"".join(
            record(b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary)
            for step in steps
        )
    )


def test_a_folder_of_event_files_is_a_run(tmp_path: Path) -> None:
    events(tmp_path / "fp8" / "train" / "events.out.tfevents.1", range(60), 2.0)
    events(tmp_path / "fp8" / "train" / "events.out.tfevents.2", range(40, 100), 1.0)
    events(tmp_path / "fp8" / "validation" / "events.out.tfevents.1", range(60), 2.5, b"val_loss")
    run = read_run(str(tmp_path / "fp8"))
    assert (run.label, run.steps.tolist(), run.completeness.duplicates) == (
        "fp8",
        list(range(100)),
        20,
    )
    assert run.loss.tolist() == [2.0] * 40 + [1.0] * 60
    assert "1 event file without a training loss left out" in run.notes


def test_a_folder_of_two_runs_is_refused(tmp_path: Path) -> None:
    for name, loss in (("a", 2.0), ("b", 2.5)):
        events(tmp_path / name / "events.out.tfevents.1", range(60), loss)
    with pytest.raises(
        ReadError,
        match=r"contains a training loss in 2 folders \(\S+a, \S+b\), so several runs; name one "
        r"of them",
    ):
        read_run(str(tmp_path))
    assert [(run.label, run.replicate, run.loss[0]) for run in read_runs(str(tmp_path))] == [
        ("a", 0, 2.0),
        ("b", 1, 2.5),
    ]
    events(tmp_path / "a" / "events.out.tfevents.2", range(60), 2.25)
    with pytest.raises(ReadError, match="60 of 120 rows repeat a step with another loss"):
        read_run(str(tmp_path / "a"))


def test_a_damaged_file_in_a_folder_is_not_skipped(tmp_path: Path) -> None:
    events(tmp_path / "events.out.tfevents.1", range(60), 2.0)
    (tmp_path / "events.out.tfevents.2").write_bytes(b"step,loss\n1,2\n" * 10)
    with pytest.raises(ReadError, match=r"tfevents\.2.*expected a TensorBoard event file"):
        read_run(str(tmp_path))
