"""A scheduler that is away for an hour, of either kind: nothing fails, one line says so, and
nothing is submitted twice.
"""

import logging
import shutil
import time
from types import SimpleNamespace

import pytest
from sqlalchemy import select

from parity.canonical_json import json_value
from parity.cli.jobs import status
from server.database.tables import Job, Run, Submission
from server.documents.jobs import job_document
from tests.workers.commands.conftest import STEPS, head_of
from tests.workers.commands.schedulers import PlayKubernetes, PlaySlurm, Stepping
from workers import listings, submitted
from workers.commands import launched_trainer

pytestmark = pytest.mark.both_databases
CODE, ROUNDS = "SCHEDULER_UNREACHABLE", 12


class OnSlurm(PlaySlurm):
    """Slurm: what a launcher says of it, and what it did."""

    name, keys = "slurm", {"slurm": "{options = []}"}

    def submitted(self):
        return sorted(job["name"] for job in self.jobs().values())

    def go_on(self, row):
        """Let a job start that waited in the full queue."""
        self.call("scontrol", "release", row.scheduler_id)

    def end(self):
        self.cancel_all()


class OnKubernetes(PlayKubernetes):
    """Kubernetes, likewise."""

    name = "kubernetes"

    @property
    def keys(self):
        return {"kubernetes": self.launcher}

    def submitted(self):
        return sorted(self.created())

    def go_on(self, row):
        self.start_again(row.scheduler_id)


@pytest.fixture(params=[OnSlurm, OnKubernetes], ids=["slurm", "kubernetes"])
def cluster(request, tmp_path, monkeypatch):
    if request.param is OnKubernetes and shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    made = request.param(tmp_path / "cluster")
    if request.param is OnSlurm:
        monkeypatch.setenv("PATH", made.path)
    yield made
    made.end()


@pytest.fixture
def clock(monkeypatch):
    """The clock of the worker; `forward` moves it."""
    offset = [0.0]

    def forward(seconds):
        offset[0] += seconds

    moved = SimpleNamespace(
        time=lambda: time.time() + offset[0],
        monotonic=lambda: time.monotonic() + offset[0],
        thread_time=time.thread_time,
        sleep=time.sleep,
    )
    for module in (submitted, listings, launched_trainer):
        monkeypatch.setattr(module, "time", moved)
    return SimpleNamespace(forward=forward)


def _rows(service, job):
    with service.database.read() as session:
        return session.scalars(
            select(Submission).join(Run).where(Run.job_id == job).order_by(Submission.run_id)
        ).all()


def _told(service, job):
    with service.database.read() as session:
        return job_document(session, session.get_one(Job, job), 30.0, None)


def _runs(service, *jobs):
    with service.database.read() as session:
        return session.scalars(select(Run).where(Run.job_id.in_(jobs))).all()


def _are_pending(service, job):
    return [(row.reason or "").lower().startswith("pending") for row in _rows(service, job)] == [
        True,
        True,
    ]


def test_nothing_fails_while_the_scheduler_is_away_and_one_line_says_so(
    stack, cluster, clock, gated, gate, caplog
):
    service = stack(
        scheduler=f'"{cluster.name}"',
        device_class='"a CPU"',
        limits="{silent_seconds = 1e6}",
        pinned='""',
        **cluster.keys,
    )
    worker = Stepping(service)
    trains = service.submit(gated, head_of(gated, "quantized", "nvfp4"))
    worker.until(lambda: [run.steps_done for run in _runs(service, trains)] == [10, 10])
    cluster.is_full(True)
    waits = service.submit(gated, head_of(gated, "quantized", "nvfp4"), question="waits")
    worker.until(lambda: _are_pending(service, waits))
    before = [row.reason for row in _rows(service, waits)]
    cluster.is_down(True)
    new = service.submit(gated, head_of(gated, "quantized", "nvfp4"), question="new")
    with caplog.at_level(logging.WARNING):
        worker.until(
            lambda: (
                {row.reason is not None for row in _rows(service, new)} == {True}
                and len(_rows(service, new)) == 2
            )
        )
        for _ in range(ROUNDS):
            worker.round()
            clock.forward(300.0)
    assert {(run.state, run.crashes) for run in _runs(service, trains, waits, new)} == {
        ("running", 0)
    }
    assert [record.getMessage()[: len(CODE)] for record in caplog.records] == [CODE]
    assert [row.state for row in _rows(service, new)] == ["intended", "intended"]
    assert all(row.reason.startswith(CODE) for job in (waits, new) for row in _rows(service, job))
    assert f"to be submitted to {cluster.name.capitalize()}: {CODE}" in _told(service, new).waiting
    job_id = _rows(service, waits)[0].scheduler_id
    assert (
        f"in {cluster.name.capitalize()}'s queue as job {job_id}: {CODE}"
        in _told(service, waits).waiting
    )
    (line,) = status._queue_words(json_value(_told(service, new)))  # the same words once
    assert CODE in line
    assert "1 other run are" in line
    # What trains needs no scheduler to come to its end.
    gate.touch()
    worker.until(lambda: {run.state for run in _runs(service, trains)} == {"finished"})
    cluster.is_down(False)
    worker.until(
        lambda: (
            [row.reason for row in _rows(service, waits)] == before
            and all(row.scheduler_id for row in _rows(service, new))
        )
    )
    worker.until(lambda: _are_pending(service, new))
    cluster.is_full(False)
    for row in (*_rows(service, waits), *_rows(service, new)):
        cluster.go_on(row)
    worker.until(lambda: {run.state for run in _runs(service, waits, new)} == {"finished"})
    warned = [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and "cluster" not in record.name
    ]
    assert len([line for line in warned if CODE in line]) == 1
    assert len([line for line in warned if "answers again" in line]) == 1
    runs = _runs(service, trains, waits, new)
    assert {(run.crashes, run.attempt_number, run.code) for run in runs} == {(0, 1, None)}
    assert all(service.steps(run.id)[0].tolist() == list(range(STEPS)) for run in runs)
    assert cluster.submitted() == sorted(
        row.key for job in (trains, waits, new) for row in _rows(service, job)
    )
