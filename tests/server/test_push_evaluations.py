"""`parity compare --push` of held-out losses against a real server: one job, which the server
judges by itself, on every surface.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import httpx2
import numpy as np
import pytest

from parity import cli
from parity.judging.verdict.sign_offs import without_shown
from server.database.tables import EVALUATIONS, Job
from tests.parity.cli.schemas import check

OPTIONS = (
    *("--arm-by", "arm", "--run-by", "seed", "--pair-by", "seed", "--loss", "val_loss"),
    *("--baseline", "bf16", "--margin", "1%", "--schedule", "decayed", "--planned-steps", "2000"),
)
GAPS = {"bf16": 0.0, "fp8": 0.001, "my nvfp4": 0.06}


def table(path: Path, gaps: dict[str, float], last: float = 0.0) -> str:
    """Six evaluations of four runs an arm, the arms apart by these gaps; `last` is added to the
    last loss.
    """
    rng, rows = np.random.default_rng(5), []
    for seed in range(4):
        run = rng.normal(0.0, 0.002)
        for arm, gap in gaps.items():
            for step in range(500, 2001, 300):
                loss = 2.4 + 1.5 * np.exp(-step / 300) + gap + run + rng.normal(0.0, 0.0008)
                rows.append([arm, seed, step, f"{loss:.6f}"])
    rows[-1][-1] = f"{float(rows[-1][-1]) + last:.6f}"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["arm", "seed", "step", "val_loss"], *rows])
    return str(path)


@pytest.fixture
def run(capsys):
    def call(*words):
        with pytest.raises(SystemExit) as ended:
            cli.main([*words])
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return call


@pytest.fixture
def call(tmp_path, served):
    """The words of a comparison of one candidate that passes and one that fails, pushed."""
    path = table(tmp_path / "evaluations.csv", GAPS)
    return ("compare", path, *OPTIONS, "--push", "--server", served)


def pushed(run, call) -> str:
    """The id of the job of a call."""
    code, out, err = run(*call)
    assert (code, err) == (1, "")
    return out.splitlines()[-1].rpartition("/jobs/")[2]


def test_the_server_gives_the_verdicts_that_are_given_here(run, call, served, database):
    job = pushed(run, call)
    here = json.loads(run(*call[:-3], "--json")[1])["verdicts"]
    there = httpx2.get(f"{served}/api/v1/jobs/{job}").json()
    check("job", there)
    for own, other in zip(here, there["verdicts"], strict=True):
        renamed = json.loads(json.dumps(without_shown(own)).replace("my nvfp4", "my_nvfp4"))
        assert without_shown(other) == renamed
    assert [verdict["verdict"] for verdict in here] == ["pass", "fail"]
    assert there["name"] == "fp8, my nvfp4 against bf16, held-out losses"
    with database.read() as session:
        row = session.query(Job).one()
        assert (row.engine, row.status, row.answer) == (EVALUATIONS, "concluded", "fail")
        assert [arm.name for arm in row.arms] == ["bf16", "fp8", "my_nvfp4"]
        assert (row.runs, row.config_hash, row.look) == ([], None, None)


def test_the_same_comparison_is_one_job_and_another_is_another(run, call, tmp_path):
    job = pushed(run, call)
    assert pushed(run, call) == job
    table(tmp_path / "evaluations.csv", GAPS, last=1e-6)
    assert pushed(run, call) != job


def test_the_address_is_on_stderr_next_to_json(run, call):
    code, out, err = run(*call, "--json")
    assert code == 1
    assert len(json.loads(out)["verdicts"]) == 2
    assert err.startswith("page: http://127.0.0.1:")


def test_every_command_says_the_same_of_it(run, call, served, tmp_path):
    job = pushed(run, call)
    lead, at = "my_nvfp4 fails. You may switch to fp8.", ("--server", served)
    page = tmp_path / "page.html"
    for words, expected in (
        (("status",), 0),
        (("status", job), 0),
        (("report", job), 1),
        (("report", job, "--markdown"), 1),
        (("report", job, "--html", str(page)), 1),
        (("watch", job), 1),
        (("runs", "judge", job), 1),
    ):
        code, out, err = run(*words, *at)
        assert (code, lead in out) == (expected, True), (words, out, err)
        assert "0/0" not in out + err, words
    assert lead in page.read_text()
    assert "what was sent" in page.read_text()
    assert "Held-out losses as they were sent" in run("status", job, *at)[1]
    assert lead in httpx2.get(f"{served}/jobs/{job}").text
    assert lead in httpx2.get(f"{served}/jobs").text
    verdicts = json.loads(run("report", job, "--json", *at)[1])["verdicts"]
    assert [verdict["words"]["lead"] for verdict in verdicts] == [
        "You may switch to fp8.",
        "Do not switch to my_nvfp4.",
    ]


def test_its_report_is_no_verdict_for_a_gate(run, call, served, tmp_path):
    job = pushed(run, call)
    report = tmp_path / "report.json"
    report.write_text(run("report", job, "--json", "--server", served)[1])
    code, out, err = run("gate", "--verdicts", str(report))
    assert (code, out) == (2, "")
    assert "holds no verdicts of schema parity.verdict/1" in err


def test_its_evidence_is_verified_offline(run, call, served, tmp_path):
    job = pushed(run, call)
    bundle = tmp_path / "evidence.zip"
    bundle.write_bytes(httpx2.get(f"{served}/api/v1/jobs/{job}/evidence.zip").content)
    assert run("verify", str(bundle))[0] == 0


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("again",), "send other losses with `parity compare --push`"),
        (("add-run",), "push the losses of all runs: `parity compare --push`"),
        (("why",), "name a job that trained its arms"),
        (("heal",), "name a job that trained its arms"),
        (("runs", "state"), "state what is known where they are sent"),
    ],
    ids=["again", "add-run", "why", "heal", "state"],
)
def test_what_needs_runs_says_what_to_do_instead(run, call, served, words, remedy):
    job = pushed(run, call)
    more = ("--planned-steps", "2000") if "state" in words else ()
    code, out, err = run(*words, job, *more, "--server", served)
    assert (code, out) == (2, "")
    assert f"job {job} has held-out losses that were sent without runs" in err
    assert remedy in err


def test_numbers_that_are_typed_are_pushed_too(run, served):
    words = ("bf16=2.2420", "fp8=2.2760", "--margin", "1%", "--push", "--server", served)
    code, out, err = run("compare", *words)
    assert (code, err) == (3, "")
    page = httpx2.get(out.splitlines()[-1].removeprefix("page: ")).text
    assert "Two numbers cannot decide on fp8." in page


def test_sizes_are_a_question_each(run, served, tmp_path):
    path, rows = tmp_path / "sizes.csv", ["arm,run,params,val_loss"]
    for size in (1, 2):
        for arm, gap in (("a", 0.0), ("b", 0.01)):
            rows += [f"{arm},{run_number},{size}e8,{3 + gap}" for run_number in (1, 2)]
    path.write_text("\n".join(rows))
    words = ("--arm-by", "arm", "--run-by", "run", "--size-by", "params")
    more = ("--baseline", "a", "--loss", "val_loss", "--margin", "1%", "--push")
    code, out, err = run("compare", str(path), *words, *more, "--server", served)
    assert (code, out) == (2, "")
    assert "--push records one comparison, and these are 2, one a size" in err
    assert httpx2.get(f"{served}/api/v1/jobs").json()["items"] == []
