"""The table of candidates: orders, what is highlighted, what decided, and the next step; without a browser."""

import re

import pytest

from server.api.jobs import job_document
from server.database.sessions import find_job
from server.jobs import forecasts
from server.pages.dashboard import candidate_table


@pytest.fixture
def table(database):
    """A function that gives the table of a job."""

    def of(job_id, *more):
        with database.read() as session:
            return candidate_table(job_document(session, find_job(session, job_id), 60), *more)

    return of


def test_rows_say_what_decided_and_come_in_the_order_that_is_wanted(judged, table):
    job_id, _ = judged({"mxfp8": 0.0, "nvfp4": 0.05, "mxfp4": 0.0145})
    names = {order: [row.arm.name for row in table(job_id, "", order).rows] for order in ("", "gap", "verdict")}
    assert names == {"": ["mxfp8", "nvfp4", "mxfp4"], "gap": ["nvfp4", "mxfp4", "mxfp8"], "verdict": ["nvfp4", "mxfp4", "mxfp8"]}
    passed, failed, open_ = table(job_id).rows
    assert passed.verdict["verdict"] == "pass"
    assert passed.next_step.startswith("Add 2 replicates")
    assert (failed.verdict["verdict"], failed.decided) == ("fail", "the lower end of the interval is above the margin")
    assert open_.verdict["verdict"] == "inconclusive"
    assert open_.next_step
    assert table(job_id).counts == {"pass": ["mxfp8"], "fail": ["nvfp4"], "inconclusive": ["mxfp4"]}
    assert table(job_id).selected is None
    assert table(job_id, "nvfp4").selected.arm.name == "nvfp4"
    assert table(job_id, "nobody").selected is None


def test_forecasts_stand_in_the_table_while_the_job_trains_and_never_after_it(api, database, recorded, table):
    job_id = recorded({"nvfp4": 0.0}, done=600, state="running")
    assert table(job_id).rows[0].estimate is None
    forecasts.watch(database, job_id)
    [row] = table(job_id).rows
    assert row.live
    assert row.estimate.lo < 0.0 < row.estimate.hi
    page = api.get(f"/jobs/{job_id}").text
    assert "Forecast of the final gap" in page
    api.post(f"/api/v1/jobs/{job_id}:cancel")
    assert table(job_id).rows[0].estimate is None
    page = api.get(f"/jobs/{job_id}").text
    assert re.search(r'data-there="forecast" hidden', page)
    assert 'class="candidates' not in page
    assert "left" not in re.search(r'data-live="verdict">(.*?)</section>', page, re.DOTALL)[1]


def test_of_many_candidates_the_worst_are_highlighted(table, many_judged):
    made = table(many_judged, "c09")
    assert len(made.rows) == 12
    assert made.lit == ["c09", "c11", "c10", "c08"]
    assert table(many_judged).lit == ["c11", "c10", "c09", "c08"]
