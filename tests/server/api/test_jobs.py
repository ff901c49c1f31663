"""Jobs over REST, good and bad."""

import copy
import json
import time

import pytest
from fastapi.testclient import TestClient

from parity import cli
from server.database.states import JUDGE_FAILED, JUDGING_AGAIN, move_job
from server.database.tables import Job
from server.jobs import lifecycle
from server.jobs.conclude import decide, write_outcome
from server.jobs.fingerprint import fingerprint_of, run_spec, spec_differences
from server.queue import queue_name, redis_client
from tests.server.conftest import people_of

pytestmark = pytest.mark.both_databases
# Of the default model's nvfp4 run without facts, before arms had overrides.
FIRST_FINGERPRINT = "5fc8fb2ccd664d672f82934cff9e118f69db6113734606e96b2d905875e1f032"


def test_submit_answers_202_and_notifies_once_a_run(api, request_body, settings):
    answer = api.post("/api/v1/jobs", json=request_body)
    assert answer.status_code == 202
    document = answer.json()
    assert answer.headers["Location"] == f"/api/v1/jobs/{document['id']}"
    assert [arm["name"] for arm in document["arms"]] == ["fp8_current", "nvfp4"]
    assert [len(arm["runs"]) for arm in document["arms"]] == [1, 2]
    assert document["status"] == "queued"
    assert "none is registered" in document["waiting"]
    # a thread of its own notifies
    while redis_client(settings.redis, seconds=20).llen(queue_name("cpu")) < 3:
        time.sleep(0.01)
    assert api.get(answer.headers["Location"]).json()["id"] == document["id"]
    runs = api.get(f"{answer.headers['Location']}/runs").json()
    assert runs == [run for arm in document["arms"] for run in arm["runs"]]
    assert api.get("/api/v1/jobs/j-none/runs").status_code == 404


def test_submit_survives_a_broker_that_is_away(settings, database, request_body, application):
    away = settings.model_copy(update={"redis_url": "redis+socket:///nowhere/redis.sock"})
    with TestClient(application(away), base_url="http://127.0.0.1") as client:
        began = time.monotonic()
        assert client.post("/api/v1/jobs", json=request_body).status_code == 202
        assert time.monotonic() - began < 3.0, "a submission waited for the broker"


def overrides(**rule):
    return {"job": {"candidates": [{"recipe": "nvfp4", "overrides": [rule]}]}}


@pytest.mark.parametrize(
    ("change", "pointer", "words"),
    [
        ({"job": {"name": "x"}}, "/job/baseline", "missing"),
        ({"job": {"nmae": "x"}}, "/job/nmae", "unknown key"),
        ({"gate": {}}, "/gate", "unknown key"),
        (
            {"job": {"candidates": [{"recipe": "nvfp4", "bf16_from_step": 9}]}},
            "/job/candidates/0/bf16_from_step",
            "write then: {recipe: bf16, from_step: N}",
        ),
        ({"policy": {"margn": "1%"}}, "/policy/margn", "margin"),
        ({"policy": {"margin": "-1%"}}, "/policy/margin", "-1%"),
        ({"policy": {}}, "/policy/margin", "margin"),
        ({"job": {"schedule": {"steps": "many"}}}, "/job/schedule/steps", "many"),
        ({"job": {"schedule": {"steps": 1.5}}}, "/job/schedule/steps", "1.5"),
        ({"job": {"model": {"n_heads": 5}}}, "/job/model/n_heads", "divisor of d_model"),
        ({"job": {"model": {"d_model": 24, "n_heads": 3}}}, "/job/model/d_model", "multiple of 16"),
        (
            {"job": {"data": {"batch_size": 1, "sequence_length": 8}}},
            "/job",
            "data.batch_size x data.sequence_length is 8",
        ),
        ({"job": {"baseline": {"recipe": "fp3"}}}, "/job/baseline/recipe", "fp8_current"),
        ({"job": {"candidates": []}}, "/job/candidates", "at least one candidate"),
        (
            {"job": {"candidates": [{"recipe": "fp8_current"}]}},
            "/job/candidates/name",
            "different name",
        ),
        ({"job": {"data": {"source": "text"}}}, "/job/data/path", "give a file or folder"),
        (
            overrides(gemms=["wgard"], recipe="bf16"),
            "/job/candidates/0/overrides/0/gemms/0",
            "did you mean wgrad?",
        ),
        (
            overrides(projections=["dwon"], recipe="bf16"),
            "/job/candidates/0/overrides/0/projections/0",
            "did you mean down?",
        ),
        (
            overrides(blocks="last 2", recipe="bf16"),
            "/job/candidates/0/overrides/0/blocks",
            "blocks is 'last 2'; expected a list",
        ),
        (overrides(gemms=["wgrad"]), "/job/candidates/0/overrides/0", "a recipe, switches or both"),
        (
            overrides(blocks=["0-3"], recipe="bf16"),
            "/job/arm/overrides/0/blocks",
            "the nearest is 0-2",
        ),
        (
            overrides(recipe="bf16", layers=[1]),
            "/job/candidates/0/overrides/0/layers",
            "unknown key",
        ),
        (
            {"job": {"engine": "transformer_engine"}},
            "/job/model/d_model",
            "the nearest preset that fits is llama3-0.3m-by128",
        ),
        (
            {
                "job": {
                    "engine": "maxtext",
                    "layer_policy": "mlp_only",
                    "data": {"source": "grain", "path": "/d"},
                }
            },
            "/job/recipe",
            "no flag that leaves attention projections out",
        ),
    ],
)
def test_bad_requests_name_the_place_and_the_remedy(api, request_body, change, pointer, words):
    if "job" in change:
        job = request_body["job"]
        base = {} if change["job"].get("name") == "x" else job
        change = {"job": base | change["job"]}
    answer = api.post("/api/v1/jobs", json=request_body | change)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "urn:parity:problem:invalid"
    details = {error["pointer"]: error["detail"] for error in problem["errors"]}
    assert pointer in details, details
    assert words in details[pointer]
    assert api.get("/api/v1/jobs").json()["items"] == []


def test_overrides_are_kept_with_the_job_and_shown(api, database, request_body):
    rules = [
        {
            "blocks": ["0-1"],
            "projections": ["down"],
            "gemms": ["wgrad"],
            "recipe": "bf16",
            "from_step": 800,
        },
        {"blocks": ["last 1"], "switches": {"rht": False}},
    ]
    job = request_body["job"] | {
        "candidates": [{"recipe": "nvfp4", "overrides": rules}, {"recipe": "nvfp4"}]
    }
    document = api.post("/api/v1/jobs", json=request_body | {"job": job}).json()
    assert document["spec"]["candidates"][0]["overrides"] == rules
    assert "overrides" not in document["spec"]["candidates"][1]
    words = [
        "wgrad of down in blocks 0-1 from step 800: bf16",
        "all GEMMs of all projections in blocks last 1: rht=false",
    ]
    assert [arm["overrides"] for arm in document["arms"]] == [[], words, []]
    page = api.get(f"/jobs/{document['id']}").text
    assert all(each in page for each in words)
    with database.read() as session:
        baseline, overridden, plain = (
            arm.runs[0] for arm in session.get_one(Job, document["id"]).arms
        )
        assert overridden.arm.stated_recipe == (
            "nvfp4+rht=false@blocks:last1 then "
            "nvfp4+bf16@blocks:0-1.down.wgrad+rht=false@blocks:last1 from step 800"
        )
        specs = run_spec(overridden), run_spec(plain)
        assert [each.first_step for each in specs[0].segments] == [0, 800]
        assert [(one.key, one.baseline) for one in spec_differences(*specs)] == [
            ("overrides", "; ".join(words))
        ]
        assert [(one.key, one.other) for one in spec_differences(*reversed(specs))] == [
            ("overrides", "; ".join(words))
        ]
        assert len({fingerprint_of(each, {}) for each in (*specs, run_spec(baseline))}) == 3
        assert fingerprint_of(specs[1], {}) == FIRST_FINGERPRINT


def test_priority_and_limit_are_those_of_the_runs(api, request_body):
    job = api.post(
        "/api/v1/jobs", json=request_body | {"priority": -5, "max_run_seconds": 60}
    ).json()
    assert {run["priority"] for arm in job["arms"] for run in arm["runs"]} == {-5}
    assert job["max_run_seconds"] == 60


def test_a_margin_in_tokens_needs_their_slope_in_a_job(api, request_body):
    refused = api.post("/api/v1/jobs", json=request_body | {"policy": {"margin": "5% tokens"}})
    assert refused.status_code == 422, refused.text
    assert "5% tokens at 0.2 nats" in refused.json()["detail"]
    accepted = api.post(
        "/api/v1/jobs", json=request_body | {"policy": {"margin": "5% tokens at 0.2 nats"}}
    )
    assert accepted.json()["policy"]["margin"] == "5 % tokens at 0.2 nats"


def test_a_body_that_is_no_json_is_a_422(api):
    answer = api.post("/api/v1/jobs", content=b"{", headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_blackwell_job_waits_with_the_reason(api, request_body):
    job = request_body["job"] | {
        "engine": "maxtext",
        "data": {"source": "grain", "path": "/corpus"},
        "model": {"preset": "llama3-20m"},
    }
    document = api.post("/api/v1/jobs", json=request_body | {"job": job}).json()
    assert document["capability"] == "sm100"
    assert document["waiting"].startswith(
        "Waiting for a worker with SM 10.0 or 10.3: none is registered"
    )


def test_unknown_job_and_unknown_path(api):
    answer = api.get("/api/v1/jobs/j-none")
    assert answer.status_code == 404
    assert "'j-none'" in answer.json()["detail"]
    assert api.get("/api/v1/nothing").headers["content-type"] == "application/problem+json"
    assert api.delete("/api/v1/jobs").status_code == 405
    assert api.get("/api/v1/baselines/fp8/versions/1:expire").status_code == 405


def test_cancel_is_idempotent(api, request_body):
    job = api.post("/api/v1/jobs", json=request_body).json()
    for _ in range(2):
        answer = api.post(job["links"]["cancel"])
        assert answer.status_code == 200
        assert answer.json()["status"] == "cancelled"
        assert {run["state"] for arm in answer.json()["arms"] for run in arm["runs"]} == {
            "cancelled"
        }


def test_pages_of_jobs(api, request_body):
    ids = [
        api.post(
            "/api/v1/jobs", json=request_body | {"policy": {"margin": "1%", "question": f"{n}"}}
        ).json()["id"]
        for n in range(1, 6)
    ]
    seen, cursor = [], None
    while True:
        page = api.get(
            "/api/v1/jobs", params={"limit": 2} | ({"cursor": cursor} if cursor else {})
        ).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert sorted(seen) == sorted(ids)
    assert seen == sorted(seen, reverse=True)
    assert api.get("/api/v1/jobs", params={"cursor": "§"}).status_code == 422
    assert api.get("/api/v1/jobs", params={"status": "concluded"}).json()["items"] == []


def test_no_verdict_before_the_end(api, request_body):
    job = api.post("/api/v1/jobs", json=request_body).json()
    assert api.get(job["links"]["verdict"]).json() == {
        "status": "queued",
        "code": None,
        "message": None,
        "verdicts": [],
    }


def test_the_evidence_can_be_recomputed_by_another_person(api, database, recorded, tmp_path):
    job_id = recorded({"nvfp4": 0.05, "mxfp8": 0.0})
    assert api.get(f"/api/v1/jobs/{job_id}/evidence.zip").status_code == 404
    with database.read() as session:
        outcome = decide(session, job_id)
    with database.write() as session:
        write_outcome(session, job_id, outcome)
    answer = api.get(f"/api/v1/jobs/{job_id}/evidence.zip")
    assert answer.headers["content-type"] == "application/zip"
    bundle = tmp_path / "evidence.zip"
    bundle.write_bytes(answer.content)
    card = tmp_path / "card.yaml"
    card.write_bytes(api.get(f"/api/v1/jobs/{job_id}/card.yaml").content)
    for files in ([bundle], [card, bundle]):
        with pytest.raises(SystemExit) as ended:
            cli.main(["verify", *map(str, files)])
        assert ended.value.code == 0


def test_a_page_of_another_site_may_not_write(api, request_body):
    answer = api.post(
        "/api/v1/jobs", json=request_body, headers={"Origin": "https://elsewhere.example"}
    )
    assert answer.status_code == 403
    assert (
        api.post(
            "/api/v1/jobs", json=request_body, headers={"Origin": "http://127.0.0.1"}
        ).status_code
        == 202
    )


@pytest.mark.parametrize("host", ["evil.example", "[", "127.0.0.1.evil.example"])
def test_a_name_that_is_not_ours_is_refused_without_tokens(api, request_body, host):
    answer = api.post(
        "/api/v1/jobs", json=request_body, headers={"Host": host, "Origin": f"http://{host}"}
    )
    assert answer.status_code == 403
    assert api.get("/api/v1/jobs").json()["items"] == []


@pytest.mark.parametrize("origin", ["http://[", "null", "127.0.0.1"])
def test_a_strange_origin_is_foreign(api, request_body, origin):
    assert (
        api.post("/api/v1/jobs", json=request_body, headers={"Origin": origin}).status_code == 403
    )


@pytest.mark.parametrize(
    "change",
    [
        {"schedule": {"steps": 10**30}},
        {"model": {"vocab_size": 10**400}},
        {"name": "\ud800"},
        {"name": "a\u0000b"},
        {"seed": 2**40},
    ],
)
def test_what_no_database_can_hold_is_a_422(api, request_body, change):
    body = json.dumps(request_body | {"job": request_body["job"] | change})
    answer = api.post("/api/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert (
        api.post("/api/v1/jobs", json=request_body | {"policy": {"margin": 10**400}}).status_code
        == 422
    )


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/jobs/%01",
        "/api/v1/jobs/%01/gap",
        "/api/v1/runs/%01/metrics",
        "/jobs/%01",
        "/api/v1/jobs/j%F0%9F%98%80",
    ],
)
def test_an_id_that_can_not_be_one_is_a_404(api, path):
    assert api.get(path).status_code == 404


def test_an_error_of_ours_keeps_its_request_id_and_headers(api, monkeypatch):
    monkeypatch.setattr("server.api.jobs.find_job", lambda *_: 1 / 0)
    answer = api.get("/api/v1/jobs/j0", headers={"X-Request-ID": "abc"})
    assert answer.status_code == 500
    assert answer.json()["request_id"] == answer.headers["X-Request-ID"] == "abc"
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]


def test_request_ids_are_echoed(api):
    assert api.get("/healthz", headers={"X-Request-ID": "abc"}).headers["X-Request-ID"] == "abc"
    assert api.get("/api/v1/jobs/nope").json()["request_id"]


def test_a_database_that_is_away_is_a_503_that_says_to_try_again(
    settings, request_body, database_kind, application
):
    away = (
        "sqlite:////no/such/folder/x.db"
        if database_kind == "sqlite"
        else "postgresql+psycopg://nobody@/none?host=/no/such"
    )
    app = application(settings.model_copy(update={"database_url": away}))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        answer = client.post("/api/v1/jobs", json=request_body)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert answer.json()["type"] == "urn:parity:problem:database-away"
    assert "no/such" not in answer.text


def test_a_job_is_planned_without_being_queued(api, request_body):
    answer = api.post("/api/v1/jobs:plan", json=request_body)
    assert answer.status_code == 200
    document = answer.json()
    (candidate,) = document["candidates"]
    assert (document["known"], candidate["name"], candidate["plan"]["unit"]) == (
        None,
        "nvfp4",
        "share of the loss",
    )
    assert f"{100 * candidate['plan']['power'][0]['pass_chance']:.0f} %" in candidate["line"]
    assert api.get("/api/v1/jobs").json()["items"] == []


def test_a_plan_knows_the_loss_and_the_step_time_of_an_equal_run(api, recorded, database):
    earlier = recorded({"nvfp4": 0.0})
    with database.read() as session:
        spec = session.get_one(Job, earlier).spec
    document = api.post(
        "/api/v1/jobs:plan", json={"job": spec, "policy": {"margin": "0.014 nats"}}
    ).json()
    assert document["known"]["step_seconds"] == pytest.approx(0.04)
    assert document["candidates"][0]["plan"]["gpu_hours"] > 0
    assert (
        api.post("/api/v1/jobs:plan", json={"job": spec, "policy": {"margin": "-1%"}}).status_code
        == 422
    )


def test_a_job_that_is_too_large_is_refused_and_leaves_nothing(
    settings, database, request_body, application
):
    small = settings.model_copy(
        update={"max_runs_per_job": 4, "max_steps": 2000, "max_queued_runs": 5}
    )
    with TestClient(application(small), base_url="http://127.0.0.1") as client:
        many = copy.deepcopy(request_body)
        many["job"]["candidates"] = [{"recipe": "nvfp4", "replicates": 4}]
        long = copy.deepcopy(request_body)
        long["job"]["schedule"] = {"steps": 2001}
        crowd = copy.deepcopy(request_body)
        crowd["job"]["candidates"] = [
            {"recipe": "nvfp4", "name": f"c{index}"} for index in range(65)
        ]
        for body, what in (
            (many, "5 runs"),
            (long, "expected 1 to 2,000"),
            (crowd, "at most 64 candidates"),
        ):
            for route in ("jobs", "jobs:gate"):
                answer = client.post(f"/api/v1/{route}", json=body)
                assert (answer.status_code, what in answer.json()["detail"]) == (422, True), (
                    answer.text
                )
        assert client.post("/api/v1/jobs", json=request_body).status_code == 202  # 3 runs
        for route in ("jobs", "jobs:gate"):
            answer = client.post(
                f"/api/v1/{route}",
                json=request_body | {"policy": {"margin": "1%", "question": "another"}},
            )
            assert (answer.status_code, "6 of your runs" in answer.json()["detail"]) == (
                429,
                True,
            ), answer.text
        assert len(client.get("/api/v1/jobs").json()["items"]) == 1


def test_a_job_that_only_the_judge_failed_on_gets_its_verdict_from_an_admin(
    api_settings, database, application, recorded, ended
):
    people = people_of(database, {"owner": ["submit"], "admin": ["admin"]})
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        session.get_one(Job, job_id).submitted_by = people["owner id"]
        assert lifecycle.end_job(
            session, job_id, "failed", code=JUDGE_FAILED, message="judging failed"
        )
    guarded = api_settings.model_copy(update={"require_tokens": True})
    with TestClient(application(guarded), base_url="http://127.0.0.1") as api:
        page = api.get(f"/api/v1/jobs/{job_id}", headers=people["owner"]).json()
        assert (page["status"], page["code"]) == ("failed", "JUDGE_FAILED")
        assert (
            api.post(f"/api/v1/jobs/{job_id}:conclude", headers=people["owner"]).status_code == 403
        )
        answer = api.post(f"/api/v1/jobs/{job_id}:conclude", headers=people["admin"])
        assert (answer.status_code, answer.json()["code"]) == (202, None)
        document = ended(api, job_id, people["admin"])
        assert (document["status"], [verdict["verdict"] for verdict in document["verdicts"]]) == (
            "concluded",
            ["pass"],
        )
        assert (
            api.post(f"/api/v1/jobs/{job_id}:conclude", headers=people["admin"]).status_code == 409
        )


def test_a_job_that_failed_on_its_own_is_not_judged_again(api, database, recorded):
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        assert lifecycle.end_job(
            session, job_id, "failed", code="DATA_NOT_FOUND", message="no /corpus"
        )
    answer = api.post(f"/api/v1/jobs/{job_id}:conclude")
    assert answer.status_code == 409
    assert "DATA_NOT_FOUND" in answer.json()["detail"]


def test_a_page_says_why_there_is_no_verdict_yet(api, database, recorded):
    job_id = recorded({"nvfp4": 0.0}, state="finished")
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.judge_tries, job.code, job.message = (
            3,
            JUDGING_AGAIN,
            "no verdict after 3 tries, and it is tried again: the disk is full",
        )
        move_job(session, job_id, ("queued",), "running")
    assert "the disk is full" in api.get(f"/jobs/{job_id}").text
    assert "the judge could not finish yet" in api.get("/jobs").text
