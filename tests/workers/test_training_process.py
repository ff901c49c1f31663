"""How a training process is said to have ended."""

import subprocess

import pytest

from workers.training_process import TrainingProcess


@pytest.fixture
def ended(tmp_path):
    """A function that gives the sentence on a process that has failed and left this log."""

    def how(write):
        log = tmp_path / "r1-1.log"
        with log.open("wb") as file:
            write(file)
        process = subprocess.Popen(
            ["false"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        process.stdin.close()
        return (
            TrainingProcess(process, log)
            .how_it_ended()
            .partition("the end of its log: ")[2]
            .split("\n")
        )

    return how


def test_the_end_of_a_log_of_any_size_is_read_and_not_the_log(ended):
    def write(file):
        file.seek(2**37)  # 128 GiB that nobody wrote, more than fits into memory
        file.write(
            b"a line that is cut\n" * 10_000
            + b"".join(b"line %d\n" % number for number in range(60))
        )

    assert ended(write) == [f"line {number}" for number in range(10, 60)]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", ["(empty)"]),
        (b"one\ntwo\n", ["one", "two"]),
        (b"\xff" + b"x" * 9, ["\ufffd" + "x" * 9]),
    ],
)
def test_a_short_log_is_shown_whole(ended, content, lines):
    assert ended(lambda file: file.write(content)) == lines


def test_of_one_endless_line_the_end_is_shown(ended):
    (line,) = ended(lambda file: file.write(b"." * 200_000))
    assert 0 < len(line) < 100_000
