"""What is exactly as old as its age stays; a moment later it goes."""

import math

import numpy as np
import pytest
from sqlalchemy import select

from server.database import events
from server.database.metrics import store
from server.database.tables import BrowserSession, Event, IdempotencyKey, Job, Run
from server.retention.batch import cutoffs
from server.retention.curves import _runs_with_several_attempts, _unneeded
from server.retention.jobs import _unneeded_jobs
from server.retention.rows import _old_events, others
from server.web.access import api_tokens

NOW = 2_000_000_000.0
LATER = math.nextafter(NOW, math.inf)


@pytest.fixture
def finished(database, recorded):
    """A job that ended without a verdict at NOW, like everything that belongs to it; its id."""
    job_id = recorded({"nvfp4": 0.0}, steps=40)
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.status, job.finished_at = "failed", NOW
        for _ in range(3):
            events.emit(session, job_id, "run", {})
        session.query(Event).update({Event.created_at: NOW})
    return job_id


def test_an_age_is_counted_back_from_now_in_days(settings):
    changed = settings.model_copy(
        update={
            "retention_days": 2.0,
            "retention_job_days": 3.0,
            "retention_event_days": 0.5,
            "retention_key_days": 1.0,
        }
    )
    old = cutoffs(changed, NOW)
    found = (old.events, old.keys, old.curves, old.jobs)
    assert found == tuple(NOW - 86_400 * days for days in (0.5, 1.0, 2.0, 3.0))
    kept = cutoffs(settings, NOW)
    assert (kept.events, kept.keys) == (NOW - 86_400 * 7, NOW - 86_400 * 30)
    assert (kept.curves, kept.jobs) == (None, None)


def test_a_job_and_its_curves_go_once_they_are_older(database, finished):
    with database.read() as session:
        of_candidate = (Run.job_id == finished, Run.arm.has(position=1))
        curves = set(session.scalars(select(Run.id).where(*of_candidate)))
        for cutoff, jobs, runs in ((NOW, set(), set()), (LATER, {finished}, curves)):
            assert set(session.scalars(_unneeded_jobs(cutoff))) == jobs
            assert set(session.scalars(_unneeded(cutoff))) == runs


def test_an_attempt_that_was_replaced_goes_once_its_job_is_older(
    database, owner_database, finished
):
    with owner_database.write() as session:
        run = session.get_one(Job, finished).runs[0]
        run.attempt_number = 2
        steps, columns = np.arange(5), {"lm_loss": np.full(5, 2.0)}
        store.append(session, run.id, "train", 2, steps, columns)
        run_id = run.id
    with database.read() as session:
        found = [
            set(session.scalars(_runs_with_several_attempts(cutoff))) for cutoff in (NOW, LATER)
        ]
    assert found == [set(), {run_id}]


@pytest.mark.parametrize("finished_at", [NOW, None])
def test_all_events_but_the_last_go_once_they_are_older(database, finished, finished_at):
    with database.write() as session:
        session.get_one(Job, finished).finished_at = finished_at
        newest = session.get_one(Job, finished).event_sequence
    with database.read() as session:
        assert _old_events(session, NOW) == []
        (old,) = _old_events(session, LATER)
    assert (old.job_id, old.last) == (finished, newest - 1)


def test_a_key_goes_once_it_is_older_and_a_login_with_its_end(database, finished):
    with database.write() as session:
        token, _ = api_tokens.create_token(session, "mine", ["view"], None)
        session.flush()
        key = {"principal": "p", "key": "k", "body_digest": "0" * 64, "job_id": finished}
        session.add(IdempotencyKey(**key, created_at=NOW))
        session.add(BrowserSession(digest="0" * 64, token_id=token.id, expires_at=LATER))
    for cutoff, now, rows in (
        (NOW, NOW, []),
        (NOW, LATER, []),
        (LATER, NOW, ["keys"]),
        (LATER, LATER + 1, ["keys", "sessions"]),
    ):
        assert [each.what for each in others(database, cutoff, now)] == rows
