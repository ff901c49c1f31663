"""Folders of TensorBoard's event files."""

import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from parity.judging.curves.curve import LOSSES_NOT_FINITE, SAID_NOT_FINITE
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


def scalars(path: Path, series: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    """A TensorBoard event file with scalars by tag, as (step, value), in the order of steps."""
    points = sorted((step, tag, value) for tag, points in series.items() for step, value in points)
    records = []
    for step, tag, value in points:
        scalar = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + struct.pack("<f", value)
        summary = b"\x0a" + bytes([len(scalar)]) + scalar
        number = bytes([step & 0x7F | 0x80, step >> 7]) if step > 0x7F else bytes([step])
        payload = b"\x10" + number + b"\x2a" + bytes([len(summary)]) + summary
        records.append(struct.pack("<Q", len(payload)) + b"\0" * 4 + payload + b"\0" * 4)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(records))


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


def _with(path: Path, *more: tuple[bytes, float, range]) -> Path:
    """The event file of 100 steps at a loss that falls, with further scalars at some steps."""
    parts = []
    for tag, value, steps in ((b"loss", 2.0, range(100)), *more):
        events(path, steps, value, tag)
        parts.append(path.read_bytes())
    path.write_bytes(b"".join(parts))
    return path


@pytest.mark.parametrize(
    ("more", "facts"),
    [
        ([(b"num_nan", 1.0, range(70, 75))], {SAID_NOT_FINITE}),
        ([(b"num_nan", 0.0, range(100))], set()),
        (
            [(b"val_loss", 2.5, range(0, 90, 10)), (b"val_loss", math.nan, range(90, 91))],
            {LOSSES_NOT_FINITE},
        ),
        ([(b"val_loss", 2.5, range(0, 100, 10))], set()),
    ],
)
def test_what_is_known_of_other_losses_is_the_same_of_a_folder_and_its_files(
    more: list[tuple[bytes, float, range]], facts: set[str], tmp_path: Path
) -> None:
    """In one file, as a folder, in a file of their own, and before a run was resumed."""
    alone = _with(tmp_path / "alone" / "events.out.tfevents.1", *more)
    beside = tmp_path / "beside"
    events(beside / "events.out.tfevents.1", range(100), 2.0)
    for number, (tag, value, steps) in enumerate(more, 2):
        events(beside / f"events.out.tfevents.{number}", steps, value, tag)
    resumed = _with(tmp_path / "resumed" / "events.out.tfevents.1", *more).parent
    events(resumed / "events.out.tfevents.2", range(95, 110), 2.0)
    for path in (alone, alone.parent, beside, resumed):
        context = read_run(str(path)).context
        assert facts == {SAID_NOT_FINITE, LOSSES_NOT_FINITE} & context.keys(), path


@pytest.mark.parametrize(("first", "rises"), [(5.0, True), (2.0, False)])
def test_a_run_that_had_risen_before_it_was_resumed_says_so(
    first: float, rises: bool, tmp_path: Path
) -> None:
    events(tmp_path / "events.out.tfevents.1", range(60), 2.0)
    events(tmp_path / "events.out.tfevents.2", range(60, 80), first)
    events(tmp_path / "events.out.tfevents.3", range(55, 100), 2.0)
    run = read_run(str(tmp_path))
    assert (run.completeness.rolled_back > 1.0) == rises
    assert (len(run.steps), run.completeness.duplicates) == (100, 25)


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
