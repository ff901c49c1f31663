"""The commands that a gate and a job's page print as the next step are run as printed, against a
real server.
"""

import html
import os
import re
import shlex
from typing import Any

import httpx2
import numpy as np
import pytest
import yaml

import parity
from parity import cli
from parity.client.rest import Client
from parity.client.whole_run import send_run
from parity.judging.curves.curve import curve_from_arrays
from server.database.tables import Job

STEPS = 500


@pytest.fixture(autouse=True)
def no_ci(monkeypatch, served):
    """Whatever runs these tests is not the CI that is played here; the server is configured once,
    as where the commands are typed.
    """
    for name in [name for name in os.environ if name.startswith(("GITHUB_", "PARITY_", "CI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PARITY_URL", served)


@pytest.fixture
def typed(capsys):
    """A function that types a command: its exit code, and all that it printed."""

    def run(*words):
        with pytest.raises(SystemExit) as left:
            cli.main([*words])
        captured = capsys.readouterr()
        return left.value.code, captured.out + captured.err

    return run


@pytest.fixture
def asks(tmp_path):
    """A function that writes parity.yaml and returns its path."""

    def write(request):
        path = tmp_path / "parity.yaml"
        path.write_text(yaml.safe_dump(request))
        return str(path)

    return write


def printed(text, command):
    """The words of a command in a text, from its name up to the end of its sentence."""
    found = re.search(rf"parity ({command}[^`;\n]*?)(?:\.?$|\.? *\n|[;`]|\. )", text, re.MULTILINE)
    assert found, text
    return shlex.split(found[1])


def statuses(database):
    with database.read() as session:
        return {job.id: job.status for job in session.query(Job)}


def test_what_was_not_judged_is_trained_by_the_command_that_a_lookup_prints(
    typed, asks, judged, register, database
):
    register()
    _, request = judged({"mxfp8": 0.0})
    code, said = typed("gate", asks(request), "--lookup", "--revision", "r2")
    assert code == 7
    words = printed(said, "gate")
    assert words == ["gate", asks(request), "--revision", "r2"]
    code, said = typed(*words, "--timeout", "0.5")
    assert code == 5, said
    assert sorted(statuses(database).values()) == ["concluded", "queued"]


def test_a_gate_that_waits_too_long_leaves_a_job_that_the_printed_commands_follow_and_end(
    typed, asks, request_body, database
):
    _, said = typed("gate", asks(request_body), "--revision", "r1", "--timeout", "0.5")
    (job,) = statuses(database)
    assert job in said
    assert typed("cancel", job)[0] == 0
    assert statuses(database) == {job: "cancelled"}
    assert typed("watch", job)[0] != 0  # it ends, and there is no verdict


def _losses(arm, replicate):
    """A run's losses (STEPS,) and learning rates."""
    steps = np.arange(STEPS)
    batch = np.random.default_rng(1).normal(0.0, 0.05, STEPS)
    own = np.random.default_rng([replicate, *arm.encode()]).normal(0.0, 0.004, STEPS)
    losses = 2.0 + 3.0 * np.exp(-steps / 50) + batch + own
    return losses, 1e-3 * 0.5 * (1 + np.cos(np.pi * (steps + 1) / STEPS))


@pytest.mark.parametrize(("gap", "code"), [(0.3, 1), (0.015, 3)], ids=["fail", "open"])
def test_a_question_whose_looks_are_used_is_asked_again_after_the_printed_command(
    gap, code, typed, asks, served, database, ended
):
    """An open one has the runs that its verdict asks for, in a new question."""
    arms = [{"recipe": recipe, "replicates": 1} for recipe in ("fp8_current", "mxfp8")]
    job = {"name": "mine", "engine": "external", "schedule": {"steps": STEPS}}
    request: Any = {"job": {**job, "baseline": arms[0], "candidates": [arms[1]]}}
    request["policy"] = {"margin": "1%"}
    gate = ("gate", asks(request), "--revision", "r1", "--timeout", "0.5")
    assert typed(*gate)[0] == 5
    (first,) = statuses(database)
    with Client(served) as client:
        for arm, worse in zip(client.job(first)["arms"], (0.0, gap), strict=True):
            losses, rates = _losses(arm["name"], 0)
            columns = {"learning_rate": rates}
            curve = curve_from_arrays(np.arange(STEPS), losses + worse, columns=columns)
            (run,) = arm["runs"]
            assert send_run(client, run["id"], curve, {"device_class": "h100"}, None) is None
    with httpx2.Client(base_url=served, timeout=60) as raw:
        ended(raw, first)
    left, said = typed(*gate)
    assert left == code, said
    if code == 3:
        asked = re.search(r"has (\d+) more mxfp8 runs? and (\d+) more", said)
        assert asked, said
        request["job"]["candidates"][0]["replicates"] += int(asked[1])
        request["job"]["baseline"]["replicates"] += int(asked[2])
        asks(request)
    left, said = typed(*gate, "--fresh")
    assert left == 2, said
    words = printed(said, "new-question")
    named = {"TEXT": "node 7 computed wrong sums", "JOB": first}
    left, said = typed(*(named.get(word, word) for word in words))
    assert left == 0, said
    left, said = typed(*gate, "--fresh")
    assert left == 5, said
    assert sorted(statuses(database).values()) == ["concluded", "queued"]


def _train(served, folder, arm):
    losses, rates = _losses(arm, 0)
    with parity.Run(
        project="mine",
        arm=arm,
        recipe=arm,
        seed=1,
        server=served,
        folder=folder,
        strict=True,
        planned_steps=STEPS,
        flush_seconds=0.02,
        finish_seconds=60.0,
    ) as run:
        for step in range(STEPS):
            run.log(step, loss=losses[step], learning_rate=rates[step])


def test_an_open_project_is_judged_and_concluded_by_the_commands_on_its_page(
    typed, served, tmp_path, database
):
    for arm in ("fp8_current", "nvfp4"):
        _train(served, tmp_path, arm)
    (job,) = statuses(database)
    with Client(served) as client:
        page = httpx2.get(client.page(job), timeout=60).text
    shown = re.search(r'class="next"[^>]*>(.*?)</section>', page, re.DOTALL)
    assert shown
    step = html.unescape(re.sub(r"<[^>]+>", "", shown[1]))
    commands = re.findall(r"parity (runs \w+ [^\s;,.]+)", step)
    assert [command.split()[1] for command in commands] == ["judge", "conclude"]
    codes = [typed(*command.split())[0] for command in commands]
    assert statuses(database) == {job: "concluded"}
    with Client(served) as client:
        (verdict,) = client.job(job)["verdicts"]
    assert codes == [{"pass": 0, "fail": 1, "inconclusive": 3}[verdict["verdict"]]] * 2
