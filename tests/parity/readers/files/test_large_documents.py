"""A JSON document on one line is read in memory that grows with its text alone: an object of Python
for each record would take more than twice the limit.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

MOST = 4  # bytes of memory a byte of text
RECORDS = 200_000
PEAK = (
    "import resource, sys; from parity.readers import read_run; run = read_run(sys.argv[1]); "
    "print(len(run.loss), 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
)
RANGE = range(1, RECORDS + 1)


def joined(one: Callable[[int], str]) -> str:
    return ", ".join(map(one, RANGE))


DOCUMENTS = {
    "records": lambda: (
        '{"log_history": ['
        + joined(lambda i: f'{{"step": {i}, "loss": 2.{i:06d}, "learning_rate": 0.0001}}')
        + "]}"
    ),
    "lists": lambda: f'{{"steps": [{joined(str)}], "loss": [{joined(lambda i: f"2.{i:06d}")}]}}',
    "numbers by step": lambda: (
        '{"lm loss": {"values": {' + joined(lambda i: f'"{i}": 2.{i:06d}') + "}}}"
    ),
    "pairs": lambda: '{"train/loss": [' + joined(lambda i: f"[{i}, 2.{i:06d}]") + "]}",
    "a series a line": lambda: (
        '{"run": "a", "tag": "loss", "points": {"steps": ['
        + joined(str)
        + '], "values": ['
        + joined(lambda i: f"2.{i:06d}")
        + "]}}\n"
    ),
    "objects by step": lambda: (
        "{" + joined(lambda i: f'"{i}": {{"loss": 2.{i:06d}, "lr": 0.0001}}') + "}"
    ),
}


def peak(path: Path) -> tuple[int, int]:
    """How many losses a file has, and the bytes of memory that a process took to read it."""
    command = [sys.executable, "-c", PEAK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    losses, memory = map(int, done.stdout.split())
    return losses, memory


@pytest.mark.parametrize("form", DOCUMENTS)
def test_memory_is_bounded(form: str, tmp_path: Path) -> None:
    small, large = tmp_path / "small.json", tmp_path / "large.json"
    small.write_text('[{"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.25}]')
    large.write_text(DOCUMENTS[form]())
    losses, memory = peak(large)
    assert losses == RECORDS
    assert memory - peak(small)[1] < MOST * large.stat().st_size + (16 << 20)
