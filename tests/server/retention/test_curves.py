"""Retention deletes curves that no verdict needs and nothing else: every job can still be judged
again.
"""

import time

import numpy as np
import pytest
from sqlalchemy import func, select

from server.database.metrics import store
from server.database.tables import Chunk, Job, Run
from server.jobs.conclude import conclude
from server.jobs.judge_input import case_of
from server.retention import curves
from server.retention.keeper import plan

pytestmark = pytest.mark.both_databases

OLD = 40 * 86_400


def _planned(settings, database):
    return [batch for batch in plan(settings, database) if batch.what in ("curve", "attempt")]


def _verdicts(database, job_id):
    with database.read() as session:
        return case_of(session, session.get_one(Job, job_id)).documents()


def _chunks(database, job_id):
    with database.read() as session:
        return session.scalar(
            select(func.count())
            .select_from(Chunk)
            .join(Run, Run.id == Chunk.run_id)
            .where(Run.job_id == job_id)
        )


def test_a_concluded_job_keeps_its_curves_and_loses_replaced_attempts(
    database, kept, recorded, age, deleted
):
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        runs = session.scalars(select(Run).where(Run.job_id == job_id).order_by(Run.position)).all()
        for run in runs[:2]:  # a second attempt from step 1000 on
            steps, columns = store.read(session, run.id, "train")
            tail = {name: values[1000:] for name, values in columns.items()}
            store.append(session, run.id, "train", 2, steps[1000:], tail)
            store.append(
                session,
                run.id,
                "train",
                1,
                np.arange(1500, 1600),
                {name: np.zeros(100) for name in columns},
            )
            run.attempt_number = 2
        failed = runs[-1]
        failed.state, failed.message = "failed", "out of memory"
        failed_id = failed.id
    conclude(database, job_id)
    before = _verdicts(database, job_id)
    assert _planned(kept, database) == []  # not old enough
    age(job_id)
    assert _planned(kept.model_copy(update={"retention_days": None}), database) == []
    listed = _planned(kept, database)
    assert sorted(batch.what for batch in listed) == ["attempt", "attempt", "curve"]
    assert all(batch.rows == 1 and batch.size_bytes > 0 for batch in listed)
    chunks = _chunks(database, job_id)
    assert {(batch.what, batch.of, 1) for batch in listed} < {*deleted(kept)}
    assert _chunks(database, job_id) == chunks - 3
    assert _verdicts(database, job_id) == before
    assert _planned(kept, database) == []
    with database.read() as session:
        message = session.get_one(Run, failed_id).message
        assert message.startswith("out of memory; its curve was deleted on 20")


def test_a_long_curve_goes_in_parts(database, kept, recorded, deleted, monkeypatch):
    monkeypatch.setattr(curves, "CHUNKS_AT_ONCE", 1)
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.status, job.finished_at = "failed", time.time() - OLD
        run = next(run for run in job.runs if run.arm.role == "candidate")
        store.append(session, run.id, "validation", 1, np.arange(3), {"loss": np.ones(3)})
    assert [what for what, of, _ in deleted(kept) if of == run.id] == ["curve", "curve"]
    with database.read() as session:
        assert session.get_one(Run, run.id).message.count("its curve was deleted") == 1


def test_a_job_without_a_verdict_keeps_its_baseline_only(database, kept, recorded, deleted):
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.status, job.finished_at = "failed", time.time() - OLD
    deleted(kept)
    with database.read() as session:
        left = {
            run.arm.name: len(store.read(session, run.id, "train")[0])
            for run in session.get_one(Job, job_id).runs
        }
    assert left == {"fp8_current": 1500, "nvfp4": 0}


def test_the_tag_of_a_dropped_curve_does_not_match_any_more(api, database, kept, recorded, deleted):
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.status, job.finished_at = "cancelled", time.time() - OLD
        stays, goes = (f"/api/v1/runs/{arm.runs[0].id}" for arm in job.arms)
    paths = [
        f"{stays}/steps",
        f"{goes}/steps",
        f"{goes}/metrics",
        f"/api/v1/jobs/{job_id}/gap",
        f"/api/v1/jobs/{job_id}/overlay",
    ]

    def ask_again(tags):
        return [
            api.get(path, headers={"If-None-Match": tag})
            for path, tag in zip(paths, tags, strict=True)
        ]

    tags = [api.get(path).headers["ETag"] for path in paths]
    assert [answer.status_code for answer in ask_again(tags)] == [304] * 5
    deleted(kept)
    after = ask_again(tags)
    assert [answer.status_code for answer in after] == [304] + [200] * 4
    assert after[1].json()["steps"] == after[3].json()["first_step"] == []
    assert [
        answer.status_code for answer in ask_again([answer.headers["ETag"] for answer in after])
    ] == [304] * 5


def test_a_job_that_still_trains_loses_nothing(database, kept, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=100, state="running")
    with database.write() as session:
        session.get_one(Job, job_id).created_at -= OLD
    assert _planned(kept, database) == []


def test_a_curve_that_became_needed_after_the_plan_stays(database, kept, recorded):
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.status, job.finished_at = "cancelled", time.time() - OLD
        candidate = next(run.id for run in job.runs if run.arm.role == "candidate")
    batch = next(batch for batch in _planned(kept, database) if batch.of == candidate)
    other = recorded({"nvfp4": 0.0})
    with database.write() as session:
        session.get_one(Job, other).runs[0].reused_from = candidate
    with database.write() as session:
        assert batch.delete(session) == 0
    assert _chunks(database, job_id) == 4


def test_replaced_steps_of_every_kind_go(database, recorded, age):
    job_id = recorded({"nvfp4": 0.0}, done=10)
    conclude(database, job_id)
    at = np.arange(10)
    with database.write() as session:
        run = session.get_one(Job, job_id).runs[0]
        for attempt_number, kind in ((1, "layers"), (2, "layers"), (2, "train")):
            store.append(session, run.id, kind, attempt_number, at, {"x": at * 1.0})
        run.attempt_number = 2
    age(job_id)
    (batch,) = curves.curve_batches(database, time.time())
    assert (batch.of, batch.rows) == (run.id, 2)
