"""What commands about jobs print with --json, of a real server, is as its schema says."""

import json

import pytest
import yaml

from parity import cli
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
    """A function that runs a command with --json; what it printed, parsed. It has to exit with 0,
    or with `code`.
    """

    def run(*words, code=0):
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, "--json", "--server", served])
        captured = capsys.readouterr()
        assert ended.value.code == code, captured.err
        return json.loads(captured.out)

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
    job = printed("submit", job_file(request_body))
    check("queued-job", job)
    check("job-runs", printed("add-run", job["id"]))
    check("job", printed("status", job["id"]))
    cancelled = printed("cancel", job["id"])
    check("cancelled-job", cancelled)
    assert cancelled == {"id": job["id"], "status": "cancelled"}
    check("queued-job", printed("again", job["id"]))
    check("job-list", printed("status"))
    check("worker-list", printed("doctor"))
    check("job-needs", printed("doctor", "--job", job_file(request_body)))


def test_jobs_with_verdicts_side_by_side_and_over_time(printed, judged):
    first, _ = judged({"nvfp4": 0.05, "mxfp8": 0.0})
    second, _ = judged({"nvfp4": 0.05, "mxfp8": 0.0}, rerun=1)
    check("job", printed("status", first))
    check("job-list", printed("status"))
    check("matrix", printed("matrix", first, second))
    name = printed("status", first)["name"]
    trend = printed("trend", name, "--candidate", "nvfp4")
    check("trend", trend)
    assert [point["job"] for point in trend["points"]] == [first, second]
    check("report", printed("report", first, code=1))
    check("report", printed("watch", first, code=1))
    remarks = printed("new-question", first, "--reason", "node 7 computed wrong sums")
    check("remarks", remarks)
    assert "wrong sums" in remarks["notes"][0]["text"]


def test_what_people_add_to_a_job(printed, job_file):
    job = printed("submit", job_file(EXTERNAL))["id"]
    check("remarks", printed("tag", job, "nightly"))
    remarks = printed("note", job, "node 7 is new")
    check("remarks", remarks)
    assert (remarks["tags"], remarks["notes"][0]["text"]) == (["nightly"], "node 7 is new")
    check("report", printed("runs", "state", job, "--tokens-per-step", "4096"))
    remarks = printed("note", job, "as its owner states")
    check("remarks", remarks)
    assert remarks["statements"][0]["value"] == 4096


def test_a_run_that_is_ended_as_failed(printed, job_file):
    job = printed("submit", job_file(EXTERNAL))["id"]
    run = printed("status", job)["arms"][1]["runs"][0]["id"]
    ended = printed("runs", "fail", run, "--reason", "out of memory")
    check("run", ended)
    assert (ended["id"], ended["state"]) == (run, "failed")
