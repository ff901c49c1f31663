"""`parity baseline …`, and what the other verbs say of a baseline that was not trained again,
against a real server.
"""

import json
import shlex

import jsonschema
import numpy as np
import pytest
import yaml
from pydantic import TypeAdapter

from parity import cli
from parity.client.rest import Client
from server.api.service.job_schema import job_file_schema
from server.database.metrics import store
from server.database.tables import Job
from server.jobs.conclude import conclude
from server.settings import CHECKOUT
from tests.documentation import run_by
from tests.parity.cli.schemas import check
from training.spec import JobSpec


@pytest.fixture
def parity(served, capsys, monkeypatch):
    """A function that runs the command line; the exit code, what it printed, and what it said
    beside.
    """
    for name in ("GITHUB_SHA", "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        monkeypatch.delenv(name, raising=False)

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, "--server", served])
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


def _finish(database, job_id, *, gap):
    """Train a job's queued runs on paper: the baseline's curve, a constant and noise of each run's
    own.
    """
    with database.write() as session:
        job = session.get_one(Job, job_id)
        source = job.runs[0]
        steps, columns = store.read(session, source.id, "train")
        for number, run in enumerate(run for run in job.runs if run.state == "queued"):
            noise = np.random.default_rng(100 + number).normal(0.001 * number, 0.01, len(steps))
            store.append(
                session,
                run.id,
                "train",
                1,
                steps,
                columns | {"lm_loss": columns["lm_loss"] + gap + noise},
            )
            run.state, run.attempt_number, run.steps_done, run.manifest = (
                "finished",
                1,
                len(steps),
                source.manifest,
            )
    conclude(database, job_id)


def test_a_baseline_from_its_promotion_to_its_end(
    parity, judged, register, tmp_path, database, served
):
    register()
    first, request = judged({"mxfp8": 0.0}, verdict=False)
    reruns, _ = judged({"mxfp8": 0.0}, verdict=False, rerun=1)
    assert parity("baseline", "list")[1] == ""
    assert "no baseline yet" in parity("baseline", "list")[2]

    code, output, _ = parity(
        "baseline", "promote", "fp8", first, "--reason", "release 1", "--days", "90"
    )
    assert (code, output.split(":")[0]) == (0, "fp8@1")
    assert f"2 runs of job {first}, 0 controls; expires 20" in output
    assert "reruns differ by" in output
    assert "promoted by this machine: release 1" in output
    code, _, err = parity("baseline", "promote", "fp8", first, "--reason", "again")
    assert (code, "these runs already are fp8 version 1" in err) == (2, True)
    assert parity("baseline", "promote", "fp8", first)[0] == 2  # without a reason
    output = parity("baseline", "control", "fp8", reruns, "--reason", "an A/A pair")[1]
    assert "2 controls" in output
    assert output.count("control replicate") == 2
    assert "3 degrees of freedom" in output
    document = json.loads(parity("baseline", "show", "fp8@1", "--json")[1])
    check("baseline", document)
    assert document["audit"][1]["reason"] == "an A/A pair"
    check("baseline-list", json.loads(parity("baseline", "list", "--json")[1]))
    (row,) = parity("baseline", "list")[1].splitlines()
    assert row.split("\t")[:3] == ["fp8@1", "fp8_current", "2 + 2"]

    job_file = tmp_path / "parity.yaml"
    job_file.write_text(yaml.safe_dump(request | {"baseline": {"name": "fp8"}}))
    job = parity("submit", str(job_file))[1].split()[0]
    output = parity("status", job)[1]
    assert "against baseline fp8 version 1, promoted by this machine, 2 controls" in output
    assert (
        f"fp8_current replicate 1 is reused: run r{output.rpartition('run r')[2].split()[0]} of "
        f"job {first}, trained " in output
    )
    _finish(database, job, gap=0.0)
    code, output, _ = parity("report", job, "-v")
    assert "baseline reused" in output
    assert (code, "PASS" in output) == (0, True), output
    assert "reused: fp8_current replicate 0: trained as run" in " ".join(output.split())
    assert "controls" in output
    code, _, err = parity("gate", str(job_file), "--revision", "")
    assert (code, "cached" in err) == (0, True)
    assert (
        "baseline fp8_current: 2 of 2 curves of fp8 version 1, promoted by this machine, reused, "
        "trained " in " ".join(err.split())
    )

    assert parity("baseline", "diff", "fp8@1", job)[0] == 0
    other, _ = judged({"mxfp8": 0.0}, verdict=False, steps=1400)
    check("baseline-diff", json.loads(parity("baseline", "diff", "fp8", other, "--json")[1]))
    code, output, _ = parity("baseline", "diff", "fp8", other)
    assert (code, output.splitlines()[1].split()) == (1, ["schedule.steps", "1500", "1400"])

    assert parity("baseline", "expire", "fp8", "--reason", "wrong data")[0] == 2
    assert "expired 20" in parity("baseline", "expire", "fp8@1", "--reason", "wrong data")[1]
    code, _, err = parity("submit", str(job_file))
    assert (code, "fp8 version 1 expired on" in err) == (2, True)
    for which in ("nobody", "@1", "fp8@x"):
        assert parity("baseline", "show", which)[0] == 2

    request["policy"]["looks"] = 3  # one for each of these submissions
    job_file.write_text(yaml.safe_dump(request))
    with Client(served) as client:
        assert (
            client.job(parity("submit", str(job_file), "--no-reuse")[1].split()[0])["reuse"]
            is False
        )
        job_file.write_text(yaml.safe_dump(request | {"baseline": {"reuse": False}}))
        assert client.job(parity("submit", str(job_file))[1].split()[0])["reuse"] is False
        assert client.job(parity("submit", str(job_file), "--reuse")[1].split()[0])["reuse"] is True
    job_file.write_text(yaml.safe_dump(request | {"baseline": "fp8"}))
    assert "expected a mapping such as baseline: {name: fp8}" in parity("submit", str(job_file))[2]


def test_a_narrow_fail_against_a_named_baseline_asks_for_candidates_alone(
    parity, judged, register, tmp_path, database, served
):
    register()
    first, request = judged({"mxfp8": 0.0}, verdict=False)
    parity("baseline", "promote", "fp8", first, "--reason", "release 1")
    job_file = tmp_path / "parity.yaml"
    request["policy"]["looks"] = 2
    content = request | {
        "baseline": {"name": "fp8"},
        "gate": {"confirm_marginal_fail": True, "timeout_seconds": 0.1},
    }
    job_file.write_text(yaml.safe_dump(content))
    assert parity("gate", str(job_file), "--revision", "")[0] == 5
    with Client(served) as client:
        (job, _) = client.jobs()["items"]
        _finish(database, job["id"], gap=0.0192)
        code, _, err = parity("gate", str(job_file), "--revision", "")
        assert code == 1, err
        assert "its fail is narrow and stands unconfirmed" in err
        second = client.job(client.jobs()["items"][0]["id"])
        assert [len(arm["runs"]) for arm in second["arms"]] == [2, 3]
        assert all(run["reused"] for run in second["arms"][0]["runs"])


def test_the_commands_and_files_of_the_page(parity, judged, database):
    ids = {
        name: judged({"mxfp8": 0.0}, verdict=False, rerun=rerun)[0]
        for rerun, name in enumerate(("JOB", "RERUNS", "OTHER"))
    }
    lines = [line for block in run_by("docs/jobs.md", __file__) for line in block.commands]
    assert len(lines) == 6
    lines.append(lines.pop(4))  # the page ends a version before it speaks of controls
    for line in lines:
        program, *words = [
            ids.get(word.removeprefix("$"), word) for word in shlex.split(line, comments=True)
        ]
        assert program == "parity"
        code, output, err = parity(*words)
        assert (code, bool(output)) == (0, True), (line, err)
    schema = job_file_schema()
    demo = yaml.safe_load((CHECKOUT / "examples" / "demo.yaml").read_text())
    files = [yaml.safe_load(block.text) for block in run_by("docs/jobs.md", __file__, "yaml")]
    assert len(files) == 3
    for content in files:
        jsonschema.validate(demo | content | {"job": demo["job"] | content.get("job", {})}, schema)
    TypeAdapter(JobSpec).validate_python(demo["job"] | files[-1]["job"])
    for wrong in ({"name": "-x"}, {"version": 0}, {"verison": 1}, {"reuse": "no"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(demo | {"baseline": wrong}, schema)
