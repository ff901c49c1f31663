"""The curves of all arms over REST."""

import math

import numpy as np
import pytest

from server.api.curves import overlay
from server.database.metrics import store
from server.database.tables import Job

pytestmark = pytest.mark.both_databases


def test_arms_share_their_edges(api, recorded):
    job_id = recorded({"nvfp4": 0.05, "mxfp8": 0.0}, steps=300)
    answer = api.get(
        f"/api/v1/jobs/{job_id}/overlay", params={"from": 100, "to": 199, "replicate": 1}
    ).json()
    assert (answer["replicate"], answer["aggregation"], answer["steps_in_range"]) == (
        1,
        "none",
        100,
    )
    assert [one["arm"] for one in answer["arms"]] == ["fp8_current", "nvfp4", "mxfp8"]
    assert answer["first_step"] == list(range(100, 200))
    assert all(len(one["line"]["mean"]) == 100 for one in answer["arms"])


def test_a_chart_can_ask_for_some_arms_and_for_what_there_is(api, recorded):
    job_id = recorded({"nvfp4": 0.05, "mxfp8": 0.0}, steps=300)
    answer = api.get(f"/api/v1/jobs/{job_id}/overlay", params={"arms": "mxfp8,fp8_current"}).json()
    assert [one["arm"] for one in answer["arms"]] == ["fp8_current", "mxfp8"]
    columns = api.get(f"/api/v1/jobs/{job_id}/columns").json()
    assert columns == {
        "train": ["grad_norm", "learning_rate", "lm_loss", "loss", "step_seconds", "tokens"],
        "validation": [],
    }
    empty = recorded({"nvfp4": 0.0}, done=0, state="queued")
    assert api.get(f"/api/v1/jobs/{empty}/columns").json() == {"train": [], "validation": []}


def test_time_begins_with_the_run(api, recorded):
    job_id = recorded({"nvfp4": 0.05}, steps=300)
    answer = api.get(
        f"/api/v1/jobs/{job_id}/overlay", params={"name": "grad_norm", "from": 100, "seconds": True}
    ).json()
    assert answer["arms"][0]["line"]["seconds"][:2] == pytest.approx([4.04, 4.08])


def test_time_is_counted_through_once(api, recorded, monkeypatch):
    job_id = recorded({"nvfp4": 0.05}, steps=300)
    monkeypatch.setattr(overlay, "_KEPT", 50)
    url, part = f"/api/v1/jobs/{job_id}/overlay", {"from": 120, "to": 199, "seconds": True}
    read = []
    tables = store.tables
    monkeypatch.setattr(
        store,
        "tables",
        lambda *arguments, **named: read.append(arguments[3:5]) or tables(*arguments, **named),
    )
    first = api.get(url, params=part).json()
    assert set(read) == {(120, 199), (0, 199)}
    read.clear()
    assert api.get(url, params=part).json()["arms"][0]["line"]["seconds"] == pytest.approx(
        first["arms"][0]["line"]["seconds"]
    )
    assert set(read) == {(120, 199), (100, 199)}
    later = {"from": 280, "seconds": True}
    for begin in (200, 250):
        read.clear()
        assert api.get(url, params=later).json()["arms"][0]["line"]["seconds"][0] == pytest.approx(
            281 * 0.04
        )
        assert set(read) == {(280, math.inf), (begin, 299)}


def test_validation_losses_of_the_arms_with_the_time_of_their_steps(api, database, recorded):
    job_id = recorded({"nvfp4": 0.05}, steps=300)
    url, params = (
        f"/api/v1/jobs/{job_id}/overlay",
        {"name": "loss", "kind": "validation", "seconds": True},
    )
    assert api.get(url, params=params | {"from": 1}).json()["arms"] == []
    at = np.arange(49, 300, 50)
    with database.write() as session:
        for arm in session.get_one(Job, job_id).arms:
            store.append(session, arm.runs[0].id, "validation", 1, at, {"loss": 2.0 - at / 300})
    answer = api.get(url, params=params | {"from": 100}).json()
    assert (answer["kind"], answer["first_step"]) == ("validation", [149, 199, 249, 299])
    for one in answer["arms"]:
        assert one["line"]["mean"] == pytest.approx(2.0 - at[2:] / 300)
        assert one["line"]["seconds"] == pytest.approx(0.04 * (at[2:] + 1))


def test_what_nobody_recorded_is_empty_and_a_strange_job_is_none(api, recorded):
    job_id = recorded({"nvfp4": 0.05}, steps=30)
    assert api.get(f"/api/v1/jobs/{job_id}/overlay?name=nothing").json()["arms"] == []
    assert api.get(f"/api/v1/jobs/{job_id}/overlay?replicate=9").json()["arms"] == []
    assert api.get("/api/v1/jobs/j-none/overlay").status_code == 404
