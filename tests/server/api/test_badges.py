"""Badges over REST."""

import re

import pytest


@pytest.fixture
def job(judged):
    return judged({"nvfp4": 0.3, "mxfp8": 0.0})[0]


def test_a_badge_without_a_verdict_is_grey(api, request_body):
    queued = api.post("/api/v1/jobs", json=request_body).json()["id"]
    assert api.get(f"/api/v1/badges/{queued}.json").json()["message"] == "no verdict, queued"
    # by name only concluded jobs count
    assert api.get("/api/v1/badges/mine.json").status_code == 404


def test_a_badge_says_the_worst_verdict(api, job):
    by_id, by_name = (api.get(f"/api/v1/badges/{named}.json").json() for named in (job, "small"))
    assert by_id == by_name
    assert (by_id["schemaVersion"], by_id["label"], by_id["color"]) == (1, "parity", "#b3261e")
    assert re.fullmatch(r"■ nvfp4 fail, gap \+0\.\d{4} nats", by_id["message"])
    assert api.get(f"/api/v1/badges/{job}.svg").status_code == 404
