"""Every step over REST in three forms, and answers that need not be sent twice."""

import csv
import io
import struct

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from sqlalchemy import select

from server.database.metrics import store
from server.database.tables import Run

pytestmark = pytest.mark.both_databases

# Ordinary numbers, the smallest and largest, signed zero, infinities, and NaNs with a sign and a
# payload.
BITS = [
    0x3FF123456789ABCD,
    1,
    0x7FEFFFFFFFFFFFFF,
    1 << 63,
    0x7FF0000000000000,
    0xFFF0000000000000,
    0x7FF8000000000123,
    0xFFF0000000000001,
]
LOSS = np.array(BITS, np.uint64).view(np.float64)


@pytest.fixture
def run(database, recorded):
    """A finished run of 30 steps in three chunks and two attempts, whose first eight losses are
    odd; `late` begins at step 20.
    """
    job = recorded({"nvfp4": 0.0}, done=0)
    loss = np.concatenate([LOSS, np.linspace(3, 2, 22)])
    with database.write() as session:
        row = session.scalars(select(Run).where(Run.job_id == job).order_by(Run.position)).first()
        row.attempt_number, row.finished_at = 2, 1.0
        store.append(
            session,
            row.id,
            "train",
            1,
            np.arange(20),
            {"lm_loss": np.concatenate([loss[:10], np.full(10, 9.0)])},
        )
        store.append(session, row.id, "train", 2, np.arange(10, 20), {"lm_loss": loss[10:20]})
        store.append(
            session,
            row.id,
            "train",
            2,
            np.arange(20, 30),
            {"lm_loss": loss[20:], "late": np.arange(10.0)},
        )
        return row.id, loss


def test_json_in_pages_with_what_is_not_finite_beside_it(api, run):
    run_id, loss = run
    steps, values, nonfinite, following = [], [], [], 0
    while following is not None:
        page = api.get(
            f"/api/v1/runs/{run_id}/steps",
            params={"from": following, "limit": 7, "names": "lm_loss"},
        ).json()
        assert len(page["steps"]) <= 7
        steps += page["steps"]
        values += page["columns"]["lm_loss"]
        nonfinite += page["nonfinite"]
        following = page["next_from"]
    assert steps == list(range(30))
    assert [one["step"] for one in nonfinite] == [4, 5, 6, 7]
    assert [one["kind"] for one in nonfinite] == ["inf", "-inf", "nan", "nan"]
    finite = [index for index in range(30) if np.isfinite(loss[index])]
    assert struct.pack("<26d", *(values[index] for index in finite)) == loss[finite].tobytes()
    assert [values[index] for index in (4, 5, 6, 7)] == [None] * 4


def test_arrow_has_every_bit(api, run):
    run_id, loss = run
    for request in (
        {"params": {"format": "arrow"}},
        {"headers": {"Accept": "application/vnd.apache.arrow.stream"}},
    ):
        answer = api.get(f"/api/v1/runs/{run_id}/steps", **request)
        assert answer.headers["Content-Type"] == "application/vnd.apache.arrow.stream"
        table = pa.ipc.open_stream(answer.content).read_all()
        assert table.schema.names == ["step", "late", "lm_loss"]
        assert table["step"].to_pylist() == list(range(30))
        assert table["lm_loss"].to_numpy().tobytes() == loss.tobytes()
        assert np.isnan(table["late"].to_numpy()[:20]).all()
        assert table["late"].to_numpy()[20:].tolist() == list(range(10))
    part = api.get(
        f"/api/v1/runs/{run_id}/steps",
        params={"format": "arrow", "from": 8, "to": 21, "names": "lm_loss"},
    )
    assert (
        pa.ipc.open_stream(part.content).read_all()["lm_loss"].to_numpy().tobytes()
        == loss[8:22].tobytes()
    )
    empty = api.get(f"/api/v1/runs/{run_id}/steps", params={"format": "arrow", "from": 100})
    assert pa.ipc.open_stream(empty.content).read_all().num_rows == 0


def test_csv_reads_back_to_the_same_numbers(api, run):
    run_id, loss = run
    text = api.get(f"/api/v1/runs/{run_id}/steps", headers={"Accept": "text/csv"}).text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [int(row["step"]) for row in rows] == list(range(30))
    assert np.array_equal([float(row["lm_loss"]) for row in rows], loss, equal_nan=True)


def test_answers_are_compressed_for_those_who_can_read_it(api, run):
    run_id, _ = run
    path, params = f"/api/v1/runs/{run_id}/steps", {"format": "csv"}
    plain = api.get(path, params=params, headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    with api.stream("GET", path, params=params, headers={"Accept-Encoding": "zstd"}) as answer:
        assert answer.headers["Content-Encoding"] == "zstd"
        assert (
            zstandard.ZstdDecompressor().decompressobj().decompress(b"".join(answer.iter_raw()))
            == plain.content
        )
    assert "Accept-Encoding" in plain.headers["Vary"]


def test_an_answer_about_what_has_ended_is_sent_once(api, database, run):
    run_id, _ = run
    job_id = api.get(f"/api/v1/runs/{run_id}").json()["job"]
    paths = [
        f"/api/v1/runs/{run_id}/steps",
        f"/api/v1/runs/{run_id}/steps?format=csv",
        f"/api/v1/runs/{run_id}/metrics",
    ]
    tags = []
    for path in paths:
        first = api.get(path)
        again = api.get(path, headers={"If-None-Match": f'"other", {first.headers["ETag"]}'})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["ETag"] == first.headers["ETag"]
        tags.append(first.headers["ETag"])
    assert len(set(tags)) == len(paths)
    gap = f"/api/v1/jobs/{job_id}/gap"
    assert "ETag" not in api.get(gap).headers  # nobody has concluded the job yet
    api.post(f"/api/v1/jobs/{job_id}:cancel")
    assert api.get(gap, headers={"If-None-Match": api.get(gap).headers["ETag"]}).status_code == 304
    with database.write() as session:
        session.get_one(Run, run_id).state = "running"
    for path in paths:
        assert "ETag" not in api.get(path, headers={"If-None-Match": "*"}).headers


def test_unknown_runs_and_columns_are_named(api, run):
    assert api.get("/api/v1/runs/r-none/steps").status_code == 404
    answer = api.get(f"/api/v1/runs/{run[0]}/steps", params={"names": "speed"})
    assert answer.status_code == 422
    assert "'speed'" in answer.json()["detail"]
    assert (
        api.get(f"/api/v1/runs/{run[0]}/steps", params={"kind": "validation", "format": "csv"}).text
        == "step\n"
    )
    answer = api.get(f"/api/v1/runs/{run[0]}/steps", params={"format": "parquet"})
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/query/format"]


def _job(api, job_id):
    return api.get(f"/api/v1/jobs/{job_id}").json()


def test_metrics_in_buckets_and_raw(api, recorded):
    run = _job(api, recorded({"nvfp4": 0.0}))["arms"][0]["runs"][0]["id"]
    whole = api.get(
        f"/api/v1/runs/{run}/metrics", params={"names": "lm_loss,grad_norm", "points": 100}
    ).json()
    assert [series["name"] for series in whole["series"]] == ["lm_loss", "grad_norm"]
    assert whole["series"][0]["aggregation"] == "minmaxmean"
    assert whole["series"][0]["steps_in_range"] == 1500
    part = api.get(f"/api/v1/runs/{run}/metrics", params={"from": 10, "to": 19}).json()["series"][0]
    assert part["aggregation"] == "none"
    assert part["first_step"] == list(range(10, 20))


def test_unknown_run_and_column(api, recorded):
    assert api.get("/api/v1/runs/r-none/metrics").status_code == 404
    run = _job(api, recorded({"nvfp4": 0.0}))["arms"][0]["runs"][0]["id"]
    answer = api.get(f"/api/v1/runs/{run}/metrics", params={"names": "speed"})
    assert answer.status_code == 422
    assert "lm_loss" in answer.json()["detail"]


@pytest.fixture
def wide(database, recorded):
    """A finished run with 30 chunks of 4,000 steps, and 300 columns in the first."""
    job = recorded({"nvfp4": 0.0}, done=0)
    with database.write() as session:
        run = (
            session.scalars(select(Run).where(Run.job_id == job).order_by(Run.position)).first().id
        )
        for first in range(0, 120_000, 4000):
            others = (
                {}
                if first
                else {f"layer/{index:03}/amax": np.full(4000, float(index)) for index in range(300)}
            )
            store.append(
                session,
                run,
                "train",
                1,
                np.arange(first, first + 4000),
                {"lm_loss": np.full(4000, 2.0), **others},
            )
    return run


def test_a_repeated_column_is_sent_once(api, wide):
    whole = api.get(
        f"/api/v1/runs/{wide}/metrics",
        params={"names": ",".join(["lm_loss"] * 2000), "points": 100_000},
    )
    assert whole.status_code == 200
    assert [one["name"] for one in whole.json()["series"]] == ["lm_loss"]
    names = ",".join(["lm_loss", "layer/001/amax", "lm_loss"])
    assert [
        one["name"]
        for one in api.get(f"/api/v1/runs/{wide}/metrics?names={names}").json()["series"]
    ] == ["lm_loss", "layer/001/amax"]


@pytest.mark.postgresql  # long, and its code is the same for both
def test_an_answer_has_at_most_two_million_values(api, wide):
    names = ",".join(f"layer/{index:03}/amax" for index in range(300))
    refused = api.get(f"/api/v1/runs/{wide}/metrics", params={"names": names, "points": 100_000})
    assert refused.status_code == 422
    assert all(
        part in refused.json()["detail"]
        for part in ("300 columns", "100,000 values", "2,000,000", "points")
    )
    for more in ({"points": 200}, {"points": 100_000, "to": 399}):
        answer = api.get(f"/api/v1/runs/{wide}/metrics", params={"names": names} | more)
        assert answer.status_code == 200
        assert [one["mean"][1] for one in answer.json()["series"]] == [
            float(index) for index in range(300)
        ]


@pytest.mark.postgresql  # long, and its code is the same for both
def test_a_page_of_many_columns_has_fewer_steps_and_none_is_lost(api, wide, monkeypatch):
    # a tenth: answers of two million values take seconds
    monkeypatch.setattr("server.api.curves.run_curves.MOST_VALUES", 200_000)
    steps, following = [], 3000
    while following is not None and following < 4500:
        page = api.get(f"/api/v1/runs/{wide}/steps", params={"from": following, "to": 4499}).json()
        assert len(page["steps"]) * len(page["columns"]) <= 200_000
        steps += page["steps"]
        following = page["next_from"]
    assert steps == list(range(3000, 4500))
    assert len(page["columns"]) == 301


def test_a_page_of_values_that_are_not_finite_has_fewer_steps_and_none_is_lost(api, database, wide):
    with database.write() as session:
        lost = {f"n{index}": np.full(4000, np.nan) for index in range(60)}
        store.append(
            session, wide, "validation", 1, np.arange(4000), {"loss": np.full(4000, 2.0), **lost}
        )
    steps, following = [], 0
    while following is not None:
        page = api.get(
            f"/api/v1/runs/{wide}/steps", params={"from": following, "kind": "validation"}
        ).json()
        assert len(page["nonfinite"]) <= 100_000
        steps += page["steps"]
        following = page["next_from"]
    assert steps == list(range(4000))
