"""The gap of a pair over REST."""

import math

import numpy as np
import pytest

from server.database.metrics import store
from server.database.tables import Job, Run
from server.jobs.conclude import conclude

pytestmark = pytest.mark.both_databases


def _job(api, job_id):
    return api.get(f"/api/v1/jobs/{job_id}").json()


def test_the_gap_is_the_gap(api, recorded):
    job = recorded({"nvfp4": 0.05, "mxfp8": 0.0})
    gap = api.get(f"/api/v1/jobs/{job}/gap", params={"candidate": "nvfp4", "bins": 50}).json()
    assert gap["common_steps"] == 1500
    assert gap["window"] == [1200, 1499]
    assert gap["margin_nats"] == pytest.approx(0.014, rel=0.02)
    assert np.mean(gap["mean"]) == pytest.approx(0.05, abs=0.01)
    assert all(
        low < mean < high
        for low, mean, high in zip(gap["low"], gap["mean"], gap["high"], strict=True)
    )
    zoomed = api.get(f"/api/v1/jobs/{job}/gap", params={"from": 100, "to": 199}).json()
    assert zoomed["common_steps"] == 100
    assert zoomed["first_step"][0] == 100


def test_all_candidates_have_the_same_bins_and_the_level_that_decides(api, judged, recorded):
    gaps = {"nvfp4": 0.05, "mxfp8": 0.0}
    job = judged(gaps)[0]
    answer = api.get(f"/api/v1/jobs/{job}/gaps", params={"bins": 50}).json()
    assert (len(answer["first_step"]), answer["first_step"][0], answer["last_step"][-1]) == (
        50,
        0,
        1499,
    )
    decided = {
        one["candidate"]["name"]: one["gap"]["deciding"]["level"]
        for one in _job(api, job)["verdicts"]
    }
    assert decided == {"nvfp4": 0.95, "mxfp8": pytest.approx(0.975)}  # a fail, and a pass
    for one in answer["candidates"]:
        alone = api.get(
            f"/api/v1/jobs/{job}/gap", params={"candidate": one["candidate"], "bins": 50}
        ).json()
        assert alone["first_step"] == answer["first_step"]
        assert one["mean"] == pytest.approx(alone["mean"], rel=1e-5)
        assert one["half_width"] == pytest.approx(
            np.subtract(alone["high"], alone["mean"]), rel=1e-3
        )
        assert one["confidence"] == alone["confidence"] == decided[one["candidate"]]
        assert np.mean(one["mean"]) == pytest.approx(gaps[one["candidate"]], abs=0.01)
    training = api.get(f"/api/v1/jobs/{recorded(gaps, done=600, state='running')}/gaps").json()
    assert [one["confidence"] for one in training["candidates"]] == [pytest.approx(0.975)] * 2


def test_some_candidates_have_the_bins_of_all(api, judged):
    address = f"/api/v1/jobs/{judged({'nvfp4': 0.05, 'mxfp8': 0.0})[0]}/gaps"
    of_all = api.get(address).json()
    of_one = api.get(address, params={"candidates": "mxfp8"})
    assert of_one.json() == of_all | {"candidates": of_all["candidates"][1:]}
    assert api.get(address, headers={"If-None-Match": of_one.headers["ETag"]}).status_code == 200
    refused = api.get(address, params={"candidates": "mxfp8,int8"})
    assert (refused.status_code, "'int8'" in refused.json()["detail"]) == (404, True)


def test_a_candidate_that_is_behind_has_no_value_in_the_later_bins(api, database, recorded):
    job = recorded({"nvfp4": 0.0, "mxfp8": 0.0}, done=0, steps=400, state="running")
    with database.write() as session:
        for run in session.query(Run).where(Run.job_id == job):
            steps = np.arange(100 if run.arm.name == "mxfp8" else 400)
            store.append(
                session,
                run.id,
                "train",
                1,
                steps,
                {"lm_loss": 1.4 + 0.01 * np.sin(steps + run.position)},
            )
            run.steps_done = len(steps)
    first, second = api.get(f"/api/v1/jobs/{job}/gaps", params={"bins": 40}).json()["candidates"]
    assert (first["common_steps"], second["common_steps"]) == (400, 100)
    assert None not in first["mean"]
    assert [value is None for value in second["mean"]] == [False] * 10 + [True] * 30
    empty = api.get(f"/api/v1/jobs/{job}/gaps", params={"from": 900}).json()
    assert (empty["first_step"], empty["candidates"]) == ([], [])


def test_the_gaps_of_a_training_job_are_computed_again_when_a_hundredth_is_new(
    api, database, recorded
):
    job = recorded({"nvfp4": 0.0}, done=1000, state="running")

    def common_steps(done: int) -> int:
        with database.write() as session:
            for run in session.query(Run).where(Run.job_id == job):
                steps = np.arange(run.steps_done, done)
                if len(steps):
                    store.append(
                        session, run.id, "train", 1, steps, {"lm_loss": np.full(len(steps), 1.4)}
                    )
                run.steps_done = done
        return api.get(f"/api/v1/jobs/{job}/gaps").json()["candidates"][0]["common_steps"]

    assert [common_steps(done) for done in (1000, 1005, 1020)] == [1000, 1000, 1020]


def test_a_cancelled_job_keeps_its_gap(api, recorded):
    job = recorded({"nvfp4": 0.0}, done=600, state="running")
    assert api.post(f"/api/v1/jobs/{job}:cancel").json()["status"] == "cancelled"
    assert api.get(f"/api/v1/jobs/{job}/gap").json()["common_steps"] == 600


def test_a_job_without_steps_has_an_empty_gap(api, recorded):
    gap = api.get(f"/api/v1/jobs/{recorded({'nvfp4': 0.0}, done=0, state='running')}/gap").json()
    assert gap["first_step"] == []
    assert gap["margin_nats"] is None


def test_an_unknown_candidate_is_named(api, recorded):
    answer = api.get(f"/api/v1/jobs/{recorded({'nvfp4': 0.0})}/gap", params={"candidate": "int8"})
    assert answer.status_code == 404
    assert "'int8'" in answer.json()["detail"]
    assert "nvfp4" in answer.json()["detail"]


def test_nan_is_data_and_never_an_error(api, database, recorded):
    job = recorded({"nvfp4": 0.0}, done=0, state="running")
    run = _job(api, job)["arms"][0]["runs"][0]["id"]
    with database.write() as session:
        store.append(
            session, run, "train", 1, np.arange(3), {"lm_loss": np.array([1.0, np.nan, np.inf])}
        )
    series = api.get(f"/api/v1/runs/{run}/metrics").json()["series"][0]
    assert series["nonfinite"] == [{"step": 1, "kind": "nan"}, {"step": 2, "kind": "inf"}]
    assert api.get(f"/api/v1/jobs/{job}/gap").status_code == 200


def test_a_range_of_an_ended_job_reads_its_own_steps_and_says_the_same(api, judged, monkeypatch):
    job, _ = judged({"nvfp4": 0.05})
    url, params = f"/api/v1/jobs/{job}/gap", {"from": 1000, "to": 1099, "bins": 20}
    first = api.get(url, params=params).json()
    read = []
    whole = store.tables
    monkeypatch.setattr(
        store,
        "tables",
        lambda *arguments, **named: read.append(arguments[3:5]) or whole(*arguments, **named),
    )
    again = api.get(url, params=params)
    assert again.json() == first
    assert read == [(1000, 1099)] * 4
    assert first["common_steps"] == 100
    assert (
        api.get(url, params={**params, "from": 0, "to": 1499}).json()["margin_nats"]
        == first["margin_nats"]
    )


def test_a_range_of_a_training_job_reads_its_own_steps_until_a_hundredth_more_is_done(
    api, database, recorded, monkeypatch
):
    job = recorded({"nvfp4": 0.05}, done=1000, state="running")
    url, part, whole = (
        f"/api/v1/jobs/{job}/gap",
        {"from": 500, "to": 599, "bins": 20},
        (0, math.inf),
    )
    first = api.get(url, params=part).json()
    read = []
    tables = store.tables
    monkeypatch.setattr(
        store,
        "tables",
        lambda *arguments, **named: read.append(arguments[3:5]) or tables(*arguments, **named),
    )

    def ranges(steps_done, params):
        read.clear()
        with database.write() as session:
            for run in session.query(Run).where(Run.job_id == job):
                run.steps_done = steps_done
        assert api.get(url, params=params).json()["margin_nats"] == first["margin_nats"]
        return set(read)

    assert ranges(1005, part) == {(500, 599)}
    assert ranges(1005, {}) == {whole}
    assert ranges(1010, part) == {(500, 599)}
    assert ranges(1020, part) == {whole}
    assert api.get(url, params=part).json() == first


def test_spikes_that_the_verdict_found_are_named(api, database, recorded):
    job = recorded({"nvfp4": 0.0})
    with database.write() as session:
        for run in session.get_one(Job, job).arms[1].runs:
            steps, columns = store.read(session, run.id, "train")
            columns["lm_loss"][[500, 900]] += 2.0
            store.append(session, run.id, "train", 2, steps, columns)
    assert api.get(f"/api/v1/jobs/{job}/gap").json()["spikes_candidate"] == []
    conclude(database, job)
    chart = api.get(f"/api/v1/jobs/{job}/gap").json()
    assert (chart["spikes_baseline"], chart["spikes_candidate"]) == ([], [500, 900])


def test_log_spacing_shows_the_first_steps_one_by_one(api, recorded):
    job = recorded({"nvfp4": 0.0})
    gap = api.get(f"/api/v1/jobs/{job}/gap", params={"bins": 60, "spacing": "log"}).json()
    assert gap["last_step"][:2] == [0, 1]
    assert gap["last_step"][-1] - gap["first_step"][-1] > 100
    assert gap["common_steps"] == 1500
