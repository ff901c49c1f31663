"""`parity gate` against a real server: cached and new verdicts, every exit code, the reports,
GitHub's files, and being stopped.
"""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from rich.console import Console
from sqlalchemy import select

from parity import cli
from parity.cli.gate import narrow_fail, server_answer
from parity.client.rest import Client
from parity.gate.outcome import GateOutcome
from parity.gate.rules import GateRules
from server.database.tables import Job, Run, SignOff
from server.settings import CHECKOUT

CLEAR_FAIL, NARROW_FAIL = {"nvfp4": 0.3}, {"mxfp8": 0.0192}


@pytest.fixture(autouse=True)
def no_ci(monkeypatch):
    """Whatever runs these tests is not the CI that is played here."""
    for name in [name for name in os.environ if name.startswith(("GITHUB_", "PARITY_", "CI_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def asks(tmp_path):
    """A function that writes parity.yaml and returns its path."""

    def write(request, **gate):
        path = tmp_path / "parity.yaml"
        path.write_text(yaml.safe_dump({**request, **({"gate": gate} if gate else {})}))
        return str(path)

    return write


def _gate(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        cli.main(["gate", *words])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def _xml(path):
    return ElementTree.fromstring(path.read_text().split("\n", 1)[1])  # noqa: S314


@pytest.mark.parametrize(
    ("gaps", "code", "word"),
    [({"mxfp8": 0.0}, 0, "PASS"), (CLEAR_FAIL, 1, "FAIL"), ({"mxfp8": 0.013}, 3, "INCONCLUSIVE")],
)
def test_a_concluded_job_is_served_with_its_age(
    served, judged, register, asks, capsys, gaps, code, word
):
    register()
    job, request = judged(gaps)
    status, out, err = _gate(capsys, asks(request), "--revision", "", "--server", served)
    assert (status, out.count("\n")) == (code, 1), err
    assert out.startswith(f"{word}: ")
    assert f"cached: job {job} concluded" in err
    assert "is served until 20" in err
    assert f"{served}/jobs/{job}" in err
    assert _gate(capsys, asks(request), "--revision", "", "--server", served, "--advisory")[0] == 0


def test_the_rules_of_the_file_and_the_flags_over_it(served, judged, register, asks, capsys):
    register()
    _, request = judged({"mxfp8": 0.013})
    common = ("--revision", "", "--server", served)
    code, _, err = _gate(capsys, asks(request, on_inconclusive="pass"), *common)
    assert (
        code,
        "on_inconclusive: pass: the exit code is 0; without that it would be 3" in err,
    ) == (0, True)
    assert (
        _gate(capsys, asks(request, on_inconclusive="pass"), *common, "--on-inconclusive", "fail")[
            0
        ]
        == 3
    )
    code, _, err = _gate(capsys, asks(request, advisory=True), *common)
    assert (code, "advisory: the exit code is 0" in err) == (0, True)
    assert _gate(capsys, asks(request, advisory=True), *common, "--no-advisory")[0] == 3


def test_a_sign_off_lets_an_inconclusive_verdict_through_and_says_so(
    served, judged, register, asks, capsys, tmp_path, monkeypatch
):
    register()
    job, request = judged({"mxfp8": 0.013})
    output = tmp_path / "output"
    monkeypatch.setenv("GITHUB_OUTPUT", str(output))
    reports = {name: tmp_path / f"gate.{name}" for name in ("json", "junit", "markdown")}
    words = (
        asks(request),
        "--revision",
        "",
        "--server",
        served,
        *(f"--{name}={path}" for name, path in reports.items()),
    )
    assert _gate(capsys, *words)[0] == 3
    assert _xml(reports["junit"]).find("testsuite").get("errors") != "0"
    with Client(served) as client:
        (signed,) = client.sign_off(job, "mxfp8", "release 2.1; reruns are queued", 14)["sign_offs"]
        code, out, err = _gate(capsys, *words)
        assert code == 0, err
        assert out.startswith(
            "ACCEPTED, NOT A PASS: this machine signed off the inconclusive verdict on mxfp8 until "
            "20"
        )
        assert "release 2.1; reruns are queued. INCONCLUSIVE: " in out
        assert out.count("\n") == 1
        document = json.loads(reports["json"].read_text())
        assert (document["result"], document["exit_code"], document["accepted"]) == (
            "inconclusive",
            0,
            True,
        )
        assert document["sign_offs"] == [signed]
        assert document["note"].startswith(
            "accepted by a person: the exit code is 0; without the sign-off it would be 3"
        )
        suite = _xml(reports["junit"]).find("testsuite")
        assert (suite.get("errors"), suite.get("failures")) == ("0", "0")
        assert "Accepted, not a pass" in suite.find("testcase/skipped").get("message")
        assert (
            reports["markdown"]
            .read_text()
            .startswith("### parity: accepted, not a pass (inconclusive)")
        )
        assert "\naccepted=true\n" in output.read_text()
        # It ends with its revocation, and the log says why it does not count.
        client.revoke_sign_off(job, signed["id"], "the reruns failed")
    code, out, err = _gate(capsys, *words)
    assert (code, out.startswith("INCONCLUSIVE: ")) == (3, True)
    assert "does not count: it was revoked by this machine: the reruns failed" in err
    assert json.loads(reports["json"].read_text())["accepted"] is False


def test_a_sign_off_that_no_longer_holds_lets_nothing_through(
    served, judged, register, asks, capsys, database
):
    register()
    job, request = judged({"mxfp8": 0.013})
    with Client(served) as client:
        client.sign_off(job, "mxfp8", "release 2.1; reruns are queued", 14)
    with database.read() as session:
        right = (
            session.query(SignOff.expires_at, SignOff.verdict_sha256, SignOff.policy_sha256)
            .one()
            ._mapping
        )
    for wrong in (
        {"expires_at": time.time() - 0.001},
        {"verdict_sha256": "0" * 64},
        {"policy_sha256": "0" * 64},
    ):
        with database.write() as session:
            for name, value in {**right, **wrong}.items():
                setattr(session.query(SignOff).one(), name, value)
        code, out, err = _gate(capsys, asks(request), "--revision", "", "--server", served)
        assert (code, out.startswith("INCONCLUSIVE: "), "does not count" in err) == (
            3,
            True,
            True,
        ), wrong


def test_a_sign_off_of_one_candidate_is_none_of_another(served, judged, register, asks, capsys):
    register()
    job, request = judged({"mxfp8": 0.013, "nvfp4": 0.3})
    with Client(served) as client:
        client.sign_off(job, "mxfp8", "release 2.1; reruns are queued", 14)
    code, out, _ = _gate(capsys, asks(request), "--revision", "", "--server", served)
    assert (code, out.startswith("FAIL: ")) == (1, True)


def test_the_report_of_a_job_shows_its_sign_off_and_still_exits_with_3(
    served, judged, capsys, tmp_path
):
    job, _ = judged({"mxfp8": 0.013})
    with Client(served) as client:
        client.sign_off(job, "mxfp8", "release 2.1; reruns are queued", 14)
        client.add_note(job, "see the run log")
    for options in ((), ("--markdown",), ("--json",), ("--html", str(tmp_path / "report.html"))):
        with pytest.raises(SystemExit) as ended:
            cli.main(["report", job, "--server", served, *options])
        out = capsys.readouterr().out
        assert ended.value.code == 3
        assert "reruns are queued" in out
    assert "Accepted, not a pass" in (tmp_path / "report.html").read_text()
    bundle = tmp_path / "evidence.zip"
    with urllib.request.urlopen(f"{served}/api/v1/jobs/{job}/evidence.zip") as answer:  # noqa: S310
        bundle.write_bytes(answer.read())
    with pytest.raises(SystemExit) as ended:
        cli.main(["verify", str(bundle)])
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert "sign-off of mxfp8 by this machine, valid when the bundle was made, until 20" in out
    with pytest.raises(SystemExit):
        cli.main(["status", job, "--server", served])
    out = capsys.readouterr().out
    assert "Accepted, not a pass" in out
    assert "note by this machine" in out


def test_a_lookup_never_queues(
    served, judged, register, asks, request_body, capsys, database, tmp_path
):
    register()
    job, request = judged({"mxfp8": 0.0})
    words = ("--lookup", "--server", served, "--json", str(tmp_path / "gate.json"))
    assert _gate(capsys, asks(request), "--revision", "", *words)[0] == 0
    code, out, err = _gate(capsys, asks(request), "--revision", "r2", *words)
    assert (code, out.count("\n")) == (7, 1), err
    assert out.startswith(
        "NOTHING WAS JUDGED (unrecorded): revision changed: none -> r2. Train: parity gate "
    )
    document = json.loads((tmp_path / "gate.json").read_text())
    assert (document["result"], document["exit_code"], document["job"]) == ("unrecorded", 7, None)
    assert _gate(capsys, asks(request), "--revision", "r2", "--advisory", *words)[0] == 0
    for option in (("--fresh",), ("--supersede", "me/model#7")):
        assert _gate(capsys, asks(request), *option, *words)[0] == 2
    narrow, request = judged(NARROW_FAIL, looks=2)
    code, _, err = _gate(
        capsys, asks(request, confirm_marginal_fail=True), "--revision", "", *words
    )
    assert (code, "stands unconfirmed: no earlier job" in err) == (1, True)
    with database.read() as session:
        assert {one.id for one in session.scalars(select(Job))} == {job, narrow}


def test_verdicts_from_files_need_no_server(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(CHECKOUT / "examples" / "curves")
    with pytest.raises(SystemExit):
        cli.main(["compare", "fp8.csv", "nvfp4.csv", "--planned-steps", "1500", "--json"])
    verdicts, file = tmp_path / "verdicts.json", tmp_path / "gate.yaml"
    verdicts.write_text(capsys.readouterr().out)
    file.write_text("gate: {advisory: true}")
    code, out, err = _gate(
        capsys, "--verdicts", str(verdicts), "--junit", str(tmp_path / "gate.xml")
    )
    assert (code, out.startswith("FAIL: Do not switch to nvfp4.")) == (1, True), err
    assert _xml(tmp_path / "gate.xml").find("testsuite").get("failures") == "1"
    assert _gate(capsys, str(file), "--verdicts", str(verdicts))[0] == 0
    document = json.loads(verdicts.read_text())
    for content in (
        "",
        "[]",
        '{"verdicts": []}',
        '{"verdicts": [{"verdict": "pass"}]}',
        '{"verdicts": [{"schema": "parity.verdict/1", "verdict": "pass"}]}',
    ):
        verdicts.write_text(content)
        assert _gate(capsys, "--verdicts", str(verdicts))[0] == 2, content
    del document["verdicts"][0]["gap"]
    verdicts.write_text(json.dumps(document))
    assert _gate(capsys, "--verdicts", str(verdicts))[0] == 2
    assert _gate(capsys)[0] == _gate(capsys, "--verdicts", str(verdicts), "--fresh")[0] == 2


def test_a_newer_commit_of_a_pull_request_cancels_the_older_ones_job(
    served, asks, request_body, capsys, database
):
    for revision in ("r1", "r2"):
        words = (
            "--revision",
            revision,
            "--supersede",
            "me/model#7",
            "--server",
            served,
            "--timeout",
            "0.2",
        )
        assert _gate(capsys, asks(request_body), *words)[0] == 5
    with database.read() as session:
        assert [job.status for job in session.scalars(select(Job).order_by(Job.id))] == [
            "cancelled",
            "queued",
        ]


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        ({"max_age": 3}, "gate.max_age: unknown key; did you mean max_age_days?"),
        ({"max_age_days": -1}, "gate.max_age_days is -1"),
        ({"on_infra": "maybe"}, "gate.on_infra is 'maybe'; expected fail or pass"),
        ({"advisory": "yes"}, "gate.advisory is 'yes'"),
        ({"timeout_seconds": True}, "gate.timeout_seconds is True"),
    ],
)
def test_a_wrong_gate_is_told_with_its_path(asks, request_body, capsys, gate, words):
    code, _, err = _gate(capsys, asks(request_body, **gate))
    assert (code, words in err) == (2, True), err


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"engine": "emulatd"}, "engine:", "engine is 'emulatd'; did you mean emulated?"),
        ({"schedule": {"steps": 0}}, "steps:", "schedule.steps is 0"),
        ({"schedule": {"steps": 20_000_000}}, "steps:", "expected 1 to 10,000,000"),
        (
            {"candidates": [{"recipe": "mxfp8"}, {"recipe": "nvfp5"}]},
            "recipe: nvfp5",
            "candidate 2: recipe is 'nvfp5'; did you mean nvfp4?",
        ),
        ({"no_such": 1}, "no_such:", "unknown key"),
    ],
)
@pytest.mark.parametrize("command", ["gate", "submit"])
def test_what_the_server_refuses_is_told_with_file_and_line(
    served, asks, request_body, capsys, command, change, key, words
):
    path = asks(request_body | {"job": request_body["job"] | change})
    lines = Path(path).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, start=1) if key in text)
    with pytest.raises(SystemExit) as ended:
        cli.main([command, path, "--server", served])
    err = capsys.readouterr().err
    assert (ended.value.code, f"{path}, line {line}: " in err, words in err) == (2, True, True), err


def test_several_mistakes_are_told_with_their_lines(served, asks, request_body, capsys):
    path = asks(
        request_body
        | {"job": request_body["job"] | {"seed": "zero", "candidates": [{"recipe": "nvfp5"}]}}
    )
    _, _, err = _gate(capsys, path, "--server", served)
    assert re.search(rf"^parity: {re.escape(path)}, line \d+: .*; line \d+: ", err), err


def test_a_report_that_cant_be_written_is_told_before_the_wait(
    asks, request_body, capsys, tmp_path
):
    code, _, err = _gate(
        capsys, asks(request_body), "--json", str(tmp_path / "nowhere" / "gate.json")
    )
    assert (code, "cannot be written" in err) == (2, True)


def test_a_job_that_no_worker_takes_runs_into_the_timeout_and_goes_on(
    served, asks, request_body, capsys, database
):
    words = ("--revision", "r1", "--server", served, "--timeout", "0.5")
    request_body["policy"]["looks"] = 2
    code, out, err = _gate(capsys, asks(request_body), *words)
    assert code == 5
    assert out.startswith("NO VERDICT (timeout): job j")
    assert "within 0.5 s" in out, "the time that was given, not what was left of it"
    assert "none is registered" in out
    assert "no earlier job" in err
    code, _, err = _gate(capsys, asks(request_body), *words)
    assert (code, "was asked for already" in err) == (5, True)
    with database.read() as session:
        (job,) = session.scalars(select(Job))
        assert (job.status, job.revision) == ("queued", "r1")
    assert _gate(capsys, asks(request_body), *words, "--advisory")[0] == 0
    assert _gate(capsys, asks(request_body), *words, "--fresh")[0] == 5
    code, _, err = _gate(capsys, asks(request_body), *words, "--fresh")
    assert (code, "registered 2 looks" in err) == (2, True)
    with database.read() as session:
        assert [job.look for job in session.scalars(select(Job).order_by(Job.id))] == [1, 2]


def test_a_new_job_has_the_line_of_what_it_can_decide_and_a_cached_one_has_not(
    served, judged, register, asks, request_body, capsys
):
    words = ("--revision", "", "--server", served, "--timeout", "0.5")
    path = asks({**request_body, "policy": {"margin": "0.4%"}})
    _, out, err = _gate(capsys, path, *words)
    assert ("Chance to pass" in out, err.count("Chance to pass")) == (False, 1)
    assert f"parity plan --policy {path}" in err
    assert "Chance to pass" not in _gate(capsys, path, *words)[2], "the job is queued already"
    assert "Chance to pass" not in _gate(capsys, path, "--fresh", "--quiet", *words)[2]
    register()
    _, request = judged({"mxfp8": 0.0})
    assert "Chance to pass" not in _gate(capsys, asks(request), *words)[2]


def test_without_a_server_it_is_infrastructure(asks, request_body, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(server_answer, "_PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(
        server_answer, "_PAUSES", dataclasses.replace(server_answer._PAUSES, first_seconds=0.05)
    )
    junit = tmp_path / "gate.xml"
    junit.write_text("of yesterday")
    code, out, err = _gate(
        capsys, asks(request_body), "--server", "http://127.0.0.1:9", "--junit", str(junit)
    )
    assert code == 4
    assert out.startswith("NO VERDICT (infrastructure): no answer from http://127.0.0.1:9")
    assert "asking again" in err
    assert _xml(junit).find(".//error").get("message").startswith("no answer")
    assert (
        _gate(capsys, asks(request_body), "--server", "http://127.0.0.1:9", "--on-infra", "pass")[0]
        == 0
    )


def test_a_job_that_ends_without_a_verdict_is_infrastructure(served, asks, request_body, capsys):
    path = asks(request_body)
    with Client(served) as client:
        reply = client.gate(
            {**request_body, "revision": "r", "max_age_days": 1, "fresh": False}, "k"
        )
        with _following(path, served, "r") as process:
            client.cancel(reply["job"]["id"])
            out, _ = process.communicate(timeout=60)
    assert (process.returncode, f"job {reply['job']['id']} cancelled without a verdict" in out) == (
        4,
        True,
    )


def test_a_job_that_the_server_refuses_is_bad_input(served, asks, request_body, capsys):
    request_body["job"]["layer_policy"] = "some"
    code, _, err = _gate(capsys, asks(request_body), "--server", served)
    assert (code, "layer_policy" in err) == (2, True)


@contextmanager
def _following(path, served, revision):
    words = [
        sys.executable,
        "-m",
        "parity",
        "gate",
        path,
        "--server",
        served,
        "--revision",
        revision,
    ]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            for line in process.stderr:
                if "loss" in line:  # the first line of progress
                    break
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_gate_leaves_the_job_alive(served, asks, request_body, database, number):
    with _following(asks(request_body), served, "r1") as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    with database.read() as session:
        (job,) = session.scalars(select(Job))
    assert (process.returncode, job.status) == (4, "queued"), err
    assert f"follow it: parity watch {job.id}; end it: parity cancel {job.id}" in out
    assert "Traceback" not in err


def test_the_reports(served, judged, register, asks, capsys, tmp_path, monkeypatch):
    register()
    job, request = judged({"nvfp4": 0.3, "mxfp8": 0.0})
    summary, output = tmp_path / "summary", tmp_path / "output"
    output.write_text("before=1\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_OUTPUT", str(output))
    files = {name: tmp_path / f"gate.{name}" for name in ("json", "junit", "markdown")}
    words = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    code, out, _ = _gate(capsys, asks(request), "--revision", "", "--server", served, *words)
    assert code == 1
    assert "FAIL: nvfp4 fails. You may switch to mxfp8." in out
    document = json.loads(files["json"].read_text())
    assert (document["schema"], document["result"], document["exit_code"], document["cached"]) == (
        "parity.gate/1",
        "fail",
        1,
        True,
    )
    assert [verdict["verdict"] for verdict in document["verdicts"]] == ["fail", "pass"]
    assert document["headline"] + "\n" == out
    suites = _xml(files["junit"]).findall("testsuite")
    assert [suite.get("failures") for suite in suites] == ["1", "0"]
    for suite in suites:
        properties = {one.get("name"): one.get("value") for one in suite.iter("property")}
        assert properties["origin"].startswith(f"cached: job {job} concluded")
        assert properties["url"] == f"{served}/jobs/{job}"
    text = files["markdown"].read_text()
    assert text.startswith("### parity: fail\n\ncached: job")
    assert text.count("<details>") == 2
    assert summary.read_text() == text
    values = dict(line.split("=", 1) for line in output.read_text().splitlines())
    assert (values["before"], values["verdict"], values["candidate"], values["cached"]) == (
        "1",
        "fail",
        "nvfp4",
        "true",
    )
    assert values["url"] == f"{served}/jobs/{job}"
    assert float(values["ci_low"]) < float(values["gap_nats"]) < float(values["ci_high"])


def test_a_narrow_fail_is_confirmed_with_one_more_replicate(
    served, judged, register, asks, capsys, database
):
    register()
    narrow, request = judged(NARROW_FAIL, looks=2)
    words = ("--revision", "", "--server", served, "--timeout", "0.3")
    assert _gate(capsys, asks(request), *words)[0] == 1
    code, _, err = _gate(capsys, asks(request, confirm_marginal_fail=True), *words)
    assert (code, "This fail is narrow" in err) == (1, True)
    assert "its fail is narrow and stands unconfirmed: job j" in err
    donor = judged({"mxfp8": 0.0})[0]
    with database.write() as session:
        _, second, passed = session.scalars(select(Job).order_by(Job.id))
        assert passed.id == donor
        assert [len(arm.runs) for arm in second.arms] == [3, 3]
        # The second job ends with the other's verdict, which is a pass.
        second.status, second.finished_at, passed.status = "concluded", time.time(), "cancelled"
        for verdict in passed.verdicts:
            verdict.job_id = second.id
        for run in second.runs:
            run.state, run.manifest = "finished", passed.runs[0].manifest
    code, _, err = _gate(capsys, asks(request, confirm_marginal_fail=True), *words)
    assert (code, f"with one more replicate an arm it looks again at job {narrow}" in err) == (
        0,
        True,
    )


def test_a_clear_fail_is_believed(served, judged, register, asks, capsys, database):
    register()
    _, request = judged(CLEAR_FAIL, looks=2)
    assert (
        _gate(
            capsys, asks(request, confirm_marginal_fail=True), "--revision", "", "--server", served
        )[0]
        == 1
    )
    with database.read() as session:
        assert len(session.scalars(select(Run)).all()) == 4


ESCAPES = "\x1b]8;;http://x\x07 \x1b[2K\x1b[32mPASS\x9b0m \u202eSSAP"


def test_nothing_that_a_terminal_obeys_comes_from_a_server(
    served, judged, register, asks, capsys, database
):
    """A trainer's message, a job's name and a revision reach the log of CI as they would be
    written, not as they would be obeyed.
    """
    register()
    job, request = judged({"nvfp4": 0.0})
    with database.write() as session:
        row = session.get_one(Job, job)
        row.status, row.message = "failed", ESCAPES
    code, out, err = _gate(
        capsys, asks(request), "--revision", "", "--server", served, "--timeout", "0.1"
    )
    for words in (["status", job, "--server", served], ["watch", job, "--server", served]):
        with pytest.raises(SystemExit):
            cli.main(words)
        shown = capsys.readouterr()
        out, err = out + shown.out, err + shown.err
    assert code in (4, 5)
    assert "\\x1b[32mPASS" in out + err
    assert not any(each in out + err for each in "\x1b\x07\x9b\u202e")


def test_a_verdict_file_of_a_pull_request_is_inert_and_has_each_key_once(
    tmp_path, capsys, judged, database
):
    job, _ = judged({"nvfp4": 0.3})
    with database.read() as session:
        document = json.loads(session.get_one(Job, job).verdicts[0].document)
    document["candidate"]["name"] = f"nvfp4{ESCAPES}"
    path = tmp_path / "verdicts.json"
    path.write_text(json.dumps({"verdicts": [document]}))
    code, out, err = _gate(capsys, "--verdicts", str(path))
    assert (code, "\x1b" in out + err) == (1, False)
    path.write_text(
        json.dumps({"verdicts": [document]}).replace(
            '"verdict": "fail"', '"verdict": "fail", "verdict": "pass"'
        )
    )
    code, _, err = _gate(capsys, "--verdicts", str(path))
    assert (code, "twice" in err) == (2, True)


def test_an_answer_names_earlier_answers(
    served, judged, register, asks, capsys, database, tmp_path
):
    register()
    (failed, _), (passed, request) = judged({"nvfp4": 0.3}), judged({"nvfp4": 0.0}, rerun=1)
    with database.write() as session:
        for job_id in (failed, passed):
            session.get_one(Job, job_id).arms[1].asked = "a" * 32
    reports = (
        "--json",
        str(tmp_path / "gate.json"),
        "--markdown",
        str(tmp_path / "gate.md"),
        "--junit",
        str(tmp_path / "gate.xml"),
    )
    code, out, err = _gate(capsys, asks(request), "--revision", "", "--server", served, *reports)
    assert (code, out.startswith("FAIL")) == (1, True)
    assert f"earlier answer: job {passed}: pass" in err
    assert json.loads((tmp_path / "gate.json").read_text())["earlier"][0].startswith(
        f"job {passed}: pass"
    )
    assert all(passed in (tmp_path / name).read_text() for name in ("gate.md", "gate.xml"))
    for job_id, code, said in ((passed, 1, True), (failed, 1, False)):
        with pytest.raises(SystemExit) as ended:
            cli.main(["report", job_id, "--server", served])
        assert (
            ended.value.code,
            f"job {failed} failed the same question" in capsys.readouterr().err,
        ) == (code, said)


def test_a_pinned_job_of_several_candidates_has_no_second_look_at_one(
    judged, database, monkeypatch
):
    """All candidates are pinned, and one that has passed is not looked at again: the narrow fail
    stands unconfirmed.
    """
    job, request = judged({"nvfp4": 0.0, "mxfp8": 0.016}, looks=2)
    with database.read() as session:
        documents = [json.loads(row.document) for row in session.get_one(Job, job).verdicts]
    assert {each["verdict"] for each in documents} == {"pass", "fail"}
    pinned = {
        "repository": "team/model",
        "on_inconclusive": "fail",
        "on_infra": "fail",
        "advisory": False,
    }
    first = GateOutcome(result="fail", revision="", verdicts=documents, pinned=pinned, job=job)
    asked = []
    monkeypatch.setattr(
        narrow_fail,
        "verdict_for",
        lambda _client, question, _progress: asked.append(question) or first,
    )
    question = server_answer.GateQuestion(
        file="parity.yaml", body=request, lookup=False, asked_at=0.0, timeout_seconds=None
    )
    rules = GateRules(confirm_marginal_fail=True)
    outcome = narrow_fail.verdict_with_second_look(None, question, rules, Console(quiet=True))
    assert (len(asked), outcome.result, "pinned all candidates" in outcome.unconfirmed) == (
        1,
        "fail",
        True,
    )
