"""What a queued job lacks, in words: of a job for eight B200s each thing, and nothing of what is
there.
"""

import re
import time
from itertools import count

import pytest
import yaml

from parity import cli
from parity.judging.policy import policy_from_mapping
from server.database.tables import DataRead, Job, Worker
from server.jobs.missing import missing
from server.jobs.submit import submit_job
from server.settings import CHECKOUT
from training.spec import SPEC_VERSION, ArmSpec, Model

pytestmark = pytest.mark.both_databases
LARGE = yaml.safe_load((CHECKOUT / "examples" / "llama3-8b-nvfp4.yaml").read_text())
RUNS, TOKENS = 6, 10_000 * 128 * 8192


@pytest.fixture
def lacks(api):
    """A function that submits the job for eight B200s with changes, and gives what it lacks."""

    asked = count()

    def ask(*, more=None, **job):
        policy = LARGE["policy"] | {"question": f"question {next(asked)}"}
        answer = api.post(
            "/api/v1/jobs", json={"job": LARGE["job"] | job, "policy": policy, **(more or {})}
        )
        assert answer.status_code == 202, answer.text
        document = answer.json()
        assert api.get(f"/api/v1/jobs/{document['id']}").json()["missing"] == document["missing"]
        return document["missing"]

    return ask


def register(database, **device):
    now = time.time()
    known = {
        "device_class": "gpu:sm100",
        "threads_per_run": 1,
        "spec_version": SPEC_VERSION,
        "devices": 8,
    } | device
    with database.write() as session:
        session.add(
            Worker(
                id="w1",
                name="w",
                capability="sm100",
                slots=1,
                device=known,
                started_at=now,
                heartbeat_at=now,
            )
        )


def test_a_job_for_eight_blackwells_says_all_that_it_lacks(lacks):
    worker, data, engine, hours = lacks()
    assert worker.startswith(
        "Waiting for a worker with SM 10.0 or 10.3 with 8 devices for each run: none is registered."
    )
    assert "/data/corpus/*.array_record or /data/llama3/tokenizer.model" in data
    assert "PARITY_DATA_ROOTS" in data
    assert engine.startswith("Engine maxtext has not run on a GPU yet")
    each = 6 * Model(preset="llama3-8b").parameters * TOKENS / (0.4 * 2.25e15 * 8) / 3600
    told = re.match(
        r"About ([\d,]+) device hours: 6 runs of up to ([\d.]+) h on 8 devices \(modelled: ", hours
    )
    assert float(told[1].replace(",", "")) == pytest.approx(RUNS * 8 * each, rel=0.01)
    assert float(told[2]) == pytest.approx(each, rel=0.01)


def test_what_is_there_is_not_missing(lacks, database):
    register(database)
    data, engine, hours = lacks()
    with database.write() as session:
        (job,) = session.query(Job)
        session.add(DataRead(place=job.data_place, digest="d", run_id="r1"))
    assert lacks() == [engine, hours]
    with database.write() as session:
        job = session.query(Job).first()
        job.device_class, job.runs[0].state = "gpu:sm100", "finished"
    assert lacks() == [hours]
    assert "PARITY_DATA_ROOTS" in data


def test_the_tokenizer_and_a_limit_that_a_run_exceeds_are_named(lacks):
    without = lacks(maxtext={"tokenizer_type": "tiktoken"}, more={"max_run_seconds": 3600})
    assert "maxtext.tokenizer_path is not set" in without[1]
    assert "model.vocab_size = 128,256" in without[1]
    assert "failed after 1 h" in without[-1]
    assert not any("failed after" in sentence for sentence in lacks(more={"max_run_seconds": 1e7}))


def test_a_job_for_cpus_lacks_a_worker_and_one_that_trains_nothing(
    api, request_body, database, register
):
    def sent(question):
        return api.post(
            "/api/v1/jobs", json=request_body | {"policy": {"margin": "1%", "question": question}}
        ).json()

    (worker,) = sent("first")["missing"]
    assert worker.startswith(
        "Waiting for a worker with PARITY_CAPABILITY=cpu or gpu: none is registered."
    )
    register()
    second = sent("second")
    assert second["missing"] == []
    with database.write() as session:
        session.get_one(Job, second["id"]).status = "running"
        for row in session.query(Worker):
            row.heartbeat_at = 0.0
    running = api.get(f"/api/v1/jobs/{second['id']}").json()
    assert "none is registered" in running["waiting"]
    assert running["missing"] == []


def test_device_hours_are_those_of_an_equal_run_where_one_is_on_record(
    database, make_job, recorded
):
    recorded({"nvfp4": 0.0}, steps=1500)
    spec = make_job(
        1500,
        baseline=ArmSpec(recipe="fp8_current", replicates=2),
        candidates=(ArmSpec(recipe="mxfp8"),),
    )
    with database.write() as session:
        job = session.get_one(
            Job, submit_job(session, spec, policy_from_mapping({"margin": "1%"})).id
        )
        job.capability = "sm100"
        *_, hours = missing(session, job, None)
    assert re.match(
        r"About 0\.05 device hours: 3 runs of up to 0\.0167 h on 1 device \(by the steps of run r",
        hours,
    ), hours


def test_submit_and_gate_print_what_a_new_job_lacks(served, tmp_path, capsys):
    file = tmp_path / "parity.yaml"
    job = {
        "name": "cli",
        "baseline": {"recipe": "fp8_current"},
        "candidates": [{"recipe": "mxfp8"}],
    }
    file.write_text(yaml.safe_dump({"job": job, "policy": {"margin": "1%", "looks": 2}}))
    for words, code in (
        (["submit", str(file)], 0),
        (["gate", str(file), "--fresh", "--timeout", "1"], 5),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, "--server", served])
        told = capsys.readouterr()
        assert ended.value.code == code, told.err
        assert (
            "note: Waiting for a worker with PARITY_CAPABILITY=cpu or gpu: none is registered."
            in told.err
        )
