"""Charts are stored for jobs that have ended, and again for long jobs in training as they grow, a few seconds at a time."""

from types import SimpleNamespace

import pytest

from server.database.tables import Job, StoredGapChart
from server.gaps import keeper
from server.gaps.keeper import ChartKeeper
from server.retention.work import delete, plan

pytestmark = pytest.mark.both_databases
GAPS = {"nvfp4": 0.05}


def _stored(database) -> dict[str, int]:
    """The recorded steps behind each stored chart."""
    with database.read() as session:
        return {row.job_id: row.steps for row in session.query(StoredGapChart)}


def test_a_job_that_has_ended_gets_one_chart(database, worker_database, judged, recorded, end, monkeypatch):
    concluded, cancelled, training = judged(GAPS)[0], recorded(GAPS, state="running"), recorded(GAPS, state="running")
    end(cancelled)
    charts = ChartKeeper(worker_database)
    charts.work([])
    assert _stored(database) == {concluded: 6000, cancelled: 6000}
    made = []
    monkeypatch.setattr(keeper, "store_chart", lambda _, job_id: made.append(job_id))
    end(training)  # long ago
    charts.work([])
    assert made == []
    with database.write() as session:
        session.get_one(Job, training).finished_at = 4e9
    charts.work([])
    assert made == [training]


def test_a_long_job_in_training_gets_one_again_when_it_has_grown(database, worker_database, recorded, extend, monkeypatch):
    monkeypatch.setattr(keeper, "_MANY_STEPS", 4000)
    long, short = recorded(GAPS, done=1000, state="running"), recorded(GAPS, done=900, state="running")
    charts = ChartKeeper(worker_database)
    seen = []
    for done in (1001, 1005, 1008):
        extend(long, done)
        charts.work([long, short])
        seen.append(_stored(database))
    assert seen == [{long: 4004}, {long: 4004}, {long: 4032}]


def test_a_turn_is_short_and_one_failure_does_not_keep_the_rest(worker_database, judged, monkeypatch):
    jobs = {judged(GAPS)[0] for _ in range(3)}
    made = []

    def store(_, job_id):
        made.append(job_id)
        raise RuntimeError("a lock")

    now = iter(range(10**6))
    monkeypatch.setattr(keeper, "time", SimpleNamespace(monotonic=lambda: next(now)))
    monkeypatch.setattr(keeper, "_SECONDS_AT_ONCE", 1.5)  # one chart a turn, by this clock
    monkeypatch.setattr(keeper, "store_chart", store)
    charts = ChartKeeper(worker_database)
    for number in range(1, 4):
        charts.work([])
        assert len(made) == number
    assert set(made) == jobs


def test_a_curve_that_is_deleted_takes_its_chart_along(database, worker_database, recorded, end, settings):
    job = recorded(GAPS, state="running")
    end(job)
    charts = ChartKeeper(worker_database)
    charts.work([])
    for batch in plan(settings.model_copy(update={"retention_days": 30.0}), worker_database):
        delete(worker_database, batch)
    assert _stored(database) == {}
    ChartKeeper(worker_database).work([])
    assert _stored(database) == {job: 0}  # its runs ended without a curve for the judge
