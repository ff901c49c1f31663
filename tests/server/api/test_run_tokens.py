"""Whose run it is: strangers, other runs' trainers and ended attempts write nothing, whatever
tokens they have.
"""

from functools import partial

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from parity.judging.policy import policy_from_mapping
from server import logs
from server.database.metrics import store
from server.database.tables import Attempt, Run, Token
from server.jobs.submit import submit_job
from server.web.access import api_tokens
from training.spec import ArmSpec

pytestmark = pytest.mark.both_databases

ONE = {"steps": [0, 1], "columns": {"loss": [3.0, 2.0]}}


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"require_tokens": True})


class Caller:
    """The API as the holder of one token sees it."""

    def __init__(self, api: TestClient, text: str, token_id: str = "", principal: str = "") -> None:
        self.id, self.principal = token_id, principal
        self.send = partial(api.request, headers={"Authorization": f"Bearer {text}"})

    def attach(self, run, **more):
        headers = {**self.send.keywords["headers"], **more.pop("extra", {})}
        return self.send(
            "POST", f"/api/v1/runs/{run}:attach", json={"manifest": {}, **more}, headers=headers
        )

    def append(self, run, attempt_number, body=ONE):
        return self.send(
            "POST", f"/api/v1/runs/{run}/steps", params={"attempt": attempt_number}, json=body
        )

    def finish(self, run, attempt_number, outcome="finished"):
        return self.send(
            "POST",
            f"/api/v1/runs/{run}:finish",
            json={"attempt": attempt_number, "outcome": outcome},
        )


@pytest.fixture
def caller(api, database):
    """A function that makes a caller with a new token of these scopes; `of`: a further token of
    that caller's principal.
    """

    def make(*scopes, of=None):
        with database.write() as session:
            row, text = api_tokens.create_token(
                session, "-".join(scopes), scopes, None, principal_id=of and of.principal
            )
            return Caller(api, text, row.id, row.principal)

    return make


@pytest.fixture
def owner(caller):
    return caller("submit")


@pytest.fixture
def runs(database, make_job, owner):
    """The runs of both arms of a job of the owner."""
    spec = make_job(
        40,
        engine="external",
        baseline=ArmSpec(recipe="fp8_current"),
        candidates=(ArmSpec(recipe="nvfp4"),),
    )
    with database.write() as session:
        return [
            run.id
            for run in submit_job(
                session, spec, policy_from_mapping({"margin": "1%"}), owner.principal
            ).runs
        ]


def _state(database, run_id):
    """What a stranger must not change: attempts, state and recorded steps of a run, state of its
    job.
    """
    with database.read() as session:
        run = session.get_one(Run, run_id)
        steps, columns = store.read(session, run_id, "train")
        return (
            run.attempt_number,
            run.state,
            run.job.status,
            steps.tolist(),
            columns.get("lm_loss", steps).tolist(),
        )


@pytest.mark.parametrize("scopes", [("worker",), ("submit",), ("submit", "worker"), ("view",)])
def test_a_strangers_token_neither_fences_nor_forges_nor_cancels(
    api, database, owner, caller, runs, scopes
):
    run, stranger = runs[0], caller(*scopes)
    trainer = Caller(api, owner.attach(run).json()["token"])
    assert trainer.append(run, 1).status_code == 200
    before = _state(database, run)
    with database.read() as session:
        job = session.get_one(Run, run).job_id
    forged = {"steps": list(range(2, 52)), "columns": {"loss": [1.0] * 50}}
    answers = [
        stranger.attach(run),
        stranger.append(run, 1, forged),
        stranger.append(run, 2, forged),
        stranger.finish(run, 1, "failed"),
    ]
    answers += [stranger.attach(runs[1]), stranger.send("POST", f"/api/v1/jobs/{job}:cancel")]
    assert {answer.status_code for answer in answers} == {403}
    assert _state(database, run) == before
    assert trainer.append(run, 1, {"steps": [2], "columns": {"loss": [1.5]}}).status_code == 200


def test_a_refusal_says_who_may(owner, caller, runs):
    assert "token 'submit' submitted" in caller("worker").attach(runs[0]).json()["detail"]


def test_a_run_token_writes_its_run_and_attempt_and_nothing_else(api, database, owner, runs):
    first = Caller(api, owner.attach(runs[0]).json()["token"])
    owner.attach(runs[1])
    assert first.append(runs[0], 1).status_code == 200
    assert first.send("GET", f"/api/v1/runs/{runs[0]}").json()["covered"]["recorded"] == 2
    with database.read() as session:
        job = session.get_one(Run, runs[0]).job_id
    refused = [
        first.append(runs[1], 1),
        first.attach(runs[1]),
        first.finish(runs[1], 1),
        first.append(runs[0], 2),
    ]
    refused += [
        first.send("POST", f"/api/v1/jobs/{job}:cancel"),
        first.send("GET", f"/api/v1/jobs/{job}"),
        first.send("GET", "/metrics"),
    ]
    refused += [
        first.send("GET", f"/api/v1/runs/{runs[1]}"),
        first.send("POST", "/api/v1/tokens", json={"name": "x", "scopes": ["admin"]}),
    ]
    assert {answer.status_code for answer in refused} == {403}
    assert _state(database, runs[1])[3] == []


def test_the_token_of_a_fenced_attempt_is_dead(api, database, owner, runs):
    run = runs[0]
    old = Caller(api, owner.attach(run).json()["token"])
    new = Caller(api, old.attach(run).json()["token"])  # a live trainer may begin its next attempt
    late = old.append(run, 1)
    assert (late.status_code, late.json()["type"]) == (409, "urn:parity:problem:stale-attempt")
    assert old.append(run, 2).status_code == 403
    assert (old.attach(run).status_code, old.send("GET", f"/api/v1/runs/{run}").status_code) == (
        401,
        401,
    )
    assert _state(database, run)[3] == []
    assert new.append(run, 2).status_code == 200


def test_a_token_ends_with_its_attempt_and_finishing_twice_changes_nothing(
    api, database, owner, runs
):
    run = runs[0]
    trainer = Caller(api, owner.attach(run).json()["token"])
    trainer.append(run, 1)
    assert [trainer.finish(run, 1).json()["state"] for _ in range(2)] == ["finished"] * 2
    before = _state(database, run)
    assert trainer.append(run, 1, {"steps": [2], "columns": {"loss": [0.1]}}).status_code == 409
    assert (
        trainer.attach(run).status_code,
        trainer.send("GET", f"/api/v1/runs/{run}").status_code,
    ) == (401, 401)
    assert _state(database, run) == before


def test_a_worker_token_of_the_owner_attaches_and_then_only_the_runs_token_writes(
    api, owner, caller, runs
):
    worker = caller("worker", of=owner)
    tokens = [worker.attach(run).json()["token"] for run in runs]
    assert {worker.append(run, 1).status_code for run in runs} == {403}
    assert [
        Caller(api, text).append(run, 1).status_code for run, text in zip(runs, tokens, strict=True)
    ] == [200, 200]
    assert [
        Caller(api, text).append(run, 1).status_code
        for run, text in zip(runs, reversed(tokens), strict=True)
    ] == [403, 403]


def test_an_attach_whose_response_was_lost_gives_the_same_attempt_another_token(api, owner, runs):
    keyed = {"extra": {"Idempotency-Key": "spool-1"}}
    lost, again = (owner.attach(runs[0], **keyed).json() for _ in range(2))
    assert lost["attempt"] == again["attempt"] == 1
    assert Caller(api, lost["token"]).append(runs[0], 1).status_code == 401
    assert Caller(api, again["token"]).append(runs[0], 1).status_code == 200


def test_a_run_that_a_worker_trains_is_written_by_nobody_over_rest(api, database, make_job, owner):
    with database.write() as session:
        job = submit_job(
            session, make_job(), policy_from_mapping({"margin": "1%"}), owner.principal
        )
        run = job.runs[0]
        run.state, run.attempt_number, job.status = "running", 1, "running"
        session.add(Attempt(run_id=run.id, attempt_number=1, state="running", started_at=1.0))
        run_id = run.id
    before = _state(database, run_id)
    assert {
        answer.status_code
        for answer in (owner.append(run_id, 1), owner.finish(run_id, 1), owner.attach(run_id))
    } == {422}
    assert _state(database, run_id) == before


def test_a_run_token_is_stored_as_a_hash_and_shown_nowhere(api, database, owner, runs, caplog):
    caplog.set_level("INFO")
    answer = owner.attach(runs[0])
    text, secret = answer.json()["token"], answer.json()["token"].rpartition("-1_")[2]
    assert answer.headers["Cache-Control"] == "no-store"
    assert len(secret) == 43
    Caller(api, text).append(runs[0], 1)
    with database.read() as session:
        (attempt,) = session.scalars(select(Attempt)).all()
        assert secret not in repr(vars(attempt))
        assert len(attempt.token_digest) == 64
        shown = api.get(
            f"/api/v1/jobs/{session.get_one(Run, runs[0]).job_id}",
            headers=owner.send.keywords["headers"],
        ).text
    for public in (
        owner.send("GET", f"/api/v1/runs/{runs[0]}").text,
        shown,
        caplog.text,
        logs.without_secrets(f"sent {text} twice"),
    ):
        assert secret not in public


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-1],
        lambda text: text + "x",
        lambda text: text.replace("-1_", "-2_"),
        lambda text: text.replace("-1_", "-01_"),
    ],
)
def test_a_wrong_run_token_is_nobody(api, owner, runs, spoil):
    text = owner.attach(runs[0]).json()["token"]
    assert Caller(api, spoil(text)).append(runs[0], 1).status_code == 401
    assert api.post("/login", data={"token": text}).status_code == 401
    assert (
        api.post(
            f"/api/v1/runs/{runs[0]}/steps", params={"attempt": 1, "token": text}, json=ONE
        ).status_code
        == 401
    )


def test_the_owner_is_the_principal_whichever_of_its_tokens_is_sent(
    api, database, owner, caller, runs
):
    other = caller("submit", of=owner)
    assert other.attach(runs[0]).status_code == 200
    assert owner.append(runs[0], 1).status_code == 200
    admin = caller("admin")
    assert admin.attach(runs[0]).json()["attempt"] == 2
    with database.write() as session:
        session.get_one(Token, other.id).principal = other.id
    assert other.attach(runs[0]).status_code == 403
