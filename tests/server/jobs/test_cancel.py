"""Cancelling a job ends what has not ended, once, and says so of every run."""

import pytest

from server.database import events
from server.database.tables import Job
from server.errors import NotFoundError
from server.jobs.conclude import conclude
from server.jobs.lifecycle import cancel_job

pytestmark = pytest.mark.both_databases


@pytest.mark.parametrize("state", ["finished", "running", "queued"])
def test_cancel_ends_what_has_not_ended(database, recorded, state):
    job_id = recorded({"nvfp4": 0.0}, done=10, state=state)
    with database.write() as session:
        assert cancel_job(session, job_id)
        assert not cancel_job(session, job_id)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert (job.status, job.message) == ("cancelled", "cancelled by request")
        assert {run.state for run in job.runs} == {
            "finished" if state == "finished" else "cancelled"
        }
        emitted = [(event.kind, event.payload) for event in events.after(session, job_id, 1)]
        cancelled = [] if state == "finished" else sorted(run.id for run in job.runs)
        assert [payload["run"] for kind, payload in emitted if kind == "run"] == cancelled
        assert {payload["state"] for kind, payload in emitted if kind == "run"} <= {"cancelled"}
        # a reader that stops at the job's end has seen its runs'
        assert emitted[-1] == ("status", {"status": "cancelled"})
    conclude(database, job_id)
    with database.read() as session:
        assert session.get_one(Job, job_id).status == "cancelled"


def test_an_unknown_job_is_refused_by_its_id(database):
    with (
        database.write() as session,
        pytest.raises(NotFoundError, match="j000000000000-0000000000"),
    ):
        cancel_job(session, "j000000000000-0000000000")
