"""Statistics by layer over REST."""

import math

import numpy as np
import pytest

from server.database.metrics import store
from server.database.tables import Job

pytestmark = pytest.mark.both_databases


@pytest.fixture
def watched(database, recorded):
    """The candidate's first run, with twelve blocks watched at every tenth step."""
    job_id = recorded({"nvfp4": 0.0}, steps=100)
    at = np.arange(0, 100, 10)
    columns = {
        f"{block}.{name}/x/snr_db": block + at / 100
        for block in range(12)
        for name in ("up", "query")
    }
    columns["0.up/x/snr_db"] = np.array([math.nan, math.inf, *range(8)], float)
    columns["0.up/grad/amax"] = np.ones(10)
    with database.write() as session:
        run = session.get_one(Job, job_id).arms[1].runs[0]
        store.append(session, run.id, "layers", 1, at, columns)
        store.append(
            session,
            run.id,
            "layer_grad_norm",
            1,
            np.arange(100),
            {"0.up": np.arange(100.0), "0.query": np.zeros(100)},
        )
        return run.id, session.get_one(Job, job_id).arms[0].runs[0].id


def test_layers_come_in_model_order_and_nothing_finite_is_said_in_words(api, watched):
    answer = api.get(
        f"/api/v1/runs/{watched[0]}/layers", params={"statistic": "snr_db", "operand": "x"}
    ).json()
    table = answer["table"]
    assert table["layers"][:4] == ["0.query", "0.up", "1.query", "1.up"]
    assert table["layers"][-1] == "11.up"
    assert table["values"][1][:3] == ["nan", "inf", 0.0]
    assert (table["low"], table["high"]) == (0.0, 11.9)
    assert answer["recorded"]["operands"] == ["grad", "x"]
    assert answer["recorded"]["of_operand"] == {"grad": ["amax"], "x": ["snr_db"]}
    assert answer["recorded"]["statistics"] == ["amax", "snr_db"]


def test_a_table_is_the_difference_to_another_run_of_the_job(api, database, watched, recorded):
    candidate, baseline = watched
    question = {"statistic": "snr_db", "operand": "x", "minus": baseline}
    own = api.get(f"/api/v1/runs/{candidate}/layers", params=question).json()
    # the baseline has recorded nothing
    assert (own["minus"], own["table"]["values"][2][0]) == (None, 1.0)
    at = np.arange(20, 200, 10)
    with database.write() as session:
        store.append(
            session,
            baseline,
            "layers",
            1,
            at,
            {f"{block}.up/x/snr_db": np.full(len(at), 3.0 + block) for block in range(3)},
        )
    told = api.get(f"/api/v1/runs/{candidate}/layers", params=question).json()
    table = told["table"]
    assert told["minus"] == baseline
    assert table["layers"] == ["0.up", "1.up", "2.up"]
    assert (table["first_step"][0], table["last_step"][-1]) == (20, 90)
    assert table["values"][0][:2] == [-3.0, -2.0]
    assert table["values"][1][0] == pytest.approx(1.2 - 4.0)
    usual = api.get(f"/api/v1/runs/{candidate}/layers", params={"minus": baseline}).json()
    assert (usual["statistic"], usual["operand"], usual["minus"]) == ("snr_db", "x", baseline)
    with database.read() as session:
        other = session.get_one(Job, recorded({"nvfp4": 0.0}, steps=100)).runs[0].id
    wrong = api.get(f"/api/v1/runs/{candidate}/layers", params={"minus": other})
    assert (wrong.status_code, "another job" in wrong.json()["detail"]) == (422, True)


def test_infinity_less_infinity_is_no_number(api, database, watched):
    candidate, baseline = watched
    with database.write() as session:
        store.append(
            session,
            baseline,
            "layers",
            1,
            np.arange(0, 100, 10),
            {"0.up/x/snr_db": np.full(10, math.inf)},
        )
    told = api.get(
        f"/api/v1/runs/{candidate}/layers",
        params={"statistic": "snr_db", "operand": "x", "minus": baseline},
    ).json()
    assert told["minus"] is None


def test_a_table_opens_on_the_signal_to_noise_of_an_operand_that_is_quantized(
    api, database, recorded
):
    job_id = recorded({"nvfp4": 0.0}, steps=100)
    at = np.arange(0, 100)
    snr = 18.0 + at / 100
    snr[50] = 90.0
    columns = {
        "0.up/grad/snr_db": np.full(100, math.nan),
        "0.up/kernel/amax": np.ones(100),
        "0.up/x/amax": np.ones(100),
        "0.up/x/snr_db": snr,
    }
    with database.write() as session:
        run = session.get_one(Job, job_id).arms[1].runs[0].id
        store.append(session, run, "layers", 1, at, columns)
    answer = api.get(f"/api/v1/runs/{run}/layers").json()
    assert (answer["statistic"], answer["operand"]) == ("snr_db", "x")
    table = answer["table"]
    assert (table["low"], table["high"]) == (18.0, 90.0)
    assert 18.0 < table["usual_low"] < 18.1
    assert 18.9 < table["usual_high"] < 19.0
    assert (
        api.get(f"/api/v1/runs/{run}/layers", params={"statistic": "amax"}).json()["operand"]
        == "kernel"
    )


def test_steps_without_any_number_are_left_out(api, database, recorded):
    job_id = recorded({"nvfp4": 0.0}, steps=100)
    at = np.arange(0, 100, 10)
    compared = np.where(at % 20 == 0, 0.9, math.nan)
    with database.write() as session:
        run = session.get_one(Job, job_id).arms[1].runs[0].id
        columns = {
            "0.up/kernel_grad/cosine": compared,
            "0.query/kernel_grad/cosine": np.full(10, math.nan),
            "0.up/x/amax": np.ones(10),
        }
        store.append(session, run, "layers", 1, at, columns)
    table = api.get(
        f"/api/v1/runs/{run}/layers", params={"statistic": "cosine", "operand": "kernel_grad"}
    ).json()["table"]
    assert table["first_step"] == [0, 20, 40, 60, 80]
    assert table["steps_in_range"] == 5
    assert table["values"] == [["nan"] * 5, [0.9] * 5]


def test_buckets_hold_the_mean(api, watched):
    answer = api.get(
        f"/api/v1/runs/{watched[0]}/layers",
        params={"statistic": "grad_norm", "buckets": 4, "from": 20, "to": 59},
    ).json()
    table = answer["table"]
    assert answer["operand"] is None
    assert (table["first_step"], table["last_step"]) == ([20, 30, 40, 50], [29, 39, 49, 59])
    assert table["values"] == [[0.0] * 4, [24.5, 34.5, 44.5, 54.5]]


def test_what_was_not_watched_and_what_is_not_known(api, watched):
    answer = api.get(f"/api/v1/runs/{watched[1]}/layers").json()
    assert (answer["statistic"], answer["table"], answer["recorded"]["layers"]) == (None, None, [])
    wrong = api.get(f"/api/v1/runs/{watched[0]}/layers?statistic=mood")
    assert wrong.status_code == 422
    assert "expected one of amax, grad_norm" in wrong.json()["detail"]
    other = api.get(f"/api/v1/runs/{watched[0]}/layers?statistic=amax&operand=x")
    assert "expected one of snr_db, grad_norm" in other.json()["detail"]
    empty = api.get(f"/api/v1/runs/{watched[0]}/layers?from=5000").json()
    assert empty["table"]["steps_in_range"] == 0
