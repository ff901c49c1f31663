"""The commands `golden …`: answers and exit codes, reports, refusals, and the steps they advise."""

import json
import shlex
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.parity.cli.schemas import check
from tests.parity.golden.curves import GOLDEN, HONEST, losses

Run = Callable[..., tuple[int, str, str]]
RAMP = np.minimum(1.0, np.arange(100) / 60.0)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with runs as files, in which the commands are called, as GitHub calls none."""
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    for name, loss in {
        "old": GOLDEN,
        "new": HONEST,
        "worse": HONEST * (1.0 + 0.01 * RAMP),
        "better": HONEST * (1.0 - 0.01 * RAMP),
        "setup": HONEST + 0.01 * (np.arange(100) < 3),
        "data": losses(seed=8),
        "short": HONEST[:60],
    }.items():
        rows = (f"{step},{value:.5f}\n" for step, value in enumerate(loss, 1))
        (tmp_path / f"{name}.csv").write_text("step,loss\n" + "".join(rows))
    return tmp_path


@pytest.fixture
def golden(run: Run) -> str:
    """A golden of old.csv."""
    name = "llama.golden.jsonl"
    code, out, _ = run("golden", "update", name, "old.csv", "--recipe", "bf16")
    assert (code, out.split(":")[0]) == (0, "golden written")
    return name


@pytest.mark.parametrize(
    ("name", "answer", "code"),
    [
        ("old", "identical", 0),
        ("new", "numerics only", 0),
        ("worse", "worse", 1),
        ("better", "better", 1),
        ("setup", "set-up changed", 1),
        ("data", "data changed", 1),
        ("short", "cannot tell", 3),
    ],
)
def test_each_answer_has_its_exit_code(run: Run, golden: str, name: str, answer: str, code: int):
    left, out, _ = run("golden", "check", f"{name}.csv", golden)
    assert left == code
    assert out.splitlines()[0].split("  ")[0].endswith(answer.upper())
    left, out, _ = run("golden", "check", golden, f"{name}.csv", "--json")  # in any order
    document = json.loads(out)
    assert (left, document["answer"], document["exit_code"]) == (code, answer, code)
    assert document["recipe"] == "bf16"
    check("golden", document)


def test_another_recipe_is_refused(run: Run, golden: str):
    code, out, error = run("golden", "check", "new.csv", golden, "--recipe", "nvfp4")
    assert (code, out) == (2, "")
    assert "--recipe has recipe nvfp4" in error
    Path("new-nvfp4.csv").write_bytes(Path("new.csv").read_bytes())
    assert run("golden", "check", "new-nvfp4.csv", golden)[0] == 2
    assert run("golden", "check", "new-nvfp4.csv", golden, "--recipe", "bf16")[0] == 0
    code, _, error = run("golden", "update", "other.golden.jsonl", "old.csv")
    assert code == 2
    assert "expected --recipe" in error
    assert not Path("other.golden.jsonl").exists()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["new.csv", "old.csv"], "golden update"),
        (["new.csv"], "golden update"),
        (["new.csv", "old.csv", "llama.golden.jsonl"], "found new.csv, old.csv"),
        (["llama.golden.jsonl"], "found none"),
    ],
)
def test_a_call_without_one_run_and_a_golden_says_what_to_type(
    run: Run, golden: str, files: list[str], words: str
):
    code, _, error = run("golden", "check", *files)
    assert code == 2
    assert words in error


def test_a_run_is_never_overwritten_as_a_golden(run: Run):
    before = Path("old.csv").read_bytes()
    code, _, error = run("golden", "update", "old.csv", "new.csv", "--recipe", "bf16")
    assert code == 2
    assert "line 1" in error
    assert Path("old.csv").read_bytes() == before


def test_the_step_that_a_check_advises_works(run: Run, golden: str):
    _, out, _ = run("golden", "check", "new.csv", golden)
    command = out.splitlines()[-1].partition("golden: ")[2]
    assert shlex.split(command)[:3] == ["parity", "golden", "update"]
    code, out, _ = run(*shlex.split(command)[1:])
    assert code == 0
    assert run("golden", "check", "new.csv", golden, "--json")[1].count('"identical"')


def test_an_update_needs_a_reason_and_where_it_is_worse_its_acceptance(run: Run, golden: str):
    before = Path(golden).read_text()
    code, _, error = run("golden", "update", golden, "new.csv")
    assert code == 2
    assert "--reason is missing" in error
    code, out, error = run("golden", "update", golden, "worse.csv", "--reason", "image 26.06")
    assert code == 1
    assert "WORSE" in out
    worse = ["golden", "update", golden, "worse.csv", "--reason", "image 26.06", "--json"]
    check("golden", json.loads(run(*worse)[1]))
    assert Path(golden).read_text() == before
    accept = error.partition("all the same: ")[2].split()
    call = ["golden", "update", golden, "worse.csv", "--reason", "image 26.06"]
    assert run(*call, *shlex.split(" ".join(accept)))[0] == 0
    code, out, _ = run("golden", "show", golden, "--json")
    check("golden-file", json.loads(out))
    first, second = json.loads(out)["updates"]
    assert (first["answer"], second["answer"], second["accepted"]) == (None, "worse", True)
    assert run("golden", "update", golden, "short.csv", "--reason", "r")[0] == 3


def test_an_identical_run_changes_no_file(run: Run, golden: str):
    before = Path(golden).read_bytes()
    code, out, _ = run("golden", "update", golden, "old.csv", "--reason", "again", "--json")
    assert (code, json.loads(out)["written"]) == (0, False)
    check("golden-update", json.loads(out))
    assert Path(golden).read_bytes() == before


def test_show_prints_the_history(run: Run, golden: str):
    run("golden", "update", golden, "new.csv", "--reason", "image 26.06", "--container", "26.06")
    code, out, _ = run("golden", "show", golden)
    assert code == 0
    assert "100 steps, 1 to 100" in out
    assert "container: 26.06" in out
    assert out.splitlines()[-1].endswith(": image 26.06")


def test_several_goldens_are_reruns(run: Run, golden: str):
    for name, run_file in (("b", "worse"), ("c", "better")):
        run("golden", "update", f"{name}.golden.jsonl", f"{run_file}.csv", "--recipe", "bf16")
    goldens = [golden, "b.golden.jsonl", "c.golden.jsonl"]
    assert run("golden", "check", "worse.csv", golden)[0] == 1
    code, out, _ = run("golden", "check", "new.csv", *goldens, "--json")
    document = json.loads(out)
    assert (code, document["goldens"]) == (3, goldens)  # apart by 2 %: nothing is decided
    assert document["measured"]["gap_limit_pct"] > 3.0


def test_a_resume_is_judged_behind_its_fork(run: Run, golden: str):
    lines = Path("worse.csv").read_text().splitlines()
    honest = Path("new.csv").read_text().splitlines()
    Path("resumed.csv").write_text("\n".join([*honest[:61], *lines[61:]]))
    call = ["golden", "check", "resumed.csv", golden, "--changed", "resume", "--json"]
    document = json.loads(run(*call, "--fork", "60")[1])
    assert document["first_step"] == 61
    assert "60 steps before the resume not judged" in document["compared"]
    Path("later.csv").write_text("\n".join([honest[0], *honest[51:]]))
    code, out, _ = run("golden", "check", "later.csv", golden, "--changed", "resume", "--json")
    document = json.loads(out)
    assert (code, document["answer"], document["first_step"]) == (0, "numerics only", 51)
    assert "before the resume" not in document["compared"]  # it begins behind it


def test_a_few_steps_behind_a_resume_are_told_in_words_too(run: Run, golden: str):
    call = ["golden", "check", golden, "--changed", "resume", "--fork", "97"]
    assert run(*call, "new.csv")[0] == 3
    rows = Path("new.csv").read_text().splitlines()
    moved = [f"{row.split(',')[0]},{float(row.split(',')[1]) + 0.05:.5f}" for row in rows[98:]]
    Path("moved.csv").write_text("\n".join([*rows[:98], *moved]))
    code, out, _ = run(*call, "moved.csv")
    assert (code, out.splitlines()[0].startswith("■ SET-UP CHANGED")) == (1, True)
    assert json.loads(run(*call, "moved.csv", "--json")[1])["measured"] == {}


def test_one_log_that_restarts_is_its_own_golden(run: Run, golden: str):
    """Saved after step 60 and killed after step 80; the second part is honest, or is not."""
    old, new = (Path(f"{name}.csv").read_text().splitlines() for name in ("old", "new"))
    wrong = [f"{line.split(',')[0]},{float(line.split(',')[1]) + 0.05:.5f}" for line in new[61:]]
    for rows, code, line in ((new[61:], 0, "all"), (wrong, 1, "first loss")):
        Path("restarted.csv").write_text("\n".join([*old[:81], *rows]))
        call = ["golden", "check", "restarted.csv", "--changed", "resume", "--json"]
        assert run(*call)[0] == 2  # nobody states the recipe
        left, out, _ = run(*call, "--recipe", "bf16")
        document = json.loads(out)
        assert (left, document["line"], document["first_step"]) == (code, line, 61)
        assert document["steps"] == 20
        document = json.loads(run(*call, golden)[1])
        assert (document["line"], document["first_step"], document["steps"]) == (line, 61, 40)
    alone = ["golden", "check", "new.csv", "--changed", "resume", "--recipe", "bf16"]
    code, _, error = run(*alone)
    assert code == 2
    assert "repeats no step" in error


def test_reports_are_written_and_github_gets_its_own(
    run: Run, golden: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    monkeypatch.setenv("GITHUB_OUTPUT", "output")
    code, _, _ = run(
        "golden", "check", "worse.csv", golden, "--junit", "out.xml", "--markdown", "out.md"
    )
    assert code == 1
    suite = ElementTree.parse("out.xml").getroot()  # noqa: S314
    assert [case.tag for case in suite.findall(".//testcase/*")] == ["failure"]
    assert Path("out.md").read_text() == Path("summary.md").read_text()
    assert Path("out.md").read_text().startswith("### ■ WORSE")
    outputs = dict(line.split("=", 1) for line in Path("output").read_text().splitlines())
    assert (outputs["answer"], outputs["exit_code"]) == ("worse", "1")
    assert run("golden", "check", "new.csv", golden, "--junit", "missing/out.xml")[0] == 2


def test_columns_and_patterns_are_those_of_compare(run: Run, golden: str):
    text = Path("new.csv").read_text().replace("step,loss", "it,what")
    Path("named.csv").write_text(text)
    assert run("golden", "check", "named.csv", golden)[0] == 2
    named = ["--column", "step=it", "--column", "loss=what"]
    assert run("golden", "check", "named.csv", golden, *named)[0] == 0
