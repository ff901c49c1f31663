"""Moves are compare-and-set along the legal edges only."""

import pytest

from server.database.states import JOB_ENDED, JOB_MOVES, RUN_ENDED, RUN_MOVES, move_job, move_run
from server.database.tables import Job, Run

pytestmark = pytest.mark.both_databases


def test_every_named_state_has_its_moves():
    for moves in (JOB_MOVES, RUN_MOVES):
        assert {end for ends in moves.values() for end in ends} <= set(moves)
    assert {"concluded", "failed", "cancelled"} == JOB_ENDED
    assert {"finished", "failed", "cancelled"} == RUN_ENDED


def test_an_illegal_move_is_refused_by_name(database):
    with (
        database.write() as session,
        pytest.raises(ValueError, match="move finished -> running is not allowed"),
    ):
        move_run(session, "r", ("finished",), "running")


def test_the_second_mover_changes_nothing(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=0, state="queued")
    with database.write() as session:
        assert move_job(session, job_id, ("queued",), "running", started_at=1.0)
        assert not move_job(session, job_id, ("queued",), "running", started_at=2.0)
    with database.read() as session:
        assert session.get_one(Job, job_id).started_at == 1.0


def test_a_move_of_an_older_attempt_is_fenced(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=0, state="running")
    with database.write() as session:
        run = session.query(Run).where(Run.job_id == job_id).first()
        assert not move_run(
            session, run.id, ("running",), "finished", holder=run.attempt_number - 1
        )
        assert move_run(session, run.id, ("running",), "finished", holder=run.attempt_number)
