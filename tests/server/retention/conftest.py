"""Settings that delete after a month, and the passing of 40 days."""

from __future__ import annotations

import pytest

from server.database.tables import Event, Job
from server.retention.keeper import delete_batch, plan

OLD = 40 * 86_400


@pytest.fixture
def kept(settings):
    return settings.model_copy(update={"retention_days": 30.0, "retention_event_days": 30.0})


@pytest.fixture
def age(database):
    """A function that lets 40 days pass for a job and its events."""

    def pass_days(job_id: str) -> None:
        with database.write() as session:
            job = session.get_one(Job, job_id)
            if job.finished_at is not None:
                job.finished_at -= OLD
            session.query(Event).filter(Event.job_id == job_id).update(
                {Event.created_at: Event.created_at - OLD}
            )

    return pass_days


@pytest.fixture
def keeper_database(worker_database):
    """The rights with which rows are deleted: a worker's."""
    return worker_database


@pytest.fixture
def deleted(keeper_database):
    """A function that deletes what the settings no longer keep; returns (kind, run or job, rows) of
    each deletion.
    """

    def run(settings):
        return [
            (batch.what, batch.of, delete_batch(keeper_database, batch))
            for batch in plan(settings, keeper_database)
        ]

    return run
