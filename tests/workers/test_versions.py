"""Workers of two versions beside each other: what one cannot read is left to the other. Both are
checkouts with processes of their own.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from server.database.tables import Job, Worker
from server.jobs.workers import why_waiting
from server.settings import CHECKOUT
from training.spec import SPEC_VERSION
from workers import lease

pytestmark = pytest.mark.both_databases

PACKAGES = ("parity", "parity_lab", "server", "training", "workers")
SUBMIT = """
from parity.judging.policy import policy_from_mapping
from server.jobs.submit import Order, submit_job
from training.spec import ArmSpec, Data, JobSpec, Model, Schedule
model = Model(d_model=32, n_layers=1, n_heads=1, n_kv_heads=1, d_ff=32)
spec = JobSpec(name="small", model=model, data=Data(sequence_length=32, batch_size=2), schedule=Schedule(steps=100, warmup_steps=2),
    baseline=ArmSpec(recipe="fp8_current"), candidates=(ArmSpec(recipe="nvfp4"),))
with database.write() as session:
    print(submit_job(session, spec, policy_from_mapping({"margin": "1%"}), order=Order(reuse=False)).id)
"""  # noqa: E501
CLAIM = """
import json
from server.database.tables import Worker
from workers import lease
for _ in range(3):
    with database.write() as session:
        held = lease.claim(session, session.get_one(Worker, "w-new"), 30.0)
        print(json.dumps(held and [held.job_id, held.arm]))
"""


@pytest.fixture(scope="module")
def newer(tmp_path_factory):
    """A checkout of the next version, whose specifications have a field more."""
    folder = tmp_path_factory.mktemp("newer")
    for name in PACKAGES:
        shutil.copytree(CHECKOUT / name, folder / name)
    path = folder / "training" / "spec.py"
    text = path.read_text()
    changed = text.replace(
        f"SPEC_VERSION = {SPEC_VERSION}\n", f"SPEC_VERSION = {SPEC_VERSION + 1}\n"
    )
    changed = changed.replace(
        "    command: Command | None = None\n\n",
        "    command: Command | None = None\n    tomorrow: float = 0.5\n\n",
        1,
    )
    assert changed.count("tomorrow") == 1
    assert changed.count(f"SPEC_VERSION = {SPEC_VERSION + 1}") == 1
    path.write_text(changed)
    return folder


@pytest.fixture
def there(newer, settings):
    """A function that runs code in the newer checkout, on the same database; what it prints."""

    def run(code):
        head = (
            "from server.database.sessions import Database\ndatabase = "
            f"Database({settings.database!r})\n"
        )
        variables = os.environ | {"PYTHONPATH": str(newer)}
        line = [sys.executable, "-c", head + code]
        return subprocess.run(
            line, cwd=newer, env=variables, check=True, capture_output=True, text=True
        ).stdout.strip()

    return run


def _claim(database, worker):
    with database.write() as session:
        return lease.claim(session, worker, 30.0)


def test_a_worker_leaves_what_it_cannot_read_to_a_newer_one(database, submit, make_worker, there):
    worker = make_worker()
    worker.device = worker.device | {"spec_version": SPEC_VERSION}
    with database.write() as session:
        session.add(
            Worker(
                id="w-new",
                name="new",
                capability="cpu",
                slots=1,
                device=worker.device,
                started_at=0.0,
                heartbeat_at=0.0,
            )
        )
    newer = there(SUBMIT)
    assert _claim(database, worker) is None
    with database.read() as session:
        job = session.get_one(Job, newer)
        assert job.spec_version == SPEC_VERSION + 1
        assert job.spec["tomorrow"] == 0.5
        assert {run.state for run in job.runs} == {"queued"}
        reason = why_waiting(job, 0, [worker])
        assert re.search(
            f"up to version {SPEC_VERSION}, this job has version {SPEC_VERSION + 1}", reason
        )
    # What comes after it in the queue is not held up, and the newer worker reads jobs of both
    # versions.
    older = submit()
    assert _claim(database, worker).job_id == older
    assert [json.loads(line) for line in there(CLAIM).splitlines()] == [
        [newer, "fp8_current"],
        [newer, "nvfp4"],
        [older, "nvfp4"],
    ]


def test_a_job_of_a_version_that_is_readable_and_still_wrong_fails(database, submit, make_worker):
    job_id = submit()
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.spec = {**job.spec, "tomorrow": 0.5}
    assert _claim(database, make_worker()) is None
    with database.read() as session:
        assert {run.code for run in session.get_one(Job, job_id).runs} == {"SPEC_UNREADABLE"}
