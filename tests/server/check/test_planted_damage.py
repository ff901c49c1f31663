"""Damage of every kind that is planted in a record is found by `python -m server.check`, and a
record without damage has none.
"""

import json

import pytest
from sqlalchemy import text

from parity.judging.live.pair_sums import begin
from server.check import __main__ as program
from server.check.__main__ import check, main
from server.database.states import begin_attempt, end_attempt
from server.database.tables import Job, Verdict
from server.errors import ConflictError, DamagedError
from server.jobs import answers
from server.jobs.conclude import conclude, judge_again
from server.jobs.ledger import register

pytestmark = pytest.mark.both_databases

FORECAST = {
    "state": ["open"],
    "share": [0.5],
    "step": [150],
    "gap": [0.01],
    "low": [0.0],
    "high": [0.02],
    "low_half": [0.005],
    "high_half": [0.015],
    "margin": [0.02],
    "half_width": [0.01],
    "passes": [0.4],
    "fails": [0.1],
}


@pytest.fixture
def job_id(database, recorded):
    """A concluded job with a forecast, as a version of before intervals stored it, whose look at
    its question is counted.
    """
    job_id = recorded({"nvfp4": 0.01})
    with database.write() as session:
        register(session, session.get_one(Job, job_id))
    assert conclude(database, job_id)
    with database.write() as session:
        job = session.get_one(Job, job_id)
        candidate = job.arms[1].runs[0]
        pair = {
            "attempts": [],
            "with": job.arms[0].runs[0].id,
            "next_step": 0,
            "looked": 0,
            "state": begin(300).document(),
        }
        job.early_stop = {"pairs": {candidate.id: pair}, "arms": {"nvfp4": FORECAST}}
    return job_id


def damage_of(database):
    return [damage for checked in check(database) for damage in checked.damage]


def statement(sql):
    def plant(database):
        with database.engine.begin() as connection:
            connection.execute(text(sql))

    return plant


def in_json(table, column, change):
    """Change the JSON of a column of every row of a table."""

    def plant(database):
        with database.engine.begin() as connection:
            rows = connection.execute(text(f"SELECT id, {column} FROM {table}")).all()
            for key, value in rows:
                content = json.loads(value) if isinstance(value, str) else value
                change(content)
                connection.execute(
                    text(f"UPDATE {table} SET {column} = :content WHERE id = :key"),
                    {"content": json.dumps(content), "key": key},
                )

    return plant


def pair_of(content):
    return next(iter(content["pairs"].values()))["state"]


PLANTED = {
    "every fail of a document is a pass": statement(
        "UPDATE verdicts SET document = replace(document, '\"fail\"', '\"pass\"') || ' '"
    ),
    "a job's lead": statement("UPDATE jobs SET lead = 'You may switch to nvfp4.'"),
    "an outcome": statement("UPDATE verdicts SET outcome = 'pass', code = 'PARITY'"),
    "a gap": statement("UPDATE verdicts SET gap = 0.0001"),
    "an upper end": statement("UPDATE verdicts SET ci_high = 0.0001"),
    "a lead": statement("UPDATE verdicts SET lead = 'It is fine.'"),
    "a candidate's name": statement("UPDATE verdicts SET candidate = 'mxfp8'"),
    "a digest": statement(f"UPDATE verdicts SET document_sha256 = '{'0' * 64}'"),
    "a job's answer": statement("UPDATE jobs SET answer = 'fail'"),
    "a job's answer that is gone": statement("UPDATE jobs SET answer = NULL"),
    "a job's widest gap": statement("UPDATE jobs SET worst_gap = 0.5"),
    "a status of a job that has a verdict": statement("UPDATE jobs SET status = 'failed'"),
    "what a candidate asks": statement("UPDATE arms SET asked = 'x' || substr(asked, 2)"),
    "a question that is gone": statement("UPDATE arms SET question = NULL"),
    "a policy's margin": in_json("jobs", "policy", lambda policy: policy.update(margin="7 %")),
    "a policy's name for the question": in_json(
        "jobs", "policy", lambda policy: policy.update(question="another")
    ),
    "a schedule": in_json("jobs", "spec", lambda spec: spec["schedule"].update(learning_rate=9.0)),
    "a path that is no JSON": statement("UPDATE verdicts SET path = '[{'"),
    "a verdict that is gone": statement("DELETE FROM verdicts"),
    "a policy's key of a newer version": in_json(
        "jobs", "policy", lambda policy: policy.update(next_year=1)
    ),
    "a margin that is no margin": in_json(
        "jobs", "policy", lambda policy: policy.update(margin="wide")
    ),
    "a specification's key of a newer version": in_json(
        "jobs", "spec", lambda spec: spec.update(next_year=1)
    ),
    "a specification without arms": in_json("jobs", "spec", lambda spec: spec.pop("baseline")),
    "a recipe that is no word": in_json(
        "jobs", "spec", lambda spec: spec["candidates"][0].update(overrides=[{"layers": 3}])
    ),
    "a switch of a newer version": in_json(
        "jobs", "spec", lambda spec: spec["candidates"][0].update(switches={"next_year": True})
    ),
    "a forecast's key of a newer version": in_json(
        "jobs", "early_stop", lambda stored: stored["arms"]["nvfp4"].update(next_year=[1])
    ),
    "a forecast without its gap": in_json(
        "jobs", "early_stop", lambda stored: stored["arms"]["nvfp4"].pop("gap")
    ),
    "a forecast's gap that is text": in_json(
        "jobs", "early_stop", lambda stored: stored["arms"]["nvfp4"].update(gap=["wide"])
    ),
    "sums of a forecast without their counts": in_json(
        "jobs", "early_stop", lambda stored: pair_of(stored).pop("counts")
    ),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_damage_is_found(database, owner_database, job_id, kind):
    assert damage_of(database) == []
    PLANTED[kind](owner_database)
    found = damage_of(database)
    assert found
    assert all(job_id in damage.what for damage in found)
    assert all(damage.remedies for damage in found)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE jobs SET status = 'ended'",
        "UPDATE runs SET state = 'ended'",
        "UPDATE runs SET state = 'failed'",
        "UPDATE runs SET state = 'running'",
        "UPDATE attempts SET state = 'running'",
        "UPDATE attempts SET state = 'ended'",
    ],
)
def test_a_state_that_no_version_writes_or_that_contradicts_another_is_found(
    database, owner_database, job_id, sql
):
    """`/metrics` and lists count by state."""
    with owner_database.write() as session:
        run = session.get_one(Job, job_id).runs[0]
        run.attempt_number = 1
        begin_attempt(session, run.id, 1, None)
        session.flush()
        assert end_attempt(session, run.id, 1, "finished")
    assert damage_of(database) == []
    statement(sql)(owner_database)
    assert damage_of(database)


@pytest.mark.parametrize("kind", ["an outcome", "a verdict that is gone", "a job's answer"])
def test_a_verdict_that_was_changed_is_judged_again_and_is_the_same(
    database, owner_database, job_id, settings, monkeypatch, capsys, kind
):
    def documents():
        with database.read() as session:
            return [row.document for row in session.query(Verdict).order_by(Verdict.candidate)]

    monkeypatch.setattr(program, "settings_or_exit", lambda: settings)
    assert main([]) == 0
    as_written = documents()
    PLANTED[kind](owner_database)
    assert main([]) == 1
    assert f"--judge-again {job_id}" in capsys.readouterr().out
    assert main(["--judge-again", job_id]) == 0
    assert conclude(database, job_id)
    assert documents() == as_written
    assert main([]) == 0


def test_a_job_whose_runs_the_judge_does_not_compare_needs_no_verdict(
    database, owner_database, job_id
):
    statement("DELETE FROM verdicts")(owner_database)
    assert damage_of(database)
    statement("UPDATE runs SET kind = 'why'")(owner_database)
    statement("UPDATE jobs SET answer = NULL, worst_gap = NULL, lead = NULL")(owner_database)
    assert damage_of(database) == []


def test_a_verdict_as_it_was_written_is_not_judged_again(database, job_id):
    with database.write() as session, pytest.raises(ConflictError):
        judge_again(session, job_id)


@pytest.mark.parametrize("kind", ["every fail of a document is a pass", "an outcome", "a gap"])
def test_a_changed_verdict_is_never_served(api, owner_database, job_id, kind):
    addresses = (f"/api/v1/jobs/{job_id}", f"/jobs/{job_id}", f"/api/v1/jobs/{job_id}/verdict")
    assert [api.get(address).status_code for address in addresses] == [200] * 3
    PLANTED[kind](owner_database)
    for address in addresses:
        reply = api.get(address)
        assert (reply.status_code, "RECORD_DAMAGED" in reply.text) == (500, True)
    listed = api.get("/api/v1/jobs").json()["items"][0]["verdicts"][0]
    if kind != "every fail of a document is a pass":  # a list reads no document
        assert (listed["verdict"], listed["code"]) == ("inconclusive", "RECORD_DAMAGED")
        assert listed["gap_nats"] is None
    assert api.get("/jobs").status_code == 200


def test_a_fail_that_was_rewritten_does_not_stop_to_stand(database, owner_database, recorded):
    job_id = recorded({"nvfp4": 0.2})
    assert conclude(database, job_id)
    with database.read() as session:
        assert answers.failed(session.get_one(Job, job_id))
    PLANTED["an outcome"](owner_database)
    with database.read() as session, pytest.raises(DamagedError, match=job_id):
        answers.failed(session.get_one(Job, job_id))


def test_a_verdict_of_before_there_were_digests_is_counted(database, owner_database, job_id, api):
    statement("UPDATE verdicts SET document_sha256 = NULL, columns_sha256 = NULL")(owner_database)
    assert damage_of(database) == []
    assert sum(checked.unchecked for checked in check(database)) == 1
    assert api.get(f"/jobs/{job_id}").status_code == 200
