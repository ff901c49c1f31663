"""A .wandb file that W&B wrote: every record, or what is cut at the end is noted and what is
damaged before it is refused.
"""

import random

import pytest

from parity.readers import read_run
from parity.readers.errors import ReadError
from tools.make_tracker_fixtures import STEPS

CUT = "the last record is cut short and left out"


@pytest.fixture
def file(data, tmp_path):
    """A function that writes a changed copy of the fixture and returns its path."""
    original = (data / "trackers" / "run-small.wandb").read_bytes()
    assert len(original) > 2 * 32 * 1024  # three blocks, with records that cross them

    def write(change):
        changed = bytearray(original)
        path = tmp_path / "run-small.wandb"
        path.write_bytes(change(changed) or changed)
        return str(path)

    return write


def test_what_is_read_is_said(file):
    curve = read_run(file(lambda _: None))
    assert "loss read from 'train/loss', step from 'train/global_step'" in curve.notes
    assert f"{STEPS + STEPS // 20} rows of W&B's offline history" in curve.notes
    assert "the run is finished" in curve.notes
    assert curve.columns["validation_loss"][0] == 3.0


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
def test_a_file_that_is_cut_keeps_its_whole_records_and_says_so(file, share):
    curve = read_run(file(lambda data: data[: int(share * len(data))]))
    assert curve.steps.tolist() == list(range(len(curve.steps)))
    assert 0.5 * share * STEPS < len(curve.steps) < STEPS
    assert CUT in curve.notes
    assert any("killed, or still writes" in note for note in curve.notes)


def test_room_that_was_never_written_is_the_end(file):
    curve = read_run(file(lambda data: data + bytes(5_000)))
    assert len(curve.steps) == STEPS
    assert CUT in curve.notes


def test_any_changed_byte_is_refused_or_cuts_the_end(file):
    """No changed byte may lose a row in the middle, or change a loss, in silence."""
    chance = random.Random(0)  # noqa: S311
    whole = read_run(file(lambda _: None))
    for _ in range(40):
        place, flip = chance.randrange(7, 60_000), chance.randrange(1, 256)

        def change(data, place=place, flip=flip):
            data[place] ^= flip

        with pytest.raises(ReadError, match=r"damaged at byte|does not follow"):
            read_run(file(change))
    assert len(whole.steps) == STEPS


@pytest.mark.parametrize(
    "change",
    [lambda data: data[:0], lambda data: b"x" + data, lambda data: data[:6] + b"\x01" + data[7:]],
)
def test_another_file_is_refused(file, change):
    path = file(lambda data: change(data) or b"x")
    with pytest.raises(ReadError, match="does not begin like"):
        read_run(path)


def test_a_file_without_rows_is_refused(file):
    with pytest.raises(ReadError, match="history is empty"):
        read_run(file(lambda data: data[:7]))
