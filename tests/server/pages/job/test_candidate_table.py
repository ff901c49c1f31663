"""The table of candidates: its order, its forecasts, and what is highlighted; without a browser."""

from typing import Any

import pytest

from server.database.lookups import find_job
from server.documents.jobs import job_document
from server.jobs import forecasts
from server.pages.job.candidate_table import candidate_table


@pytest.fixture
def table(database):
    """A function that gives the table of a job."""

    def of(job_id, *more):
        with database.read() as session:
            return candidate_table(job_document(session, find_job(session, job_id), 60), *more)

    return of


def test_judged_candidates_come_safest_first_and_the_chosen_one_is_marked(judged, table):
    job_id, _ = judged({"nvfp4": 0.05, "mxfp4": 0.0145, "mxfp8": 0.0})
    assert [(row.arm.name, row.verdict["verdict"]) for row in table(job_id).rows] == [
        ("mxfp8", "pass"),
        ("mxfp4", "inconclusive"),
        ("nvfp4", "fail"),
    ]
    assert not any(row.selected for row in table(job_id).rows)
    assert [row.arm.name for row in table(job_id, "nvfp4").rows if row.selected] == ["nvfp4"]
    assert not any(row.selected for row in table(job_id, "nobody").rows)


def test_forecasts_stand_in_the_table_while_the_job_trains_and_never_after_it(
    api, database, recorded, table
):
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
    assert 'class="candidates' not in page
    assert "It has no verdict." in page
    assert " left" not in page.partition('class="strip"')[2].partition("</dl>")[0]


def test_of_many_candidates_the_worst_are_highlighted(table, many_judged):
    made = table(many_judged, "c09")
    assert len(made.rows) == 12
    assert made.lit == ["c09", "c11", "c10", "c08"]
    assert table(many_judged).lit == ["c11", "c10", "c09", "c08"]


def test_a_candidate_whose_loss_is_nan_is_highlighted_before_all_others(many_judged, database):
    with database.read() as session:
        document = job_document(session, find_job(session, many_judged), 60)
    broken: Any = next(one for one in document.verdicts if one["candidate"]["name"] == "c03")
    broken |= {"verdict": "fail", "gap": None, "codes": ["CANDIDATE_NONFINITE"]}
    assert candidate_table(document).lit == ["c03", "c11", "c10", "c09"]
