"""A stored chart is value by value the one that is computed from the curves, and is not shown once anything behind it has changed."""

import numpy as np
import pytest

from server.database import store
from server.database.tables import Job, Run, StoredGapChart
from server.gaps.stored import drop_charts, store_chart
from server.jobs.conclude import conclude

pytestmark = pytest.mark.both_databases
GAPS = {"nvfp4": 0.05, "mxfp8": 0.0, "mxfp4": -0.01}


@pytest.fixture
def odd(database, recorded):
    """A concluded job with all that a chart can show: spikes, NaN and infinite losses, and a candidate that stopped early."""
    job_id = recorded(GAPS)
    with database.write() as session:
        first, second, third = session.get_one(Job, job_id).arms[1:]
        for run, changes in ((first.runs[0], {500: 9.0, 900: 9.0}), (second.runs[1], {3: np.nan, 4: np.inf})):
            steps, columns = store.read(session, run.id, "train")
            for step, loss in changes.items():
                columns["lm_loss"][step] = loss
            store.append(session, run.id, "train", 1, steps, columns)
        for run in third.runs:
            steps, columns = store.read(session, run.id, "train")
            columns = {name: values[:600] for name, values in columns.items()}
            store.append(session, run.id, "train", 1, steps[:600], columns)
            run.steps_done = 600
    conclude(database, job_id)
    return job_id


@pytest.mark.parametrize("chosen", ["", "mxfp4", "mxfp4,nvfp4"])
def test_it_equals_the_computed_one(api, worker_database, odd, curves_read, chosen):
    def answer():
        return api.get(f"/api/v1/jobs/{odd}/gaps", params={"candidates": chosen} if chosen else {}).content

    computed = answer()
    assert curves_read
    assert store_chart(worker_database, odd)
    curves_read.clear()
    assert answer() == computed
    assert curves_read == []


def test_a_chart_of_another_shape_reads_the_curves(api, worker_database, odd, curves_read):
    store_chart(worker_database, odd)
    whole = api.get(f"/api/v1/jobs/{odd}/gaps").json()
    for params in ({"bins": 50}, {"from": 300}, {"to": 900}, {"spacing": "log"}):
        curves_read.clear()
        assert api.get(f"/api/v1/jobs/{odd}/gaps", params=params).json()["first_step"] != whole["first_step"]
        assert curves_read


def test_a_chart_of_a_job_in_training_counts_until_a_hundredth_is_new(api, worker_database, recorded, extend):
    job = recorded(GAPS, done=1000, state="running")
    store_chart(worker_database, job)

    def common_steps(done):
        extend(job, done)
        return api.get(f"/api/v1/jobs/{job}/gaps").json()["candidates"][0]["common_steps"]

    assert [common_steps(done) for done in (1001, 1009, 1011, 1015)] == [1000, 1000, 1011, 1011]


def test_what_is_stored_before_the_end_is_not_shown_after_it(api, worker_database, recorded, extend, end):
    job = recorded(GAPS, done=1000, state="running")
    store_chart(worker_database, job)
    extend(job, 1001)
    end(job)
    assert api.get(f"/api/v1/jobs/{job}/gaps").json()["candidates"][0]["common_steps"] == 1001
    store_chart(worker_database, job)
    assert api.get(f"/api/v1/jobs/{job}/gaps").json()["candidates"][0]["common_steps"] == 1001


def _late_step(session, job):
    store.append(session, job.arms[1].runs[0].id, "train", 1, np.array([1500]), {"lm_loss": np.array([1.4])})


def _thinned(session, job):
    run = job.arms[1].runs[0]
    steps, columns = store.read(session, run.id, "train")
    store.append(session, run.id, "train", 1, steps[:-1], {name: values[:-1] for name, values in columns.items()})


def _newer_attempt(session, job):
    run = job.arms[1].runs[0]
    store.append(session, run.id, "train", 2, np.arange(1400, 1500), {"lm_loss": np.full(100, 1.4)})
    run.epoch = 2


def _reused(session, job):
    first, second = job.arms[0].runs
    second.reused_from = first.id


def _deleted_curve(_session, job):
    job.arms[1].runs[0].message = "its curve was deleted"


def _verdict(session, job):
    session.delete(job.verdicts[0])


def _look(_session, job):
    job.look, job.look_candidates = 1, 9


def _rounding(_session, job):
    job.arms[1].runs[0].rounding = "stochastic"


@pytest.mark.parametrize("change", [_late_step, _thinned, _newer_attempt, _reused, _deleted_curve, _verdict, _look, _rounding])
def test_a_change_of_what_it_was_computed_from_is_seen(api, database, owner_database, worker_database, judged, curves_read, change):
    job_id, _ = judged(GAPS)
    store_chart(worker_database, job_id)
    with owner_database.write() as session:
        change(session, session.get_one(Job, job_id))
    curves_read.clear()
    shown = api.get(f"/api/v1/jobs/{job_id}/gaps").content
    assert curves_read
    with owner_database.write() as session:
        session.query(StoredGapChart).delete()
    assert api.get(f"/api/v1/jobs/{job_id}/gaps").content == shown


def test_a_job_without_steps_has_an_empty_chart(api, worker_database, recorded, end):
    job = recorded(GAPS, done=0, state="running")
    end(job)
    computed = api.get(f"/api/v1/jobs/{job}/gaps").content
    assert store_chart(worker_database, job)
    assert api.get(f"/api/v1/jobs/{job}/gaps").content == computed


def test_a_job_that_is_gone_gets_no_chart(worker_database):
    assert not store_chart(worker_database, "j000000000000-0000000000")


def test_a_chart_goes_with_the_curves_of_its_job_and_of_those_that_it_reuses(database, worker_database, judged):
    first, second, third = (judged({"nvfp4": 0.0})[0] for _ in range(3))
    with database.write() as session:
        source = session.get_one(Job, first).runs[0].id
        session.get_one(Job, second).runs[0].reused_from = source
    for job_id in (first, second, third):
        store_chart(worker_database, job_id)
    with worker_database.write() as session:
        drop_charts(session, [source])
    with database.read() as session:
        assert [row.job_id for row in session.query(StoredGapChart)] == [third]
        assert session.query(Run).count() == 12
