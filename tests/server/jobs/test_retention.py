"""Retention drops what no verdict needs and nothing else: every job can still be judged again."""

import os
import sys
import time

import numpy as np
import pytest
from sqlalchemy import func, select

from server import retention
from server.database import store
from server.database.tables import Chunk, Job, Run
from server.jobs.conclude import case_of, conclude
from server.jobs.retention import drop, droppable

pytestmark = pytest.mark.both_databases

OLD = 40 * 86_400


@pytest.fixture
def kept(settings):
    return settings.model_copy(update={"retention_days": 30.0})


def _age(database, job_id):
    """Let 40 days pass for a job."""
    with database.write() as session:
        session.get_one(Job, job_id).finished_at -= OLD


def _verdicts(database, job_id):
    with database.read() as session:
        return case_of(session, session.get_one(Job, job_id)).documents()


def _chunks(database, job_id):
    with database.read() as session:
        return session.scalar(select(func.count()).select_from(Chunk).join(Run, Run.id == Chunk.run_id).where(Run.job_id == job_id))


def test_a_concluded_job_keeps_its_curves_and_loses_replaced_attempts(database, kept, recorded):
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        runs = session.scalars(select(Run).where(Run.job_id == job_id).order_by(Run.position)).all()
        for run in runs[:2]:  # a second attempt from step 1000 on
            steps, columns = store.read(session, run.id, "train")
            tail = {name: values[1000:] for name, values in columns.items()}
            store.append(session, run.id, "train", 2, steps[1000:], tail)
            store.append(session, run.id, "train", 1, np.arange(1500, 1600), {name: np.zeros(100) for name in columns})
            run.epoch = 2
        failed = runs[-1]
        failed.state, failed.message = "failed", "out of memory"
        failed_id = failed.id
    conclude(database, job_id)
    before = _verdicts(database, job_id)
    assert droppable(kept, database) == []  # not old enough
    _age(database, job_id)
    assert droppable(kept.model_copy(update={"retention_days": None}), database) == []
    listed = droppable(kept, database)
    assert sorted(one.what for one in listed) == ["attempt", "attempt", "curve"]
    assert all(one.size_bytes > 0 for one in listed)
    chunks = _chunks(database, job_id)
    assert drop(kept, database) == listed
    assert _chunks(database, job_id) == chunks - 3
    assert _verdicts(database, job_id) == before
    assert droppable(kept, database) == []
    with database.read() as session:
        message = session.get_one(Run, failed_id).message
        assert message.startswith("out of memory; its curve was deleted on 20")


def test_a_job_without_a_verdict_keeps_its_baseline_only(database, kept, recorded):
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.status, job.finished_at = "failed", time.time() - OLD
    drop(kept, database)
    with database.read() as session:
        left = {run.arm.name: len(store.read(session, run.id, "train")[0]) for run in session.get_one(Job, job_id).runs}
    assert left == {"fp8_current": 1500, "nvfp4": 0}


def test_the_tag_of_a_dropped_curve_does_not_match_any_more(api, database, kept, recorded):
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.status, job.finished_at = "cancelled", time.time() - OLD
        stays, goes = (f"/api/v1/runs/{arm.runs[0].id}" for arm in job.arms)
    paths = [f"{stays}/steps", f"{goes}/steps", f"{goes}/metrics", f"/api/v1/jobs/{job_id}/gap", f"/api/v1/jobs/{job_id}/overlay"]

    def ask_again(tags):
        return [api.get(path, headers={"If-None-Match": tag}) for path, tag in zip(paths, tags, strict=True)]

    tags = [api.get(path).headers["ETag"] for path in paths]
    assert [answer.status_code for answer in ask_again(tags)] == [304] * 5
    drop(kept, database)
    after = ask_again(tags)
    assert [answer.status_code for answer in after] == [304] + [200] * 4
    assert after[1].json()["steps"] == after[3].json()["first_step"] == []
    assert [answer.status_code for answer in ask_again([answer.headers["ETag"] for answer in after])] == [304] * 5


def test_a_job_that_still_trains_loses_nothing(database, kept, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=100, state="running")
    with database.write() as session:
        session.get_one(Job, job_id).created_at -= OLD
    assert droppable(kept, database) == []


def test_old_logs_and_checkpoints_of_ended_runs_go(database, kept, recorded, tmp_path):
    ended, live = (recorded({"nvfp4": 0.0}, done=10, state=state) for state in ("finished", "running"))
    with database.read() as session:
        ids = [session.scalars(select(Run.id).where(Run.job_id == job).limit(1)).one() for job in (ended, live)]
    logs, checkpoints = tmp_path / "logs" / "runs", kept.checkpoints
    logs.mkdir(parents=True)
    made = []
    for run_id in (*ids, "r-mine"):
        (logs / f"{run_id}-1.log").write_text("hello")
        (checkpoints / run_id).mkdir(parents=True)
        (checkpoints / run_id / "state").write_text("weights")
        (kept.artifacts / f"{run_id}-1").mkdir(parents=True)
        (kept.artifacts / f"{run_id}-1" / "a.xplane.pb").write_text("report")
        made += [logs / f"{run_id}-1.log", checkpoints / run_id, kept.artifacts / f"{run_id}-1"]
    (logs / f"{ids[0]}-2.log").write_text("new")
    for path in made:
        os.utime(path, (time.time() - OLD,) * 2)
    dropped = drop(kept, database)
    assert [(one.what, one.run_id, one.size_bytes) for one in dropped] == [
        ("log", ids[0], 5),
        ("profiles", ids[0], 6),
        ("checkpoints", ids[0], 7),
    ]
    assert [path.exists() for path in made] == [False] * 3 + [True] * 6
    assert (logs / f"{ids[0]}-2.log").exists()


def test_the_list_is_printed_and_nothing_dropped_without_apply(database, kept, recorded, monkeypatch, capsys):
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.status, job.finished_at = "cancelled", time.time() - OLD
    monkeypatch.setattr(retention, "Settings", lambda: kept)
    for arguments, left in ((), 4), (("--apply",), 2):
        monkeypatch.setattr(sys, "argv", ["retention", *arguments])
        assert retention.main() == 0
        assert _chunks(database, job_id) == left
        assert "the job has ended without a verdict (cancelled)" in capsys.readouterr().out
