"""A report that grows, is torn, renamed, cut short, or no file at all."""

import json
import math
import os

import numpy as np
import pytest

from parity.readers import read_run
from workers.commands import follow
from workers.commands.follow import LogRefusedError, ReportFollower


@pytest.fixture
def folder(tmp_path):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def follower(folder):
    made = ReportFollower(folder, "log.jsonl", most_steps=1000)
    yield made
    made.close()


def _line(step, loss, **more):
    return json.dumps({"step": step, "loss": loss, **more}) + "\n"


def _rows(*reports):
    rows = [
        (report.steps.tolist(), report.columns["lm_loss"].tolist())
        for report in reports
        if report is not None
    ]
    return [row for steps, losses in rows for row in zip(steps, losses, strict=True)]


def test_rows_come_as_their_lines_end(follower, tmp_path):
    log = tmp_path / "log.jsonl"
    assert follower.poll() is None
    log.write_text(_line(0, 3.0) + _line(1, 2.5)[:7])
    assert _rows(follower.poll()) == [(0.0, 3.0)]
    assert follower.poll() is None
    with log.open("a") as file:
        file.write(_line(1, 2.5)[7:] + _line(2, 2.25)[:-1])
    assert _rows(follower.poll()) == [(1.0, 2.5)]
    assert _rows(*follower.finish()) == [(2.0, 2.25)]
    assert follower.last_step == 2


@pytest.mark.parametrize("cut", [1, 7, 64, 1000])
def test_any_pieces_give_what_the_whole_file_gives(folder, tmp_path, cut):
    lines = "".join(
        _line(step, 3.0 - step / 100, grad_norm=1.0 + step, learning_rate=0.1)
        for step in range(0, 60, 3)
    )
    follower = ReportFollower(folder, "log.jsonl")
    found = []
    with (tmp_path / "log.jsonl").open("a") as file:
        for begin in range(0, len(lines), cut):
            file.write(lines[begin : begin + cut])
            file.flush()
            found.append(follower.poll())
    found += follower.finish()
    reports = [report for report in found if report is not None]
    whole = read_run(str(tmp_path / "log.jsonl"))
    assert np.concatenate([report.steps for report in reports]).tolist() == whole.steps.tolist()
    for ours, theirs in (("lm_loss", whole.loss), ("grad_norm", whole.columns["grad_norm"])):
        assert (
            np.concatenate([report.columns[ours] for report in reports]).tolist() == theirs.tolist()
        )
    follower.close()


def test_a_printed_log_with_a_preamble_is_read_by_its_lines(folder, tmp_path):
    follower = ReportFollower(folder, "log.txt")
    with (tmp_path / "log.txt").open("a") as file:
        file.write("loading the data\nusing 8 devices\n")
        file.flush()
        assert follower.poll() is None
        for step in range(5):
            file.write(f"step {step} loss {4.0 - step:.4f}\n")
            file.flush()
    assert _rows(*follower.finish()) == [(float(step), 4.0 - step) for step in range(5)]
    follower.close()


def test_a_pattern_finds_what_no_reader_knows(folder, tmp_path):
    follower = ReportFollower(folder, "log.txt", r"iter (?P<step>\d+): l=(?P<loss>\S+),")
    (tmp_path / "log.txt").write_text(
        "".join(f"iter {step}: l={3.5 - step}, time 3ms\n" for step in range(3))
    )
    assert _rows(*follower.finish()) == [(0.0, 3.5), (1.0, 2.5), (2.0, 1.5)]
    follower.close()


def test_a_held_out_loss_has_a_table_of_its_own(follower, tmp_path):
    (tmp_path / "log.jsonl").write_text(
        _line(0, 3.0) + _line(1, 2.5, val_loss=2.75) + _line(2, 2.25)
    )
    report = follower.poll()
    assert (report.validation["step"].tolist(), report.validation["loss"].tolist()) == (
        [1.0],
        [2.75],
    )
    assert set(report.columns) == {"lm_loss"}


def test_losses_that_are_not_finite_are_data(follower, tmp_path):
    (tmp_path / "log.jsonl").write_text(
        '{"step": 0, "loss": 3.0}\n{"step": 1, "loss": NaN}\n{"step": 2, "loss": Infinity}\n'
    )
    report = follower.poll()
    assert math.isnan(report.columns["lm_loss"][1])
    assert math.isinf(report.columns["lm_loss"][2])
    assert follower.has_diverged


@pytest.mark.parametrize("apart", [False, True])
def test_a_later_line_of_a_step_replaces_no_loss_that_is_not_finite(follower, tmp_path, apart):
    log, reports = tmp_path / "log.jsonl", []
    log.write_text(_line(0, 3.0, lr=0.1) + _line(1, math.nan, lr=0.1))
    if apart:
        reports.append(follower.poll())
    with log.open("a") as file:
        file.write(_line(1, 2.5, lr=0.1) + _line(2, 2.25, lr=0.1))
    rows = _rows(*reports, follower.poll())
    assert [step for step, _ in rows] == [0.0, 1.0, 2.0]
    assert [math.isnan(loss) for _, loss in rows] == [False, True, False]


def test_micro_batches_are_one_row_once_the_next_update_begins(follower, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(_line(1, 3.0, micro_step=0))
    assert follower.poll() is None
    with log.open("a") as file:
        file.write(_line(1, 2.0, micro_step=1) + _line(2, 2.25, micro_step=0))
    assert _rows(follower.poll()) == [(1.0, 2.5)]
    with log.open("a") as file:
        file.write(_line(2, 1.75, micro_step=1))
    assert _rows(*follower.finish()) == [(2.0, 2.0)]


def test_half_a_last_line_is_no_loss(folder, tmp_path):
    follower = ReportFollower(folder, "train.log")
    lines = [f"step {step} loss {3.0 - step / 100:.4f}" for step in range(20)]
    (tmp_path / "train.log").write_text("\n".join([*lines, "step 20 loss 2"]))
    assert _rows(*follower.finish())[-1] == (19.0, 2.81)
    follower.close()


def test_the_newest_file_of_a_folder_is_the_report(folder, tmp_path):
    (tmp_path / "spool").mkdir()
    follower = ReportFollower(folder, "spool")
    assert follower.poll() is None
    (tmp_path / "spool" / "0001.jsonl").write_text(
        '{"parity_spool": 1, "run": null}\n' + _line(0, 3.0) + '{"end": "finished"}\n'
    )
    assert _rows(follower.poll()) == [(0.0, 3.0)]
    (tmp_path / "spool" / "0002.jsonl").write_text(
        '{"parity_spool": 1, "run": null}\n' + _line(1, 2.0)
    )
    assert _rows(follower.poll()) + _rows(follower.poll()) == [(1.0, 2.0)]
    follower.close()


def test_a_spool_has_a_folder_for_each_run_in_it(folder, tmp_path):
    (tmp_path / "spool" / "unnamed-1").mkdir(parents=True)
    follower = ReportFollower(folder, "spool")
    assert follower.poll() is None
    (tmp_path / "spool" / "unnamed-1" / "0001.jsonl").write_text(
        '{"parity_spool": 1, "run": null}\n' + _line(0, 3.0)
    )
    assert _rows(follower.poll()) == [(0.0, 3.0)]
    (tmp_path / "spool" / "unnamed-2").symlink_to("/etc")
    with (tmp_path / "spool" / "unnamed-1" / "0001.jsonl").open("a") as file:
        file.write(_line(1, 2.0))
    assert _rows(follower.poll()) == [(1.0, 2.0)]
    follower.close()


def test_a_rotated_log_is_read_to_its_end_and_then_the_new_one(follower, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(_line(0, 3.0))
    assert _rows(follower.poll()) == [(0.0, 3.0)]
    with log.open("a") as file:
        file.write(_line(1, 2.5))
    log.rename(tmp_path / "log.jsonl.1")
    log.write_text(_line(2, 2.25))
    assert [row for _ in range(3) for row in _rows(follower.poll())] == [(1.0, 2.5), (2.0, 2.25)]


def test_a_log_that_is_cut_short_and_begun_again_goes_on_behind_what_is_recorded(
    follower, tmp_path
):
    log = tmp_path / "log.jsonl"
    log.write_text(_line(0, 3.0) + _line(1, 2.5) + _line(2, 2.25))
    assert len(_rows(follower.poll())) == 3
    log.write_text(_line(2, 2.25))
    assert follower.poll() is None
    with log.open("a") as file:
        file.write(_line(3, 2.0))
    assert _rows(follower.poll()) == [(3.0, 2.0)]


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(_line(1, 9.0), id="another loss of a recorded step"),
        pytest.param(_line(0, 3.0) + _line(1, 1.0), id="one of two is another"),
    ],
)
def test_what_is_recorded_is_not_told_again_otherwise(follower, tmp_path, later):
    (tmp_path / "log.jsonl").write_text(_line(0, 3.0) + _line(1, 2.5))
    assert len(_rows(follower.poll())) == 2
    (tmp_path / "log.jsonl").write_text(later)
    with pytest.raises(LogRefusedError):
        [follower.poll() for _ in range(3)]


def test_steps_above_the_most_are_left_out_and_told(follower, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(_line(999, 3.0) + _line(1000, 2.5) + _line(1001, 2.0))
    assert _rows(follower.poll()) == [(999.0, 3.0), (1000.0, 2.5)]
    assert (follower.last_step, follower.left_out) == (1000, 1001)
    with log.open("a") as file:
        file.write(_line(1002, 1.5))
    assert [*follower.finish()] == []
    assert (follower.last_step, follower.left_out) == (1000, 1001)


def test_what_is_no_file_of_its_own_is_refused_and_not_read(folder, tmp_path):
    (tmp_path / "secret").write_text(_line(0, 1.0))
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "up").symlink_to("..")
    for path in ("link", "pipe", "inside/up/secret"):
        with pytest.raises(LogRefusedError) as refused:
            ReportFollower(folder, path).poll()
        assert refused.value.code == "LOG_REFUSED"


def test_a_link_in_place_of_a_log_that_is_followed_is_refused(follower, tmp_path):
    (tmp_path / "log.jsonl").write_text(_line(0, 3.0))
    assert follower.poll()
    (tmp_path / "secret").write_text(_line(1, 1.0))
    (tmp_path / "log.jsonl").unlink()
    (tmp_path / "log.jsonl").symlink_to("secret")
    with pytest.raises(LogRefusedError):
        follower.poll()


def test_a_line_and_a_log_without_an_end_are_refused(follower, tmp_path, monkeypatch):
    (tmp_path / "log.jsonl").write_text("x" * (follow._LONGEST_LINE + 1))
    with pytest.raises(LogRefusedError, match="line"):
        follower.poll()


def test_more_than_a_run_can_have_is_refused(follower, tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "_MOST_BYTES", 100)
    (tmp_path / "log.jsonl").write_text("".join(_line(step, 1.0) for step in range(10)))
    with pytest.raises(LogRefusedError, match="100 bytes"):
        follower.poll()


def test_why_nothing_was_found_is_told(folder, tmp_path):
    follower = ReportFollower(folder, "log.txt")
    assert [*follower.finish()] == []
    assert "nothing" in follower.problem()
    (tmp_path / "log.txt").write_text("hello\nworld\n")
    assert [*follower.finish()] == []
    assert "log.txt" in follower.problem()


@pytest.mark.parametrize(
    ("steps", "planned", "whole"),
    [
        (range(100), 100, True),
        (range(0, 1000, 100), 1000, True),
        (range(50), 100, False),
        (range(0, 900, 100), 1000, False),
        ([0], 1, True),
        ([0], 5, False),
        (range(1, 101), 100, True),
    ],
)
def test_a_log_of_every_nth_step_reaches_the_plan(folder, tmp_path, steps, planned, whole):
    follower = ReportFollower(folder, "log.jsonl")
    (tmp_path / "log.jsonl").write_text("".join(_line(step, 3.0) for step in steps))
    assert [*follower.finish()]
    assert follower.reaches(planned) is whole
    follower.close()


def test_a_poll_is_bounded_and_the_end_is_whole(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "_PIECE", 100)
    monkeypatch.setattr(follow, "_MOST_AT_ONCE", 300)
    text = "".join(_line(step, 3.0) for step in range(100))
    (tmp_path / "log.jsonl").write_text(text[:-1])  # no end of its last line
    follower = ReportFollower(folder, "log.jsonl")
    first = _rows(follower.poll())
    assert 0 < len(first) < 20
    assert follower.is_behind
    rest = _rows(*follower.finish())
    assert [step for step, _ in first + rest] == list(range(100))
    follower.close()
