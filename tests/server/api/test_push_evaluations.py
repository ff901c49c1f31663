"""Held-out losses over REST: recorded as a job that this server judges, refused where they are no
question, and never taken for a training.
"""

import json

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select

from parity.judging.verdict.sign_offs import without_shown
from server.api.push_evaluations import MOST_LOSSES, MOST_POINTS
from server.database.tables import EvaluationBundle, Job, Run
from tests.server.conftest import people_of
from tests.server.held_out import STEPS, body, case_of

pytestmark = pytest.mark.both_databases
GAPS = {"fp8": 0.0, "nvfp4": 0.06}
URL = "/api/v1/jobs:evaluations"


def push(api, request, key=None):
    headers = {} if key is None else {"Idempotency-Key": key}
    return api.post(URL, json=request, headers=headers)


def job_of(api, request):
    answer = push(api, request)
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_the_server_judges_what_was_sent(api):
    request = body(GAPS)
    answer = push(api, request)
    assert answer.status_code == 201
    job = answer.json()
    assert answer.headers["Location"] == f"/api/v1/jobs/{job['id']}"
    assert (job["status"], job["engine"]) == ("concluded", "evaluations")
    own = json.loads(json.dumps([*map(dict, case_of(request).documents())]))
    assert [without_shown(verdict) for verdict in job["verdicts"]] == own
    assert [verdict["verdict"] for verdict in own] == ["pass", "fail"]
    assert api.get(f"/api/v1/jobs/{job['id']}").json()["verdicts"] == job["verdicts"]


@pytest.mark.parametrize("field", ["verdicts", "verdict", "documents"])
def test_a_verdict_cannot_be_sent(api, field):
    answer = push(api, body(GAPS) | {field: []})
    assert answer.status_code == 422
    assert field in answer.text


def test_a_key_means_one_job_and_one_body(api, database):
    first, again = push(api, body(GAPS), "k"), push(api, body(GAPS), "k")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    other = push(api, body(GAPS | {"fp8": 0.001}), "k")
    assert other.status_code == 422
    assert "already used for another job" in other.json()["detail"]
    assert push(api, body(GAPS), "l").json()["id"] != first.json()["id"]
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(EvaluationBundle)) == 2
        assert session.scalar(select(func.count()).select_from(Run)) == 0


def test_a_candidate_that_diverged_does_not_pass_and_its_twin_does(api):
    request = body({"fp8": 0.0})
    assert job_of(api, request)["verdicts"][0]["verdict"] == "pass"
    request["candidates"]["fp8"][0]["loss"][-1] = "nan"
    (verdict,) = job_of(api, request)["verdicts"]
    assert verdict["verdict"] != "pass"
    assert any("NONFINITE" in code or "INVALID" in code for code in verdict["codes"])


def test_one_run_that_is_sent_twice_is_one(api):
    request = body({"fp8": 0.0})
    runs = request["candidates"]["fp8"]
    runs.append({**runs[0], "label": "another", "seed": 9})
    (verdict,) = job_of(api, request)["verdicts"]
    assert len(verdict["candidate"]["runs"]) == 4


def points(number):
    """Runs of one arm each with so many losses."""
    run = {"steps": list(range(1, number + 1)), "loss": [2.4] * number}
    return {"baseline": [run], "candidates": {"fp8": [run]}, "planned_steps": None, "paired": False}


WRONG = {
    "no candidate": ({"candidates": {}}, "/candidates", "at least one arm"),
    "a candidate without a run": ({"candidates": {"fp8": []}}, "/candidates/fp8", "fp8 has no run"),
    "a baseline without a run": ({"baseline": []}, "/baseline", "bf16 has no run"),
    "losses of one arm only": (
        {"baseline": [{"steps": [], "loss": []}]},
        "/baseline/0/steps",
        "has 0 losses, expected 1 to 2,000",
    ),
    "a step that is there twice": (
        {"candidates": {"fp8": [{"steps": [500, 500], "loss": [2.4, 2.5]}]}},
        "/candidates/fp8/0/steps",
        "step 500 is there twice",
    ),
    "a column that is too short": (
        {"candidates": {"fp8": [{"steps": [500, 800], "loss": [2.4]}]}},
        "/candidates/fp8/0",
        "2",
    ),
    "the baseline's name again": (
        {"baseline_name": "fp8"},
        "/candidates/fp8",
        "has the name of the baseline",
    ),
    "a name that no job has": (
        {"baseline_name": "my bf16"},
        "/baseline",
        "letters, digits, '_', '.' or '-'",
    ),
    "a run of a curve": (points(MOST_POINTS + 1), "/baseline/0/steps", "expected 1 to 2,000"),
    "another check": (
        {"policy": {"margin": "1%", "checks": ["loss", "accuracy"]}},
        None,
        "judges the loss alone",
    ),
    "no margin": ({"policy": {}}, "/policy/margin", "margin"),
    "a point that nobody has": ({"at": [1000]}, None, "not every run has an evaluation at 1000"),
    "a cluster that no run has": ({"cluster": "data"}, None, "has no data on record"),
    "a look that is not registered": ({"look": 2}, None, "look is 2"),
    "times of another run": (
        {"times": [{"arm": "fp8", "run": "seed 9", "step_seconds": 1.0}]},
        "/times/0",
        "is 0 times among the runs",
    ),
    "times of a run twice": (
        {"times": 2 * [{"arm": "fp8", "run": "seed 1", "step_seconds": 1.0}]},
        "/times/0",
        "2 times here",
    ),
    "a time that is not finite": (
        {"times": [{"arm": "fp8", "run": "seed 1", "step_seconds": 0.0}]},
        "/times/0/step_seconds",
        "0",
    ),
    "a name that cannot be shown": ({"name": "a\nb"}, "/name", "printable"),
    "a tag that is none": ({"tags": ["no tag"]}, None, "tag is 'no tag'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_question_is_refused_and_nothing_is_recorded(api, database, name):
    change, pointer, words = WRONG[name]
    answer = push(api, body(GAPS) | change, "k")
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert words in problem["detail"]
    if pointer is not None:
        assert pointer in [each["pointer"] for each in problem["errors"]]
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(Job)) == 0
    assert push(api, body(GAPS), "k").status_code == 201  # a refused request uses no key


def test_a_candidate_that_is_named_twice_is_refused(api):
    text = json.dumps(body(GAPS)).replace('"nvfp4":', '"fp8":')
    answer = api.post(URL, content=text, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert "fp8" in answer.json()["detail"]


@pytest.mark.parametrize(("runs", "status"), [(10, 201), (11, 422)])
def test_all_losses_together_have_a_limit(api, runs, status, monkeypatch):
    monkeypatch.setattr("server.api.push_evaluations.MOST_LOSSES", 10 * len(STEPS))
    request = body({"fp8": 0.0})
    request["baseline"] = (3 * request["baseline"])[: runs - 4]
    assert MOST_LOSSES == 20_000
    assert push(api, request).status_code == status


@pytest.mark.parametrize(("most", "status"), [(64, 201), (63, 422)])
def test_the_pairs_of_runs_that_are_compared_have_a_limit(api, most, status, monkeypatch):
    monkeypatch.setattr("server.api.push_evaluations.MOST_PAIRS", most)
    answer = push(api, body({"fp8": 0.0}))
    assert answer.status_code == status
    assert status == 201 or "64 pairs, expected at most 63" in answer.json()["detail"]


@pytest.mark.parametrize(("candidates", "runs", "status"), [(8, 6, 201), (8, 32, 422)])
def test_a_job_has_so_many_runs_as_a_bundle_of_them(api, candidates, runs, status):
    request = body({f"c{number}": 0.0 for number in range(candidates)})
    for arm in request["candidates"].values():
        arm.extend((runs // 4 - 1) * arm.copy())
    answer = push(api, request)
    assert answer.status_code == status
    assert status == 201 or "260 runs in all, expected at most 256" in answer.json()["detail"]


def test_texts_that_no_bundle_holds_are_refused(api):
    request = body({"fp8": 0.0})
    request["baseline"][0]["notes"] = ["x" * 2**20] * 5
    answer = push(api, request)
    assert answer.status_code == 422
    assert "manifest.json has" in answer.json()["detail"]


def test_a_body_that_is_too_large_is_refused_unread(api, api_settings):
    request = body(GAPS, baseline=[{"steps": [1], "loss": [2.0], "label": "x" * 2**20}])
    assert push(api, request).status_code != 413  # one of 1 MiB is a curve's, and allowed
    request["baseline"][0]["label"] = "x" * api_settings.max_body_bytes
    assert push(api, request).status_code == 413


def test_two_quantities_are_no_pair(api):
    request = body({"fp8": 0.0})
    for runs, meaning in ((request["baseline"], "training"), (request["candidates"]["fp8"], "z")):
        for run in runs:
            run["context"] = {"loss_name": "loss", "loss_meaning": f"{meaning} loss"}
    answer = push(api, request)
    assert answer.status_code == 422
    assert "two quantities" in answer.json()["detail"]


ABSENT = {
    "/gap": "chart of gaps over steps",
    "/gaps": "chart of gaps over steps",
    "/live": "forecast",
    "/overlay": "curves over steps",
    "/columns": "columns of steps",
    "/runs": "list of runs",
}


@pytest.mark.parametrize("path", ABSENT)
def test_what_curves_have_is_absent_with_a_reason(api, recorded, path):
    job = job_of(api, body(GAPS))["id"]
    answer = api.get(f"/api/v1/jobs/{job}{path}")
    assert answer.status_code == 404
    assert f"so it has no {ABSENT[path]}" in answer.json()["detail"]
    assert api.get(f"/api/v1/jobs/{recorded({'nvfp4': 0.0})}{path}").status_code == 200


@pytest.mark.parametrize("path", ["/compare", "/parts/runs", "/parts/reasons?candidate=fp8"])
def test_pages_of_runs_are_absent_with_a_reason(api, path):
    job = job_of(api, body(GAPS))["id"]
    answer = api.get(f"/jobs/{job}{path}")
    assert answer.status_code == 404
    assert f"its page /jobs/{job} and its evidence have what was sent" in answer.text


def test_its_document_links_to_nothing_that_it_has_not(api):
    job = job_of(api, body(GAPS))
    assert {"gap", "again", "cancel"}.isdisjoint(job["links"])
    for name, address in job["links"].items():
        if name != "events":
            assert api.get(address).status_code == 200, name
    assert [arm["planned_steps"] for arm in job["arms"]] == [None, None, None]


@pytest.mark.parametrize(
    ("action", "sent"),
    [
        (":again", {}),
        (":new-question", {"reason": "a node was broken"}),
        (":add-run", {}),
        ("/statements", {"planned_steps": 2000}),
        ("/why", {}),
        ("/why:plan", {}),
    ],
)
def test_what_asks_of_runs_is_refused(api, action, sent):
    job = job_of(api, body(GAPS))["id"]
    answer = api.post(f"/api/v1/jobs/{job}{action}", json=sent)
    assert answer.status_code == 409
    assert "answers no question of training" in answer.json()["detail"]


def test_its_arm_is_no_baseline(api):
    job = job_of(api, body(GAPS))["id"]
    sent = {"name": "fp8", "job": job, "reason": "it looks fine"}
    answer = api.post("/api/v1/baselines", json=sent)
    assert answer.status_code == 409
    assert "no run that was judged" in answer.json()["detail"]


def test_nobody_signs_an_open_one_off(application, api_settings, database):
    """A sign-off lets a gate through."""
    tokens = people_of(database, {"ada": ["submit"], "bob": ["approve"]})
    app = application(api_settings.model_copy(update={"require_tokens": True}))
    with TestClient(app, base_url="http://127.0.0.1") as api:
        # not a word about the end of training
        request = body({"fp8": 0.0}, policy={"margin": "1.0%"}, planned_steps=None)
        job = api.post(URL, json=request, headers=tokens["ada"]).json()
        assert job["verdicts"][0]["verdict"] == "inconclusive"
        sent = {"candidate": "fp8", "reason": "good enough for us", "days": 7.0}
        path = f"/api/v1/jobs/{job['id']}/sign-offs"
        answer = api.post(path, json=sent, headers=tokens["bob"])
        assert answer.status_code == 409
        assert "no gate asks for held-out losses" in answer.json()["detail"]


def test_another_policy_is_asked_without_a_change_of_the_record(api):
    job = job_of(api, body(GAPS))
    path = f"/api/v1/jobs/{job['id']}"
    own = api.post(f"{path}:rejudge", json={}).json()
    assert own["gating"] is False
    assert own["verdicts"] == job["verdicts"]
    wide = api.post(f"{path}:rejudge", json={"policy": {"margin": "4%", "schedule": "decayed"}})
    assert [verdict["verdict"] for verdict in wide.json()["verdicts"]] == ["pass", "pass"]
    other = api.post(f"{path}:rejudge", json={"policy": {"margin": "1%", "checks": ["accuracy"]}})
    assert other.status_code == 422
    assert api.get(path).json()["verdicts"] == job["verdicts"]


def test_a_badge_says_that_its_loss_is_held_out(api):
    job = job_of(api, body({"fp8": 0.0}))["id"]
    message = api.get(f"/api/v1/badges/{job}.json").json()["message"]
    assert message.startswith("● fp8 pass, gap ")
    assert message.endswith(" nats of held-out loss")


def test_a_badge_of_a_name_is_that_of_a_training_where_there_is_one(api, judged):
    job_of(api, body({"fp8": 0.0}, name="small"))
    assert "held-out" in api.get("/api/v1/badges/small.json").json()["message"]
    judged({"nvfp4": 0.3})
    job_of(api, body({"fp8": 0.0}, name="small"))
    assert api.get("/api/v1/badges/small.json").json()["message"].startswith("■ nvfp4 fail")


def test_a_job_file_cannot_name_the_engine(api, request_body):
    request_body["job"]["engine"] = "evaluations"
    answer = api.post("/api/v1/jobs", json=request_body)
    assert answer.status_code == 422
    assert "engine" in answer.json()["detail"]


def test_names_of_runs_are_text_on_its_page(api):
    request = body({"fp8": 0.0})
    request["baseline"][0]["label"] = "<script>alert(1)</script>"
    page = api.get(f"/jobs/{job_of(api, request)['id']}").text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_a_trend_has_no_gap_of_it_and_says_why(api):
    job_of(api, body({"fp8": 0.0}, name="small"))
    (point,) = api.get("/api/v1/trend", params={"gate": "small"}).json()["points"]
    assert point["gap_nats"] is None
    assert point["verdict"] is None
    assert "a trend compares those of training" in point["why_missing"]


def test_jobs_on_other_losses_are_not_compared(api):
    first = job_of(api, body({"fp8": 0.0}))["id"]
    same = job_of(api, body({"fp8": 0.001}))["id"]
    request = body({"fp8": 0.0})
    request["baseline"][0]["loss"][0] += 0.1
    other, later = job_of(api, request)["id"], job_of(api, body({"fp8": 0.0}, at=[1700]))["id"]
    rows = api.get("/api/v1/jobs:compare", params={"job": [first, same, other, later]}).json()
    assert [row["differs"] for row in rows["rows"]] == [[], [], ["baseline"], ["question"]]
