"""Logs that are read by a pattern of the user's, and the pattern that a refusal proposes."""

import threading

import numpy as np
import pytest

from parity.readers import ReadError, read_run
from parity.readers.logs import pattern
from parity.readers.logs.pattern import PATTERN, compiled_patterns
from parity.readers.logs.pattern_proposal import proposed_pattern

BOTH = r"it=(?P<step>[\d,]+) L=(?P<loss>\S+)"


@pytest.fixture
def log(tmp_path):
    """A function that writes lines to a file and reads it by patterns."""

    def read(lines, *patterns):
        path = tmp_path / "run.log"
        path.write_text("".join(f"{line}\n" for line in lines))
        return read_run(str(path), columns={PATTERN: "\n".join(patterns)})

    return read


def test_each_line_that_the_pattern_finds_is_a_step(log):
    curve = log(
        ["hello", "it=1 L=3.25", "it=2 L=nan", "\x1b[32mit=1,003 L=2.5,\x1b[0m", "it= L=9"], BOTH
    )
    np.testing.assert_array_equal(curve.steps, [1, 2, 1003])
    np.testing.assert_array_equal(curve.loss, [3.25, np.nan, 2.5])
    assert "lines found by a pattern: losses as printed" in curve.notes


def test_a_second_pattern_finds_evaluations_of_the_step_before_them(log):
    lines = ["it=1 L=3.25", "it=2 L=3.0", "held out 2.75", "it=3 L=2.9", "held out 2.5"]
    curve = log(lines, BOTH, r"held out (?P<validation_loss>\S+)")
    np.testing.assert_array_equal(curve.loss, [3.25, 3.0, 2.9])
    np.testing.assert_array_equal(curve.columns["validation_loss"], [np.nan, 2.75, 2.5])


def test_lines_without_a_step_are_numbered_from_1(log):
    curve = log(["L=3.25", "other", "L=3.0"], r"L=(?P<loss>\S+)")
    np.testing.assert_array_equal(curve.steps, [1, 2])
    assert any("numbered from 1" in note for note in curve.notes)


def test_a_restart_and_two_runs_are_told_apart_as_in_any_file(log):
    first = [f"it={step} L={4 - step / 100}" for step in range(50)]
    again = [f"it={step} L={4.001 - step / 100}" for step in range(30, 80)]
    assert log([*first, *again], BOTH).steps[-1] == 79
    with pytest.raises(ReadError, match="two runs or ranks may"):
        log([*first, *[line.replace("L=4", "L=5").replace("L=3", "L=4") for line in first]], BOTH)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r"(?P<loss>\S+", "not a regular expression"),
        (r"(?P<lost>\S+)", r"group 'lost'.*did you mean loss"),
        (r"(?P<step>\d+)", "without a group for the loss"),
        (r"(?P<validation_loss>\S+)", r"has no group \(\?P<loss>"),
        (BOTH + "\n", "without a group for the loss"),
    ],
)
def test_a_pattern_that_cannot_find_a_loss_is_refused(text, said):
    with pytest.raises(ReadError, match=said):
        compiled_patterns(text, "--pattern")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["it: 1 L: 3.25"], "no line has a loss by the pattern"),
        (
            ["it=1 L=3.25", "it=2 L=low"],
            r"line 2: the pattern finds 'low' as the loss; expected a number",
        ),
        (["it=9907199254740993 L=3.25"], "line 1: step"),
    ],
)
def test_a_log_that_does_not_fit_names_its_line(log, lines, said):
    with pytest.raises(ReadError, match=said):
        log(lines, BOTH)


def test_a_search_that_would_never_end_is_ended(log, monkeypatch):
    monkeypatch.setattr(pattern, "SECONDS", 0.2)
    with pytest.raises(
        ReadError,
        match=r"took more than 0 s; expected one without a repetition inside a repetition",
    ):
        log(["a" * 200], r"(a+)+(?P<loss>b)")
    assert len(log(["it=1 L=3.25"], BOTH).steps) == 1


def test_a_search_that_nothing_could_end_is_refused(log):
    refused: list[str] = []

    def read():
        try:
            log(["it=1 L=3.25"], BOTH)
        except ReadError as error:
            refused.append(str(error))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert len(refused) == 1
    assert "main thread" in refused[0]


def test_only_the_first_characters_of_a_line_count(log):
    with pytest.raises(ReadError, match="no line has a loss"):
        log([" " * 5000 + "it=1 L=3.25"], BOTH)


def test_a_pattern_is_for_text_and_names_every_column(tmp_path):
    with pytest.raises(ReadError, match="a pattern finds lines of a log"):
        read_run("mlflow:0123", columns={PATTERN: BOTH})
    (tmp_path / "run.log").write_text("it=1 L=3.25\n")
    with pytest.raises(ReadError, match="a column was named for loss"):
        read_run(str(tmp_path / "run.log"), columns={PATTERN: BOTH, "loss": "L"})


STRANGE = {
    "equals": [f"t={n} b={7 * n % 5} L={4 - n / 9:.4f} ok" for n in range(1, 9)],
    "words": [
        f"after {100 * n} updates the objective stands at {4 - n / 9:.3f}." for n in range(1, 9)
    ],
    "thousands": [f"seen {1000 * n:,}; obj {4 - n / 9:.3f}; rate 1e-4" for n in range(1, 9)],
    "loss first": [f"xent<{4 - n / 9:.3f}> at [{n}]" for n in range(1, 9)],
    "named among others": [
        f"#{n} 0.{n % 3} 2.50 myloss={4 - n / 9:.3f} lr 0.1" for n in range(1, 9)
    ],
}


@pytest.mark.parametrize("lines", STRANGE.values(), ids=STRANGE)
def test_the_proposed_pattern_reads_the_log_it_was_made_from(log, lines):
    banner = ["training on 8 devices", "rank 0 of 8 ready", "rank 1 of 8 ready"]
    text = proposed_pattern("\n".join([*banner, *lines, ""]), "train.log")
    curve = log([*banner, *lines], text)
    assert len(curve.steps) == 8
    assert curve.loss[-1] == pytest.approx(4 - 8 / 9, abs=0.0006)
    assert (np.diff(curve.steps) > 0).all()


@pytest.mark.parametrize(
    "lines",
    [
        ["one 1 line 2.5"],
        ["a 3 b 2.5", "a 2 b 2.4"],
        ["a 1 b 2", "a 2 b 3"],
        ["a 1 b 200.5", "a 2 b 300.5"],
        [f"t {n} rate 0.{n}1" for n in (1, 2)],
        [f"t {n} x 3.{n} y 2.{n}" for n in (1, 2)],
        [f"t {n} val loss 3.{n}" for n in (1, 2)],
        [f"t {n} obj 2.5" for n in (1, 2)],
    ],
)
def test_nothing_is_proposed_where_no_step_rises_or_nothing_may_be_a_loss(lines):
    assert proposed_pattern("\n".join([*lines, ""]), "train.log") is None


@pytest.mark.parametrize(
    "name",
    ["run.npz", "run.parquet", "events.out.tfevents.1.host", "folder", "log.txt:a", "wandb:a/b/c"],
)
def test_a_pattern_for_what_is_not_one_log_of_text_is_refused_and_not_left_out(
    tmp_path, monkeypatch, name
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for file in ("run.npz", "run.parquet", "events.out.tfevents.1.host", "log.txt"):
        (tmp_path / file).write_bytes(b"it=1 L=2.5\n")
    with pytest.raises(ReadError, match="a pattern finds lines of a log, a text file"):
        read_run(name, columns={PATTERN: BOTH})
    assert read_run("log.txt", columns={PATTERN: BOTH}).loss[0] == 2.5
