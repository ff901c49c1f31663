"""`parity golden … server:NAME` against a real server: as with a file."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from parity import cli
from tests.documentation import run_by
from tests.parity.cli.schemas import check
from tests.parity.golden.curves import GOLDEN, HONEST

RAMP = np.minimum(1.0, np.arange(100) / 60.0)
RUNS = {"old": GOLDEN, "new": HONEST, "worse": HONEST * (1.0 + 0.01 * RAMP), "short": HONEST[:60]}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with runs as files, in which the commands are called, as GitHub calls none."""
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    for name, loss in RUNS.items():
        rows = (f"{step},{value:.5f}\n" for step, value in enumerate(loss, 1))
        (tmp_path / f"{name}.csv").write_text("step,loss\n" + "".join(rows))
    return tmp_path


@pytest.fixture
def parity(served, capsys, monkeypatch):
    """A function that runs the command line; the exit code, what it printed, and what it said
    beside.
    """
    monkeypatch.setenv("PARITY_URL", served)

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            cli.main([*words])
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


@pytest.fixture
def golden(parity):
    """A golden of old.csv on the server."""
    words = ["server:llama", "old.csv", "--recipe", "bf16", "--reason", "a release"]
    code, out, _ = parity("golden", "update", *words)
    assert (code, out) == (0, "server:llama@1 written: 100 steps, bf16\n")
    return "server:llama"


@pytest.mark.parametrize(
    ("name", "answer", "code"),
    [
        ("old", "identical", 0),
        ("new", "numerics only", 0),
        ("worse", "worse", 1),
        ("short", "cannot tell", 3),
    ],
)
def test_a_server_answers_as_a_file_does(parity, golden, name, answer, code):
    parity("golden", "update", "llama.golden.jsonl", "old.csv", "--recipe", "bf16")
    of_server = parity("golden", "check", f"{name}.csv", golden, "--json")
    of_file = parity("golden", "check", f"{name}.csv", "llama.golden.jsonl", "--json")
    assert of_server[0] == of_file[0] == code
    ours, theirs = json.loads(of_server[1]), json.loads(of_file[1])
    check("golden", ours)
    assert ours["answer"] == answer
    named = {"goldens", "compared", "next"}  # which name the golden
    assert {key: ours[key] for key in ours.keys() - named} == {
        key: theirs[key] for key in theirs.keys() - named
    }


def test_the_reports_are_written_from_the_servers_answer(parity, golden):
    code, out, _ = parity(
        "golden", "check", "worse.csv", golden, "--junit", "g.xml", "--markdown", "g.md"
    )
    assert code == 1
    assert out.startswith("■ WORSE")
    assert "llama version 1, 100 steps, run worse" in out
    assert "<failure" in Path("g.xml").read_text(encoding="utf-8")
    assert Path("g.md").read_text(encoding="utf-8").startswith("### ■ WORSE")


def test_the_step_that_a_check_advises_works(parity, golden):
    _, out, _ = parity("golden", "check", "new.csv", golden)
    command = out.splitlines()[-1].partition("golden: ")[2]
    assert shlex.split(command)[1:5] == ["golden", "update", "server:llama", "new.csv"]
    code, out, _ = parity(*shlex.split(command)[1:])
    assert (code, out.partition(",")[0]) == (0, "server:llama@2 written: 100 steps")
    assert "numerics only" in out


def test_an_update_needs_a_reason_and_where_it_is_worse_its_acceptance(parity, golden):
    code, _, error = parity("golden", "update", golden, "new.csv")
    assert code == 2
    assert "--reason is missing" in error
    call = ["golden", "update", golden, "worse.csv", "--reason", "image 26.06"]
    code, out, error = parity(*call)
    assert (code, out[:7]) == (1, "■ WORSE")
    check("golden", json.loads(parity(*call, "--json")[1]))
    accept = shlex.split(error.partition("all the same: ")[2])
    assert parity(*call, *accept)[0] == 0
    assert parity("golden", "update", golden, "short.csv", "--reason", "r")[0] == 3
    code, out, _ = parity("golden", "update", golden, "worse.csv", "--reason", "again")
    assert (code, out) == (0, "identical: the golden stays as it is\n")


def test_a_golden_is_shown_listed_and_removed(parity, golden):
    update = ["golden", "update", golden, "new.csv", "--reason", "image 26.06"]
    check("golden-taken", json.loads(parity(*update, "--container", "26.06", "--json")[1]))
    check("golden-version", json.loads(parity("golden", "show", golden, "--json")[1]))
    code, out, _ = parity("golden", "show", golden)
    assert code == 0
    assert "server:llama@2: bf16, 100 steps, 1 to 100" in out
    assert "container: 26.06" in out
    assert "version 1 written by this machine: a release" in out
    remove = ["golden", "remove", "server:llama@2", "--reason", "a wrong image"]
    code, out, _ = parity(*remove)
    assert code == 0
    assert "removed" in out.splitlines()[0]
    check("golden-version", json.loads(parity(*remove, "--json")[1]))  # changes nothing
    code, _, error = parity("golden", "check", "new.csv", golden)
    assert code == 2
    assert "was removed on" in error
    code, out, _ = parity("golden", "list")
    assert [line.split("\t")[0] for line in out.splitlines()] == ["llama@2", "llama@1"]
    check("golden-list", json.loads(parity("golden", "list", "--json")[1]))
    assert parity("golden", "check", "new.csv", "server:llama@1")[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "new.csv", "server:"], "names no golden"),
        (["check", "new.csv", "server:llama@x"], "names no golden"),
        (["check", "new.csv", "server:nobody"], "golden 'nobody' does not exist"),
        (["check", "new.csv", "server:llama", "--recipe", "nvfp4"], "has recipe nvfp4"),
        (["update", "server:llama@1", "new.csv", "--reason", "r"], "never changes"),
        (["remove", "server:llama", "--reason", "r"], "server:llama@3"),
        (["remove", "llama@1", "--reason", "r"], "server:llama@3"),
    ],
)
def test_a_wrong_call_says_what_to_type(parity, golden, words, said):
    code, _, error = parity("golden", *words)
    assert code == 2
    assert said in error


def test_files_and_goldens_of_a_server_are_not_mixed(parity, golden):
    parity("golden", "update", "llama.golden.jsonl", "old.csv", "--recipe", "bf16")
    code, _, error = parity("golden", "check", "new.csv", golden, "llama.golden.jsonl")
    assert code == 2
    assert "goldens of one place" in error


def test_the_commands_of_the_page_work(parity):
    (block,) = run_by("docs/golden.md", __file__)
    for line in block.commands:
        program, *words = shlex.split(line)
        assert program == "parity"
        code, out, error = parity(*words)
        assert (code, bool(out)) == (0, True), (line, error)


def test_without_a_golden_the_list_says_how_one_is_written(parity):
    code, out, error = parity("golden", "list")
    assert (code, out) == (0, "")
    assert "parity golden update server:NAME" in error
