"""`parity compare --push` against a real server: a job with every run, its page, and what happens
when it breaks off.
"""

import json
from pathlib import Path

import httpx2
import numpy as np
import pytest

from parity import cli
from parity.client.rest import Client, ClientError, UnreachableError
from parity.client.whole_run import send_run
from parity.comparing import push
from server.database.metrics import store
from server.database.tables import Job

STEPS = 1500


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    t, rng = np.arange(STEPS), np.random.default_rng(0)
    batch = rng.normal(0, 0.06, STEPS)
    paths = {}
    for name, gap in (("fp8", 0.0), ("mxfp8", -0.002), ("my nvfp4", 0.03)):
        loss = 1.38 + 3.5 * np.exp(-t / 80) + batch + gap + rng.normal(0, 0.01, STEPS)
        paths[name] = folder / f"{name}.csv"
        rows = zip(t, loss, 5e-4 * (1.0 + np.cos(np.pi * t / STEPS)), strict=True)
        paths[name].write_text(
            "step,loss,lr\n"
            + "".join(f"{step},{value:.6f},{rate:.8f}\n" for step, value, rate in rows)
        )
    return {name: str(path) for name, path in paths.items()}


def _compare(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        cli.main(["compare", *words])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def _only_job(database):
    with database.read() as session:
        return session.query(Job).one().id


def test_a_comparison_gets_a_page_with_the_same_verdicts(served, database, files, capsys):
    words = (
        files["fp8"],
        files["mxfp8"],
        files["my nvfp4"],
        "--planned-steps",
        "1500",
        "--margin",
        "1%",
        "--rounding",
        "mxfp8=nearest",
    )
    recipes = (
        "--recipe",
        "fp8=fp8",
        "--recipe",
        "my nvfp4=other:mine",
        "--context",
        "fp8:engine=x",
        "--context",
        "mxfp8:engine=x",
    )
    call = (*words, *recipes, "--context", "my nvfp4:engine=x", "--push", "--server", served)
    code, out, err = _compare(capsys, *call)
    assert (code, err) == (1, "")
    job = _only_job(database)
    assert out.splitlines()[-1] == f"page: {served}/jobs/{job}"
    with database.read() as session:
        row = session.get_one(Job, job)
        assert row.status == "concluded"
        assert [(arm.name, arm.recipe) for arm in row.arms] == [
            ("fp8", "fp8"),
            ("mxfp8", "other:unstated"),
            ("my_nvfp4", "other:mine"),
        ]
        assert {run.rounding for run in row.runs} == {"nearest", None}
        assert row.runs[0].manifest == {
            "engine": "external",
            "trainer_engine": "x",
            "loss_name": "loss",
            "loss_meaning": "training loss",
        }
        assert "lr" not in store.read(session, row.runs[0].id, "train")[1]
        theirs = {verdict.candidate: json.loads(verdict.document) for verdict in row.verdicts}
    ours = json.loads(
        _compare(capsys, *words, *recipes, "--context", "my nvfp4:engine=x", "--json")[1]
    )["verdicts"]
    for own, name in zip(ours, ("mxfp8", "my_nvfp4"), strict=True):
        assert theirs[name]["verdict"] == own["verdict"]
        assert theirs[name]["gap"] == own["gap"]
        assert theirs[name]["codes"] == own["codes"]
    assert "other:mine" in httpx2.get(f"{served}/jobs/{job}").text
    # The same comparison again is the same job.
    assert _compare(capsys, *call)[1].splitlines()[-1] == f"page: {served}/jobs/{job}"
    assert _only_job(database) == job


def test_the_statistics_of_the_debug_tool_go_with_the_candidate(served, files, tmp_path, capsys):
    """The server names the layers that the terminal names, and has each step for its page."""
    shares = [1.0] * 12 + [31.0, 32.0, 33.0]
    log = tmp_path / "nvdlfw_inspect_statistics_logs" / "nvdlfw_inspect_globalrank-0.log"
    log.parent.mkdir()
    log.write_text(
        "".join(
            f"2026-03-04 10:11:12,131 - INFO - layers.{layer}.fc1_gradient_nvfp4_underflows% \t\t"
            f"iteration={100 * at:06d} \t\t value={share / (layer + 1):.4f}\n"
            for at, share in enumerate(shares)
            for layer in (0, 1)
        )
    )
    words = (files["fp8"], files["my nvfp4"], "--planned-steps", "1500", "--margin", "1%")
    call = (*words, "--layer-snr", str(tmp_path), "-v", "--push", "--server", served)
    code, out, err = _compare(capsys, *call)
    assert (code, err) == (1, "")
    named = "layers.0.fc1 (gradient nvfp4, 32.0 %), layers.1.fc1 (gradient nvfp4, 16.0 %)"
    assert named in " ".join(out.split())
    job = out.splitlines()[-1].rpartition("/")[2]
    document = httpx2.get(f"{served}/api/v1/jobs/{job}").json()
    (verdict,) = document["verdicts"]
    assert named in " ".join(verdict["advice"]["sentences"])
    runs = {arm["name"]: arm["runs"][0]["id"] for arm in document["arms"]}
    answer = httpx2.get(f"{served}/api/v1/runs/{runs['my_nvfp4']}/layers?buckets=15").json()
    assert answer["table"]["first_step"] == [100 * at for at in range(15)]
    assert answer["table"]["values"][0] == [share / 100 for share in shares]
    baseline = httpx2.get(f"{served}/api/v1/runs/{runs['fp8']}/layers").json()
    assert baseline["table"] is None
    # without them it is another question to the page, so another job
    plain = _compare(capsys, *words, "--push", "--server", served)[1]
    assert plain.splitlines()[-1].rpartition("/")[2] != job


@pytest.mark.parametrize(
    "error",
    [UnreachableError("no answer from the server"), KeyboardInterrupt()],
    ids=["unreachable", "interrupted"],
)
def test_what_breaks_off_is_completed_by_the_same_command(
    error, served, database, files, capsys, monkeypatch
):
    call = (
        files["fp8"],
        files["mxfp8"],
        "--planned-steps",
        "1500",
        "--rounding",
        "mxfp8=nearest",
        "--push",
        "--server",
        served,
    )
    whole = Client.append
    calls = []

    def breaks(self, *arguments, **options):
        calls.append(arguments)
        if len(calls) == 2:  # the first batch of the second run
            raise error
        return whole(self, *arguments, **options)

    monkeypatch.setattr(Client, "append", breaks)
    code, out, err = _compare(capsys, *call)
    job = _only_job(database)
    assert code == 4
    assert "page:" not in out
    assert err.count("\n") == 1
    if not isinstance(error, KeyboardInterrupt):
        assert f"1 of 2 runs are in job {job}; run the same command again to send the rest" in err
    with database.read() as session:
        assert sorted(run.state for run in session.get_one(Job, job).runs) == [
            "finished",
            "running",
        ]
    code, out, _ = _compare(capsys, *call)
    assert out.splitlines()[-1] == f"page: {served}/jobs/{job}"
    assert _only_job(database) == job
    with database.read() as session:
        row = session.get_one(Job, job)
        assert row.status == "concluded"
        assert [run.attempt_number for run in row.runs] == [1, 2]
        assert len(store.read(session, row.runs[1].id, "train")[0]) == STEPS


def test_a_job_that_was_cancelled_is_not_taken_again(served, database, files, capsys, monkeypatch):
    call = (files["fp8"], files["mxfp8"], "--planned-steps", "1500", "--push", "--server", served)
    monkeypatch.setattr(
        Client, "append", lambda *_, **__: (_ for _ in ()).throw(UnreachableError("away"))
    )
    assert _compare(capsys, *call)[0] == 4
    first = _only_job(database)
    monkeypatch.undo()
    with Client(served) as client:
        client.cancel(first)
    _, out, _ = _compare(capsys, *call)
    assert out.splitlines()[-1].startswith(f"page: {served}/jobs/")
    assert first not in out


def test_a_server_that_is_away_or_wrong_is_one_line(files, capsys, monkeypatch):
    call = (files["fp8"], files["my nvfp4"], "--planned-steps", "1500", "--push")
    for server, words in (("http://127.0.0.1:1", "connection refused"), ("nonsense", "not a URL")):
        code, out, err = _compare(capsys, *call, "--server", server)
        assert (code, err.count("\n")) == (4, 1)
        assert words in err
        assert "FAIL" in out  # the verdict that was made here is not lost
    refused = ClientError(401, "the token is not valid")
    monkeypatch.setattr(Client, "submit", lambda *_, **__: (_ for _ in ()).throw(refused))
    code, _, err = _compare(capsys, *call, "--server", "http://127.0.0.1:1")
    assert (code, err) == (2, "parity: the token is not valid\n")


REFUSED = [
    ((), "--planned-steps"),
    (("--planned-steps", "1500", "--control", "{mxfp8}"), "--control cannot be sent"),
    (
        (
            "--planned-steps",
            "1500",
            "--baseline-run",
            "{mxfp8}",
            "--candidate-run",
            "x={my nvfp4}",
            "--seeds",
            "1,2",
        ),
        "share one",
    ),
    (("--planned-steps", "1500", "--family", "fp8=any-decoder"), "--family differs"),
]


@pytest.mark.parametrize(("words", "reason"), REFUSED)
def test_what_a_job_cannot_hold_is_refused_before_anything_is_sent(
    words, reason, files, capsys, tmp_path
):
    again = tmp_path / "again.csv"
    again.write_bytes(Path(files["my nvfp4"]).read_bytes())
    own = [word.format(**files) for word in words]
    code, out, err = _compare(
        capsys, files["fp8"], f"x={again}", *own, "--push", "--server", "http://127.0.0.1:1"
    )
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert reason in err


def test_the_servers_other_verdict_is_told(served, files, capsys, monkeypatch):
    def without_rounding(client, run, curve, manifest, recipe, _rounding, layers):
        return send_run(client, run, curve, manifest, recipe, None, layers)

    monkeypatch.setattr(push, "send_run", without_rounding)
    call = (files["fp8"], files["mxfp8"], "--planned-steps", "1500", "--margin", "0.42%")
    nearest = ("--rounding", "mxfp8=nearest", "--rounding", "fp8=nearest")
    code, out, err = _compare(capsys, *call, *nearest, "--push", "--server", served)
    assert out.startswith("● PASS  You may switch to mxfp8.")
    assert "the server's verdict on mxfp8 is inconclusive" in err
    assert code == 3
