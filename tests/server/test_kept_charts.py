"""A chart that is kept in memory is not shown once anything behind it has changed."""

import numpy as np
import pytest

from server.database.metrics import store
from server.database.tables import Job, Run

pytestmark = pytest.mark.both_databases
GAPS = {"nvfp4": 0.05, "mxfp8": 0.0, "mxfp4": -0.01}


@pytest.fixture
def extend(database):
    """A function that records the steps of a job's runs up to a number, with a loss."""

    def record(job_id: str, done: int, loss: float = 1.4) -> None:
        with database.write() as session:
            for run in session.query(Run).where(Run.job_id == job_id):
                steps = np.arange(run.steps_done, done)
                store.append(
                    session,
                    run.id,
                    "train",
                    run.attempt_number,
                    steps,
                    {"lm_loss": np.full(len(steps), loss)},
                )
                run.steps_done = done

    return record


@pytest.fixture
def end(database):
    """A function that ends a job in training with its runs, without a verdict."""

    def cancel(job_id: str) -> None:
        with database.write() as session:
            job = session.get_one(Job, job_id)
            job.status, job.finished_at = "cancelled", 1e9
            for run in job.runs:
                run.state = "cancelled"

    return cancel


@pytest.fixture
def curves_read(monkeypatch) -> list[str]:
    """The runs of which steps are read from here on."""
    read: list[str] = []
    tables = store.tables
    monkeypatch.setattr(store, "tables", lambda *given: read.append(given[1]) or tables(*given))
    return read


def test_it_is_read_once(api, judged, curves_read):
    job_id, _ = judged(GAPS)
    first = api.get(f"/api/v1/jobs/{job_id}/gaps").content
    assert curves_read
    curves_read.clear()
    assert api.get(f"/api/v1/jobs/{job_id}/gaps").content == first
    assert curves_read == []


def test_a_chart_of_another_shape_reads_the_curves(api, judged, curves_read):
    job_id, _ = judged(GAPS)
    whole = api.get(f"/api/v1/jobs/{job_id}/gaps").json()
    for params in ({"bins": 50}, {"from": 300}, {"to": 900}, {"spacing": "log"}):
        curves_read.clear()
        assert (
            api.get(f"/api/v1/jobs/{job_id}/gaps", params=params).json()["first_step"]
            != whole["first_step"]
        )
        assert curves_read


def test_what_is_kept_before_the_end_is_not_shown_after_it(api, recorded, extend, end):
    job = recorded(GAPS, done=1000, state="running")

    def common_steps():
        return api.get(f"/api/v1/jobs/{job}/gaps").json()["candidates"][0]["common_steps"]

    assert common_steps() == 1000
    extend(job, 1001)
    assert common_steps() == 1000
    end(job)
    assert common_steps() == 1001


def _late_step(session, job):
    store.append(
        session, job.arms[1].runs[0].id, "train", 1, np.array([1500]), {"lm_loss": np.array([1.4])}
    )


def _thinned(session, job):
    run = job.arms[1].runs[0]
    steps, columns = store.read(session, run.id, "train")
    store.append(
        session,
        run.id,
        "train",
        1,
        steps[:-1],
        {name: values[:-1] for name, values in columns.items()},
    )


def _newer_attempt(session, job):
    run = job.arms[1].runs[0]
    store.append(session, run.id, "train", 2, np.arange(1400, 1500), {"lm_loss": np.full(100, 1.4)})
    run.attempt_number = 2


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


@pytest.mark.parametrize(
    "change",
    [_late_step, _thinned, _newer_attempt, _reused, _deleted_curve, _verdict, _look, _rounding],
)
def test_a_change_of_what_it_was_computed_from_is_seen(
    api, owner_database, judged, curves_read, change
):
    job_id, _ = judged(GAPS)
    api.get(f"/api/v1/jobs/{job_id}/gaps")
    with owner_database.write() as session:
        change(session, session.get_one(Job, job_id))
    curves_read.clear()
    api.get(f"/api/v1/jobs/{job_id}/gaps")
    assert curves_read
