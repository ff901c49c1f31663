"""Damage of held-out losses, and of the verdicts on them, is found; what can be is judged again."""

import pytest
from sqlalchemy import text

from server.check.__main__ import check
from server.database.tables import EvaluationBundle, Job
from server.errors import ConflictError, DamagedError
from server.jobs.conclude import conclude, judge_again
from server.jobs.evaluations import case_of
from tests.server.held_out import make_evaluations

pytestmark = pytest.mark.both_databases


def damage_of(database):
    return [damage.what for checked in check(database) for damage in checked.damage]


@pytest.fixture
def job_id(database):
    return make_evaluations(database, {"fp8": 0.0, "nvfp4": 0.06})


def planted(database, sql):
    with database.engine.begin() as connection:
        connection.execute(text(sql))


def test_a_record_without_damage_has_none(database, job_id):
    assert damage_of(database) == []


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM evaluation_bundles",
        f"UPDATE evaluation_bundles SET sha256 = '{'0' * 64}'",
    ],
)
def test_losses_that_are_not_as_they_were_sent_are_found_and_never_judged(database, job_id, sql):
    planted(database, sql)
    (what,) = damage_of(database)
    assert f"the held-out losses of job {job_id} are not as they were sent" in what
    with database.read() as session, pytest.raises(DamagedError, match="RECORD_DAMAGED"):
        case_of(session, session.get_one(Job, job_id))


def test_losses_of_another_job_are_found(database, job_id):
    other = make_evaluations(database, {"fp8": 0.03})
    with database.write() as session:
        theirs = session.get_one(EvaluationBundle, other).bundle
        session.get_one(EvaluationBundle, job_id).bundle = theirs
    assert any(job_id in what for what in damage_of(database))


def test_a_fail_that_is_rewritten_is_found_and_judged_again(database, job_id):
    with database.read() as session:
        before = {row.candidate: row.document for row in session.get_one(Job, job_id).verdicts}
    with database.write() as session, pytest.raises(ConflictError):
        judge_again(session, job_id)
    planted(database, "UPDATE verdicts SET outcome = 'pass' WHERE candidate = 'nvfp4'")
    assert any("verdict on nvfp4" in what for what in damage_of(database))
    with database.write() as session:
        judge_again(session, job_id)
    assert conclude(database, job_id)
    assert damage_of(database) == []
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert {row.candidate: row.document for row in job.verdicts} == before
        assert (job.status, job.answer) == ("concluded", "fail")


def test_a_verdict_that_is_gone_is_found_and_judged_again(database, job_id):
    planted(database, "DELETE FROM verdicts WHERE candidate = 'nvfp4'")
    assert any("its candidate nvfp4 has no verdict" in what for what in damage_of(database))
    with database.write() as session:
        judge_again(session, job_id)
    assert conclude(database, job_id)
    assert damage_of(database) == []


def test_a_worker_may_judge_them_again(database, worker_database, job_id):
    planted(database, "DELETE FROM verdicts")
    with database.write() as session:
        judge_again(session, job_id)
    assert conclude(worker_database, job_id)
    assert damage_of(database) == []


def test_damaged_losses_end_in_no_verdict(database, job_id):
    planted(database, "DELETE FROM verdicts")
    planted(database, f"UPDATE evaluation_bundles SET sha256 = '{'0' * 64}'")
    with database.write() as session:
        judge_again(session, job_id)
    assert conclude(database, job_id)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert (job.status, job.code, job.verdicts) == ("failed", "RECORD_DAMAGED", [])
