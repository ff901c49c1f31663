"""action.yml's steps as a runner takes them, against a real server and a local fake of the GitHub
calls that it makes.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import select

from parity.cli.gate import report
from parity.client.rest import Client
from parity.gate.outcome import GateOutcome
from parity.gate.rules import GateRules
from server.database.tables import Job
from server.settings import CHECKOUT

ACTION = yaml.safe_load((CHECKOUT / "action.yml").read_text())


class FakeGitHub(ThreadingHTTPServer):
    """Checks and comments as GitHub's REST API keeps them; `may_write` False is the token of a
    fork.
    """

    def __init__(self, login=None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.may_write, self.login = True, login
        self.checks, self.comments, self.refused, self.rewritten = {}, [], [], 0

    def comment(self, body, login="github-actions[bot]", kind="Bot"):
        self.comments.append(
            {"id": len(self.comments) + 1, "body": body, "user": {"login": login, "type": kind}}
        )
        return self.comments[-1]


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_words):
        """Nothing: a test's output is its own."""

    def _answer(self, status, content):
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _body(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _serve(self):
        hub: Any = self.server
        path = self.path.removeprefix("/repos/me/model")
        if self.headers["Authorization"] != "Bearer secret":
            return self._answer(401, {"message": "Bad credentials"})
        if self.command == "GET" and self.path == "/user":
            return (
                self._answer(200, {"login": hub.login})
                if hub.login
                else self._answer(403, {"message": "not by integration"})
            )
        if self.command == "GET":
            page = int(re.fullmatch(r"/issues/7/comments\?per_page=100&page=(\d+)", path)[1])
            return self._answer(200, hub.comments[100 * (page - 1) : 100 * page])
        body = self._body()
        if not hub.may_write:
            hub.refused.append(path)
            return self._answer(403, {"message": "Resource not accessible by integration"})
        if (self.command, path) == ("POST", "/check-runs"):
            hub.checks[len(hub.checks) + 1] = body
            return self._answer(201, {"id": len(hub.checks)})
        if self.command == "PATCH" and path.startswith("/check-runs/"):
            hub.checks[int(path.rpartition("/")[2])] |= body
            return self._answer(200, {})
        if len(body["body"]) > 65_536:
            return self._answer(422, {"message": "body is too long"})
        if (self.command, path) == ("POST", "/issues/7/comments"):
            return self._answer(201, hub.comment(body["body"], hub.login or "github-actions[bot]"))
        hub.comments[int(path.removeprefix("/issues/comments/")) - 1]["body"] = body["body"]
        hub.rewritten += 1
        return self._answer(200, {})

    do_GET = do_POST = do_PATCH = _serve  # noqa: N815


@pytest.fixture
def github():
    hub = FakeGitHub()
    thread = threading.Thread(target=hub.serve_forever)
    thread.start()
    yield hub
    hub.shutdown()
    thread.join()
    hub.server_close()


@pytest.fixture
def act(github, tmp_path):
    """A function that runs every step but `install` as a runner does; returns the exit code, the
    log and the action's outputs.
    """
    (tmp_path / "runner").mkdir()
    (tmp_path / "runner" / "parity").symlink_to(Path(sys.prefix))
    (tmp_path / "event.json").write_text(
        json.dumps({"pull_request": {"number": 7, "head": {"sha": "headsha"}}})
    )
    github_sets = {
        "GITHUB_ACTION_PATH": str(CHECKOUT),
        "GITHUB_API_URL": f"http://127.0.0.1:{github.server_address[1]}",
        "GITHUB_REPOSITORY": "me/model",
        "GITHUB_SHA": "mergesha",
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "RUNNER_TEMP": str(tmp_path / "runner"),
    }
    event = {"github.event.pull_request.number": 7}
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GITHUB_", "PARITY_", "GATE_"))
    }

    def run(meanwhile=None, **inputs):
        values = event | {
            f"inputs.{name}": declared.get("default", "")
            for name, declared in ACTION["inputs"].items()
        }
        values |= {
            f"inputs.{name.replace('_', '-')}": value
            for name, value in {"github_token": "secret", **inputs}.items()
        }
        failed, log = 0, ""
        for step in ACTION["runs"]["steps"]:
            if step["id"] == "install" or (failed and step.get("if") != "always()"):
                continue
            output = tmp_path / "output"
            output.write_text("")
            own = {name: _filled(text, values) for name, text in step.get("env", {}).items()}
            environment = kept | github_sets | {"GITHUB_OUTPUT": str(output)} | own
            assert "${{" not in step["run"], (
                "an expression in a script is a way in for whoever writes its value"
            )
            words = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
            with subprocess.Popen(
                words,
                env=environment,
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as shell:
                if step["id"] == "gate" and meanwhile:
                    meanwhile(shell)
                log += shell.communicate(timeout=120)[0]
            failed = failed or shell.returncode
            values |= {
                f"steps.{step['id']}.outputs.{line.split('=', 1)[0]}": line.split("=", 1)[1]
                for line in output.read_text().splitlines()
            }
        return (
            failed,
            log,
            {name: _filled(output["value"], values) for name, output in ACTION["outputs"].items()},
        )

    return run


def _filled(text, values):
    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda match: str(values.get(match[1], "")), text)


@pytest.fixture
def file(tmp_path):
    """A function that writes the job file of a request."""

    def write(request):
        path = tmp_path / "parity.yaml"
        path.write_text(yaml.safe_dump(request))
        return str(path)

    return write


def test_a_fail_is_a_failed_check_and_one_comment_that_stays_one(
    served, judged, register, github, act, file
):
    register()
    job, request = judged({"nvfp4": 0.3})
    forged = github.comment(
        "<!-- parity gate: parity gate -->\nPASS, says somebody", login="eve", kind="User"
    )["body"]
    for _ in range(101):
        github.comment("talk", login="x", kind="User")
    for _ in range(2):
        code, log, outputs = act(file=file(request), server=served, options="--revision=")
        assert code == 1, log
    assert outputs["verdict"] == "fail"
    assert outputs["url"] == f"{served}/jobs/{job}"
    check = github.checks[2]
    assert (check["head_sha"], check["status"], check["conclusion"]) == (
        "headsha",
        "completed",
        "failure",
    )
    assert check["output"]["title"].startswith("FAIL: Do not switch to nvfp4.")
    assert check["details_url"] == outputs["url"]
    own = [comment for comment in github.comments if comment["user"]["type"] == "Bot"]
    assert len(own) == 1
    assert re.match(
        r"<!-- parity gate: parity gate --><!-- [0-9a-f]{32} -->\n### parity: fail", own[0]["body"]
    )
    assert github.comments[0]["body"] == forged


def test_a_comment_is_rewritten_when_more_has_changed_than_an_age(
    served, judged, register, github, act, file
):
    register()
    _, request = judged({"nvfp4": 0.3})
    for options, rewritten in (("", 0), ("", 0), ("--advisory", 1)):
        act(file=file(request), server=served, options=f"--revision= {options}")
        assert (len(github.comments), github.rewritten) == (1, rewritten)
    assert "advisory: the exit code is 0" in github.comments[0]["body"]


def test_ages_alone_are_nothing_new():
    module_spec = importlib.util.spec_from_file_location("github", CHECKOUT / "ci" / "github.py")
    script = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(script)
    gate = report.document(
        GateOutcome(
            result="infrastructure", revision="r", trouble="", job="j1", reused="trained 2 days ago"
        ),
        GateRules(),
    )
    older = {
        "age_seconds": 9e5,
        "origin": "cached: job j1 concluded 10.4 days ago",
        "reused": "trained 12 days ago",
    }
    assert script.digest(gate | older) == script.digest(gate)
    others = [key for key in gate if key not in older]
    assert (
        len({script.digest(gate | {key: "changed"}) for key in others} | {script.digest(gate)})
        == len(others) + 1
    )


@pytest.mark.parametrize(
    ("options", "code", "conclusion"), [("--advisory", 0, "neutral"), ("", 5, "timed_out")]
)
def test_a_job_that_is_not_decided_in_time(
    served, github, act, file, request_body, options, code, conclusion
):
    status, log, outputs = act(
        file=file(request_body), server=served, options=f"--timeout 0.2 {options}", revision="tree1"
    )
    assert (status, outputs["verdict"], outputs["exit_code"]) == (code, "timeout", str(code)), log
    assert github.checks[1]["conclusion"] == conclusion
    assert "revision `tree1`" in github.comments[0]["body"]


def test_a_token_that_may_only_read_leaves_the_summary(
    served, github, act, file, request_body, tmp_path
):
    github.may_write = False
    code, log, _ = act(file=file(request_body), server=served, options="--timeout 0.2")
    assert code == 5
    assert (tmp_path / "summary").read_text().startswith("### parity: timeout")
    assert github.refused == ["/check-runs", "/issues/7/comments"]
    assert log.count("::notice::parity:") == 2
    assert (github.checks, github.comments) == ({}, [])


def test_a_cancelled_workflow_says_how_to_follow_the_job(served, github, act, file, request_body):
    def cancel(shell):
        for line in shell.stdout:
            if "loss" in line:  # the first line of progress
                shell.terminate()
                return

    code, log, _ = act(meanwhile=cancel, file=file(request_body), server=served)
    assert (code, "follow it: parity watch j" in log) == (4, True), log
    assert github.checks[1]["conclusion"] == "failure"
    with Client(served) as client:
        assert [job["status"] for job in client.jobs()["items"]] == ["queued"]


def test_files_are_compared_without_a_server(github, act):
    curves = CHECKOUT / "examples" / "curves"
    words = (
        f"fp8={curves}/fp8.csv mxfp8={curves}/mxfp8.csv --recipe fp8=fp8_current --recipe "
        "mxfp8=mxfp8 --planned-steps 1500 --margin 1%"
    )
    code, log, outputs = act(compare=words)
    assert (code, outputs["verdict"], outputs["url"]) == (0, "pass", ""), log
    assert github.checks[1]["conclusion"] == "success"
    assert "judged from files, without a server" in github.comments[0]["body"]
    code, log, outputs = act(
        compare=words.replace("--margin 1%", "\n--margin never\n"), options="--quiet\n--advisory\n"
    )
    assert (code, outputs["verdict"]) == (2, ""), log
    assert act()[0] == 2, "neither a server nor files"


@pytest.mark.parametrize(
    ("run", "code", "answer", "conclusion"),
    [("new", 0, "numerics only", "success"), ("worse", 1, "worse", "failure")],
)
def test_a_run_is_checked_against_its_golden(github, act, tmp_path, run, code, answer, conclusion):
    runs = CHECKOUT / "examples" / "golden"
    golden = str(tmp_path / "a.golden.jsonl")
    words = [f"{sys.prefix}/bin/parity", "golden", "update", golden, str(runs / "old.csv")]
    subprocess.run([*words, "--recipe", "bf16"], check=True, capture_output=True)
    status, log, outputs = act(golden=f"{runs}/{run}.csv\n{golden}\n", name="golden")
    assert (status, outputs["answer"], outputs["exit_code"]) == (code, answer, str(code)), log
    assert github.checks[1]["conclusion"] == conclusion
    assert answer.upper() in github.checks[1]["output"]["title"]
    assert github.comments[0]["body"].startswith("<!-- parity gate: golden -->")
    assert (tmp_path / "summary").read_text().startswith("### ")
    assert answer.upper() in log


def test_a_golden_that_is_not_there_ends_without_a_report(github, act):
    assert act(golden="run.csv missing.golden.jsonl")[0] == 2
    assert github.checks[1]["output"]["title"] == "no report"


def test_a_newer_commit_of_the_pull_request_supersedes_the_older_ones_job(
    served, act, file, request_body, database
):
    file(request_body)
    for revision in ("r1", "r2"):
        assert act(server=served, revision=revision, options="--timeout 0.2")[0] == 5
    assert (
        act(server=served, revision="r3", options="--advisory\n--lookup\n")[2]["verdict"]
        == "unrecorded"
    )
    with database.read() as session:
        assert [job.status for job in session.scalars(select(Job).order_by(Job.id))] == [
            "cancelled",
            "queued",
        ]


def test_bad_input_completes_the_check_and_leaves_no_comment(github, act, tmp_path):
    code, log, outputs = act(file=str(tmp_path / "nowhere.yaml"), server="http://127.0.0.1:9")
    assert (code, outputs["verdict"], "cannot be read" in log) == (2, "", True)
    assert github.checks[1]["conclusion"] == "failure"
    assert github.comments == []


def test_a_gate_that_was_killed_is_a_cancelled_check(github, act, tmp_path, monkeypatch):
    (gate,) = [step for step in ACTION["runs"]["steps"] if step["id"] == "gate"]
    monkeypatch.setitem(gate, "run", "kill -KILL $$")
    assert act(file="f", server="http://127.0.0.1:9")[0] != 0
    assert github.checks[1]["conclusion"] == "cancelled"


def test_the_wheel_holds_the_judge_and_the_commands_alone(tmp_path):
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(words, cwd=CHECKOUT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = [name for name in opened.namelist() if ".dist-info/" not in name]
    assert {name.split("/")[0] for name in names} == {"parity", "parity_lab"}
    assert not [
        name for name in names if name.startswith(("parity_lab/server", "parity_lab/training"))
    ]
