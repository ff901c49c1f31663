"""examples/ci/github-command.yml on a stack of its own: its steps, as a runner takes them, in a
clone of a pull request's repository.
"""

import contextlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from parity.client.rest import Client
from server import tokens
from server.settings import CHECKOUT

ACTION = yaml.safe_load((CHECKOUT / "action.yml").read_text(encoding="utf-8"))
WORKFLOW = yaml.safe_load(
    (CHECKOUT / "examples" / "ci" / "github-command.yml").read_text(encoding="utf-8")
)
JOB = """\
job:
  name: pull-request
  engine: command
  command: {launcher: loop}
  schedule: {steps: 400, warmup_steps: 0}
  baseline: {recipe: bf16, revision: base, name: base}
  candidates: [{recipe: bf16, revision: head, name: head}]
policy: {margin: "1%"}
"""
RULES = (
    '[repository."team/model"]\nmargin = "1%"\nlauncher = "loop"\nsteps = 400\njob = '
    '"model.yaml"\nquestions = ["revision"]\n'
)


@pytest.fixture
def stack(tmp_path_factory, repository, base, write_launchers):
    """The address of a stack that `PARITY_LAUNCHERS` gave launchers, and a token of the
    repository.
    """
    state = tmp_path_factory.mktemp("s")
    (state / "jax-cache").symlink_to(os.environ["JAX_COMPILATION_CACHE_DIR"])
    rules = state / "rules.toml"
    rules.write_text(RULES, encoding="utf-8")
    (state / "model.yaml").write_text(JOB, encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("PARITY_")
    }
    settings = {
        "STATE_DIR": state,
        "PORT": port,
        "LAUNCHERS": write_launchers(),
        "GATE_RULES": rules,
        "REQUIRE_TOKENS": "true",
    }
    environment = (
        inherited
        | {f"PARITY_{name}": str(value) for name, value in settings.items()}
        | {"PARITY_FLUSH_SECONDS": "0.2", "NO_COLOR": "1"}
    )
    serve = [sys.executable, "-m", "workers.standalone", "serve"]
    with subprocess.Popen(
        serve,
        cwd=CHECKOUT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        for line in process.stdout:
            if "parity is up" in line:
                break
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(io.StringIO()) as made,
        ):
            patch.setenv("PARITY_STATE_DIR", str(state))
            assert (
                tokens.main(["create", "ci", "--scope", "submit", "--repository", "team/model"])
                == 0
            )
        yield f"http://127.0.0.1:{port}", made.getvalue().strip()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, out


@pytest.fixture
def pull_request(stack, repository, base, tmp_path):
    """A function that runs the workflow for a branch; the exit code, the action's outputs and the
    job.
    """
    address, token = stack
    (step,) = [
        step
        for step in WORKFLOW["jobs"]["gate"]["steps"]
        if step["uses"].startswith("OWNER/parity@")
    ]
    inputs = step["with"]
    assert {*inputs} <= {*ACTION["inputs"]}
    assert "secrets.PARITY_TOKEN" in inputs["token"]

    def run(head):
        clone, runner = tmp_path / f"clone-{head}", tmp_path / f"runner-{head}"
        subprocess.run(
            ["git", "clone", "--quiet", str(repository.path), str(clone)],
            check=True,
            capture_output=True,
        )
        subprocess.run(
            ["git", "checkout", "--quiet", head], cwd=clone, check=True, capture_output=True
        )
        runner.mkdir()
        (runner / "parity").symlink_to(Path(sys.prefix))
        event = {"pull_request": {"number": 7, "base": {"sha": base}, "head": {"sha": head}}}
        (runner / "event.json").write_text(json.dumps(event))
        variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GITHUB_", "PARITY_", "GATE_"))
        }
        variables |= {
            "GITHUB_ACTION_PATH": str(CHECKOUT),
            "GITHUB_API_URL": "http://127.0.0.1:9",
            "GITHUB_REPOSITORY": "team/model",
        }
        variables |= {
            "GITHUB_SHA": "d" * 40,
            "GITHUB_EVENT_PATH": str(runner / "event.json"),
            "RUNNER_TEMP": str(runner),
        }
        variables |= {"GITHUB_STEP_SUMMARY": str(runner / "summary")}
        values = {
            f"inputs.{name}": declared.get("default", "")
            for name, declared in ACTION["inputs"].items()
        }
        values |= {
            f"inputs.{name}": value
            for name, value in {
                **inputs,
                "server": address,
                "token": token,
                "github-token": "none",
            }.items()
        }
        values["github.event.pull_request.number"] = "7"
        failed, log = 0, ""
        for action_step in ACTION["runs"]["steps"]:
            if action_step["id"] == "install" or (failed and action_step.get("if") != "always()"):
                continue
            output = runner / "output"
            output.write_text("")
            step_variables = {
                name: _filled(text, values) for name, text in action_step.get("env", {}).items()
            }
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", action_step["run"]],
                env=variables | {"GITHUB_OUTPUT": str(output)} | step_variables,
                cwd=clone,
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            log += done.stdout
            failed = failed or done.returncode
            pairs = (line.partition("=") for line in output.read_text().splitlines())
            values |= {
                f"steps.{action_step['id']}.outputs.{name}": value for name, _, value in pairs
            }
        outputs = {
            name: _filled(declared["value"], values) for name, declared in ACTION["outputs"].items()
        }
        with Client(address, token) as client:
            return failed, outputs, client.job(outputs["job"]) if outputs["job"] else None, log

    return run


def _filled(text, values):
    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda match: str(values.get(match[1], "")), text)


def test_a_pull_request_is_stopped_by_what_it_breaks_and_trains_nothing_where_it_changes_none(
    repository, base, stack, pull_request
):
    loop = (repository.path / "train/loop.py").read_text(encoding="utf-8")
    repository.commit({"parity.yaml": JOB}, "change", base)
    readme = repository.commit({"README.md": "changed"}, "change")
    broken = repository.commit(
        {"train/loop.py": loop.replace("SKIPPED = 1", "SKIPPED = 4")}, "change"
    )
    crashed = repository.commit({"train/loop.py": "raise SystemExit('broken trainer')"}, "change")
    loosened = repository.commit(
        {"train/loop.py": loop, "parity.yaml": JOB.replace("1%", "50%")}, "change"
    )
    elsewhere = repository.commit(
        {
            "train/loop.py": "raise SystemExit(1)",
            "parity.yaml": JOB.replace("revision: head", f"revision: {readme}"),
        },
        "change",
    )

    code, outputs, job, log = pull_request(broken)
    assert (code, outputs["verdict"], outputs["exit_code"]) == (1, "fail", "1"), log
    assert float(outputs["ci_low"]) > float(outputs["margin_nats"])
    assert job["arms"][1]["runs"][0]["manifest"]["code_revision"] == broken

    code, outputs, job, log = pull_request(readme)
    assert (code, outputs["verdict"], outputs["exit_code"]) == (0, "pass", "0"), log
    runs = [run for arm in job["arms"] for run in arm["runs"]]
    assert [run["reused"] is not None for run in runs] == [True, True]
    assert job["verdicts"][0]["codes"][0] == "IDENTICAL"

    code, outputs, job, log = pull_request(crashed)
    assert (code, outputs["verdict"], job["status"]) == (1, "fail", "failed"), log

    code, outputs, job, log = pull_request(loosened)
    assert (code, job, "at most 1 %" in log) == (2, None, True), log

    code, outputs, job, log = pull_request(elsewhere)
    assert (code, elsewhere in log) == (2, True), log
