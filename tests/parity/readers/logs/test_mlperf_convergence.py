"""How far a run of MLPerf trained, and what reference convergence points are."""

import json

import pytest

from parity.readers.errors import ReadError
from parity.readers.logs.mlperf_convergence import (
    convergence_runs,
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
    assert (run.precision, run.target, run.goes_on) == ("NVFP4", TARGET, False)


def test_evaluations_after_the_end_do_not_count(read):
    later = event("eval_accuracy", 3.0, samples_count=99 * GRID)
    assert read(f"{log(13)}{later}\n").samples == 13 * GRID


def test_a_log_without_its_end_has_no_status(read):
    assert read(log(13, status=None)).status is None


def test_epochs_are_read_where_samples_are_not_counted(read):
    run = read(log(3).replace("samples_count", "epoch_num"))
    assert run.samples == 3 * GRID


@pytest.mark.parametrize(
    ("seed", "text"),
    [(7, "7"), (7.0, "7"), ("7", "7"), (2**63 + 1, str(2**63 + 1)), (7.5, "7.5"), (None, None)],
)
def test_a_seed_is_its_number(read, seed, text):
    assert read(log(2, seed=seed)).seed == text


@pytest.mark.parametrize(("size", "whole"), [(16.0, 16), (16.5, None), (float("nan"), None)])
def test_a_batch_size_is_a_whole_number(read, size, whole):
    assert read(log(2, global_batch_size=size)).batch_size == whole


def test_an_evaluation_that_is_no_number_is_nan(read):
    ((place, value),) = read(log(1, last_loss="low")).evaluations
    assert (place, value != value) == (GRID, True)


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
        '{"a": {"Benchmark": "x", "BS": 16.9, "Epochs to converge": [4, 5]}}',
        '{"a": {"Benchmark": "x", "BS": 0, "Epochs to converge": [4, 5]}}',
        '{"a": {"Benchmark": "x", "BS": Infinity, "Epochs to converge": [4, 5]}}',
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
