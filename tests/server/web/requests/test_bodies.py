"""What was sent as one kind is not read as another."""

import json
import re

import pytest


@pytest.mark.parametrize(
    ("pointer", "change"),
    [
        ("/job/schedule/steps", {"schedule": {"steps": "400"}}),
        ("/job/schedule/learning_rate", {"schedule": {"learning_rate": True}}),
        ("/job/candidates/0/replicates", {"candidates": [{"recipe": "nvfp4", "replicates": True}]}),
        ("/job/remat", {"remat": 1}),
    ],
)
def test_a_job_with_a_value_of_another_kind_is_refused(api, request_body, pointer, change):
    answer = api.post("/api/v1/jobs", json=request_body | {"job": request_body["job"] | change})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize(
    ("change", "pointer", "detail"),
    [
        (
            {"short_reruns": 3},
            "/job/short_reruns",
            "short_reruns is 3; expected a mapping from its fields to their values",
        ),
        (
            {"short_reruns": {"stop_at": "half"}},
            "/job/short_reruns/stop_at",
            "stop_at is 'half'; expected a number",
        ),
        (
            {"short_reruns": {"runs": "two"}},
            "/job/short_reruns/runs",
            "runs is 'two'; expected a whole number",
        ),
    ],
)
def test_a_value_of_another_kind_is_refused_in_our_words(
    api, request_body, change, pointer, detail
):
    answer = api.post("/api/v1/jobs", json=request_body | {"job": request_body["job"] | change})
    assert (answer.status_code, answer.json()["errors"]) == (
        422,
        [{"pointer": pointer, "detail": detail}],
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"short_reruns": {"stop_at": "half"}},
            "short_reruns: stop_at is 'half'; expected a number",
        ),
        ({"engine": "emulatd"}, "engine is 'emulatd'; did you mean emulated"),
        ({"schedule": {"steps": 0}}, "schedule.steps is 0, expected a number of at least 1"),
        (
            {"schedule": {"steps": 2**60}},
            "schedule.steps has a whole number out of range, 1152921504606846976",
        ),
        ({"baseline": {"recipe": "fp8"}}, "arm.recipe is 'fp8', expected one of fp8_current"),
        ({"baseline": {"recipe": "fp9"}}, "baseline: recipe is 'fp9'"),
        (
            {"candidates": [{"recipe": "mxfp8"}, {"recipe": "nvfp5"}]},
            "candidate 2: recipe is 'nvfp5'",
        ),
    ],
)
def test_the_sentence_for_a_person_has_no_pointer(api, request_body, change, sentence):
    detail = api.post(
        "/api/v1/jobs", json=request_body | {"job": request_body["job"] | change}
    ).json()["detail"]
    assert re.match(sentence, detail), detail
    assert not re.search(r"/job|Input|should", detail), detail


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"days": 140}, "days is 140.*; expected at most 90"),
        ({"reason": "x"}, "reason is 'x'; expected at least 10 characters"),
    ],
)
def test_a_number_or_text_out_of_range_is_refused_in_our_words(api, change, sentence):
    answer = api.post(
        "/api/v1/jobs/j/sign-offs",
        json={"candidate": "nvfp4", "days": 14, "reason": "reruns are queued"} | change,
    )
    assert answer.status_code == 422
    assert re.match(sentence, answer.json()["detail"]), answer.json()["detail"]


def test_whole_numbers_may_be_written_with_a_point(api, request_body):
    job = request_body["job"] | {"schedule": {"steps": 400.0, "learning_rate": 1}}
    assert api.post("/api/v1/jobs", json=request_body | {"job": job}).status_code == 202


def test_a_loss_is_a_number_or_the_name_of_what_is_none(api):
    def evaluation(loss):
        run = {"steps": list(range(len(loss))), "loss": loss}
        return {"baseline": [run], "candidates": {"nvfp4": [run]}, "policy": {"margin": "1%"}}

    good = [1.5] * 40
    assert api.post("/api/v1/evaluations", json=evaluation([*good, "nan"])).status_code == 200
    refused = api.post("/api/v1/evaluations", json=evaluation([*good, "1.5"]))
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/baseline/0/loss/40"


@pytest.mark.parametrize("path", ["jobs", "jobs:gate", "jobs:plan"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"margin": "1.0%"', '"margin": "1.0%", "margin": "4.9%"'),
        ('"recipe": "nvfp4"', '"recipe": "nvfp4", "recipe": "bf16"'),
        ('"policy":', '"policy": {}, "policy":'),
        # one key in two spellings
        ('"margin": "1.0%"', '"margin": "1.0%", "m\\u0061rgin": "4.9%"'),
    ],
)
def test_a_key_that_stands_twice_is_refused(api, request_body, path, old, new):
    text = json.dumps(request_body)
    assert old in text
    answer = api.post(
        f"/api/v1/{path}",
        content=text.replace(old, new, 1),
        headers={"Content-Type": "application/json"},
    )
    assert (answer.status_code, "twice" in answer.json()["detail"]) == (422, True)
    # both arms have a recipe
    honest = api.post(f"/api/v1/{path}", content=text, headers={"Content-Type": "application/json"})
    assert honest.status_code in (200, 202)


@pytest.mark.parametrize(
    "margin", ["1e308%", "101%", "1e5 nats", "1e308% tokens at 0.2 nats", "1e-323%"]
)
def test_a_margin_has_bounds(api, request_body, margin):
    answer = api.post("/api/v1/jobs", json=request_body | {"policy": {"margin": margin}})
    assert (answer.status_code, "margin" in answer.text) == (422, True)


@pytest.mark.parametrize("margin", ["100%", "0.001%", "0.5 nats"])
def test_a_margin_within_the_bounds_is_taken(api, request_body, margin):
    assert (
        api.post("/api/v1/jobs", json=request_body | {"policy": {"margin": margin}}).status_code
        == 202
    )
