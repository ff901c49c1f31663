"""Requests a minute: two processes count together, each token by itself."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient

from parity.judging.policy import policy_from_mapping
from server.jobs.submit import submit_job
from server.web import rate_limit
from server.web.rate_limit import Limiter
from training.spec import ArmSpec

pytestmark = pytest.mark.postgresql


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
    spec = make_job(engine="external", candidates=(ArmSpec(recipe="nvfp4"),))
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
