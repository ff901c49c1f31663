"""Runs that a worker trains through a real srun inside a real allocation, with the batch script of
docs/operate.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from sqlalchemy import select

from parity.judging.policy import policy_from_mapping
from server.database.metrics import store
from server.database.tables import Attempt, Run, Worker
from server.jobs.submit import Order, submit_job
from server.settings import CHECKOUT
from tests.slurm.conftest import Cluster, free_ports, wait_until
from training.environment.maxtext_installed import VARIABLE
from training.environment.maxtext_options import MaxTextOptions
from training.spec import ArmSpec, Data, Model, Schedule

STEPS = 200
SMALL = {
    "model": Model(vocab_size=256, d_model=32, n_layers=1, n_heads=1, n_kv_heads=1, d_ff=64),
    "data": Data(sequence_length=32, batch_size=4),
    "baseline": ArmSpec(recipe="bf16"),
}
# Joins the other tasks, and prints the GPUs that it sees and which of them jax would take.
JOIN = """
import os
from jax._src import xla_bridge
from training.environment.processes import joined, processes

with joined(processes(os.environ)):
    print(os.environ["CUDA_VISIBLE_DEVICES"], xla_bridge.CUDA_VISIBLE_DEVICES.value)
"""


@pytest.fixture
def settings(settings):
    (settings.state_dir / "jax-cache").symlink_to(os.environ["JAX_COMPILATION_CACHE_DIR"])
    return settings


@pytest.fixture
def submit(database, make_job):
    """A function that queues a job of one small run on so many devices (its second run waits), and
    returns the run's id.
    """

    def submit_small(devices: int, steps: int = STEPS, **changes) -> str:
        job = make_job(
            devices=devices,
            schedule=Schedule(steps=steps, warmup_steps=2),
            **SMALL | changes,
        )
        with database.write() as session:
            runs = submit_job(
                session, job, policy_from_mapping({"margin": "1.0%"}), order=Order(reuse=False)
            ).runs
            return runs[0].id

    return submit_small


@pytest.fixture
def run_of(database):
    def read(run_id: str) -> Run:
        with database.read() as session:
            return session.get_one(Run, run_id)

    return read


@pytest.fixture
def attempts(database):
    """A function that gives how each attempt at a run ended."""

    def read(run_id: str) -> list[str]:
        with database.read() as session:
            return [
                *session.scalars(
                    select(Attempt.state)
                    .where(Attempt.run_id == run_id)
                    .order_by(Attempt.attempt_number)
                )
            ]

    return read


def _curve(database, run_id):
    with database.read() as session:
        steps, columns = store.read(session, run_id, "train", ["loss", "param_norm"])
    return steps.tolist(), columns["loss"].tobytes(), columns["param_norm"].tobytes()


def _describe(cluster: Cluster, settings, run: Run) -> str:
    logs = [
        path.read_text(errors="replace") for path in sorted(settings.state_dir.glob("worker-*.log"))
    ]
    return "\n".join(
        [f"{run.state} {run.steps_done} {run.code} {run.message}", *logs, cluster.logs()]
    )


@pytest.fixture
def until(cluster, settings, run_of):
    """A function that waits until something is true of a run."""

    def wait(run_id: str, ready, seconds: float = 180.0) -> Run:
        wait_until(
            lambda: ready(run_of(run_id)),
            seconds,
            lambda: _describe(cluster, settings, run_of(run_id)),
        )
        return run_of(run_id)

    return wait


@pytest.fixture(scope="session")
def undisturbed() -> dict[int, tuple]:
    """Curves of runs that nothing disturbed, by number of processes; the first test fills it."""
    return {}


@pytest.mark.parametrize("tasks", [2, 1])
def test_a_step_that_succeeded_is_not_logged_as_cancelled(
    cluster, settings, database, submit, batch, until, attempts, undisturbed, tasks
):
    run_id = submit(tasks)
    job = batch(tasks=tasks)
    until(run_id, lambda run: run.state == "finished")
    undisturbed[tasks] = _curve(database, run_id)
    assert undisturbed[tasks][0] == list(range(STEPS))
    assert attempts(run_id) == ["finished"]
    (log,) = (settings.state_dir / "logs" / "runs").glob(f"{run_id}-1.log")
    node = cluster.folder / "slurmd.log"
    # step 0 looked for devices, step 1 trained
    wait_until(lambda: f"[{job}.1] done with job" in node.read_text(), 60, cluster.logs)
    of_job = [line for line in node.read_text().splitlines() if f"[{job}." in line]
    for line in (*of_job, *log.read_text().splitlines()):
        assert not any(
            word in line for word in ("CANCELLED", "Terminated", "Killed", "srun: error")
        )


@pytest.mark.parametrize("tasks", [2, 1])
def test_a_cancelled_allocation_returns_its_run_and_the_next_one_finishes_it(
    cluster, database, submit, batch, until, attempts, undisturbed, tasks
):
    run_id = submit(tasks)
    first = batch(tasks=tasks)
    until(run_id, lambda run: run.steps_done >= 20)
    cluster.call("scancel", first)
    wait_until(lambda: cluster.state(first) == "CANCELLED", 60, cluster.logs)
    run = until(run_id, lambda run: run.state != "running")
    assert (run.state, run.code, run.crashes) == ("queued", None, 0)
    assert attempts(run_id) == ["released"]
    batch(tasks=tasks)
    until(run_id, lambda run: run.state == "finished")
    assert attempts(run_id) == ["released", "finished"]
    assert _curve(database, run_id) == undisturbed[tasks]


@pytest.mark.parametrize("partition", ["low", "patient"])
def test_a_preempted_allocation_is_requeued_and_its_run_finished(
    cluster, database, submit, batch, until, attempts, partition
):
    """Without a grace period Slurm signals the worker and its step at once; with one the step
    first, and the worker at its end.
    """
    run_id = submit(2, steps=2000)
    low = batch(f"--partition={partition}", "--requeue", "--open-mode=append")
    until(run_id, lambda run: run.steps_done >= 20)
    urgent = cluster.call(
        "sbatch",
        "--parsable",
        "--partition=urgent",
        "--ntasks=2",
        "--output=/dev/null",
        "--wrap=sleep 3",
    ).strip()
    wait_until(lambda: cluster.state(urgent) in ("RUNNING", "COMPLETED"), 120, cluster.logs)
    ended = attempts(run_id)
    assert {*ended} == {"released"}
    run = until(run_id, lambda run: run.state != "running")
    assert (run.state, run.code, run.crashes) == ("queued", None, 0)
    wait_until(lambda: cluster.state(low) == "PENDING", 120, cluster.logs)
    # Slurm itself waits two minutes
    cluster.call("scontrol", "update", f"JobId={low}", "StartTime=now")
    until(run_id, lambda run: run.state == "finished")
    assert attempts(run_id) == [*ended, "finished"]
    assert _curve(database, run_id)[0] == list(range(2000))


def test_a_worker_that_is_killed_without_a_warning_loses_no_step(
    cluster, database, submit, batch, until, attempts, undisturbed
):
    run_id = submit(2)
    first = batch()
    until(run_id, lambda run: run.steps_done >= 20)
    cluster.worker(first).kill()
    wait_until(lambda: cluster.state(first) == "FAILED", 60, cluster.logs)
    batch()
    until(run_id, lambda run: run.state == "finished")
    assert attempts(run_id) == ["lost", "finished"]
    assert _curve(database, run_id) == undisturbed[2]


def test_a_worker_claims_only_what_its_allocation_holds(database, submit, batch, until, run_of):
    one, two = submit(1), submit(2)
    batch(tasks=2)
    until(two, lambda run: run.state == "finished")
    # older, but its one device is not the allocation's two
    assert (run_of(one).state, run_of(one).attempt_number) == ("queued", 0)
    with database.read() as session:
        (device,) = session.scalars(select(Worker.device))
    assert (device["devices"], device["processes"]) == (2, 2)


@pytest.mark.parametrize(("wanted", "gpus"), [(1, 1), (2, 2), (2, 1)])
def test_a_worker_has_a_slot_for_each_allotted_gpu_and_no_more(cluster, wanted, gpus):
    source = (
        "from server.settings import Settings; from workers.slots import slots; "
        f"print([slot.gpu for slot in slots(Settings(capability='sm100', slots={wanted}))])"
    )
    command = [
        "srun",
        "--ntasks=1",
        f"--gpus={gpus}",
        f"--chdir={CHECKOUT}",
        sys.executable,
        "-c",
        source,
    ]
    ended = subprocess.run(
        command, env=cluster.environment, check=False, capture_output=True, text=True, timeout=60
    )
    if wanted <= gpus:
        assert (
            ended.stdout.split()
            == json.dumps([str(number) for number in range(wanted)]).replace('"', "'").split()
        ), ended.stderr
    else:
        assert "expected at most the 1 GPUs of CUDA_VISIBLE_DEVICES=0" in ended.stderr


@pytest.mark.parametrize(
    ("gpus", "taken"),
    [
        ("--gpus-per-task=1", ["0 0", "1 0"]),
        ("--gpus-per-node=2", ["0,1 0", "0,1 1"]),
    ],
)
def test_each_task_takes_a_gpu_of_its_own_that_it_sees(cluster, tmp_path, gpus, taken):
    """Without control groups a task's GPU keeps its number on the node; with them each sees 0."""
    (tmp_path / "join.py").write_text(JOIN)
    printed = tmp_path / "printed"
    cluster.call(
        *("sbatch", "--wait", "--nodes=1", "--ntasks-per-node=2", gpus, f"--chdir={CHECKOUT}"),
        f"--output={printed}",
        f"--export=ALL,JAX_PLATFORMS=cpu,PYTHONPATH={CHECKOUT}",
        f"--wrap=PARITY_COORDINATOR=127.0.0.1:{free_ports(1)[0]} srun --ntasks=2 "
        f"{sys.executable} {tmp_path}/join.py",
    )
    assert sorted(printed.read_text().splitlines()) == taken


@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} is not set")
def test_maxtext_trains_in_several_tasks(settings, database, submit, batch, until):
    folder = settings.state_dir
    python = os.environ[VARIABLE]
    subprocess.run([python, CHECKOUT / "tools" / "maxtext_data.py", folder], check=True)
    run_id = submit(
        2,
        steps=20,
        engine="maxtext",
        layer_policy="all_linears",
        model=Model(vocab_size=512, d_model=64, n_layers=1, n_heads=2, n_kv_heads=1, d_ff=128),
        data=Data(
            source="grain", path=str(folder / "train.parquet"), sequence_length=64, batch_size=4
        ),
        baseline=ArmSpec(recipe="fp8_delayed"),  # which needs no process of its own for step 0
        candidates=(ArmSpec(recipe="bf16"),),
        maxtext=MaxTextOptions(
            hardware="cpu",
            implementation="xla",
            grain_file_type="parquet",
            grain_worker_count=0,
            tokenizer_path=str(folder / "spm.model"),
        ),
    )
    batch(tasks=2)
    run = until(run_id, lambda run: run.state not in ("queued", "running"), seconds=1200.0)
    assert (run.state, run.code, run.manifest["processes"]) == ("finished", None, "2"), run.message
    assert _curve(database, run_id)[0] == list(range(20))
