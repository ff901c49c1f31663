"""The files of a session: whole or not there, and never in the place of earlier ones."""

import json

import pytest

from tools.gpu_evidence.results import Folder, FolderError, StepResult, new_folder, write_atomically


def test_a_result_is_written_at_once_with_its_number(short):
    folder = new_folder(short / "a" / "b")
    folder.write(
        StepResult(
            step="device",
            outcome="done",
            machine={"device": "NVIDIA H200"},
            command=("python", "-c", ""),
        )
    )
    folder.write(
        StepResult(step="pair", outcome="failed", reason="status 1: no", first_lines=("one",))
    )
    written = [json.loads(path.read_text()) for path in sorted(folder.path.glob("*.json"))]
    assert [path.name for path in sorted(folder.path.glob("*.json"))] == [
        "01-device.json",
        "02-pair.json",
    ]
    assert [row["outcome"] for row in written] == ["done", "failed"]
    assert written[0]["machine"] == {"device": "NVIDIA H200"}
    assert written[1].keys() >= {
        "command",
        "began",
        "seconds",
        "limit_seconds",
        "rehearsal",
        "facts",
        "first_lines",
        "reason",
    }


def test_a_folder_with_anything_in_it_is_refused_and_left_as_it_is(short):
    (short / "01-device.json").write_text("{}")
    with pytest.raises(FolderError, match="is not empty, expected a new folder"):
        new_folder(short)
    assert [path.name for path in short.iterdir()] == ["01-device.json"]
    (short / "empty").mkdir()
    assert isinstance(new_folder(short / "empty"), Folder)


def test_a_place_that_cannot_be_written_is_refused(short):
    (short / "file").touch()
    for place in (short / "file", short / "file" / "below"):
        with pytest.raises(FolderError, match="cannot be written"):
            new_folder(place)
    with pytest.raises(FolderError, match="is too long"):
        new_folder(short / ("long" * 25))


def test_a_write_that_is_broken_off_leaves_the_file_as_it_was(short, monkeypatch):
    path = short / "facts.json"
    write_atomically(path, "old")

    def fail(_):
        raise OSError

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError):  # noqa: PT011
        write_atomically(path, "new")
    assert path.read_text() == "old"
