"""Numbers of result files: gaps, copies, and files that were not read."""

import pytest

from parity.readers.logs.result_numbers import numbering_problem


@pytest.fixture
def problem(tmp_path):
    """A function: the problem of these files, beside others that were not read."""

    def problem_of(names, unread=()):
        for name in (*names, *unread):
            (tmp_path / name).touch()
        return numbering_problem([tmp_path / name for name in names])

    return problem_of


@pytest.mark.parametrize(
    "names",
    [
        ["result_0.txt", "result_1.txt", "result_2.txt"],
        [f"result_{number}.txt" for number in range(12)],
        ["run_1.log", "run_2.log", "run_3.log"],
        ["run_0.log", "run_1.log"],
        ["run_seed77.log"],
        ["a.txt", "b.txt"],
        ["result_\u00b2.txt"],
    ],
)
def test_whole_numberings(problem, names):
    assert problem(names) is None


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["result_0.txt", "result_2.txt", "result_5.txt"], 1),
        (["result_1.txt", "result_2.txt", "result_3.txt"], 0),
        (["result_7.txt"], 0),
        (["run_2.log", "run_3.log"], 1),
        (["job_10.out", "job_99999999999999.out"], 1),
        (["result_0.txt", "result_2.txt", "other.txt"], 1),
    ],
)
def test_a_number_that_is_skipped(problem, names, missing):
    assert f"run {missing} is missing" in problem(names)


@pytest.mark.parametrize("copy", ["result_1.log", "result_01.txt", "RESULT_1.out"])
def test_two_files_of_one_number(problem, copy):
    assert "two files are number 1" in problem(["result_0.txt", "result_1.txt", copy])


@pytest.mark.parametrize(
    "name", ["result_2", "result_2.txt.gz", "result_2.bak", "Result_2.json", "result_9.txt"]
)
def test_a_file_with_a_further_number_was_left_out(problem, name):
    assert f"{name} was left out" in problem(["result_0.txt", "result_1.txt"], [name])


@pytest.mark.parametrize("name", ["result_1.json", "README2.md", "result_summary.txt", "v2.7z"])
def test_other_files_are_no_runs(problem, name):
    assert problem(["result_0.txt", "result_1.txt"], [name]) is None
