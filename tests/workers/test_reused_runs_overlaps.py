"""A curve that is reused and deleted at once: transactions that overlap."""

import dataclasses
import time

import pytest

from server.database import clock
from server.database.tables import Job, Run
from server.retention import curves, jobs
from tests.overlap import overlap
from workers import lease

pytestmark = pytest.mark.postgresql
OLD = 40 * 86_400.0


def _claim(database, worker, seconds=60.0):
    with database.write() as session:
        return lease.claim(session, worker, seconds)


def _run(database, run_id):
    with database.read() as session:
        run = session.get_one(Run, run_id)
        assert run.job.runs  # read while it can be
        return run


@pytest.fixture
def reusing(database, recorded, submit, make_worker):
    """Runs of an old job that was cancelled, and the claim of a run that may reuse their curves."""
    with database.write() as session:
        job = session.get_one(Job, recorded({"nvfp4": 0.0}, steps=40, replicates=1))
        job.status, job.finished_at = "cancelled", clock.now(session) - OLD
        for run in job.runs:
            run.fingerprint = f"f-{run.arm.name}"
        job.arms[1].question = "q"
        baseline, candidate = (arm.runs[0].id for arm in job.arms)
    submit()
    claim = dataclasses.replace(_claim(database, make_worker()), reuses=True, question="q")
    return baseline, candidate, claim


def _chunks(database, run_id):
    with database.read() as session:
        keys = curves.chunk_keys(session, [run_id])
        return [key for part in keys for key in part]


def test_a_curve_that_is_being_deleted_is_not_reused(database, reusing):
    _, candidate, claim = reusing
    keys = _chunks(database, candidate)
    both = overlap(
        database,
        lambda s: curves._drop("curve", candidate, time.time(), keys, s),
        lambda s: lease.finish_with_equal_run(s, claim, "f-nvfp4"),
    )
    assert (both.first, both.waited, both.second) == (len(keys), True, False)
    assert _run(database, claim.run_id).state == "running"


def test_a_curve_that_is_being_reused_is_not_deleted(database, reusing):
    _, candidate, claim = reusing
    keys = _chunks(database, candidate)
    both = overlap(
        database,
        lambda s: lease.finish_with_equal_run(s, claim, "f-nvfp4"),
        lambda s: curves._drop("curve", candidate, time.time(), keys, s),
    )
    assert (both.first, both.waited, both.second) == (True, True, 0)
    assert _run(database, claim.run_id).reused_from == candidate
    assert _chunks(database, candidate) == keys


def test_a_job_whose_curve_is_being_reused_is_not_deleted(database, reusing):
    baseline, _, claim = reusing
    claim, job_id = dataclasses.replace(claim, question=None), _run(database, baseline).job_id
    both = overlap(
        database,
        lambda s: lease.finish_with_equal_run(s, claim, "f-fp8_current"),
        lambda s: jobs._drop_jobs(job_id, time.time(), s),
    )
    assert (both.first, both.waited, both.second) == (True, True, 0)
    assert _run(database, claim.run_id).reused_from == baseline
    assert _chunks(database, baseline)
