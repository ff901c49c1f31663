"""What scripts read: `parity status` in a pipe, `--json` of the commands that print, `--json -` of
the gate, and `--quiet`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parity.cli.gate import command
from parity.cli.jobs import watching
from parity.client.rest import Client
from parity.gate.outcome import GateOutcome
from parity.version import JUDGE_VERSION

Run = Callable[..., tuple[int, str, str]]

LONG = (
    "a name that is much longer than a terminal of eighty columns has room for, with a\ttab and "
    "more words in it"
)
JOBS = [
    {"id": "j2", "name": LONG, "status": "running", "share_done": 0.25, "verdicts": []},
    {
        "id": "j1",
        "name": "done",
        "status": "concluded",
        "share_done": 1.0,
        "lead": "nvfp4 fails. You may switch to mxfp8.",
        "verdicts": [
            {"candidate": "mxfp8", "verdict": "pass"},
            {"candidate": "nvfp4", "verdict": "fail"},
        ],
        "tags": ["nightly", "llama3"],
    },
]


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the command line asked of a server with two jobs."""
    questions: list[dict[str, Any]] = []

    def jobs(
        _client: Client,
        limit: int = 20,
        cursor: str | None = None,
        filters: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        questions.append({"limit": limit, **(filters or {})})
        status = (filters or {}).get("status")
        return {
            "items": [job for job in JOBS if status in (None, job["status"])][:limit],
            "next_cursor": None,
        }

    monkeypatch.setattr(Client, "jobs", jobs)
    return questions


def test_in_a_pipe_a_job_is_one_line_of_tab_separated_cells(
    queries: list[dict[str, Any]], run: Run
) -> None:
    code, out, err = run("status")
    assert (code, err, queries) == (0, "", [{"limit": 20}])
    assert [line.split("\t") for line in out.splitlines()] == [
        ["j2", " ".join(LONG.split()), "running 25%", "", ""],
        [
            "j1",
            "done",
            "concluded",
            "FAIL: nvfp4 fails. You may switch to mxfp8.",
            "nightly llama3",
        ],
    ]


def test_limit_and_state_are_queries_to_the_server(queries: list[dict[str, Any]], run: Run) -> None:
    assert run("status", "--limit", "1")[1].count("\n") == 1
    assert run("status", "--status", "concluded")[1].startswith("j1\t")
    assert run("status", "--status", "failed") == (0, "", "no jobs match\n")
    assert queries == [
        {"limit": 1},
        {"limit": 20, "status": "concluded"},
        {"limit": 20, "status": "failed"},
    ]


def test_every_filter_is_a_query_to_the_server(queries: list[dict[str, Any]], run: Run) -> None:
    words = (
        "--verdict fail --name a --tag x --tag y --recipe nvfp4 --model m --revision r --branch b "
        "--baseline l --sort gap"
    )
    assert run("status", *words.split(), "--since", "2026-11-01", "--until", "2026-11-23")[0] == 0
    named = {
        "verdict": "fail",
        "name": "a",
        "tag": ["x", "y"],
        "recipe": "nvfp4",
        "model": "m",
        "revision": "r",
        "branch": "b",
    }
    assert queries == [
        {
            "limit": 20,
            **named,
            "baseline": "l",
            "sort": "gap",
            "since": "2026-11-01",
            "until": "2026-11-23",
        }
    ]
    code, out, err = run("status", "--sort", "gaps")
    assert (code, out, "did you mean gap?" in err) == (2, "", True)


def test_jobs_as_json(queries: list[dict[str, Any]], run: Run) -> None:
    assert json.loads(run("status", "--json")[1]) == JOBS
    assert len(queries) == 1


def test_the_overrides_of_an_arm_are_lines_of_their_own(
    monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    arm = {
        "name": "own",
        "role": "candidate",
        "steps_done": 1,
        "planned_steps": 2,
        "loss": 1.5,
        "steps_per_second": 1.0,
        "eta_seconds": 1.0,
        "runs": [],
        "short_reruns": [],
    }
    words = ["wgrad of down in blocks 0-1: bf16", "all GEMMs of out in all blocks: rht=false"]
    job = {
        "id": "j1",
        "name": "n",
        "status": "running",
        "message": None,
        "waiting": "",
        "share_done": 0.5,
        "engine": "emulated",
        "baseline": None,
    }
    document = job | {"arms": [arm | {"overrides": words}, arm | {"name": "other"}], "verdicts": []}
    monkeypatch.setattr(Client, "job", lambda _client, _job: document)
    monkeypatch.setattr(Client, "gap", lambda *_: {"mean": [0.5, 0.0123]})
    code, out, err = run("status", "j1")
    assert code == 0, err
    assert "+0.0123" in out
    lines = out.splitlines()
    assert [line for line in lines if ": " in line and line.startswith("o")] == [
        f"own: {each}" for each in words
    ]


def test_a_cancelled_and_a_submitted_job_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setattr(Client, "cancel", lambda _client, job: {"id": job, "status": "cancelled"})
    monkeypatch.setattr(Client, "submit", lambda *_words, **_options: {"id": "j3"})
    monkeypatch.delenv("PARITY_URL", raising=False)
    (tmp_path / "parity.yaml").write_text("job: {a: 1}\npolicy: {margin: 1%}\n")
    assert json.loads(run("cancel", "j1", "--json")[1]) == {"id": "j1", "status": "cancelled"}
    document = json.loads(
        run("submit", str(tmp_path / "parity.yaml"), "--json", "--server", "http://host")[1]
    )
    assert document == {"id": "j3", "url": "http://host/jobs/j3"}


def test_a_verification_as_json(data: Path, run: Run) -> None:
    code, out, _ = run("verify", str(data / f"judge-{JUDGE_VERSION}.zip"), "--json")
    report = json.loads(out)
    assert (code, report["identical"], report["differences"]) == (0, True, [])
    assert report["made_by_judge"] == report["this_judge"]
    assert report["candidates"][0].keys() == {"candidate", "recorded", "today", "codes"}


def test_a_gate_prints_its_json_instead_of_the_headline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    outcome = GateOutcome(result="timeout", revision="abc", trouble="job j1 did not end")
    monkeypatch.setattr(command, "verdict_with_second_look", lambda *_words: outcome)
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("parity.yaml").write_text("job: {a: 1}\npolicy: {margin: 1%}\n")
    code, out, _ = run("gate", "parity.yaml", "--json", "-")
    assert (code, json.loads(out)["result"], json.loads(out)["exit_code"]) == (5, "timeout", 5)
    assert run("gate", "parity.yaml", "--json", "out.json")[1] == f"{outcome.line}\n"
    assert Path("out.json").read_text() == out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json", "parity.yaml"]


@pytest.mark.parametrize(
    ("more", "progress"), [((), True), (("--quiet",), False), (("-q",), False)]
)
def test_progress_is_printed_unless_it_is_not_wanted(
    more: tuple[str, ...], progress: bool, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setattr(
        watching,
        "poll",
        lambda *_words: iter([{"id": "j1", "status": "cancelled", "message": None} | WAITING]),
    )
    code, out, err = run("watch", "j1", *more)
    assert (code, out) == (4, "")
    assert ("following" in err, "cancelled 0%" in err) == (progress, progress)
    assert err.splitlines()[-1] == "parity: job j1 cancelled without a verdict"


WAITING: dict[str, Any] = {
    "share_done": 0.0,
    "eta_seconds": None,
    "waiting": None,
    "arms": [],
    "verdicts": [],
}
