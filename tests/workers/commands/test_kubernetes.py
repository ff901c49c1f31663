"""Runs that Kubernetes trains: the real kubectl against an API server of the tests."""

import json
import shutil
import time

import pytest
from sqlalchemy import select, update

from server.database.tables import Attempt, Run, Submission
from server.jobs import submissions
from server.jobs.lifecycle import cancel_job
from tests.workers.commands.conftest import STEPS, head_of
from tests.workers.commands.schedulers import PlayKubernetes, Stepping
from workers import reconcile, submitted
from workers.commands.kubernetes import Kubernetes
from workers.commands.launchers import LauncherError, read_launchers
from workers.commands.schedulers import SchedulerUnreachableError

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@pytest.fixture
def kubernetes(tmp_path):
    made = PlayKubernetes(tmp_path / "kubernetes")
    yield made
    made.end()


@pytest.fixture
def on_kubernetes(stack, kubernetes):
    return lambda **changes: stack(
        scheduler='"kubernetes"',
        kubernetes=kubernetes.launcher,
        device_class='"8 x H100"',
        **changes,
    )


def _rows(service):
    with service.database.read() as session:
        return session.scalars(select(Submission).order_by(Submission.created_at)).all()


def _all_ended(service):
    def ended():
        with service.database.read() as session:
            return all(
                run.state in ("finished", "failed", "cancelled")
                for run in session.scalars(select(Run))
            )

    return ended


def test_each_run_is_one_job_that_is_started_again_followed_and_removed(
    on_kubernetes, kubernetes, gated, gate
):
    service = on_kubernetes()
    service.submit(gated, head_of(gated, "quantized", "nvfp4"))
    kubernetes.is_down(True)
    worker = Stepping(service)
    for _ in range(2):
        worker.round()
    assert {row.state for row in _rows(service)} == {"intended"}
    kubernetes.is_down(False)
    kubernetes.is_full(True)
    worker.until(
        lambda: (
            {(row.reason or "").partition(":")[0] for row in _rows(service)}
            == {"Pending (Unschedulable"}
        )
    )
    assert submissions.why_not_training(_rows(service)[0]).startswith(
        "in Kubernetes's queue as job parity-"
    )
    kubernetes.is_full(False)
    for row in _rows(service):
        kubernetes.start_again(row.scheduler_id)
    worker.until(lambda: all(service.run(row.run_id).steps_done > 3 for row in _rows(service)))
    again = _rows(service)[0]
    kubernetes.start_again(again.scheduler_id)
    gate.touch()
    worker.until(_all_ended(service))
    for row in _rows(service):
        run = service.run(row.run_id)
        assert (run.state, run.code, run.crashes) == ("finished", None, 0)
        assert service.steps(run.id)[0].tolist() == list(range(STEPS))
    assert sorted(row.start for row in _rows(service)) == [0, 1]
    with service.database.read() as session:
        states = session.scalars(
            select(Attempt.state)
            .where(Attempt.run_id == again.run_id)
            .order_by(Attempt.attempt_number)
        ).all()
    assert states == ["released", "finished"]
    assert sorted(kubernetes.created()) == sorted(row.key for row in _rows(service))
    worker.until(lambda: not kubernetes.jobs())  # no Job is left there for ever


def test_a_job_that_exists_is_found_and_no_second_one_is_made(kubernetes, tmp_path):
    options = {
        "template": "",
        "kubeconfig": str(kubernetes.kubeconfig),
        "context": "",
        "namespace": "ml",
    }
    manifest = {
        "kind": "Job",
        "apiVersion": "batch/v1",
        "spec": {"template": {"spec": {"containers": [{"name": "t"}]}}},
    }
    cluster = Kubernetes(options | {"manifest": manifest})
    assert (
        cluster.submit("parity-1", tmp_path) == cluster.submit("parity-1", tmp_path) == "parity-1"
    )
    (job,) = cluster.jobs("parity-1")
    assert (job.id, job.key, job.state) == ("parity-1", "parity-1", "held")
    assert cluster.jobs("parity-2") == []
    assert kubernetes.jobs()["parity-1"]["spec"]["template"]["spec"]["containers"][0][
        "command"
    ] == ["/bin/sh", f"{tmp_path}/job.sh"]
    cluster.release("parity-2")
    cluster.cancel("parity-2")
    cluster.cancel("parity-1")
    assert cluster.jobs() == []
    kubernetes.is_down(True)
    with pytest.raises(SchedulerUnreachableError):
        cluster.jobs()
    with pytest.raises(SchedulerUnreachableError):
        cluster.submit("parity-3", tmp_path)


def test_a_killed_worker_and_a_cancelled_job_leave_nothing(on_kubernetes, kubernetes, gated):
    service = on_kubernetes()
    job = service.submit(gated, head_of(gated, "quantized", "nvfp4"))
    first = Stepping(service)
    first.until(lambda: len([row for row in _rows(service) if row.start is not None]) == 2)
    first.forget()
    with service.database.write() as session:
        session.execute(update(Run).values(lease_expires_at=1.0))
    reconcile.give_back_expired(service.settings, service.database)
    second = Stepping(service)
    second.until(lambda: all(service.run(row.run_id).steps_done > 3 for row in _rows(service)))
    assert len(kubernetes.started()) == 2
    with service.owner_database.write() as session:
        cancel_job(session, job)
    second.until(lambda: not kubernetes.jobs())
    assert {row.state for row in _rows(service)} == {"ended"}
    assert all(submissions.device_seconds(row, time.time()) > 0 for row in _rows(service))


def test_a_finished_job_of_the_same_key_is_found_and_the_run_begins_under_another(
    on_kubernetes, kubernetes, base, monkeypatch
):
    """After the record was restored from a backup, or a Job was made by hand."""
    monkeypatch.setattr(submitted, "LOST_SECONDS", 0.1)
    service = on_kubernetes()
    job = service.submit(base, head_of(base, "quantized", "nvfp4"))
    with service.database.read() as session:
        prefix = submissions.deployment(session)
    other = next(iter(read_launchers(service.settings.launchers).values()))
    for run in service.job().runs:
        key, folder = f"{prefix}-{run.id}-1", kubernetes.folder / run.id
        folder.mkdir()
        (folder / "job.sh").write_text("exit 0")
        Kubernetes(other.submits_with).submit(key, folder)
        Kubernetes(other.submits_with).release(key)
    Stepping(service).until(_all_ended(service))
    assert {(run.state, run.crashes) for run in service.job().runs} == {("finished", 1)}
    assert sorted(row.number for row in _rows(service)) == [1, 1, 2, 2]
    assert service.job().id == job


def test_a_job_that_was_deleted_is_lost_and_the_run_begins_again(
    on_kubernetes, kubernetes, gated, gate, monkeypatch
):
    monkeypatch.setattr(submitted, "LOST_SECONDS", 0.1)
    service = on_kubernetes()
    service.submit(gated, head_of(gated, "quantized", "nvfp4"))
    worker = Stepping(service)
    worker.until(
        lambda: (
            len(_rows(service)) == 2
            and all(service.run(row.run_id).steps_done > 3 for row in _rows(service))
        )
    )
    first = _rows(service)[0]
    Kubernetes(next(iter(read_launchers(service.settings.launchers).values())).submits_with).cancel(
        first.scheduler_id
    )
    gate.touch()
    worker.until(_all_ended(service))
    assert [row.number for row in _rows(service) if row.run_id == first.run_id] == [1, 2]
    assert {run.state for run in service.job().runs} == {"finished"}


@pytest.mark.parametrize(
    "answer", ["", "[]", '{"items": null}', "<html>", '{"items": [{"kind": "Pod"}]}']
)
def test_what_is_no_list_of_jobs_is_no_answer(tmp_path, monkeypatch, answer):
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SchedulerUnreachableError):
        Kubernetes({"manifest": {}, "kubeconfig": "", "context": "", "namespace": ""}).jobs()


def test_a_pod_of_somebody_else_with_our_label_is_left_out(tmp_path, monkeypatch):
    theirs = {
        "kind": "Pod",
        "metadata": {"name": "theirs", "labels": {"app.kubernetes.io/managed-by": "parity"}},
    }
    program = tmp_path / "kubectl"
    program.write_text(
        f"#!/bin/sh\necho '{json.dumps({'items': [theirs, {**theirs, 'kind': 'Job'}]})}'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (
        Kubernetes({"manifest": {}, "kubeconfig": "", "context": "", "namespace": ""}).jobs() == []
    )


@pytest.mark.parametrize(
    ("was", "wrong", "place"),
    [
        ("kind: Job", "kind: Pod", "kind Job"),
        ("kind: Job", "kind: Job\nmetadata: {name: mine}", "metadata.name"),
        ("backoffLimit: 3", "suspend: false", "spec.suspend"),
        ("backoffLimit: 3", "parallelism: 2", "spec.parallelism"),
        ("image: example/trainer", "command: [python]", "command"),
        ("containers:", "others:", "containers"),
    ],
)
def test_a_template_says_nothing_of_what_is_ours(kubernetes, write_launchers, was, wrong, place):
    kubernetes.template.write_text(kubernetes.template.read_text().replace(was, wrong))
    file = write_launchers(
        scheduler='"kubernetes"', kubernetes=kubernetes.launcher, device_class='"8 x H100"'
    )
    with pytest.raises(LauncherError) as refused:
        read_launchers(file)
    assert place in str(refused.value)


def test_the_template_is_a_part_of_the_launcher(kubernetes, write_launchers):
    file = write_launchers(
        scheduler='"kubernetes"', kubernetes=kubernetes.launcher, device_class='"8 x H100"'
    )
    before = read_launchers(file)["loop"].digest
    kubernetes.template.write_text(
        kubernetes.template.read_text().replace("example/trainer", "example/another")
    )
    assert read_launchers(file)["loop"].digest != before
