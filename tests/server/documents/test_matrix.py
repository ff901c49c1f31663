"""Jobs side by side, and what keeps them from being compared."""

from typing import Any

import pytest

from server.database.tables import Job
from server.jobs.conclude import conclude

pytestmark = pytest.mark.both_databases


@pytest.fixture
def jobs(database, recorded):
    ids = [
        recorded({"nvfp4": 0.05, "mxfp8": 0.0}),
        recorded({"mxfp8": 0.001}),
        recorded({"nvfp4": 0.0}, done=10, state="running"),
    ]
    for job_id in ids[:2]:
        conclude(database, job_id)
    return ids


def _matrix(api, *ids, **more):
    return api.get("/api/v1/jobs:compare", params={"job": list(ids), **more}).json()


def test_a_row_per_job_and_a_column_per_recipe(api, jobs):
    table = _matrix(api, *jobs)
    assert (table["columns"], table["comparable"]) == (["nvfp4", "mxfp8"], True)
    words = [
        [[verdict["verdict"] for verdict in cell["verdicts"]] for cell in row["cells"]]
        for row in table["rows"]
    ]
    assert words == [[["fail"], ["pass"]], [[], ["pass"]], [[], []]]
    assert [cell["waiting"] for cell in table["rows"][2]["cells"]] == [["nvfp4"], []]
    assert [row["job"]["id"] for row in table["rows"]] == jobs
    page = api.get("/compare", params={"job": jobs}).text
    assert "their gaps can be compared" in page
    assert page.count("<tr>") == 4


CHANGES: list[tuple[dict[str, Any], str | None]] = [
    ({"policy": {"margin": "2.0 %"}}, "margin"),
    ({"policy": {"window_fraction": 0.3}}, "policy"),
    ({"spec": {"schedule": {"steps": 7}}}, "schedule"),
    ({"spec": {"layer_policy": "all_linears"}}, "layers"),
    ({"spec": {"seed": 7}}, None),
    ({"engine": "maxtext"}, "engine"),
    ({"name": "another"}, None),
]


def test_what_differs_is_named(api, owner_database, jobs):
    for change, word in CHANGES:
        with owner_database.write() as session:
            job = session.get_one(Job, jobs[1])
            before = {name: getattr(job, name) for name in change}
            for name, value in change.items():
                setattr(job, name, before[name] | value if isinstance(value, dict) else value)
        table = _matrix(api, *jobs[:2])
        assert table["rows"][1]["differs"] == ([word] if word else []), change
        assert table["comparable"] is (word is None)
        assert (
            "Not all of these jobs are comparable"
            in api.get("/compare", params={"job": jobs[:2]}).text
        ) is (word is not None)
        with owner_database.write() as session:
            for name, value in before.items():
                setattr(session.get_one(Job, jobs[1]), name, value)


def test_no_job_too_many_and_an_unknown_one_are_refused(api, jobs):
    assert "No job is selected" in api.get("/compare").text
    assert api.get("/api/v1/jobs:compare").status_code == 422
    assert (
        api.get(
            "/api/v1/jobs:compare", params={"job": [f"j{number}" for number in range(31)]}
        ).status_code
        == 422
    )
    assert (
        api.get(
            "/api/v1/jobs:compare", params={"job": [jobs[0], "j000000000000-0000000000"]}
        ).status_code
        == 404
    )
    assert len(_matrix(api, jobs[0], jobs[0])["rows"]) == 1
