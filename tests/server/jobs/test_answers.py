"""A question that failed stays failed, in whichever words it is asked again; and what ends that."""

import json
import time
from functools import partial

import pytest
from fastapi.testclient import TestClient

from parity.gate.exit_under_rules import exit_code_under
from parity.gate.outcome import GateOutcome, ended
from parity.gate.rules import GateRules
from server.database.tables import Job, Verdict, new_id
from server.retention.keeper import delete_batch, plan
from server.web.access import api_tokens

COMMITS = ["a" * 40, "b" * 40]


@pytest.fixture
def gate(judge_gate, monkeypatch):
    """`judge_gate` with verdicts of which only the outcome is on record."""
    monkeypatch.setattr("server.documents.jobs.shown_documents", lambda *_: [])
    return judge_gate


@pytest.fixture
def judge_gate(api):
    def ask(request, code=None, **more):
        reply = api.post("/api/v1/jobs:gate", json={"max_age_days": 7.0, **request, **more})
        if code is not None:
            assert reply.status_code == code, reply.text
        return reply.json()

    return ask


@pytest.fixture
def end(database):
    """A function that ends a job with one verdict for each candidate, some days ago."""

    def conclude_as(job_id, outcome, days=0.0):
        at = time.time() - 86_400 * days
        code = {"pass": "WITHIN_MARGIN", "fail": "GAP_EXCEEDS_MARGIN"}.get(
            outcome, "CI_STRADDLES_MARGIN"
        )
        with database.write() as session:
            job = session.get_one(Job, job_id)
            job.status, job.finished_at = "concluded", at
            job.created_at = min(job.created_at, at)
            for arm in job.arms[1:]:
                document = json.dumps({"codes": [code], "verdict": outcome})
                row = {
                    "job_id": job_id,
                    "candidate": arm.name,
                    "outcome": outcome,
                    "document": document,
                    "lead": outcome,
                }
                session.add(Verdict(id=new_id("v"), created_at=at, code=code, **row))

    return conclude_as


@pytest.fixture
def external(request_body):
    """The gate of a user's own trainer."""
    return {
        **request_body,
        "job": {**request_body["job"], "engine": "external"},
        "revision": COMMITS[0],
    }


def found(reply):
    return reply["found"], (reply["job"] or {}).get("id")


@pytest.mark.parametrize("policy", [{}, {"looks": 1}, {"question": "my own"}])
def test_a_fail_of_external_curves_is_no_pass_after_a_fresh_gate(
    database, external, gate, end, policy
):
    external["policy"] |= policy
    first = gate(external, 202)["job"]["id"]
    end(first, "fail")
    refused = gate(external, 409, fresh=True)
    assert (refused["type"], first in refused["detail"], "new-question" in refused["detail"]) == (
        "urn:parity:problem:look",
        True,
        True,
    )
    assert found(gate(external, 200)) == ("concluded", first)


@pytest.mark.parametrize(
    "words",
    [
        {"revision": "main"},
        {"revision": "HEAD"},
        {"revision": COMMITS[0][:12]},
        {"revision": COMMITS[0].upper()},
        {"revision": ""},
        {"policy": {"margin": "1.0%", "question": "another"}},
        {"policy": {"margin": "1.001%"}},
    ],
)
@pytest.mark.parametrize("days", [0.0, 0.6, 30.0])
def test_other_words_for_external_curves_are_a_look_at_the_same_question(
    external, gate, end, words, days
):
    first = gate(external, 202)["job"]["id"]
    end(first, "fail", days)
    assert first in gate(external, 409, **words)["detail"]


def test_another_commit_of_external_curves_is_other_code_and_its_answer_names_the_earlier_one(
    external, gate, end
):
    first = gate(external, 202)["job"]["id"]
    end(first, "fail")
    reply = gate(external, 202, revision=COMMITS[1])
    assert reply["found"] == "new"
    assert len(reply["earlier"]) == 1
    assert reply["earlier"][0].startswith(f"job {first}: fail at revision {COMMITS[0][:8]}")
    end(reply["job"]["id"], "pass")
    assert found(gate(external, 200, revision=COMMITS[1])) == ("concluded", reply["job"]["id"])
    assert first in gate(external, 409, fresh=True)["detail"]  # back to the commit that failed


def test_two_names_of_external_jobs_and_two_owners_are_two_questions(api, external, gate, end):
    first = gate(external, 202)["job"]["id"]
    end(first, "fail")
    assert gate({**external, "job": {**external["job"], "name": "another"}}, 202)["found"] == "new"


@pytest.fixture
def with_tokens(application, api_settings, database):
    """A function that asks with the token of a name, whose repository is in the name after @."""
    app, made = application(api_settings.model_copy(update={"require_tokens": True})), {}
    with database.write() as session:
        for name in ("ann@team/model", "bob@team/model", "eve@team/other"):
            made[name] = api_tokens.create_token(
                session, name.split("@")[0], ["submit"], None, repository=name.split("@")[1]
            )[1]
        made["root"] = api_tokens.create_token(session, "root", ["admin"], None)[1]

    with TestClient(app, base_url="http://127.0.0.1") as client:

        def ask(who, path, body):
            return client.post(
                f"/api/v1/{path}", json=body, headers={"Authorization": f"Bearer {made[who]}"}
            )

        yield ask


@pytest.fixture
def pin_external(monkeypatch):
    """External curves count for each repository, and verdicts are not shown."""
    monkeypatch.setattr("server.api.gate.pinned", lambda *_: None)
    monkeypatch.setattr("server.documents.jobs.shown_documents", lambda *_: [])


def test_another_token_of_the_repository_looks_at_the_same_question(
    with_tokens, pin_external, external, end
):
    first = with_tokens("ann@team/model", "jobs:gate", external).json()["job"]["id"]
    end(first, "fail")
    renamed = {**external, "job": {**external["job"], "name": "another name"}, "fresh": True}
    assert with_tokens("bob@team/model", "jobs:gate", renamed).status_code == 409
    assert with_tokens("eve@team/other", "jobs:gate", renamed).status_code == 202


@pytest.mark.both_databases
def test_an_operator_registers_a_new_question_in_the_log(with_tokens, pin_external, external, end):
    first = with_tokens("ann@team/model", "jobs:gate", external).json()["job"]["id"]
    reason = {"reason": "node 7 computed wrong sums"}
    # nothing was answered
    assert with_tokens("root", f"jobs/{first}:new-question", reason).status_code == 409
    end(first, "fail")
    assert with_tokens("ann@team/model", f"jobs/{first}:new-question", reason).status_code == 403
    assert with_tokens("root", f"jobs/{first}:new-question", {"reason": "short"}).status_code == 422
    logged = with_tokens("root", f"jobs/{first}:new-question", reason).json()
    assert (logged["notes"][-1]["who"], "node 7" in logged["notes"][-1]["text"]) == ("root", True)
    again = with_tokens("ann@team/model", "jobs:gate", {**external, "fresh": True})
    assert (again.status_code, again.json()["earlier"][0][: len(first) + 10]) == (
        202,
        f"job {first}: fail",
    )
    end(again.json()["job"]["id"], "fail")  # one registration is one new question
    assert (
        with_tokens("ann@team/model", "jobs:gate", {**external, "fresh": True}).status_code == 409
    )


@pytest.mark.parametrize(
    ("outcome", "days", "code"),
    [("fail", 0.6, 409), ("fail", 400, 409), ("inconclusive", 0.6, 202), ("pass", 0.6, 202)],
)
def test_time_renews_no_fail(request_body, gate, end, outcome, days, code):
    first = gate({**request_body, "revision": "r"}, 202)["job"]["id"]
    end(first, outcome, days)
    gate({**request_body, "revision": "r"}, code, fresh=True)


@pytest.mark.parametrize("days", [8.0, 400.0])
def test_an_old_fail_still_answers_a_gate_that_is_not_fresh(request_body, gate, end, days):
    first = gate({**request_body, "revision": "r"}, 202)["job"]["id"]
    end(first, "fail", days)
    for revision in ("r", "another"):
        assert found(gate({**request_body, "revision": revision}, 200)) == ("concluded", first)


def test_another_trainer_ends_a_fail(judged, gate, register):
    register(code_sha256="b" * 64)
    job_id, request = judged({"nvfp4": 0.3})
    assert gate(request, 202)["job"]["id"] != job_id


@pytest.fixture
def failed_and_passed(judged, register, database):
    """A job that failed, a newer one that passed, and the request of both."""
    register()
    (failed, _), (passed, request) = judged({"nvfp4": 0.3}), judged({"nvfp4": 0.0}, rerun=1)
    with database.write() as session:
        for job_id in (failed, passed):
            session.get_one(Job, job_id).arms[1].asked = "a" * 32
    return failed, passed, request


def test_a_fail_stands_against_a_pass_of_the_same_question(failed_and_passed, judge_gate, api):
    """Whatever made the pass: a race between two gates, or a job that an earlier version took for
    another question.
    """
    failed, passed, request = failed_and_passed
    for lookup in (False, True):
        reply = judge_gate(request, 200, lookup=lookup)
        assert (found(reply), "parity new-question" in reply["reason"]) == (
            ("concluded", failed),
            True,
        )
        assert reply["earlier"][0].startswith(f"job {passed}: pass")
    assert (
        api.post(
            f"/api/v1/jobs/{failed}:new-question", json={"reason": "a broken node"}
        ).status_code
        == 201
    )
    assert found(judge_gate(request, 200)) == ("concluded", passed)


def test_a_fail_that_another_trainer_made_stands_against_no_pass(
    failed_and_passed, judge_gate, database
):
    failed, passed, request = failed_and_passed
    with database.write() as session:
        for run in session.get_one(Job, failed).runs:
            run.manifest = {**run.manifest, "code_sha256": "c" * 64}
    assert found(judge_gate(request, 200)) == ("concluded", passed)


def test_a_fail_by_another_margin_stands_against_no_pass(failed_and_passed, judge_gate, database):
    failed, passed, request = failed_and_passed
    with database.write() as session:
        job = session.get_one(Job, failed)
        job.policy = {**job.policy, "margin": "0.1 %"}
    assert found(judge_gate(request, 200)) == ("concluded", passed)


def test_a_registered_further_look_takes_the_place_of_a_fail(
    failed_and_passed, judge_gate, database
):
    failed, passed, request = failed_and_passed
    with database.write() as session:
        for number, job_id in enumerate((failed, passed), 1):
            job = session.get_one(Job, job_id)
            job.look, job.arms[1].question = number, "b" * 64
    assert found(judge_gate(request, 200)) == ("concluded", passed)


def test_what_counts_as_a_commit():
    from server.jobs.ledger import is_other_code

    job = partial(Job, engine="external")
    first, second = (job(revision=each) for each in COMMITS)
    assert is_other_code(first, second)
    assert not is_other_code(first, job(revision=COMMITS[0].upper()))
    assert not is_other_code(first, job(revision="main"))
    assert not is_other_code(
        Job(engine="emulated", revision=COMMITS[0]), Job(engine="emulated", revision=COMMITS[1])
    )


@pytest.mark.both_databases
def test_a_job_says_whose_fail_stands_against_its_pass(failed_and_passed, api):
    """Also a gate that began before the fail, and only follows its own job, learns of it."""
    failed, passed, _ = failed_and_passed
    assert [
        api.get(f"/api/v1/jobs/{job_id}").json()["failed_by"] for job_id in (failed, passed)
    ] == [None, failed]
    shown = [
        f"/jobs/{failed}" in api.get(f"/jobs/{job_id}").text.partition("<h1")[0]
        for job_id in (failed, passed)
    ]
    assert shown == [False, True]


def test_the_exit_code_of_a_gate_is_that_of_the_fail_that_stands(failed_and_passed, api):
    failed, passed, _ = failed_and_passed
    outcome = ended(
        GateOutcome(result="infrastructure", revision="", job=passed),
        api.get(f"/api/v1/jobs/{passed}").json(),
    )
    assert exit_code_under(outcome, GateRules())[0] == 1
    assert failed in outcome.line
    assert "new-question" in outcome.line


def test_two_gates_at_once_under_two_words_end_as_the_fail(request_body, gate, end):
    """A race: both begin before anything is known. Whichever passes, the other's fail stands,
    however late it comes.
    """
    first = gate({**request_body, "revision": "a"}, 202)["job"]["id"]
    second = gate({**request_body, "revision": "b"}, 202)["job"]["id"]
    assert first != second
    end(first, "pass")
    assert found(gate({**request_body, "revision": "a"}, 200)) == ("concluded", first)
    end(second, "fail")
    for revision in ("a", "b"):
        assert found(gate({**request_body, "revision": revision}, 200)) == ("concluded", second)


def test_two_gates_at_once_under_one_word_are_one_job(request_body, gate):
    replies = [gate({**request_body, "revision": "a"}) for _ in range(2)]
    assert [each["found"] for each in replies] == ["new", "running"]
    assert len({each["job"]["id"] for each in replies}) == 1


def test_another_engine_after_a_fail_is_a_further_look(request_body, gate, end):
    job = {
        **request_body["job"],
        "model": {"preset": "llama3-1m-by128"},
        "layer_policy": "all_linears",
    }
    first = gate({**request_body, "job": {**job, "engine": "emulated"}, "revision": "r"}, 202)[
        "job"
    ]["id"]
    end(first, "fail")
    other = {**request_body, "job": {**job, "engine": "transformer_engine"}, "revision": "r"}
    assert first in gate(other, 409)["detail"]


def test_another_engine_after_a_pass_is_asked(request_body, gate, end):
    job = {**request_body["job"], "model": {"preset": "llama3-1m-by128"}}
    first = gate({**request_body, "job": {**job, "engine": "emulated"}, "revision": "r"}, 202)[
        "job"
    ]["id"]
    end(first, "pass")
    assert (
        gate(
            {**request_body, "job": {**job, "engine": "transformer_engine"}, "revision": "r"}, 202
        )["job"]["id"]
        != first
    )


@pytest.mark.both_databases
def test_retention_forgets_no_fail(external, gate, end, owner_database, settings):
    """The fail of a user's own runs is kept as a look: deleting old jobs gives nobody another
    chance.
    """
    first = gate(external, 202)["job"]["id"]
    end(first, "fail", days=90.0)
    kept = settings.model_copy(update={"retention_job_days": 30.0})
    for batch in plan(kept, owner_database):
        delete_batch(owner_database, batch)
    assert first in gate(external, 409, fresh=True)["detail"]


def test_a_clock_that_went_backwards_ends_no_fail(request_body, gate, end):
    first = gate({**request_body, "revision": "r"}, 202)["job"]["id"]
    end(first, "fail", days=-3.0)  # it finished in the future
    gate({**request_body, "revision": "r"}, 409, fresh=True)
    assert found(gate({**request_body, "revision": "s"}, 200)) == ("concluded", first)
