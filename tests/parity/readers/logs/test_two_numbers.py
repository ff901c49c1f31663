"""A loss with two numbers, as in "loss 2.49 -> 2.58", is asked about: none is taken in silence."""

import re
import shlex
from pathlib import Path

import pytest

from parity.readers import ReadError, read_run
from parity.readers.logs.pattern import PATTERN

FIRST = [4.5 - 0.25 * at for at in range(12)]
SECOND = [9.5 - 0.5 * at for at in range(12)]
TWO = [
    "step {s} loss {x} -> {y}",
    "step {s} loss: {x} => {y}",
    "step={s} loss={x} → {y}",
    "step {s} loss {x} to {y} lr 0.001",
    "step {s} | loss {x} now {y}",
    "step {s} loss {x}/{y}",
    "step {s} loss [{x}, {y}]",
    "step {s} train_loss {x} > {y}",
]
ONE = [
    "step {s} loss {x} ({y})",
    "step {s} loss {x} lr {y}",
    "step {s} loss {x} -> saved",
    "step {s} loss {x}, val_loss {y}",
    "step {s} loss {x} | {y} tokens/s",
    "step {s} -> loss {x}",
]


def log(line: str, path: Path) -> str:
    lines = [
        line.format(s=step, x=first, y=second)
        for step, (first, second) in enumerate(zip(FIRST, SECOND, strict=True), 1)
    ]
    path.write_text("\n".join([*lines, ""]))
    return str(path)


@pytest.mark.parametrize("line", TWO)
def test_both_numbers_are_proposed_and_each_is_read(line: str, tmp_path: Path) -> None:
    path = log(line, tmp_path / "train.log")
    with pytest.raises(ReadError) as refused:
        read_run(path)
    words = shlex.split(str(refused.value).partition("read it with ")[2])
    patterns = [word for word in words if word not in ("--pattern", "or")]
    read = [read_run(path, columns={PATTERN: pattern}).loss.tolist() for pattern in patterns]
    assert read == [FIRST, SECOND]


def test_where_no_pattern_reads_both_none_is_proposed(tmp_path: Path) -> None:
    path = log("step {s} loss {x}..{y}", tmp_path / "train.log")
    with pytest.raises(ReadError) as refused:
        read_run(path)
    assert not re.search(r"--\w", str(refused.value))


@pytest.mark.parametrize("line", ONE)
def test_a_number_of_something_else_is_none(line: str, tmp_path: Path) -> None:
    assert read_run(log(line, tmp_path / "train.log")).loss.tolist() == FIRST
