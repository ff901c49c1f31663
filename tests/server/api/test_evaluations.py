"""Judging over REST without training, and a job's curves under another policy."""

import io
import json
import zipfile

import numpy as np
import pytest

from parity.judging.verdict.sign_offs import sha256_of
from server.database.tables import Job
from server.jobs.conclude import conclude, decide, write_outcome
from server.jobs.verdict_rows import verdict_documents

pytestmark = pytest.mark.both_databases


def _run(seed, gap=0.0, steps=1500, **more):
    batches, noise = np.random.default_rng(7), np.random.default_rng(seed)
    loss = (
        1.4
        + 1.5 * np.exp(-np.arange(steps) / 100)
        + batches.normal(0, 0.1, steps)
        + noise.normal(0, 0.01, steps)
        + gap
    )
    return {"steps": list(range(steps)), "loss": loss.tolist(), "replicate": seed % 2} | more


def _request(gap, **more):
    return {
        "baseline": [_run(2), _run(3)],
        "candidates": {"nvfp4": [_run(4, gap), _run(5, gap)]},
        "policy": {"margin": "1.0%", "schedule": "decayed"},
        "planned_steps": 1500,
    } | more


@pytest.mark.parametrize(("gap", "verdict"), [(0.0, "pass"), (0.05, "fail")])
def test_brought_curves_are_judged(api, gap, verdict):
    answer = api.post("/api/v1/evaluations", json=_request(gap))
    assert answer.status_code == 200, answer.text
    (document,) = answer.json()["verdicts"]
    assert (document["candidate"]["name"], document["verdict"]) == ("nvfp4", verdict)
    assert answer.json()["gating"] is False


def test_a_rounding_that_is_not_stated_has_the_larger_run_noise(api):
    for stated, share in (
        ({}, 0.00135),
        ({"rounding": "nearest"}, 0.0009),
        ({"recipe": "mxfp8"}, 0.0009),
        ({"recipe": "other:mine"}, 0.00135),
    ):
        request = _request(
            0.0, baseline=[_run(2, recipe="fp8")], candidates={"c": [_run(4, **stated)]}
        )
        (document,) = api.post("/api/v1/evaluations", json=request).json()["verdicts"]
        assert document["tau"]["candidate"]["rel"] == pytest.approx(share, rel=0.05)


def test_without_a_plan_there_is_no_pass(api):
    request = _request(0.0, planned_steps=None, policy={"margin": "1.0%"})
    (document,) = api.post("/api/v1/evaluations", json=request).json()["verdicts"]
    assert document["verdict"] == "inconclusive"
    assert "AS_OF" in document["codes"]


def test_nan_is_spelled_and_fails(api):
    bad = _run(4)
    bad["loss"][-1] = "nan"
    (document,) = api.post(
        "/api/v1/evaluations", json=_request(0.0, candidates={"nvfp4": [bad]})
    ).json()["verdicts"]
    assert document["verdict"] == "fail"
    assert "NONFINITE_CAND" in document["codes"]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"candidates": {}}, "/candidates"),
        ({"policy": {"margin": "x"}}, "/policy/margin"),
        ({"baseline": [{"steps": [0, 1], "loss": [1.0]}]}, "/baseline/0"),
        ({"baseline": [{"steps": [2**70], "loss": [1.0]}]}, "/baseline/0"),
        ({"baseline": [{"steps": [-1], "loss": [1.0]}]}, "/baseline/0"),
        ({"baseline": [{"steps": [0], "loss": ["much"]}]}, "/baseline/0/loss/0"),
        ({"baseline": [{"steps": [0]}]}, "/baseline/0/loss"),
        ({"baseline": [{"loss": [1.0]}]}, "/baseline/0/steps"),
        ({"baseline": [{"steps": [0], "loss": [1.0], "path": "/etc/passwd"}]}, "/baseline/0/path"),
        (
            {
                "candidates": {
                    "a/b": [_run(4) | {"steps": [4_000_000 * step for step in range(1500)]}]
                }
            },
            "/candidates/a~1b/0",
        ),
        ({"controlls": []}, "/controlls"),
        ({"candidates": {"c": [_run(4, recipe="nvpf4")]}}, "/candidates/c/0"),
        ({"baseline": [_run(2, rounding="up")]}, "/baseline/0/rounding"),
        ({"candidates": {"c": [_run(4, recipe="nvfp4", rounding="nearest")]}}, "/candidates/c/0"),
    ],
)
def test_bad_curves_are_named(api, change, pointer):
    answer = api.post("/api/v1/evaluations", json=_request(0.0) | change)
    assert answer.status_code == 422
    assert any(error["pointer"].startswith(pointer) for error in answer.json()["errors"]), (
        answer.json()
    )


@pytest.mark.parametrize("arm", ["baseline", "controls"])
def test_a_file_is_refused_with_what_to_send(api, arm):
    answer = api.post(
        "/api/v1/evaluations",
        json=_request(0.0) | {arm: [{"file": {"format": "csv", "base64": ""}}]},
    )
    assert answer.status_code == 422
    (problem,) = answer.json()["errors"]
    assert problem["pointer"] == f"/{arm}/0"
    assert all(word in problem["detail"] for word in ("file", "steps", "loss"))


def test_rejudging_leaves_the_verdict_alone(api, database, recorded):
    job_id = recorded({"nvfp4": 0.05})
    with database.read() as session:
        outcome = decide(session, job_id)
    with database.write() as session:
        write_outcome(session, job_id, outcome)
    answer = api.post(
        f"/api/v1/jobs/{job_id}:rejudge",
        json={"policy": {"margin": "20%", "wide_margin": "accept"}},
    )
    assert [document["verdict"] for document in answer.json()["verdicts"]] == ["pass"]
    with database.read() as session:
        assert [row.outcome for row in session.get_one(Job, job_id).verdicts] == ["fail"]


def test_a_job_shows_the_path_of_its_verdict_and_what_a_pair_would_change(api, database, recorded):
    job_id = recorded({"nvfp4": 0.0})
    conclude(database, job_id)
    of_job, of_page = (
        api.get(f"/api/v1/jobs/{job_id}{page}").json()["verdicts"] for page in ("", "/verdict")
    )
    of_now = api.post(f"/api/v1/jobs/{job_id}:rejudge", json={}).json()["verdicts"]
    assert of_job == of_page == of_now
    (shown,) = of_job
    with database.read() as session:
        (stored,) = verdict_documents(session.get_one(Job, job_id))
    gap = stored["gap"]
    # fewer points than a real one has (tests/parity/judging/verdict/test_path.py)
    assert 2 <= len(shown["path"]) <= 48
    assert shown["path"][-1] == {
        "step": 1499,
        "mean": gap["mean"],
        "lo": gap["lo"],
        "hi": gap["hi"],
    }
    assert sum(
        shown["chances"][outcome] for outcome in ("pass", "fail", "undecided")
    ) == pytest.approx(1.0)
    assert sha256_of(shown) == sha256_of(stored)
    assert '"path"' not in api.get("/api/v1/jobs").text
    with zipfile.ZipFile(
        io.BytesIO(api.get(f"/api/v1/jobs/{job_id}/evidence.zip").content)
    ) as bundle:
        assert json.loads(bundle.read("verdict.json"))["verdicts"] == [stored]


def test_a_job_without_finished_runs_has_nothing_to_judge(api, recorded):
    job_id = recorded({"nvfp4": 0.0}, state="running")
    answer = api.post(
        f"/api/v1/jobs/{job_id}:rejudge",
        json={"policy": {"margin": "20%", "wide_margin": "accept"}},
    )
    assert answer.status_code == 422
    assert "without a finished run" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * 100_000, 400),
        (b'{"baseline":' * 50_000, 400),
        (b'{"planned_steps":' + b"9" * 5000 + b"}", 400),
        (
            b'{"planned_steps":'
            + b"9" * 400
            + b',"baseline":[],"candidates":{"a":[]},"policy":{}}',
            422,
        ),
        (b'{"baseline": NaN}', 422),
        (b"\xff\xfe", 422),
    ],
)
def test_a_body_that_no_client_sends_is_refused(api, body, status):
    answer = api.post(
        "/api/v1/evaluations", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == status
    assert len(answer.text) < 2000


@pytest.mark.parametrize("planned_steps", [0, -1, 2**53 + 1, 10**300])
def test_a_plan_that_is_no_length_is_refused(api, planned_steps):
    answer = api.post("/api/v1/evaluations", json=_request(0.0, planned_steps=planned_steps))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/planned_steps"


@pytest.mark.parametrize("step", [-1, 2**53 + 1, 10**30])
def test_a_step_out_of_range_is_refused(api, step):
    request = _request(0.0)
    request["baseline"][0]["steps"][-1] = step
    answer = api.post("/api/v1/evaluations", json=request)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].startswith("/baseline/0")
