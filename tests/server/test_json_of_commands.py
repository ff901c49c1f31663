"""What commands about jobs print with --json, of a real server, is as its schema says."""

import json

import pytest
import yaml

from parity import cli
from parity.cli.printed_documents import schemas_of
from tests.parity.cli.schemas import check

EXTERNAL = {
    "job": {
        "name": "mine",
        "engine": "external",
        "baseline": {"recipe": "fp8_current"},
        "candidates": [{"recipe": "nvfp4", "replicates": 2}],
        "schedule": {"steps": 100},
    },
    "policy": {"margin": "1.0%"},
}


@pytest.fixture
def printed(served, capsys):
    """A function that runs a command with --json; what it printed, parsed: a document of this
    schema, which the table names for that command. It has to exit with 0, or with `code`.
    """

    def run(schema, *words, code=0):
        assert schema in (schemas_of(" ".join(words[:2])) or schemas_of(words[0]))
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, "--json", "--server", served])
        captured = capsys.readouterr()
        assert ended.value.code == code, captured.err
        document = json.loads(captured.out)
        check(schema, document)
        return document

    return run


@pytest.fixture
def job_file(tmp_path):
    """A function that writes a job file; its path."""

    def write(content):
        path = tmp_path / "parity.yaml"
        path.write_text(yaml.safe_dump(content))
        return str(path)

    return write


def test_jobs_that_are_queued_changed_and_cancelled(printed, job_file, request_body, register):
    register()
    job = printed("queued-job", "submit", job_file(request_body))["id"]
    assert printed("job-runs", "add-run", job)["id"] == job
    printed("job", "status", job)
    assert printed("cancelled-job", "cancel", job) == {"id": job, "status": "cancelled"}
    printed("queued-job", "again", job)
    assert len(printed("job-list", "status")) == 2
    assert len(printed("worker-list", "doctor")) == 1
    printed("job-needs", "doctor", "--job", job_file(request_body))


def test_jobs_with_verdicts_side_by_side_and_over_time(printed, judged):
    first, _ = judged({"nvfp4": 0.05, "mxfp8": 0.0})
    second, _ = judged({"nvfp4": 0.05, "mxfp8": 0.0}, rerun=1)
    name = printed("job", "status", first)["name"]
    printed("job-list", "status")
    printed("matrix", "matrix", first, second)
    trend = printed("trend", "trend", name, "--candidate", "nvfp4")
    assert [point["job"] for point in trend["points"]] == [first, second]
    printed("report", "report", first, code=1)
    printed("report", "watch", first, code=1)
    remarks = printed("remarks", "new-question", first, "--reason", "node 7 computed wrong sums")
    assert "wrong sums" in remarks["notes"][0]["text"]


def test_what_people_add_to_a_job(printed, job_file):
    job = printed("queued-job", "submit", job_file(EXTERNAL))["id"]
    printed("remarks", "tag", job, "nightly")
    printed("report", "runs", "state", job, "--tokens-per-step", "4096")
    remarks = printed("remarks", "note", job, "node 7 is new")
    assert remarks["tags"] == ["nightly"]
    assert remarks["notes"][0]["text"] == "node 7 is new"
    assert remarks["statements"][0]["value"] == 4096


def test_a_run_that_is_ended_as_failed(printed, job_file):
    job = printed("queued-job", "submit", job_file(EXTERNAL))["id"]
    run = printed("job", "status", job)["arms"][1]["runs"][0]["id"]
    ended = printed("run", "runs", "fail", run, "--reason", "out of memory")
    assert (ended["id"], ended["state"]) == (run, "failed")
