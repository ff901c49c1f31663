"""`parity mlperf`: one command, one table, and what keeps it from a verdict."""

import json

import pytest

from parity.comparing.convergence import NOTICE
from parity.gate.exit_codes import EXIT_CODES
from tests.parity.cli.schemas import check
from tests.parity.readers.logs.mlperf_results import write_reference, write_results

EQUAL, SLOWER = [13, 13, 14, 13, 13], [17, 18, 17, 18, 17]


@pytest.fixture
def judged(tmp_path, run):
    """A function that judges folders of results, by name; exit code and the document."""

    def judge(results, *options, reference=None):
        for name, (evaluations, changes) in results.items():
            write_results(tmp_path / name / "llama31_8b", evaluations, **changes)
        path = write_reference(tmp_path / "rcps_llama31_8b.json", **(reference or {}))
        code, out, _ = run("mlperf", str(tmp_path), "--rcp", str(path), "--json", *options)
        if not out:
            return code, None
        check("convergence", json.loads(out))
        return code, json.loads(out)

    return judge


def test_equal_runs_pass_and_slower_ones_fail(judged):
    code, document = judged({"a": (EQUAL, {}), "b": (SLOWER, {})}, "--margin", "15%")
    assert code == EXIT_CODES["fail"]
    assert [result["verdict"] for result in document["results"]] == ["pass", "fail"]
    assert document["notice"] == NOTICE
    assert "Not verified by MLCommons" in NOTICE
    assert document["margin"] == 0.15
    first = document["results"][0]
    assert (first["precision"], first["runs"], first["converged"]) == ("NVFP4", 5, 5)
    assert first["reference"]["runs"] == 20
    assert first["interval"][0] < first["more_samples"] < first["interval"][1] < 0.15


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 101}, "seed 101 was run twice"),
        ({"status": None}, "run_stop"),
        ({"last_loss": 3.4}, "above its target"),
        ({"global_batch_size": 32}, "differ in batch size"),
        ({"lowest_numerical_precision_linear": "FP8"}, "differ in precision"),
        ({"submission_platform": "8xB300"}, "differ in system"),
        ({"submission_benchmark": "gpt3"}, "is a run of gpt3"),
    ],
)
def test_runs_that_say_nothing_are_inconclusive(judged, change, words):
    code, document = judged({"a": (EQUAL, {"run_0": change})}, "--margin", "15%")
    (result,) = document["results"]
    assert (code, result["verdict"]) == (EXIT_CODES["inconclusive"], "inconclusive")
    assert words in result["reason"]
    assert result["more_samples"] is None


def test_a_run_that_was_left_out_is_noticed(judged, tmp_path):
    folder = write_results(tmp_path / "a" / "llama31_8b", EQUAL)
    (folder / "result_2.txt").unlink()
    code, document = judged({})
    assert code == EXIT_CODES["inconclusive"]
    assert "run 2 is missing" in document["results"][0]["reason"]


def test_a_batch_size_without_a_reference_is_inconclusive(judged):
    code, document = judged({"a": (EQUAL, {})}, reference={"batch_size": 64})
    assert code == EXIT_CODES["inconclusive"]
    assert "no reference at batch size 16; there is one at 64" in document["results"][0]["reason"]


def test_runs_of_another_benchmark_are_no_results(judged):
    code, document = judged({"a": (EQUAL, {})}, reference={"Benchmark": "gpt3"})
    assert (code, document) == (EXIT_CODES["usage"], None)


@pytest.mark.parametrize(
    "options", [("--margin", "0.1 nats"), ("--margin", "-1%"), ("--markdown",)]
)
def test_a_wrong_call_is_refused(judged, options):
    assert judged({"a": (EQUAL, {})}, *options) == (EXIT_CODES["usage"], None)


def test_the_table_for_a_paper_says_that_it_is_not_verified(tmp_path, run):
    write_results(tmp_path / "a|b" / "llama31_8b", EQUAL)
    path = write_reference(tmp_path / "rcps.json")
    _, out, _ = run("mlperf", str(tmp_path), "--rcp", str(path), "--markdown", "--margin", "15%")
    head, line, row, empty, notice = out.splitlines()
    assert head.count("|") == line.count("|") == row.replace("\\|", "").count("|")
    assert (empty, notice.endswith(NOTICE)) == ("", True)
    assert "| pass |" in row


def test_the_rows_for_a_script_are_alone_on_stdout(tmp_path, run):
    write_results(tmp_path / "a" / "llama31_8b", EQUAL)
    path = write_reference(tmp_path / "rcps.json")
    _, out, err = run("mlperf", str(tmp_path), "--rcp", str(path), "--margin", "15%")
    assert out.count("\n") == 1
    assert NOTICE in err
