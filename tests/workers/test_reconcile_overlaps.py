"""Runs that are given back while their worker returns, or by two workers at once."""

import pytest

from server.database.tables import Run
from tests.overlap import overlap_with
from workers import lease
from workers.reconcile import give_back_expired

pytestmark = pytest.mark.postgresql


def _run(database, run_id):
    with database.read() as session:
        run = session.get_one(Run, run_id)
        assert run.job.runs  # read while it can be
        return run


def _expire(database, *claims):
    with database.write() as session:
        for claim in claims:
            session.get_one(Run, claim.run_id).lease_expires_at = 1.0


def test_a_worker_that_comes_back_in_time_keeps_its_run_and_holds_up_no_other(
    settings, database, both
):
    _expire(database, *both)
    back, silent = both
    at_once = overlap_with(
        database,
        lambda s: lease.renew(s, back, 60.0),
        lambda: give_back_expired(settings, database),
    )
    assert (at_once.waited, at_once.second) == (False, [silent.run_id])
    assert [_run(database, claim.run_id).state for claim in both] == ["running", "queued"]


def test_a_lost_run_is_given_back_once(settings, database, claim):
    _expire(database, claim)
    lost = {"attempt": "lost", "max_attempts": settings.max_attempts}
    at_once = overlap_with(
        database,
        lambda s: lease.give_back(
            s, s.get_one(Run, claim.run_id, with_for_update=True), "silent", **lost
        ),
        lambda: give_back_expired(settings, database),
    )
    assert (at_once.first, at_once.waited, at_once.second) == ("queued", False, [])
    assert _run(database, claim.run_id).crashes == 1
