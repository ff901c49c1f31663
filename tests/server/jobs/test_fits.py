"""A job that no registered machine can hold is refused when it is submitted, with the reason; one
that another machine may hold waits.
"""

import time
from itertools import count

import pytest
import yaml

from server.database.tables import Worker
from server.settings import CHECKOUT
from training.spec import SPEC_VERSION

pytestmark = pytest.mark.both_databases
JOBS = {
    name: yaml.safe_load((CHECKOUT / "examples" / f"llama3-{name}-nvfp4.yaml").read_text())
    for name in ("8b", "405b")
}


@pytest.fixture
def machine(database):
    """A function that registers a worker with GPUs on nodes of these sizes."""

    def register(*slices, name="w", silent=0.0):
        known = {
            "device_class": "gpu:sm100",
            "threads_per_run": 1,
            "spec_version": SPEC_VERSION,
            "devices": sum(slices),
            "processes": len(slices),
            "slices": list(slices),
        }
        now = time.time()
        with database.write() as session:
            session.add(
                Worker(
                    id=f"w-{name}",
                    name=name,
                    capability="sm100",
                    slots=1,
                    device=known,
                    started_at=now,
                    heartbeat_at=now - silent,
                )
            )

    return register


@pytest.fixture
def send(api):
    """A function that submits or gates one of the large jobs, with other sizes of its mesh."""

    asked = count()

    def ask(name, path="/api/v1/jobs", **options):
        job = JOBS[name]["job"]
        job = job | {"maxtext": job["maxtext"] | options}
        policy = JOBS[name]["policy"] | {"question": f"question {next(asked)}"}
        return api.post(path, json={"job": job, "policy": policy})

    return ask


@pytest.mark.parametrize(
    ("name", "nodes"), [("8b", [8]), ("405b", [8] * 16), ("405b", [4] * 32), ("405b", [64] * 2)]
)
def test_the_large_jobs_fit_the_machines_that_people_have(machine, send, name, nodes):
    machine(*nodes)
    answer = send(name)
    assert answer.status_code == 202, answer.text
    assert not any("Waiting" in sentence for sentence in answer.json()["missing"])


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/jobs:gate"])
@pytest.mark.parametrize(
    ("nodes", "options", "reason"),
    [
        (
            [72, 56],
            {},
            "its nodes have 72 + 56 devices, and MaxText needs equally many on each",
        ),
        (
            [8] * 16,
            {"ici_fsdp_parallelism": 128, "dcn_fsdp_parallelism": 1},
            "ici sizes multiply to 128, expected 8 devices of a node of its 16 x 8",
        ),
    ],
)
def test_a_job_whose_mesh_no_machine_holds_is_refused(machine, send, path, nodes, options, reason):
    machine(*nodes)
    answer = send("405b", path, **options)
    assert answer.status_code == 422
    assert "worker w has the 128 devices of this job: " in answer.json()["detail"]
    assert reason in answer.json()["detail"]


def test_a_job_waits_for_a_machine_that_may_hold_it(machine, send):
    flat = {"ici_fsdp_parallelism": 128, "dcn_fsdp_parallelism": 1}
    assert send("405b", **flat).status_code == 202  # no machine is known
    machine(*[8] * 16)
    assert send("405b", **flat).status_code == 422
    machine(128, name="one-fabric")
    assert send("405b", **flat).status_code == 202


def test_machines_that_are_gone_refuse_nothing(machine, send):
    machine(72, 56, silent=1e6)
    assert send("405b").status_code == 202
