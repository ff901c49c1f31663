"""How far a run of MLPerf trained, and what reference convergence points are."""

import json

import pytest

from parity.readers.errors import ReadError
from parity.readers.logs.mlperf_convergence import (
    convergence_runs,
    missing_numbers,
    read_convergence_run,
    read_reference_points,
)
from tests.parity.readers.logs.mlperf_results import (
    GRID,
    TARGET,
    event,
    log,
    write_reference,
    write_results,
)


@pytest.fixture
def read(tmp_path):
    def reads(text):
        path = tmp_path / "result_0.txt"
        path.write_text(text)
        return read_convergence_run(path)

    return reads


def test_a_run_converged_at_its_last_evaluation(read):
    run = read(log(13, seed=7))
    assert (run.samples, run.last_gap, run.status) == (13 * GRID, GRID, "success")
    assert (run.benchmark, run.batch_size, run.seed) == ("llama31_8b", 16, "7")
    assert (run.precision, run.missed_target) == ("NVFP4", None)


def test_evaluations_after_the_end_do_not_count(read):
    later = event("eval_accuracy", 3.0, samples_count=99 * GRID)
    assert read(f"{log(13)}{later}\n").samples == 13 * GRID


def test_a_log_without_its_end_has_no_status(read):
    assert read(log(13, status=None)).status is None


def test_epochs_are_read_where_samples_are_not_counted(read):
    run = read(log(3).replace("samples_count", "epoch_num"))
    assert run.samples == 3 * GRID


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"last_loss": 3.2999}, None),
        ({"last_loss": TARGET}, None),
        ({"last_loss": 3.3001}, (3.3001, TARGET)),
        ({"last_loss": 3.4, "status": "aborted"}, None),
        ({"last_loss": 0.7, "submission_benchmark": "rgat", "target_accuracy": 0.72}, None),
    ],
)
def test_success_above_the_target_is_noticed_where_lower_is_better(read, change, missed):
    assert read(log(13, **change)).missed_target == missed


def test_success_with_a_loss_that_is_nan_missed_its_target(read):
    (loss, target) = read(log(13, last_loss=float("nan"))).missed_target
    assert (loss != loss, target) == (True, TARGET)


@pytest.mark.parametrize("place", [0, -5, GRID, "x", float("nan"), float("inf"), None])
def test_an_evaluation_that_is_not_later_than_the_one_before_is_refused(read, place):
    again = event("eval_accuracy", 3.4, samples_count=place)
    with pytest.raises(ReadError, match=r"line \d+: an evaluation at samples_count"):
        read(f"{log(1, status=None)}{again}\n")


def test_runs_are_found_by_folder(tmp_path):
    write_results(tmp_path / "a" / "llama31_8b", [13, 14])
    write_results(tmp_path / "b" / "llama31_8b", [13])
    (tmp_path / "a" / "notes.txt").write_text("no log")
    found = convergence_runs(tmp_path)
    assert {place.parent.name: len(runs) for place, runs in found.items()} == {"a": 2, "b": 1}


def test_a_folder_without_a_log_is_refused(tmp_path):
    with pytest.raises(ReadError, match="no MLPerf log"):
        convergence_runs(tmp_path)


@pytest.mark.parametrize(
    ("numbers", "missing"),
    [
        ((0, 1, 2), []),
        ((1, 2, 3), []),
        ((0, 2, 5), [1, 3, 4]),
        ((2, 3), [1]),
        ((10, 11), [*range(1, 10)]),
    ],
)
def test_numbers_that_are_skipped(tmp_path, numbers, missing):
    for number in numbers:
        (tmp_path / f"result_{number}.txt").write_text(log(3))
    (runs,) = convergence_runs(tmp_path).values()
    assert missing_numbers(runs) == missing


def test_reference_points_are_read(tmp_path):
    (point,) = read_reference_points(write_reference(tmp_path / "rcps.json", (13, 14)))
    assert (point.benchmark, point.batch_size, point.precision) == ("llama31_8b", 16, "BF16")
    assert point.samples == (13 * GRID, 14 * GRID)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "no json",
        "{}",
        '{"a": 3}',
        '{"a": {"Benchmark": "x", "BS": 16}}',
        '{"a": {"Benchmark": "x", "BS": 16, "Epochs to converge": ["many"]}}',
        '{"a": {"Benchmark": "x", "BS": 16, "Epochs to converge": [0, 5]}}',
        '{"a": {"Benchmark": "x", "BS": 16, "Epochs to converge": [NaN, 5]}}',
    ],
)
def test_any_other_file_is_no_reference(tmp_path, text):
    path = tmp_path / "rcps.json"
    path.write_text(text)
    with pytest.raises(ReadError, match="reference convergence points"):
        read_reference_points(path)


def test_a_file_of_two_benchmarks_is_refused(tmp_path):
    path = write_reference(tmp_path / "rcps.json")
    record = next(iter(json.loads(path.read_text()).values()))
    path.write_text(json.dumps({"a": record, "b": {**record, "Benchmark": "gpt3"}}))
    with pytest.raises(ReadError, match="2 benchmarks"):
        read_reference_points(path)
