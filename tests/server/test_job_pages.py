"""Lines of docs/jobs.md, and the sign-off of docs/gate.md, against one server with a record."""

import json
import shlex
import time

import jsonschema
import pytest
import yaml

from parity import cli
from server import tokens
from server.api.service.job_schema import job_file_schema
from server.database.tables import Baseline, Job
from tests.documentation import run_by


@pytest.fixture
def run(tmp_path, served, database, judged, register, monkeypatch, capsys):
    """A function that runs a line of a page, JOB being the newest job; its exit code and what it
    printed.
    """
    for name in ("GITHUB_SHA", "GITHUB_HEAD_REF", "GITHUB_REF_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARITY_URL", served)
    monkeypatch.setenv("PARITY_DATABASE_URL", database.url)
    register()
    jobs = []
    for number in range(2):
        job, request = judged({"nvfp4": 0.013}, rerun=number)
        with database.write() as session:
            row = session.get_one(Job, job)
            row.branch = "main"
            jobs.append(job)
            if number == 0:  # the newer one is that of the gate
                row.name, row.config_hash, row.revision = "nightly", None, "r0"
                session.add(
                    Baseline(
                        id="b1",
                        name="llama3-fp8",
                        version=1,
                        recipe="bf16",
                        engine="emulated",
                        created_at=0.0,
                    )
                )
                session.flush()
                row.baseline_id = "b1"
        time.sleep(0.002)
    (tmp_path / "parity.yaml").write_text(yaml.safe_dump(request | {"tags": ["nightly"]}))
    (tmp_path / "change.yaml").write_text(run_by("docs/jobs.md", __file__, "yaml")[1].text)

    def line(text):
        words = [{"JOB": jobs[-1]}.get(word, word) for word in shlex.split(text, comments=True)]
        if words[0] == "python":
            return tokens.main(words[3:]), "".join(capsys.readouterr())
        with pytest.raises(SystemExit) as ended:
            cli.main(words[1:])
        return ended.value.code, "".join(capsys.readouterr())

    return line


@pytest.mark.parametrize("page", ["docs/jobs.md", "docs/gate.md"])
def test_every_line_of_the_page_runs(run, page):
    outputs = {}
    for block in run_by(page, __file__):
        for line in block.commands:
            code, outputs[line.partition("#")[0].strip()] = run(line)
            assert code == 0, (line, outputs)
    if page == "docs/gate.md":
        assert outputs["parity gate parity.yaml"].startswith(
            "ACCEPTED, NOT A PASS: this machine signed off the inconclusive verdict on nvfp4"
        )
    else:
        assert "Nothing to compare yet" in outputs["parity trend nightly --branch main"]


def test_the_job_file_of_the_page_is_one():
    block, change = (each.text for each in run_by("docs/jobs.md", __file__, "yaml"))
    jobs = {
        "job": {"name": "a", "baseline": {"recipe": "bf16"}, "candidates": [{"recipe": "nvfp4"}]},
        "policy": {"margin": "1 %"},
    }
    jsonschema.validate(jobs | yaml.safe_load(block), job_file_schema())
    whole = yaml.safe_load(change)
    jsonschema.validate(jobs | whole | {"job": jobs["job"] | whole["job"]}, job_file_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(jobs | {"tags": ["two words"]}, job_file_schema())


def test_a_run_is_added_to_a_job_that_waits_and_to_no_other(run, tmp_path):
    code, text = run("parity again JOB --patch change.yaml --json")
    made = json.loads(text)
    assert (code, made["url"].endswith(f"/jobs/{made['id']}")) == (0, True)
    assert run(f"parity add-run {made['id']}") == (0, f"{made['id']} 3 + 3 runs, look 1 of 1\n")
    assert run("parity add-run JOB")[0] == 2
    (tmp_path / "change.yaml").write_text("- 1\n")
    code, text = run("parity again JOB --patch change.yaml")
    assert (code, "change.yaml: is no mapping" in text) == (2, True)
