"""Real files of MaxText 0.2.5, written as it writes them: every step once, or named as lost."""

import gzip
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.engines.maxtext_follow import FollowedRun, MaxTextFollower, MaxTextLog, Tail
from training.environment.maxtext_errors import MetricsError, MetricsStoppedError, steps_in_words

DATA = Path(__file__).parents[2] / "data"
RECORDS = (
    gzip.decompress((DATA / "maxtext_session.jsonl.gz").read_bytes())
    .decode()
    .splitlines(keepends=True)
)
LOG = (
    gzip.decompress((DATA / "maxtext_session.log.gz").read_bytes())
    .decode()
    .splitlines(keepends=True)
)
STEP_LINES = [line for line in LOG if "completed step:" in line]
PLAN = FollowedRun(first=0, steps=1200, tokens_per_step=1024)


class Written:
    """The two files of a process, and their follower."""

    def __init__(self, folder: Path, plan: FollowedRun = PLAN) -> None:
        self.metrics, self.log = folder / "metrics.jsonl", folder / "maxtext.log"
        self.log.write_text("")
        self.follower = MaxTextFollower(self.metrics, MaxTextLog(self.log), plan)

    def step(self, *steps: int) -> None:
        for step in steps:
            self.write(self.log, STEP_LINES[step])
            self.write(self.metrics, RECORDS[step])

    def write(self, path: Path, text: str) -> None:
        with path.open("a") as file:
            file.write(text)

    def evaluate(self) -> None:
        """An evaluation pass: its first record empties the file."""
        evaluations = [
            line
            for line in (DATA / "maxtext_eval_truncates.jsonl")
            .read_text()
            .splitlines(keepends=True)
            if '"eval/' in line
        ]
        self.metrics.write_text("".join(evaluations[:5]))

    def look(self) -> list[int]:
        return [stats.step for stats in self.follower.steps()]


@pytest.fixture
def written(tmp_path):
    return Written(tmp_path)


def test_a_record_becomes_what_our_own_engine_reports(written):
    written.step(0)
    (stats,) = written.follower.steps()
    record = json.loads(RECORDS[0])
    assert stats.lm_loss == record["learning/lm_loss"] == 6.781802177429199
    assert (stats.grad_norm, stats.clipped_grad_norm) == (
        record["learning/raw_grad_norm"],
        record["learning/grad_norm"],
    )
    assert (stats.step_seconds, stats.tokens) == (record["perf/step_time_seconds"], 1024)
    assert stats.tflops_per_device == record["perf/per_device_tflops_per_sec"]
    assert math.isnan(stats.update_norm)
    assert math.isnan(stats.data_wait_seconds)
    assert stats.layer_grad_norms == ()


def test_what_the_devices_hold_is_read_from_the_log(tmp_path):
    path = tmp_path / "maxtext.log"
    path.write_text("Memstats: After params initialized:\n")
    log = MaxTextLog(path)
    list(log.steps())
    assert math.isnan(log.held_bytes)
    with path.open("a") as file:
        file.write(
            "\tUsing (GB) 12.5 / 139.0 (8.992806%) on cuda:0\n\tUsing (GB) 12.25 / 139.0 "
            "(8.812950%) on cuda:1\n"
        )
    list(log.steps())
    assert log.held_bytes == 12.5 * 2**30


@settings(max_examples=25)
@given(looks=st.sets(st.integers(0, 84)))
def test_every_step_is_yielded_once_whenever_one_looks(tmp_path_factory, looks):
    written = Written(tmp_path_factory.mktemp("run"))
    steps = []
    for step in range(85):
        written.step(step)
        if step in looks:
            steps += written.look()
    steps += written.look()
    assert steps == list(range(85))
    assert written.follower.gaps == []
    assert written.follower.proven()


def test_half_a_line_waits_for_its_other_half(written):
    written.write(written.metrics, RECORDS[0][:100])
    assert written.look() == []
    written.write(written.metrics, RECORDS[0][100:])
    assert written.look() == [0]


def test_an_evaluation_pass_loses_nothing_that_was_read_before_it(written):
    written.step(*range(10))
    assert written.look() == list(range(10))
    written.evaluate()
    written.step(10, 11)
    assert written.look() == [10, 11]
    assert written.follower.gaps == []
    assert written.follower.shrank == 1


def test_what_an_evaluation_pass_took_unread_is_a_gap(written):
    written.step(*range(10))
    written.look()
    written.step(10, 11, 12)
    written.evaluate()
    written.step(13)
    assert written.look() == [13]
    assert written.follower.gaps == [range(10, 13)]


def test_a_file_that_was_emptied_and_grew_past_our_place_is_read_from_its_beginning(written):
    written.step(*range(3))
    written.look()
    written.metrics.write_text("".join(RECORDS[3:20]))
    assert written.look() == list(range(3, 20))
    assert written.follower.shrank == 1


def test_the_real_file_that_evaluations_emptied_misses_its_first_hundred_steps(tmp_path):
    written = Written(tmp_path, FollowedRun(first=0, steps=150, tokens_per_step=1024))
    written.write(written.metrics, (DATA / "maxtext_eval_truncates.jsonl").read_text())
    assert written.look() == list(range(100, 150))
    assert written.follower.gaps == [range(100)]


def test_nan_is_data_and_its_step_is_yielded(tmp_path):
    written = Written(tmp_path)
    written.write(written.log, (DATA / "maxtext_nan_abort.log").read_text())
    written.write(written.metrics, (DATA / "maxtext_nan_abort.jsonl").read_text())
    steps = list(written.follower.steps())
    assert [step.step for step in steps] == [0, 1, 2]
    assert math.isnan(steps[-1].lm_loss)


def test_steps_that_the_log_alone_shows_at_the_end_are_unrecorded(written):
    written.step(0, 1)
    for step in (2, 3):
        written.write(written.log, STEP_LINES[step])
    assert written.look() == [0, 1]
    assert written.follower.unrecorded() == range(2, 4)


def test_a_log_far_ahead_of_the_record_is_an_error(written):
    written.step(0)
    for step in range(1, 103):
        written.write(
            written.log,
            f"completed step: {step}, seconds: 0.1, loss: 2.000, lm_loss: 2.000, perplexity: 7.4\n",
        )
    with pytest.raises(
        MetricsStoppedError, match=r"log shows step 102 and its metrics_file ends at step 0"
    ):
        written.look()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{\n", r"line 1 of metrics_file is b'\{', expected a JSON object"),
        ("[1]\n", "expected a JSON object with a step"),
        ('{"learning/loss": 1.0}\n', "expected a JSON object with a step"),
        ('{"learning/loss": 1.0, "step": 1.5}\n', "expected a JSON object with a step"),
        ('{"learning/loss": 1.0, "step": NaN}\n', "expected a JSON object with a step"),
        ('{"learning/loss": "low", "step": 0}\n', "has learning/loss = 'low', expected a number"),
        ('{"learning/loss": 1.0, "step": -1}\n', "has step -1, expected steps from 0 to 1199"),
        ('{"learning/loss": 1.0, "step": 1200}\n', "has step 1200, expected steps from 0 to 1199"),
    ],
)
def test_garbage_is_named(written, line, message):
    written.write(written.metrics, line)
    with pytest.raises(MetricsError, match=message):
        written.look()


def test_a_log_line_that_another_has_torn_is_no_witness(written):
    written.write(
        written.log,
        "completed step: 0, seconds: 0.1, loss: 6.782, lm_loss: 6.7W1121 a warning within\n82, "
        "perplexity: 8\n",
    )
    written.write(written.log, "completed step: 1, seconds: 0.1, loss: 6.705, lm_loss: 6.\n")
    written.write(written.metrics, RECORDS[0] + RECORDS[1])
    assert written.look() == [0, 1]
    assert not written.follower.proven()


def test_a_record_that_contradicts_the_log_is_an_error(written):
    written.write(written.log, STEP_LINES[0])
    written.write(
        written.metrics, json.dumps(json.loads(RECORDS[0]) | {"learning/lm_loss": 6.7}) + "\n"
    )
    with pytest.raises(MetricsError, match=r"lm_loss 6\.7 in metrics_file and 6\.782 in the log"):
        written.look()


def test_a_resumed_run_may_begin_earlier_than_it_could(tmp_path):
    written = Written(tmp_path, FollowedRun(first=50, steps=1200, tokens_per_step=1024))
    written.step(40, 41)
    assert written.look() == [40, 41]
    assert written.follower.gaps == []


def test_a_log_is_echoed_and_its_last_lines_are_kept(tmp_path):
    path, echo = tmp_path / "log", tmp_path / "echo"
    path.write_text("".join(LOG))
    with echo.open("w") as stream:
        log = MaxTextLog(path, stream)
        assert len(list(log.steps())) == len(STEP_LINES)
    assert echo.read_text() == path.read_text()
    assert log.end().splitlines() == path.read_text().splitlines()[-50:]


def test_a_file_that_is_not_there_yet_has_no_lines(tmp_path):
    assert Tail(tmp_path / "none").lines() == []


def test_steps_in_words():
    assert steps_in_words([range(3, 4), range(7, 10)]) == "3, 7-9"
    assert steps_in_words([range(i, i + 1) for i in range(7)]).endswith("and 2 more places")
