"""`parity mlperf`: one command, one table, and what keeps it from a verdict."""

import json
import re

import pytest

from parity.comparing.convergence import NOTICE
from parity.gate.exit_codes import EXIT_CODES
from tests.parity.cli.schemas import check
from tests.parity.readers.logs.mlperf_results import event, log, write_reference, write_results

EQUAL, SLOWER = [13, 13, 14, 13, 13], [17, 18, 17, 18, 17]


def changed(**change):
    """The same change of each run of `EQUAL` or `SLOWER`."""
    return {f"run_{number}": change for number in range(len(EQUAL))}


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
        ({"last_loss": 3.4}, "does not reach the target 3.3"),
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


@pytest.fixture
def judged_folders(tmp_path, run):
    """A function that judges folders below `tmp_path`, by name."""

    def judge(*names, **reference):
        path = write_reference(tmp_path / "rcps.json", **reference)
        folders = [str(tmp_path / name) for name in names]
        code, out, err = run("mlperf", *folders, "--rcp", str(path), "--json", "--margin", "15%")
        return code, json.loads(out) if out else None, err

    return judge


@pytest.mark.parametrize("benchmark", ["gpt3", "llama31_405b"])
def test_a_named_folder_of_another_benchmark_is_refused(tmp_path, judged_folders, benchmark):
    write_results(tmp_path / "good", EQUAL)
    write_results(tmp_path / "slow", SLOWER, **changed(submission_benchmark=benchmark))
    code, document, err = judged_folders("good", "slow")
    assert (code, document) == (EXIT_CODES["usage"], None)
    assert f"slow: runs of {benchmark}; expected runs of llama31_8b" in err
    assert judged_folders("good")[0] == EXIT_CODES["pass"]


@pytest.mark.parametrize("benchmark", ["llama31_8B", "llama31-8b", None])
def test_a_benchmark_in_another_spelling_is_inconclusive(tmp_path, judged_folders, benchmark):
    write_results(tmp_path / "good", EQUAL)
    write_results(tmp_path / "slow", SLOWER, **changed(submission_benchmark=benchmark))
    for names in (("good", "slow"), (".",)):
        code, document, _ = judged_folders(*names)
        verdicts = [result["verdict"] for result in document["results"]]
        assert (code, verdicts) == (EXIT_CODES["inconclusive"], ["pass", "inconclusive"])


def test_a_subfolder_of_another_benchmark_is_named_as_left_out(tmp_path, judged_folders):
    write_results(tmp_path / "llama31_8b", EQUAL)
    write_results(tmp_path / "gpt3", EQUAL, **changed(submission_benchmark="gpt3"))
    code, document, err = judged_folders(".")
    assert (code, document["left_out"]) == (EXIT_CODES["pass"], [str(tmp_path / "gpt3")])
    assert err == ""


def test_two_points_of_one_batch_size_are_inconclusive(tmp_path, run):
    """The first of two points would decide: a slow one makes slow runs pass."""
    folder = write_results(tmp_path / "a", SLOWER)
    reference = tmp_path / "rcps.json"
    slow, fast = (
        next(iter(json.loads(write_reference(reference, runs).read_text()).values()))
        for runs in ((17,) * 20, (13,) * 20)
    )
    answers = {}
    for name, points in {
        "slow": {"slow": slow},
        "both": {"slow": slow, "fast": fast},
        "other size": {"slow": slow, "fast": {**fast, "BS": 32}},
    }.items():
        reference.write_text(json.dumps(points))
        _, out, _ = run("mlperf", str(folder), "--rcp", str(reference), "--json", "--margin", "20%")
        answers[name] = json.loads(out)["results"][0]
    assert {name: answer["verdict"] for name, answer in answers.items()} == {
        "slow": "pass",
        "both": "inconclusive",
        "other size": "pass",
    }
    assert "2 points at this batch size: slow, fast" in answers["both"]["reason"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target_accuracy": 3.6, "last_loss": 3.55}, "target 3.6; llama31_8b has 3.3"),
        ({"target_accuracy": 3.2}, "target 3.2"),
        ({"target_accuracy": "low"}, "target nan"),
        ({"target_accuracy": None, "last_loss": 4.5}, "does not reach"),
        ({"last_loss": float("nan")}, "does not reach"),
        ({"last_loss": -1.0}, "does not reach"),
        ({"last_loss": "3.2 or so"}, "does not reach"),
    ],
)
def test_a_success_without_the_target_of_the_benchmark_does_not_pass(
    tmp_path, judged_folders, change, words
):
    write_results(tmp_path / "all", EQUAL, **changed(**change))
    write_results(tmp_path / "one", EQUAL, run_3=change)
    code, document, _ = judged_folders(".")
    assert code == EXIT_CODES["inconclusive"]
    for result in document["results"]:
        assert (result["verdict"], words in result["reason"]) == ("inconclusive", True)


@pytest.mark.parametrize("change", [{"target_accuracy": None}, {"target_accuracy": "3.3"}])
def test_a_target_that_is_not_stated_is_the_benchmark_s(tmp_path, judged_folders, change):
    write_results(tmp_path / "a", EQUAL, **changed(**change))
    assert judged_folders("a")[0] == EXIT_CODES["pass"]


@pytest.mark.parametrize(
    ("benchmark", "target", "last", "verdict"),
    [
        ("bert", 0.72, 0.1, "inconclusive"),
        ("bert", 0.72, 0.719, "inconclusive"),
        ("bert", 0.72, 72.1, "inconclusive"),
        ("bert", 0.72, 0.721, "pass"),
        ("flux1", 0.586, 0.587, "inconclusive"),
        ("flux1", 0.586, 0.585, "pass"),
        ("stable_diffusion", 90.0, 80.0, "inconclusive"),
    ],
)
def test_each_benchmark_has_its_better_side(
    tmp_path, judged_folders, benchmark, target, last, verdict
):
    change = {"submission_benchmark": benchmark, "target_accuracy": target, "last_loss": last}
    write_results(tmp_path / "a", EQUAL, **changed(**change))
    _, document, _ = judged_folders("a", Benchmark=benchmark)
    assert document["results"][0]["verdict"] == verdict


def test_copies_of_runs_are_inconclusive(tmp_path, judged_folders):
    folder = write_results(tmp_path / "a", EQUAL, **changed(seed=None))
    assert judged_folders("a")[0] == EXIT_CODES["pass"]  # evaluations differ: no copies
    text = (folder / "result_0.txt").read_text()
    for seed in ("", event("seed", 77)):
        (folder / "result_5.txt").write_text(f"{seed}\n{text}")
        code, document, _ = judged_folders("a")
        assert code == EXIT_CODES["inconclusive"]
        assert (
            "result_5.txt has the evaluations of result_0.txt" in document["results"][0]["reason"]
        )


def test_a_file_with_a_second_run_is_inconclusive(tmp_path, judged_folders):
    folder = write_results(tmp_path / "a", EQUAL)
    end = event("run_stop", None, status="success")
    with (folder / "result_4.txt").open("a") as file:
        file.write(f"{end}\n")  # as some trainers write on each rank
    assert judged_folders("a")[0] == EXIT_CODES["pass"]
    with (folder / "result_4.txt").open("a") as file:
        file.write(log(50, status="aborted", last_loss=4.0))
    assert judged_folders("a")[0] == EXIT_CODES["inconclusive"]


@pytest.mark.parametrize("name", ["result_5.TXT", "result_5", "Result_5.txt.bak", "result_5.txt"])
@pytest.mark.parametrize("noise", ["", "x" * 70_000 + "\n"])
def test_a_run_that_failed_is_never_out_of_sight(tmp_path, judged_folders, name, noise):
    folder = write_results(tmp_path / "a", EQUAL)
    (folder / "README.md").write_text("about")
    (folder / "result_4.json").write_text("{}")
    assert judged_folders("a")[0] == EXIT_CODES["pass"]
    (folder / name).write_text(noise + log(50, seed=9, status="aborted", last_loss=3.9))
    code, document, _ = judged_folders("a")
    assert code == EXIT_CODES["inconclusive"]
    assert re.search("never reached|was left out", document["results"][0]["reason"])


def test_a_numbered_file_without_an_event_is_a_run_that_is_missing(tmp_path, judged_folders):
    folder = write_results(tmp_path / "a", EQUAL)
    (folder / "result_5.txt").write_text("CUDA error\n")
    code, document, _ = judged_folders("a")
    assert code == EXIT_CODES["inconclusive"]
    assert "result_5.txt was left out" in document["results"][0]["reason"]


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
