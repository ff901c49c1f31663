"""A loss with two numbers, as in "loss 2.49 -> 2.58", is asked about: none is taken in silence."""

import re
import shlex
from pathlib import Path

import pytest

from parity.readers import ReadError, read_run
from parity.readers.logs.pattern import PATTERN

FIRST = [4.5 - 0.25 * at for at in range(12)]
SECOND = [9.5 - 0.5 * at for at in range(12)]
LIKE_FIRST = [1.25 * loss for loss in FIRST]
TWO = [
    "step {s} loss {x} -> {y}",
    "step {s} loss: {x} => {y}",
    "step={s} loss={x} → {y}",
    "step {s} loss {x} to {y} lr 0.001",
    "step {s} | loss {x} now {y}",
    "step {s} loss {x}/{y}",
    "step {s} loss [{x}, {y}]",
    "step {s} train_loss {x} > {y}",
    "step {s} loss {x} (now {y}) lr 0.001",
    "step {s} loss {x}, {z}",
    "step {s} | loss {x} | {z} | lr 0.001",
    "step {s} loss {x}, {z} lr 0.001",
    "step {s} loss={x} lr=0.001 loss={y}",
]
ONE = [
    "step {s} loss {x} ({y})",
    "step {s} loss {x} lr {y}",
    "step {s} loss {x} -> saved",
    "step {s} loss {x}, val_loss {y}",
    "step {s} loss {x} | {y} tokens/s",
    "step {s} -> loss {x}",
    "step {s} loss {x}, {z} s",
    "step {s} loss {x}, {z} tokens/s",
    "step {s} loss {x} | {z} ms | lr 0.001",
    "step {s} loss {x} acc {z}",
    "step {s} loss {x} | lr {z}",
    "step {s} loss {x}, 0.0003",
    "step {s} loss {x} | 512.25",
    "step {s} loss {x} time 3.2 loss {x}",
    "step {s} train: loss {x} | valid: loss {y}",
]


def log(line: str, path: Path) -> str:
    lines = [
        line.format(s=step, x=first, y=second, z=1.25 * first)
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
    assert read == [FIRST, LIKE_FIRST if "{z}" in line else SECOND]


def test_where_no_pattern_reads_both_none_is_proposed(tmp_path: Path) -> None:
    path = log("step {s} loss {x}..{y}", tmp_path / "train.log")
    with pytest.raises(ReadError) as refused:
        read_run(path)
    assert not re.search(r"--\w", str(refused.value))


@pytest.mark.parametrize("line", ONE)
def test_a_number_of_something_else_is_none(line: str, tmp_path: Path) -> None:
    assert read_run(log(line, tmp_path / "train.log")).loss.tolist() == FIRST


@pytest.mark.parametrize("line", ["step {s} loss {x}, {y}", "step {s} loss {x} | {y} | lr 0.001"])
@pytest.mark.parametrize("second", ["3.9", "nan"])
def test_two_numbers_that_part_late_are_asked_about(line: str, second: str, tmp_path: Path) -> None:
    lines = [line.format(s=step, x="3.5", y="3.5") for step in range(1, 40)]
    path = tmp_path / "train.log"
    path.write_text("\n".join([*lines, line.format(s=40, x="3.5", y="3.501"), ""]))
    assert len(read_run(str(path)).steps) == 40
    path.write_text("\n".join([*lines, line.format(s=40, x="3.5", y=second), ""]))
    with pytest.raises(ReadError):
        read_run(str(path))
