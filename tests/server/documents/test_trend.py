"""The trend of a gate and of a baseline: points that are missing, the commit that moved the gap,
and none where run-to-run noise explains it.
"""

import csv
import io
import time

import pytest

from server.database.tables import Baseline, Job, Verdict
from server.documents.job_lists.filters import JobFilters
from server.documents.trend import short, trend
from server.jobs.conclude import conclude
from server.pages.lists.trend_chart import chart


@pytest.fixture
def history(database, recorded):
    """A function that makes one judged job for each gap (None: a failed one), with the revisions
    r0, r1, ...; their ids.
    """

    def make(*gaps, name="nightly"):
        ids = []
        for number, gap in enumerate(gaps):
            job_id = recorded({"nvfp4": gap or 0.0}, rerun=number + 1, steps=600, replicates=1)
            if gap is not None:
                conclude(database, job_id)
            with database.write() as session:
                job = session.get_one(Job, job_id)
                job.name, job.revision = name, f"r{number}"
                if gap is None:
                    job.status, job.message, job.finished_at = (
                        "failed",
                        "out of memory",
                        time.time(),
                    )
            ids.append(job_id)
            time.sleep(0.002)
        return ids

    return make


def _trend(api, **query):
    return api.get("/api/v1/trend", params=query).json()


@pytest.mark.both_databases
def test_the_commit_that_moved_the_gap_is_named(api, history):
    ids = history(0.001, None, 0.0, 0.2, 0.2)
    answer = _trend(api, gate="nightly")
    assert [point["job"] for point in answer["points"]] == ids
    assert [point["group"] for point in answer["points"]] == ["r0", "r1", "r2", "r3", "r4"]
    assert [
        (move["before"], move["after"], move["what"], move["skipped"]) for move in answer["moves"]
    ] == [
        ("r0", "r2", "none", ["r1"]),
        ("r2", "r3", "worse", []),
        ("r3", "r4", "none", []),
    ]
    assert answer["answer"].startswith("The gap got worse at r3 (+0.")
    missing = answer["points"][1]
    assert (missing["verdict"], missing["gap_nats"], missing["why_missing"]) == (
        None,
        None,
        "out of memory",
    )
    page = api.get("/trend", params={"gate": "nightly"}).text
    assert "r3: worse" in page
    assert page.count('class="missing"') == 1


def test_within_run_noise_no_commit_is_to_blame(api, history):
    history(0.001, 0.003, 0.0)
    answer = _trend(api, gate="nightly")
    assert answer["answer"].startswith(
        "No commit changed the gap beyond run-to-run noise (2 differences compared, "
    )
    assert {move["what"] for move in answer["moves"]} == {"none"}


def test_a_job_without_a_revision_is_named_as_a_job(api, history, database):
    ids = history(0.001, 0.003)
    with database.write() as session:
        for job in session.query(Job):
            job.revision = None
    answer = _trend(api, gate="nightly")
    assert [point["group"] for point in answer["points"]] == [f"job {one}" for one in ids]
    assert answer["answer"].startswith(
        "No job changed the gap beyond run-to-run noise (1 difference compared, "
    )
    assert f"job {ids[0]} to job {ids[1]}: " in answer["moves"][0]["sentence"]


def test_a_change_across_a_missing_commit_is_not_pinned_to_one(api, history):
    history(0.0, None, 0.3)
    assert _trend(api, gate="nightly")["answer"].startswith("The gap got worse between r0 and r2 (")


def test_jobs_of_one_day_are_one_group(api, owner_database, history):
    ids = history(0.001, 0.0, 0.2)
    with owner_database.write() as session:
        for number, job_id in enumerate(ids):
            session.get_one(Job, job_id).created_at = 86_400.0 * (20_000 + number // 2)
    answer = _trend(api, gate="nightly", by="day")
    assert [point["group"] for point in answer["points"]] == [
        "2024-10-04",
        "2024-10-04",
        "2024-10-05",
    ]
    assert [(move["after"], move["what"]) for move in answer["moves"]] == [("2024-10-05", "worse")]


def test_another_question_is_not_compared_and_says_why(api, owner_database, history):
    ids = history(0.0, 0.001, 0.2)
    with owner_database.write() as session:
        job = session.get_one(Job, ids[2])
        job.spec = job.spec | {"model": job.spec["model"] | {"d_ff": 64}}
    answer = _trend(api, gate="nightly")
    assert [move["what"] for move in answer["moves"]] == ["none", "not compared"]
    assert [point["differs"] for point in answer["points"]] == [["model"], ["model"], []]
    with owner_database.write() as session:  # the margin is drawn; the gap does not depend on it
        for job_id, margin in zip(ids, ("1.0 %", "2.0 %", "3.0 %"), strict=True):
            job = session.get_one(Job, job_id)
            job.spec, job.policy = (
                session.get_one(Job, ids[0]).spec,
                job.policy | {"margin": margin},
            )
    assert [move["what"] for move in _trend(api, gate="nightly")["moves"]] == ["none", "worse"]


def test_a_verdict_without_a_gap_is_a_missing_point(api, owner_database, history):
    ids = history(0.0, 0.001)
    with owner_database.write() as session:
        verdict = session.query(Verdict).filter(Verdict.job_id == ids[1]).one()
        verdict.document = verdict.document.replace('"se_parts": {', '"se_parts": null, "x": {')
        verdict.gap = verdict.ci_low = verdict.ci_high = verdict.gap_rel = None
        verdict.code = "EMPTY"
        verdict.document_sha256 = verdict.columns_sha256 = None
    answer = _trend(api, gate="nightly")
    assert (answer["points"][1]["why_missing"], answer["moves"]) == (
        "no gap was measured: EMPTY",
        [],
    )
    assert answer["answer"].startswith("Nothing to compare yet")


@pytest.mark.both_databases
def test_the_trend_of_a_baseline_and_the_filters(api, owner_database, history):
    ids = [*history(0.0, 0.001), *history(0.2, name="other")]
    with owner_database.write() as session:
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
            session.get_one(Job, job_id).baseline_id = "b1"
            session.get_one(Job, job_id).branch = "main" if number else "mine"
    assert [point["job"] for point in _trend(api, baseline="llama")["points"]] == ids
    assert [
        point["job"] for point in _trend(api, baseline="llama", branch="main")["points"]
    ] == ids[1:]
    newest = _trend(api, baseline="llama", limit=2)
    assert ([point["job"] for point in newest["points"]], newest["older"]) == (ids[1:], True)
    for query, status in (
        ({}, 422),
        ({"gate": "nightly", "baseline": "llama"}, 422),
        ({"gate": "none"}, 404),
        ({"gate": "nightly", "candidate": "x"}, 404),
        ({"gate": "nightly", "by": "week"}, 422),
    ):
        assert api.get("/api/v1/trend", params=query).status_code == status, query
    assert '<a href="/trend?gate=nightly">nightly</a>' in api.get("/trend").text
    assert "is named &#39;none&#39;" in api.get("/trend", params={"gate": "none"}).text


def test_the_chart_holds_every_mark(owner_database, history):
    history(0.0, None, 0.02, -0.2)
    with owner_database.read() as session:
        drawn = chart(trend(session, JobFilters(), "nightly", None, "commit", 50))
    assert [mark.y is None for mark in drawn.marks] == [False, True, False, False]
    assert all(drawn.left <= mark.x <= drawn.right for mark in drawn.marks)
    inside = [
        value
        for mark in drawn.marks
        for value in (mark.y, mark.low, mark.high, mark.margin)
        if value is not None
    ]
    assert all(0 <= value <= drawn.bottom for value in inside)
    assert 0.0 in [tick for _, tick in drawn.ticks]
    assert [mark.x for mark in drawn.marks] == sorted(mark.x for mark in drawn.marks)
    assert drawn.lines[0].path.count("M") == 2  # broken at the job without a gap
    assert drawn.lines[0].name == ""


def test_a_chart_of_several_candidates_has_a_date_axis(owner_database, recorded):
    days = (0, 1, 5)
    for number, day in enumerate(days):
        job_id = recorded({"nvfp4": 0.02, "mxfp8": 0.0}, rerun=number + 1)
        conclude(owner_database, job_id)
        with owner_database.write() as session:
            session.get_one(Job, job_id).created_at = 1_795_000_000.0 + 86_400.0 * day
    with owner_database.read() as session:
        first, second = (
            trend(session, JobFilters(), "small", name, "day", 50) for name in ("nvfp4", "mxfp8")
        )
    drawn = chart(first, [second])
    assert [line.name for line in drawn.lines] == ["nvfp4", "mxfp8"]
    assert len({line.dashes for line in drawn.lines}) == 2
    assert abs(drawn.lines[0].y - drawn.lines[1].y) >= 14.0
    left, middle, right = [mark.x for mark in drawn.marks][:3]
    assert (middle - left) / (right - left) == pytest.approx(1 / 5, abs=0.01)
    assert [mark.x for mark in drawn.marks[3:]] == [left, middle, right]
    assert drawn.labels[-1][1] == "2026-11-18"
    assert sorted(drawn.labels) == sorted(drawn.labels, key=lambda label: label[1])


def test_commits_are_shortened():
    assert short("0123456789abcdef0123") == "0123456789ab"
    assert short("0123456789abcdef0123+aaaa") == "0123456789ab+"
    assert short("2026-11-23") == "2026-11-23"


def test_a_trend_is_had_as_csv_and_as_a_figure(api, history):
    ids = history(0.0, None, 0.3)
    answer = api.get("/api/v1/trend.csv", params={"gate": "nightly"})
    header, *lines = answer.text.splitlines()
    assert header.startswith(
        "job,group,revision,submitted_at,status,verdict,gap_nats,ci_low,ci_high,margin_nats"
    )
    assert [line.split(",")[0] for line in lines] == ids
    assert "out of memory" in lines[1]
    drawn = api.get("/trend.svg", params={"gate": "nightly"})
    assert drawn.headers["Content-Type"].startswith("image/svg+xml")
    # a mark per job
    assert (drawn.text.count("<svg "), drawn.text.count("<g "), drawn.text.count("</g>")) == (
        1,
        len(ids),
        len(ids),
    )
    assert api.get("/api/v1/trend.csv", params={"gate": "none"}).status_code == 404


def test_no_cell_of_a_trend_is_a_formula(api, history, database):
    ids = history(0.0, 0.3)
    with database.write() as session:
        for job_id, revision in zip(ids, ['=HYPERLINK("http://x","y")', "r-1"], strict=True):
            session.get_one(Job, job_id).revision = revision
    rows = [
        *csv.DictReader(io.StringIO(api.get("/api/v1/trend.csv", params={"gate": "nightly"}).text))
    ]
    assert [row["revision"] for row in rows] == ['\'=HYPERLINK("http://x","y")', "r-1"]
    assert float(rows[0]["ci_low"]) < 0.0  # a negative number stays one
