"""Deliveries, tokens and limits: two processes at once, and two instances of each."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from parity.judging.policy import policy_from_mapping
from server import deliveries
from server.database.tables import BrowserSession, Token, Webhook, WebhookDelivery
from server.errors import ConflictError
from server.jobs.submit import submit_job
from server.web import rate_limit
from server.web.access import api_tokens, browser_sessions
from server.web.rate_limit import Limiter
from tests.overlap import overlap
from training.spec import Arm

pytestmark = pytest.mark.postgresql


# Deliveries.


@pytest.fixture
def waiting(database, make_job):
    """The ids of two deliveries of one job, which are due."""
    with database.write() as session:
        deliveries.register(session, {"hook": ("job.ended",)})
        job_id = submit_job(session, make_job(), policy_from_mapping({"margin": "1%"})).id
        about = {"webhook_id": "hook", "kind": "job.ended", "job_id": job_id, "created_at": 1.0}
        for name in ("d1", "d2"):
            session.add(WebhookDelivery(id=name, next_attempt_at=1.0, **about))
    return "d1", "d2"


def _delivery(database, name):
    with database.read() as session:
        return session.get_one(WebhookDelivery, name)


def test_a_delivery_is_taken_by_one_process_and_holds_up_no_other(database, waiting):
    one, other = waiting
    both = overlap(
        database,
        lambda s: deliveries.begin_attempt(s, one),
        lambda s: (deliveries.begin_attempt(s, one), deliveries.begin_attempt(s, other)),
    )
    assert (both.first, both.waited, both.second) == (1, False, (None, 1))
    assert (_delivery(database, one).attempts, _delivery(database, other).attempts) == (1, 1)


def test_how_an_attempt_ended_says_nothing_of_a_later_one_or_of_another_delivery(database, waiting):
    one, _ = waiting
    with database.write() as session:
        for name in waiting:
            deliveries.begin_attempt(session, name)
        session.get_one(WebhookDelivery, one).next_attempt_at = 1.0

    both = overlap(
        database,
        lambda s: deliveries.begin_attempt(s, one),
        lambda s: deliveries.end_attempt(s, one, 1, 500, "refused"),
    )
    assert (both.first, both.waited) == (2, True)
    assert (_delivery(database, one).state, _delivery(database, one).message) == ("pending", None)
    with database.write() as session:
        deliveries.end_attempt(session, one, 2, 200, None)
    states = [_delivery(database, name).state for name in waiting]
    assert states == ["delivered", "pending"]


def test_a_delivery_that_was_delivered_stays_so(database, waiting):
    with database.write() as session:
        deliveries.begin_attempt(session, "d1")
    both = overlap(
        database,
        lambda s: deliveries.end_attempt(s, "d1", 1, 200, None),
        lambda s: deliveries.end_attempt(s, "d1", 1, 500, "late"),
    )
    row = _delivery(database, "d1")
    assert (both.waited, row.state, row.status, row.message) == (True, "delivered", 200, None)


def test_processes_that_start_at_once_register_each_webhook_once(database):
    def register(session):
        deliveries.register(session, {"one": ("job.ended",), "two": ("verdict.given",)})

    both = overlap(database, register, register)
    assert (both.waited, both.second) == (True, None)
    with database.read() as session:
        assert sorted(session.scalars(select(Webhook.id))) == ["one", "two"]


# Tokens.


@pytest.fixture
def token(database):
    """A function that makes a token; its id and its text."""

    def make(*scopes, **more):
        with database.write() as session:
            row, text = api_tokens.create_token(session, "ci", scopes or ("submit",), 30, **more)
            session.flush()
            return row.id, text

    return make


def test_a_token_is_rotated_once(database, token):
    old, _ = token()
    both = overlap(
        database,
        lambda s: api_tokens.rotate_token(s, old, 1.0)[0].id,
        lambda s: api_tokens.rotate_token(s, old, 1.0)[0].id,
    )
    assert (both.waited, type(both.second)) == (True, ConflictError)
    with database.read() as session:
        assert len(session.scalars(select(Token)).all()) == 2


def test_to_rotate_or_revoke_one_token_leaves_another_and_its_sessions(database, token):
    (other, text), (one, _) = token(), token()  # the later one has the same name
    with database.write() as session:
        cookies = [
            browser_sessions.open_session(session, session.get_one(Token, each))
            for each in (one, other)
        ]
    with database.write() as session:
        assert api_tokens.rotate_token(session, other, 1.0)[0].principal == other
        api_tokens.revoke_token(session, one)
    with database.read() as session:
        assert api_tokens.authenticate(session, text).id == other
        assert [browser_sessions.token_of_cookie(session, each) is None for each in cookies] == [
            True,
            False,
        ]
        assert [row.token_id for row in session.scalars(select(BrowserSession))] == [other]


def test_to_log_out_ends_one_session(database, token):
    one, _ = token()
    with database.write() as session:
        cookies = [
            browser_sessions.open_session(session, session.get_one(Token, one)) for _ in range(2)
        ]
        browser_sessions.close_session(session, cookies[0])
    with database.read() as session:
        assert [browser_sessions.token_of_cookie(session, each) is None for each in cookies] == [
            True,
            False,
        ]


# Requests a minute.


@pytest.fixture
def one_minute(monkeypatch):
    monkeypatch.setattr(
        rate_limit, "time", SimpleNamespace(time=lambda: 90.0, monotonic=lambda: 1.0)
    )


def test_two_processes_count_the_requests_of_a_token_together(redis_url, redis, one_minute):
    redis.flushall()
    processes, start = [Limiter(redis_url, 100) for _ in range(4)], threading.Barrier(4)

    def count(limiter):
        start.wait(30)
        return [limiter.count("t-one").left for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        left = [each for some in pool.map(count, processes) for each in some]
    assert sorted(left) == list(range(60, 100))
    assert processes[0].count("t-two").left == 99


def test_the_requests_of_one_token_are_none_of_another(
    settings, database, application, token, one_minute
):
    strict = settings.model_copy(update={"require_tokens": True, "requests_per_minute": 3})
    owner, text = token("view")
    _, same_principal = token("view", principal_id=owner)
    _, stranger = token("view")
    with TestClient(application(strict)) as api:

        def ask(secret):
            headers = {"Authorization": f"Bearer {secret}"}
            return api.get("/api/v1/jobs", headers=headers).status_code

        assert [ask(text) for _ in range(4)] == [200, 200, 200, 429]
        assert [ask(same_principal), ask(stranger), ask(text)] == [200, 200, 429]


def test_the_requests_of_one_run_are_none_of_another(
    settings, database, application, token, make_job, one_minute
):
    strict = settings.model_copy(update={"require_tokens": True, "requests_per_minute": 3})
    spec = make_job(engine="external", candidates=(Arm(recipe="nvfp4"),))
    owner, text = token("submit")
    with database.write() as session:
        job = submit_job(session, spec, policy_from_mapping({"margin": "1%"}), owner)
        one, other = (run.id for run in job.runs)
    with TestClient(application(strict)) as api:

        def send(secret, method, path, **more):
            headers = {"Authorization": f"Bearer {secret}"}
            return api.request(method, f"/api/v1/runs/{path}", headers=headers, **more)

        attach = {"json": {"manifest": {}}}
        own = [
            send(text, "POST", f"{run}:attach", **attach).json()["token"] for run in (one, other)
        ]
        assert [send(own[0], "GET", one).status_code for _ in range(4)] == [200, 200, 200, 429]
        assert send(own[1], "GET", other).status_code == 200
        assert send(text, "GET", one).status_code == 200, "the third request of the owner's token"


# Tokens of runs: each is that of one attempt of one run.


def test_the_token_of_a_run_writes_its_own_attempt_alone(
    settings, database, application, token, make_job
):
    strict = settings.model_copy(update={"require_tokens": True})
    spec = make_job(engine="external", candidates=(Arm(recipe="nvfp4"),))
    owner, text = token("submit")
    with database.write() as session:
        job = submit_job(session, spec, policy_from_mapping({"margin": "1%"}), owner)
        runs = [run.id for run in job.runs]
    with TestClient(application(strict)) as api:

        def send(secret, path, **more):
            headers = {"Authorization": f"Bearer {secret}"}
            return api.post(f"/api/v1/runs/{path}", headers=headers, **more)

        secrets = {}
        for number in (1, 2):
            for run in runs:
                answer = send(text, f"{run}:attach", json={"manifest": {}})
                secrets[run, number] = answer.json()["token"]
        allowed = {}
        for own, secret in secrets.items():
            for target in secrets:
                run, number = target
                body = {"steps": [number], "columns": {"loss": [2.0]}}
                answers = [
                    send(secret, f"{run}/steps", params={"attempt": number}, json=body),
                    send(secret, f"{run}:finish", json={"attempt": number, "outcome": "broke_off"}),
                ]
                allowed[own, target] = {answer.status_code for answer in answers}
                if own == target and number == 2:  # as it was, for the others
                    again = send(text, f"{run}:attach", json={"manifest": {}}).json()
                    assert again["attempt"] == 3
    accepted = {own for (own, target), codes in allowed.items() if own == target and codes == {200}}
    assert accepted == {(run, 2) for run in runs}
    refused = [codes for (own, target), codes in allowed.items() if own != target]
    assert len(refused) == 12
    assert all(codes <= {401, 403} for codes in refused)
