"""The list of jobs: every filter, every order, and pages that follow each other without a gap."""

import itertools
import time

import pytest

from parity_lab.server.analyses import WhyRequest, submit_analysis
from server.database.tables import Baseline, Job, JobTag
from server.documents.job_lists.answers import answer_condition, answer_counts
from server.documents.job_lists.filters import SORTS, JobFilters
from server.documents.job_lists.page import job_list
from server.documents.job_lists.parent_jobs import child_counts, parentless
from server.documents.job_lists.summaries import job_summaries
from server.errors import InvalidError
from server.jobs.conclude import conclude
from tests.server.analyses import make_explained

pytestmark = pytest.mark.both_databases


@pytest.fixture
def jobs(database, recorded):
    """Four jobs, oldest first: one fails, one passes, one runs, one is queued."""
    ids = []
    for gaps, more in (
        ({"nvfp4": 0.05, "mxfp8": 0.0}, {}),
        ({"mxfp8": 0.001}, {}),
        ({"nvfp4": 0.0}, {"done": 10, "state": "running"}),
        ({"nvfp4": 0.0}, {"done": 0, "state": "queued"}),
    ):
        ids.append(recorded(gaps, **more))
        time.sleep(0.002)
    for job_id in ids[:2]:
        conclude(database, job_id)
    with database.write() as session:
        session.add(
            Baseline(
                id="b1",
                name="llama",
                version=1,
                recipe="fp8_current",
                engine="emulated",
                created_at=0.0,
            )
        )
        session.flush()
        for number, job_id in enumerate(ids):
            row = session.get_one(Job, job_id)
            row.name, row.branch, row.revision = (
                f"job {'dbca'[number]}",
                ["main", None][number % 2],
                f"{number}abc",
            )
            row.tags = [JobTag(tag="all"), *([JobTag(tag="odd")] if number % 2 else [])]
            row.baseline_id = "b1" if number == 1 else None
    return ids


FILTERS = [
    ({}, [3, 2, 1, 0]),
    ({"status": "running"}, [2]),
    ({"verdict": "fail"}, [0]),
    ({"verdict": "pass"}, [1, 0]),
    ({"verdict": "pass", "recipe": "nvfp4"}, [0]),
    ({"recipe": "mxfp8"}, [1, 0]),
    ({"recipe": "fp8_current"}, []),
    ({"tags": ("all",)}, [3, 2, 1, 0]),
    ({"tags": ("all", "odd")}, [3, 1]),
    ({"tags": ("od",)}, []),
    ({"name": "JOB C"}, [2]),
    ({"name": "%"}, []),
    ({"find": "JOB C"}, [2]),
    ({"find": "MXFP"}, [1, 0]),
    ({"find": "fp8_current"}, []),
    ({"find": "x 32"}, [3, 2, 1, 0]),
    ({"find": "od", "branch": "main"}, []),
    ({"find": "od"}, [3, 1]),
    ({"find": "%"}, []),
    ({"parent_job": "j1"}, []),
    ({"model": "x 32"}, [3, 2, 1, 0]),
    ({"model": "llama"}, []),
    ({"revision": "1a"}, [1]),
    ({"revision": "abc"}, []),
    ({"branch": "main"}, [2, 0]),
    ({"baseline": "llama"}, [1]),
    ({"baseline": "other"}, []),
    ({"since": "2020-01-01", "until": "2099-12-31"}, [3, 2, 1, 0]),
    ({"since": "2099-01-01"}, []),
    ({"until": "2020-01-01"}, []),
]
ORDERS = {
    "newest": [3, 2, 1, 0],
    "oldest": [0, 1, 2, 3],
    "name": [3, 1, 2, 0],
    "ended": [1, 0, 3, 2],
    "gap": [0, 1, 3, 2],
}


def test_each_filter_finds_its_jobs_and_counts_them(database, jobs):
    for filters, numbers in FILTERS:
        with database.read() as session:
            page = job_list(session, JobFilters(**filters), "newest", None, 50, counted=True)
        assert [jobs.index(job.id) for job in page.items] == numbers, filters
        assert (page.total, page.next_cursor) == (len(numbers), None), filters


def test_pages_of_each_order_follow_each_other(database, jobs):
    with database.write() as session:  # ties in the order are broken by the id
        session.get_one(Job, jobs[1]).finished_at = session.get_one(Job, jobs[0]).finished_at
    for sort, numbers in ORDERS.items():
        listed, cursor = [], None
        while True:
            with database.read() as session:
                page = job_list(session, JobFilters(), sort, cursor, 1, counted=False)
            listed += [jobs.index(job.id) for job in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        with database.read() as session:
            whole = job_list(session, JobFilters(), sort, None, 50, counted=False)
        assert listed == [jobs.index(job.id) for job in whole.items] == numbers, sort


def test_what_is_no_cursor_of_this_order_and_no_day_is_refused(database, jobs):
    with database.read() as session:
        cursors = {
            sort: job_list(session, JobFilters(), sort, None, 1, counted=False).next_cursor
            for sort in SORTS
        }
        for sort in SORTS:
            for wrong in (
                "x",
                "e30=",
                "WzFd",
                *(
                    cursor
                    for other, cursor in cursors.items()
                    if other != sort and {other, sort} != {"newest", "oldest"}
                ),
            ):
                with pytest.raises(InvalidError, match="cursor is"):
                    job_list(session, JobFilters(), sort, wrong, 1, counted=False)
        for day in ("yesterday", "2026-13-01", "2026-1"):
            with pytest.raises(InvalidError, match="expected a day"):
                job_list(session, JobFilters(since=day), "newest", None, 1, counted=False)


def test_a_job_has_the_worst_of_its_candidates_verdicts(database, jobs):
    found = {"pass": [1], "inconclusive": [], "fail": [0], "running": [3, 2], "unfinished": []}
    with database.read() as session:
        for state, numbers in found.items():
            page = job_list(
                session,
                JobFilters(),
                "newest",
                None,
                50,
                counted=False,
                also=[answer_condition(state)],
            )
            assert [jobs.index(job.id) for job in page.items] == numbers, state
        assert answer_counts(session, JobFilters()) == {"fail": 1, "pass": 1, "running": 2}
        assert answer_counts(session, JobFilters(branch="main")) == {"fail": 1, "running": 1}
    with database.write() as session:
        session.get_one(Job, jobs[2]).status = "failed"
        session.get_one(Job, jobs[3]).status = "concluded"  # as an analysis ends, without a verdict
        session.get_one(Job, jobs[0]).answer = "inconclusive"
    with database.read() as session:
        assert answer_counts(session, JobFilters()) == {
            "pass": 1,
            "inconclusive": 1,
            "unfinished": 1,
            "": 1,
        }
        page = job_list(
            session,
            JobFilters(),
            "newest",
            None,
            50,
            counted=False,
            also=[answer_condition("inconclusive")],
        )
        assert [jobs.index(job.id) for job in page.items] == [0]


def test_a_verdict_of_before_gets_its_lead_from_the_document(database, jobs):
    with database.read() as session:
        stored = [each.lead for each in job_summaries(session, [jobs[0]])[0].verdicts]
    with database.write() as session:
        for verdict in session.get_one(Job, jobs[0]).verdicts:
            verdict.lead = verdict.columns_sha256 = None
    with database.read() as session:
        assert [each.lead for each in job_summaries(session, [jobs[0]])[0].verdicts] == stored
    assert stored == ["Do not switch to nvfp4.", "You may switch to mxfp8."]


def test_repeats_of_a_question_have_one_group(database, recorded):
    ids = [recorded({"nvfp4": 0.0}, done=10), recorded({"nvfp4": 0.05}, done=20, rerun=3)]
    others = [
        recorded({"mxfp8": 0.0}, done=10),
        recorded({"nvfp4": 0.0}, done=10, steps=1501),
        recorded({"nvfp4": 0.0}, done=10, looks=2),
    ]
    with database.write() as session:
        session.get_one(Job, ids[1]).revision = "another"
    with database.read() as session:
        groups = [summary.group for summary in job_summaries(session, [*ids, *others])]
    assert groups[0] == groups[1]
    assert len({*groups}) == 1 + len(others)


def test_what_belongs_to_a_job_is_found_by_it(api, database):
    explained = make_explained(database)
    with database.write() as session:
        analysis = submit_analysis(session, explained, WhyRequest())[0].id
    with database.read() as session:
        assert [job.parent_job for job in job_summaries(session, [analysis, explained])] == [
            explained,
            None,
        ]
        alone = job_list(session, JobFilters(), "newest", None, 50, counted=True, also=parentless())
        assert ([job.id for job in alone.items], alone.total) == ([explained], 1)
        assert child_counts(session, [explained, analysis]) == {explained: {"analysis": 1}}
    (found,) = api.get("/api/v1/jobs", params={"parent_job": explained}).json()["items"]
    assert (found["id"], found["parent_job"]) == (analysis, explained)
    page = api.get("/jobs").text
    assert f'href="/jobs?parent_job={explained}">+1 analysis</a>' in page
    assert f'href="/jobs/{analysis}"' not in page
    assert f'href="/jobs/{analysis}"' in api.get("/jobs", params={"parent_job": explained}).text
    assert f'href="/jobs/{analysis}"' in api.get("/jobs", params={"find": "why"}).text


def test_a_count_stops(database, jobs, monkeypatch):
    monkeypatch.setattr("server.documents.job_lists.page.MOST_COUNTED", 2)
    monkeypatch.setattr("server.documents.job_lists.answers.MOST_COUNTED", 2)
    with database.read() as session:
        page = job_list(session, JobFilters(), "newest", None, 1, counted=True)
        assert (page.total, page.more) == (2, True)


def test_the_api_and_the_page_take_the_same_filters(api, jobs):
    page = api.get(
        "/api/v1/jobs",
        params={"tag": ["all", "odd"], "branch": "", "sort": "name", "count": "true"},
    ).json()
    assert [jobs.index(item["id"]) for item in page["items"]] == [3, 1]
    assert (page["total"], page["more"]) == (2, False)
    assert api.get("/api/v1/jobs").json()["total"] is None
    (first,) = api.get("/api/v1/jobs", params={"verdict": "fail"}).json()["items"]
    assert (first["tags"], first["branch"], first["recipes"], first["model"]) == (
        ["all"],
        "main",
        ["nvfp4", "mxfp8"],
        "1 x 32",
    )
    by_name = {item["candidate"]: item for item in first["verdicts"]}
    assert by_name["nvfp4"]["gap_rel"] == pytest.approx(0.036, abs=0.005)
    assert by_name["nvfp4"]["lead"] == "Do not switch to nvfp4."
    html = api.get("/jobs", params={"verdict": "fail", "tag": "all", "sort": "gap"}).text
    assert jobs[0] in html
    assert jobs[1] not in html
    assert "You may switch to mxfp8." in html
    assert api.get("/jobs", params={"since": "soon"}).status_code == 422


def test_tags_and_branch_are_set_at_submission(api, request_body):
    body = request_body | {"tags": ["nightly", "llama3"], "branch": "main"}
    made = api.post("/api/v1/jobs", json=body).json()
    assert (made["tags"], made["branch"]) == (["llama3", "nightly"], "main")
    gate = api.post("/api/v1/jobs:gate", json=body | {"revision": "r1", "tags": ["gate"]}).json()[
        "job"
    ]
    assert (gate["tags"], gate["branch"]) == (["gate"], "main")
    assert api.post("/api/v1/jobs", json=request_body | {"tags": ["two words"]}).status_code == 422
    assert api.post("/api/v1/jobs", json=request_body | {"branch": "a\nb"}).status_code == 422


def test_the_calendar_has_a_first_and_a_last_day(api, jobs):
    paths, names, days = (
        ("/api/v1/jobs?", "/jobs?", "/api/v1/trend?gate=x&", "/trend?gate=x&"),
        ("since", "until"),
        ("0001-01-01", "9999-12-31"),
    )
    for path, name, day in itertools.product(paths, names, days):
        answer = api.get(f"{path}{name}={day}")
        # a trend of nothing is not found
        assert answer.status_code in (200, 404), (path, name, day)
        if path == paths[0]:
            assert len(answer.json()["items"]) == (
                4 if (name, day) in (("until", "9999-12-31"), ("since", "0001-01-01")) else 0
            )
