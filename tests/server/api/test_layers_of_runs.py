"""Statistics by layer of a run that a user trains: sent with its attempt, shown on its page, named
by the advice after a fail.
"""

import math

import numpy as np
import pytest

from server.jobs import external

pytestmark = pytest.mark.both_databases

STEPS = 400
FC1, FC2 = (f"decoder.layers.{at}.mlp.linear_fc1/gradient nvfp4/underflow_share" for at in (0, 10))
AMAX = "decoder.layers.10.mlp.linear_fc1/gradient nvfp4/amax"


@pytest.fixture
def job(api):
    answer = api.post(
        "/api/v1/jobs",
        json={
            "job": {
                "name": "mine",
                "engine": "external",
                "baseline": {"recipe": "fp8_current"},
                "candidates": [{"recipe": "nvfp4"}],
                "schedule": {"steps": STEPS, "warmup_steps": 0},
            },
            "policy": {"margin": "1.0%"},
        },
    )
    assert answer.status_code == 202, answer.text
    return answer.json()


def _begin(api, run, gap=0.0):
    """Attach and log every step; the number of the attempt."""
    attempt = api.post(f"/api/v1/runs/{run}:attach", json={"manifest": {}}).json()["attempt"]
    steps = np.arange(STEPS)
    loss = 1.4 + np.exp(-steps / 40) + np.random.default_rng(0).normal(0, 0.05, STEPS) + gap
    answer = api.post(
        f"/api/v1/runs/{run}/steps",
        params={"attempt": attempt},
        json={"steps": steps.tolist(), "columns": {"loss": loss.tolist()}},
    )
    assert answer.status_code == 200, answer.text
    return attempt


def _send(api, run, attempt, steps, **columns):
    return api.post(
        f"/api/v1/runs/{run}/layers",
        params={"attempt": attempt},
        json={"steps": steps, "columns": columns},
    )


def _finish(api, run, attempt):
    answer = api.post(
        f"/api/v1/runs/{run}:finish", json={"attempt": attempt, "outcome": "finished"}
    )
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("gap", [0.3, 0.0])
def test_what_is_sent_is_a_heat_map_and_names_layers_after_a_fail(api, job, ended, gap):
    for arm in job["arms"]:
        run = arm["runs"][0]["id"]
        attempt = _begin(api, run, gap if arm["name"] == "nvfp4" else 0.0)
        if arm["name"] == "nvfp4":
            early, late = list(range(0, 200, 50)), list(range(200, 400, 50))
            for steps in (late, early, late):  # in any order, and again
                sent = {FC1: [0.01] * 4, FC2: [0.32 if steps is late else 0.0] * 4}
                answer = _send(api, run, attempt, steps, **sent, **{AMAX: [4.5] * 4})
                assert answer.status_code == 200, answer.text
        _finish(api, run, attempt)
    document = ended(api, job["id"])
    table = api.get(f"/api/v1/runs/{run}/layers").json()
    assert table["recorded"]["operands"] == ["gradient nvfp4"]
    assert table["recorded"]["statistics"] == ["amax", "underflow_share"]
    assert table["statistic"] == "underflow_share"  # which a fail names, before the first by name
    question = {"statistic": "underflow_share", "operand": "gradient nvfp4"}
    assert api.get(f"/api/v1/runs/{run}/layers", params=question).json() == table
    table = table["table"]
    assert table["layers"] == [FC1.split("/")[0], FC2.split("/")[0]]
    assert table["values"] == [[0.01] * 8, [0.0] * 4 + [0.32] * 4]
    assert "statistics by layer and step" in api.get(f"/jobs/{job['id']}").text
    (verdict,) = document["verdicts"]
    named = " ".join(verdict["advice"]["sentences"])
    assert (verdict["verdict"] == "fail") == bool(gap)
    assert ("linear_fc1 (gradient nvfp4, 32.0 %, amax 4.5)" in named) == bool(gap)


def test_a_column_that_is_no_layer_operand_and_statistic_is_refused(api, job):
    run = job["arms"][1]["runs"][0]["id"]
    attempt = _begin(api, run)
    no_columns = ("", "fc1", "fc1/gradient", "fc1//amax", "fc1/gradient/", "fc1/gradient/Amax")
    no_names = ("a,b/x/amax", "fc 1/gradient/amax", "fc1/gradient  nvfp4/amax", "fc1/д/amax")
    for column in (*no_columns, *no_names, f"{'f' * 260}/x/amax"):
        assert _send(api, run, attempt, [0], **{column: [0.1]}).status_code == 422, column
    assert api.get(f"/api/v1/runs/{run}/layers").json()["table"] is None


def test_non_finite_values_are_kept(api, job):
    run = job["arms"][1]["runs"][0]["id"]
    attempt = _begin(api, run)
    sent = {"fc1/x/snr_db": [12.0, "inf", None], "fc2/x/snr_db": ["nan", "-inf", 3.0]}
    assert _send(api, run, attempt, [0, 1, 2], **sent).status_code == 200
    table = api.get(f"/api/v1/runs/{run}/layers", params={"buckets": 3}).json()["table"]
    assert table["values"] == [[12.0, "inf", "nan"], ["nan", "-inf", 3.0]]


def test_a_step_that_is_told_otherwise_is_refused_and_nothing_changes(api, job):
    run = job["arms"][1]["runs"][0]["id"]
    attempt = _begin(api, run)
    assert _send(api, run, attempt, [0, 1], **{FC1: [0.1, 0.2]}).status_code == 200
    assert _send(api, run, attempt, [1, 2], **{FC1: [0.3, 0.3]}).status_code == 409
    table = api.get(f"/api/v1/runs/{run}/layers", params={"buckets": 9}).json()["table"]
    assert table["values"] == [[0.1, 0.2]]


def test_too_many_columns_are_refused_with_the_most(api, job, monkeypatch):
    monkeypatch.setattr(external, "MOST_LAYER_COLUMNS", 2)
    run = job["arms"][1]["runs"][0]["id"]
    attempt = _begin(api, run)
    assert _send(api, run, attempt, [0], **{FC1: [0.1], FC2: [0.1]}).status_code == 200
    refused = _send(api, run, attempt, [1], **{AMAX: [0.1]})
    assert refused.status_code == 422
    assert "3 columns" in refused.json()["detail"]


def test_steps_above_the_plan_are_left_out_and_an_ended_run_takes_none(api, job):
    run = job["arms"][1]["runs"][0]["id"]
    attempt = _begin(api, run)
    sent = {FC1: [0.1, 0.1, math.pi]}
    assert _send(api, run, attempt, [0, STEPS, 2 * STEPS], **sent).json()["new_steps"] == 2
    _finish(api, run, attempt)
    refused = _send(api, run, attempt, [9], **{FC1: [0.1]})
    assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (
        409,
        "stale-attempt",
    )


def test_an_older_attempt_is_fenced(api, job):
    run = job["arms"][1]["runs"][0]["id"]
    first = _begin(api, run)
    api.post(f"/api/v1/runs/{run}:attach", json={"manifest": {}})
    assert _send(api, run, first, [0], **{FC1: [0.1]}).status_code == 409
