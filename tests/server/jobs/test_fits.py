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

    def register(*slices, name="w", silent=0.0, gib=None):
        known = {
            "device_class": "gpu:sm100",
            "threads_per_run": 1,
            "spec_version": SPEC_VERSION,
            "devices": sum(slices),
            "processes": len(slices),
            "slices": list(slices),
        } | ({} if gib is None else {"memory_bytes": gib * 2**30})
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
    """A function that submits, gates or plans one of the large jobs, with other options."""

    asked = count()

    def ask(name, path="/api/v1/jobs", pieces=None, **options):
        job = JOBS[name]["job"]
        job = job | {"maxtext": job["maxtext"] | options}
        job |= {} if pieces is None else {"gradient_accumulation": pieces}
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


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/jobs:gate"])
def test_a_job_that_no_device_can_hold_is_refused_with_the_change_that_fits(machine, send, path):
    machine(8, gib=100)
    answer = send("8b", path, pieces=1)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(
        "worker w has the 8 devices of this job: a run takes at least 110 GiB of a device (weights "
        "3.7, optimizer 7.5, gradients 3.7, kept for the backward pass 32.0, logits 62.6), which "
        "has 100; gradient_accumulation: 4 would take about 63.9"
    )
    assert send("8b", path, pieces=4).status_code == 202


def test_one_larger_machine_is_enough(machine, send):
    machine(8, gib=100)
    machine(8, gib=134, name="larger")
    assert send("8b", pieces=1).status_code == 202


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"ici_fsdp_parallelism": 16}, "ici sizes multiply to 16, expected 8 devices of a node"),
        (
            {"ici_tensor_parallelism": 8, "dcn_fsdp_parallelism": 1},
            "a run takes at least 980 GiB of a device",
        ),
    ],
)
def test_a_plan_says_the_same_before_anything_is_queued(machine, send, options, reason):
    machine(*[8] * 16, gib=161)
    plan = send("405b", "/api/v1/jobs:plan", **options).json()
    assert reason in plan["refused"]
    assert send("405b", **options).json()["detail"] == plan["refused"]


def test_a_plan_states_memory_disk_and_hours(machine, send):
    alone = send("8b", "/api/v1/jobs:plan").json()
    assert alone["refused"] is None
    memory, checkpoints, cut, hours = alone["needs"]
    assert memory == (
        "8,030,261,248 parameters take about 42.3 GiB of each device (weights 3.7, optimizer 7.5, "
        "gradients 7.5, kept for the backward pass 4.0, logits 7.8, at work 11.7; not counted: "
        "quantized copies of operands, workspaces of Transformer Engine and cuBLAS, NCCL's "
        "buffers)."
    )
    assert checkpoints == (
        "Disk: a run keeps up to 4 checkpoints of 96.4 GB while it trains, 385 GB."
    )
    assert cut == (
        "MaxText cuts each document to its first 8,192 tokens; `parity preflight --job FILE` on a "
        "worker counts how many it cuts."
    )
    assert hours.startswith("About 936 device hours: 6 runs of up to ")
    assert hours == send("8b").json()["missing"][-1]
    machine(8, gib=45)
    assert send("8b", "/api/v1/jobs:plan").json()["needs"][0] == memory + (
        " A device of w has 45.0, which may be too little: gradient_accumulation: 16 would take "
        "about 32.4."
    )


def test_a_larger_share_of_a_gpu_is_advised_where_it_is_enough(machine, send):
    machine(*[8] * 16, gib=134)
    memory, checkpoints, *_ = send("405b", "/api/v1/jobs:plan").json()["needs"]
    assert memory.endswith(
        " A device of w has 134, which may be too little: XLA_PYTHON_CLIENT_MEM_FRACTION=0.9 at "
        "the worker gives its runs as much, if jax had 0.75 of the GPU."
    )
    assert "4 checkpoints of 4.87 TB while it trains, 19.5 TB." in checkpoints


def test_a_mesh_that_no_one_knows_yet_states_no_memory(send):
    plan = send("405b", "/api/v1/jobs:plan", dcn_fsdp_parallelism=2).json()
    assert plan["needs"][0].startswith("Disk: ")


def test_a_small_job_on_processors_states_what_it_needs(api, request_body):
    memory, checkpoints = api.post("/api/v1/jobs:plan", json=request_body).json()["needs"]
    assert "parameters take about" in memory
    assert "of the device (weights" in memory
    assert "not counted" not in memory
    assert checkpoints.startswith("Disk: a run keeps up to 3 checkpoints of ")


def test_a_trainer_of_the_users_own_has_no_such_sentences(api):
    content = yaml.safe_load((CHECKOUT / "examples" / "external.yaml").read_text())
    body = {name: content[name] for name in ("job", "policy")}
    plan = api.post("/api/v1/jobs:plan", json=body).json()
    assert (plan["needs"], plan["refused"]) == ([], None)
