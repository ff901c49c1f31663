"""Files that are made to take time or memory: each ends in one line, after a bounded part of it was
read.
"""

import gzip
import json
import os
from pathlib import Path

import pytest

from parity.readers import ReadError, read_run
from parity.readers.files import text as file_text


class Endless:
    """A stream without an end, which counts what was read."""

    def __init__(self, part: bytes) -> None:
        self._part, self.taken = part, 0

    def read(self, size: int) -> bytes:
        self.taken += size
        return (self._part * (size // len(self._part) + 1))[:size]


def test_ten_gigabytes_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sparse.csv"
    with path.open("wb") as file:
        file.write(b"step,loss\n1,2.5\n")
        file.truncate(10 << 30)
    with pytest.raises(ReadError, match="line 3: byte 16 is NUL"):
        read_run(str(path))


@pytest.mark.parametrize(
    ("part", "said", "most"),
    [
        (b"1", "longer than 1 MiB", 3 << 20),
        (b"1.5 ", "longer than 1 MiB", 3 << 20),
        (b'{"a":', "longer than 1 MiB", 3 << 20),
        (b"step 1 loss 2.5\n", "larger than 4 GiB", 12 << 20),
    ],
)
def test_a_stream_without_an_end(
    part: bytes, said: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_text, "MAX_BYTES", 8 << 20)
    stream = Endless(part)
    with pytest.raises(ReadError, match=said):
        file_text._collect(stream, "endless")  # type: ignore[arg-type]
    assert stream.taken <= most


def test_an_archive_that_grows_without_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_text, "MAX_BYTES", 8 << 20)
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(16):
            file.write(b"1,2.5\n" * (1 << 18))
    assert os.path.getsize(path) < 1 << 20  # noqa: PTH202
    with pytest.raises(ReadError, match="larger than 4 GiB"):
        read_run(str(path))


DEEP = 200_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.json", "[" * DEEP),
        ("object.json", '{"a":' * DEEP),
        ("closed.json", "[" * DEEP + "]" * DEEP),
        ("lines.jsonl", '{"step": 1, "loss": ' + "[" * DEEP + "\n"),
        ("printed.txt", "[{'step': " + "(" * DEEP),
        ("number.csv", f"step,loss\n1,{'9' * 900_000}x\n"),
        ("step.csv", f"step,loss\n{'9' * 900_000},2.5\n"),
        (
            "number.jsonl",
            json.dumps({"step": 1}) + "\n" + '{"step": ' + "9" * 900_000 + ', "loss": 2.5}\n',
        ),
        (
            "wide.csv",
            ",".join(f"c{n}" for n in range(100_000)) + "\n" + ",".join(["1"] * 100_000) + "\n",
        ),
        (
            "log.log",
            "step 1 loss 2.5\n" + "loss " * 200_000 + "\nstep " + "1" * 900_000 + " loss\n",
        ),
        ("quotes.csv", "step,loss\n" + '"' * 900_001 + "\n"),
    ],
)
def test_depth_and_digits(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ReadError) as refused:
        read_run(str(path))
    assert len(str(refused.value)) < 1500
    assert "\n" not in str(refused.value)
