"""The live forecast over REST: what the keeper stored, never a verdict."""

import pytest

from server.jobs import forecasts

pytestmark = pytest.mark.both_databases


def test_a_running_job_has_its_gap_and_a_forecast_of_the_rest(api, database, recorded):
    job = recorded({"nvfp4": 0.3, "mxfp8": 0.0}, done=600, state="running")
    url = f"/api/v1/jobs/{job}/live"
    empty = api.get(url).json()
    assert (empty["state"], empty["forecast"], empty["step"]) == (None, None, [])
    assert "No forecast yet" in empty["sentence"]
    assert forecasts.watch(database, job) == ["nvfp4"]
    failing = api.get(url, params={"candidate": "nvfp4"}).json()
    assert failing["state"] == failing["past_state"][-1] == "will_fail"
    assert failing["past_step"][-1] == 599
    assert len(failing["step"]) == len(failing["gap"]) == 32
    assert failing["gap"][-1] == pytest.approx(0.3, abs=0.02)
    forecast = failing["forecast"]
    assert forecast["end"] == 1499
    assert (
        forecast["low"]
        < forecast["low_half"]
        < forecast["gap"]
        < forecast["high_half"]
        < forecast["high"]
    )
    assert failing["past_fails"][-1] > 0.99
    assert api.get(url, params={"candidate": "mxfp8"}).json()["state"] in ("open", "on_course")
    arms = {arm["name"]: arm for arm in api.get(f"/api/v1/jobs/{job}").json()["arms"]}
    assert arms["nvfp4"]["will_fail"] == arms["nvfp4"]["live"]["sentence"]
    assert arms["mxfp8"]["will_fail"] is None
    assert arms["fp8_current"]["live"] is None


def test_an_ended_job_is_forecast_to_its_end_and_cached(api, judged):
    job, _ = judged({"nvfp4": 0.05, "mxfp8": 0.0})
    answer = api.get(f"/api/v1/jobs/{job}/live", params={"candidate": "nvfp4"})
    assert answer.json()["past_step"][-1] == 1499
    assert "the verdict decides" in answer.json()["sentence"]
    tag = {"If-None-Match": answer.headers["ETag"]}
    assert (
        api.get(f"/api/v1/jobs/{job}/live", params={"candidate": "nvfp4"}, headers=tag).status_code
        == 304
    )


def test_a_job_that_ended_too_early_and_an_unknown_candidate_say_so(api, recorded):
    job = recorded({"nvfp4": 0.0}, done=0, state="queued")
    assert api.post(f"/api/v1/jobs/{job}:cancel").status_code == 200
    assert api.get(f"/api/v1/jobs/{job}/live").json()["sentence"].startswith("There is no forecast")
    assert api.get(f"/api/v1/jobs/{job}/live", params={"candidate": "x"}).status_code == 404
