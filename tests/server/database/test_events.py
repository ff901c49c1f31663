"""Events of a job are numbered without gaps, in their order."""

import pytest

from server.database import events

pytestmark = pytest.mark.both_databases


def test_events_of_one_call_are_numbered_in_their_order(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=0, state="queued")
    with database.write() as session:
        assert events.emit_all(session, job_id, [("metric", {"at": 1}), ("status", {"at": 2})]) == 3
    with database.read() as session:
        assert [(event.sequence, event.kind) for event in events.after(session, job_id, 1)] == [
            (2, "metric"),
            (3, "status"),
        ]
