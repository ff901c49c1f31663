"""TensorBoard's event files. The sample was written by TensorBoard's own writer: steps 0 to 59,
then a restart at 50, NaN at 70.
"""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.readers import read_run
from parity.readers.errors import ReadError
from tests.conftest import some

SAMPLE = "events.out.tfevents.sample"


def record(payload: bytes) -> bytes:
    return struct.pack("<Q", len(payload)) + b"\0" * 4 + payload + b"\0" * 4


def event(step: int, loss: float) -> bytes:
    value = b"\x0a\x04loss" + b"\x15" + struct.pack("<f", loss)
    summary = b"\x0a" + bytes([len(value)]) + value
    number, varint = step, b""
    while True:
        varint += bytes([number & 127 | (128 if number > 127 else 0)])
        number >>= 7
        if not number:
            break
    return record(
        b"\x09" + b"\0" * 8 + b"\x10" + varint + b"\x2a" + bytes([len(summary)]) + summary
    )


def test_tensorboards_own_file(data: Path) -> None:
    run = read_run(str(data / SAMPLE))
    assert run.completeness.duplicates == 10
    assert run.steps.tolist() == list(range(80))
    assert run.loss[20] == pytest.approx(2.3)
    assert np.isnan(run.loss[70])
    assert run.columns["grad_norm"].tolist() == [float(1 + step) for step in range(80)]
    assert (
        read_run(str(data / SAMPLE), columns={"learning_rate": "lr64"}).columns["learning_rate"][3]
        == 0.5
    )


def test_no_point_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(b"".join(event(step, 2.0) for step in range(25_000)))
    assert read_run(str(path)).completeness.count == 25_000


def test_a_file_that_is_still_written_gives_what_is_whole(data: Path, tmp_path: Path) -> None:
    path = tmp_path / SAMPLE
    path.write_bytes((data / SAMPLE).read_bytes()[:-20])
    run = read_run(str(path))
    assert run.steps[-1] == 78
    assert "the last record is cut short and left out" in run.notes


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no scalar"),
        (b"step,loss\n1,2\n" * 10, "expected a TensorBoard event file"),
        (record(b"\x0b\x01"), "no Event message"),
        (record(b"\x10" + b"\xff" * 12), "no Event message"),
        (event(1, 2.0).replace(b"loss", b"lass"), "no loss column"),
    ],
)
def test_files_that_are_none(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(content)
    with pytest.raises(ReadError, match=reason) as caught:
        read_run(str(path))
    assert "\n" not in str(caught.value)


@settings(max_examples=some(200))
@given(st.integers(0, 8815), st.binary(min_size=1, max_size=8))
def test_damaged_files_are_a_curve_or_one_line(at: int, damage: bytes) -> None:
    import tempfile

    whole = bytearray((Path(__file__).parents[3] / "data" / SAMPLE).read_bytes())
    whole[at : at + len(damage)] = damage
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / SAMPLE
        path.write_bytes(bytes(whole))
        try:
            outcome = str(len(read_run(str(path)).steps))
        except ReadError as error:
            outcome = str(error)
    assert "\n" not in outcome


def as_tensor(step: int, tensor: bytes) -> bytes:
    """An event whose loss is a tensor: what TensorFlow 2 and PyTorch's new style write."""
    value = b"\x0a\x04loss" + b"\x42" + bytes([len(tensor)]) + tensor
    summary = b"\x0a" + bytes([len(value)]) + value
    return record(b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary)


@pytest.mark.parametrize(
    ("kind", "layout", "loss"),
    [
        (1, "<f", 2.5),
        (2, "<d", 2.25),
        (3, "<i", 2.0),
        (9, "<q", 3.0),
        (0, "<f", None),
        (1, "<d", None),
        (2, "<f", None),
        (14, "<f", None),
    ],
)
def test_a_tensor_is_a_number_of_the_type_that_it_states(
    tmp_path: Path, kind: int, layout: str, loss: float | None
) -> None:
    """4 and 8 bytes alone say neither which type they are of nor that they are one number."""
    content = struct.pack(layout, int(loss or 2) if layout in ("<i", "<q") else loss or 2.0)
    stated = b"\x08" + bytes([kind]) if kind else b""
    tensor = stated + b"\x22" + bytes([len(content)]) + content
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(as_tensor(1, tensor) + as_tensor(2, tensor))
    if loss is None:
        with pytest.raises(ReadError, match="no scalar"):
            read_run(str(path))
    else:
        np.testing.assert_array_equal(read_run(str(path)).loss, [loss, loss])


def test_the_files_of_a_run_that_was_restarted_are_one_curve_in_their_order(
    tmp_path: Path,
) -> None:
    """The restart at 4 replaces what the first file has from there on, also step 6, which it did
    not reach again.
    """
    first = b"".join(event(step, 10.0 + step) for step in range(1, 7))
    second = b"".join(event(step, 20.0 + step) for step in range(4, 6))
    (tmp_path / "events.out.tfevents.2000000001.host").write_bytes(second)
    (tmp_path / "events.out.tfevents.1000000001.host").write_bytes(first)
    curve = read_run(str(tmp_path))
    np.testing.assert_array_equal(curve.steps, [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(curve.loss, [11.0, 12.0, 13.0, 24.0, 25.0])
