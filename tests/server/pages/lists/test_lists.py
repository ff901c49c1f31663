"""The list of jobs, and the candidates side by side."""

import re
import time

import pytest
from playwright.sync_api import Page, expect

from parity.judging.live.rules import Forecast
from parity.report.answer import answer_words
from parity.report.candidates import tally
from parity.report.view import views_of
from parity.wording import minus
from server.database.tables import Job, Run
from server.documents.job_lists.filters import JobFilters
from server.documents.job_lists.page import job_list
from server.jobs.conclude import decide, write_outcome
from server.jobs.verdict_rows import verdict_documents
from server.pages.lists.gap_figures import NO_GAP
from server.pages.lists.jobs import JOBS_A_PAGE
from server.pages.lists.rows import rows_of
from server.settings import CHECKOUT
from server.web.access import principals

LOOKS = ["light"]
AXE = CHECKOUT / "node_modules" / "axe-core" / "axe.min.js"


def _conclude(database, job_id):
    with database.read() as session:
        outcome = decide(session, job_id)
    with database.write() as session:
        write_outcome(session, job_id, outcome)


def test_the_list_is_filtered_by_state_verdict_and_name(database, recorded):
    failed, running = recorded({"nvfp4": 0.05}), recorded({"nvfp4": 0.0}, done=10, state="running")
    _conclude(database, failed)
    with database.write() as session:
        session.get_one(Job, running).name = "100%_done"
        session.get_one(Job, running).submitted_by = principals.LOCAL.id
    questions = [
        {},
        {"verdict": "fail"},
        {"verdict": "pass"},
        {"status": "running"},
        {"name": "%_D"},
        {"name": "other"},
    ]
    with database.read() as session:
        lists = [
            job_list(session, JobFilters(**filters), "newest", None, JOBS_A_PAGE, counted=True)
            for filters in questions
        ]
    assert [[job.id for job in listed.items] for listed in lists] == [
        [running, failed],
        [failed],
        [],
        [running],
        [running],
        [],
    ]
    assert [each.total for each in lists] == [2, 1, 0, 1, 1, 0]
    assert lists[0].items[0].submitted_by == "this machine"


def test_pages_of_the_list_follow_each_other(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=0, state="queued")
    with database.write() as session:
        for number in range(JOBS_A_PAGE):
            session.add(_copy(session.get_one(Job, job_id), f"j{number:012x}-0000000000"))
    with database.read() as session:
        first = job_list(
            session, JobFilters(status="queued"), "newest", None, JOBS_A_PAGE, counted=False
        )
        second = job_list(
            session,
            JobFilters(status="queued"),
            "newest",
            first.next_cursor,
            JOBS_A_PAGE,
            counted=False,
        )
    assert len(first.items) == JOBS_A_PAGE
    assert [job.id for job in second.items] == ["j000000000000-0000000000"]
    assert second.next_cursor is None


def _copy(job: Job, job_id: str) -> Job:
    values = {column.name: getattr(job, column.name) for column in Job.__table__.columns} | {
        "id": job_id
    }
    copy = Job(**values)
    copy.arms = [
        type(arm)(
            id=f"{job_id}{arm.position}",
            position=arm.position,
            name=arm.name,
            role=arm.role,
            recipe=arm.recipe,
        )
        for arm in job.arms
    ]
    return copy


def test_filter_and_side_by_side_on_the_page(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.05, "mxfp8": 0.0})
    _conclude(database, job_id)
    page.goto("/jobs")
    row = page.locator(".answers tbody tr")
    lead = "nvfp4 fails. You may switch to mxfp8."
    link = row.get_by_role("link", name=lead, exact=True)
    expect(link).to_have_attribute("href", f"/jobs/{job_id}")
    expect(row).to_contain_text("small · 2 candidates against fp8_current")
    expect(row.locator(".tally > *")).to_have_text([re.compile(r"^\s*1\s*$")] * 2)
    expect(row.locator(".gap-figure.fail")).to_have_count(1)
    page.get_by_role("link", name="Pass 0").click()
    expect(page.get_by_text("No jobs match.")).to_be_visible()
    page.get_by_role("link", name="Fail 1").click()
    expect(page).to_have_url(re.compile(r"/jobs\?state=fail$"))
    expect(row).to_have_count(1)
    page.get_by_label("Find a job, recipe, model or tag").fill("nothing like it")
    page.get_by_role("button", name="Find").press("Enter")
    expect(page).to_have_url(re.compile("state=fail"))
    expect(page.get_by_role("link", name="All 0")).to_be_visible()
    page.goto(f"/jobs/{job_id}")
    page.get_by_role("link", name="Compare the candidates").click()
    table = page.get_by_role("region", name="Candidates", exact=True)
    expect(table.get_by_role("row", name="mxfp8 ")).to_contain_text("PASS")
    expect(table.get_by_role("row", name="nvfp4 ")).to_contain_text("3.")
    expect(page.get_by_role("row", name="nvfp4 against mxfp8")).to_contain_text("+0.05")


def _named(database, job_id: str, name: str, **columns) -> str:
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.name = name
        for column, value in columns.items():
            setattr(job, column, value)
    time.sleep(0.002)  # ids are in the order of their milliseconds
    return job_id


def _rows(database, **filters):
    with database.read() as session:
        return rows_of(
            session,
            job_list(
                session, JobFilters(**filters), "newest", None, JOBS_A_PAGE, counted=False
            ).items,
        )


@pytest.mark.both_databases
def test_a_row_is_the_answer_of_the_job(database, recorded):
    job_id = recorded({"nvfp4": 0.05, "mxfp8": 0.0, "fp8_delayed": 0.0137})
    _conclude(database, job_id)
    with database.read() as session:
        documents = verdict_documents(session.get_one(Job, job_id))
    told = answer_words(views_of(documents))
    (row,) = _rows(database)
    answer = row.answer
    assert (answer.lead, answer.why, answer.about) == (
        told.lead,
        "",
        "3 candidates against fp8_current",
    )
    assert answer.tally == tally(views_of(documents))
    assert minus(told.interval).startswith(f"95 % interval {answer.gap.interval}:")
    figure = answer.gap.figure
    assert (figure.state, figure.zero, figure.margin, figure.below, figure.above) == (
        "fail",
        33.33,
        50.0,
        False,
        False,
    )
    assert figure.low < figure.mean < figure.high
    assert (row.repeats, row.smalls) == ((), [])


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("gap", "below", "above", "why"),
    [(0.2, False, True, ""), (-0.2, True, False, "the candidate is better")],
)
def test_what_lies_beyond_the_axis_is_an_arrow(database, recorded, gap, below, above, why):
    _conclude(database, recorded({"nvfp4": gap}))
    (row,) = _rows(database)
    figure = row.answer.gap.figure
    assert (figure.below, figure.above, figure.mean) == (below, above, None)
    assert row.answer.why.startswith(why)
    assert bool(row.answer.why) == bool(why)


@pytest.mark.both_databases
def test_a_job_without_a_verdict_says_how_it_stands(database, recorded):
    fan = {"low": 0.0054, "high": 0.0349, "low_half": 0.01, "high_half": 0.02, "half_width": 0.01}
    seen = {"state": "open", "share": 0.45, "step": 700, "gap": 0.017, "gap_half_width": 0.01}
    live = Forecast(**seen, **fan, margin=0.0139, passes=0.05, fails=0.1)
    forecasts = {"arms": {"nvfp4": {name: [value] for name, value in live.document().items()}}}
    for name, status, columns in (
        ("a", "running", {"early_stop": forecasts}),
        ("b", "running", {}),
        ("c", "queued", {}),
        ("d", "queued", {"engine": "external"}),
        ("e", "failed", {"code": "CRASHED"}),
        ("f", "failed", {}),
        ("g", "cancelled", {}),
        ("h", "concluded", {}),
    ):
        done = 750 if status == "running" else 0
        _named(
            database,
            recorded({"nvfp4": 0.0}, done=done, state="queued"),
            name,
            status=status,
            **columns,
        )
    answers = {row.answer.job.name: row.answer for row in _rows(database)}
    assert {name: (answer.state, answer.lead) for name, answer in answers.items()} == {
        "a": ("live", "nvfp4 will probably stay inconclusive."),
        "b": ("live", "Training; no forecast yet."),
        "c": ("queued", "Queued."),
        "d": ("queued", "Waiting for its trainer."),
        "e": ("unfinished", "Did not finish: CRASHED."),
        "f": ("unfinished", "Did not finish."),
        "g": ("unfinished", "Cancelled."),
        "h": ("ended", "Ended; it has no verdict of its own."),
    }
    forecast = answers["a"]
    assert (forecast.gap.mean, forecast.gap.interval, forecast.why) == (
        "+0.0202",
        "+0.0054 to +0.0349",
        "forecast, no verdict",
    )
    assert forecast.gap.figure.words.startswith("forecast +0.0202")
    assert (forecast.progress, answers["b"].gap, answers["c"].progress) == (0.5, NO_GAP, None)


@pytest.mark.both_databases
def test_repeats_of_a_question_share_a_row(database, recorded):
    ids = [
        _named(database, recorded({"mxfp8": gap}, rerun=1 + at), "nightly")
        for at, gap in enumerate((0.0, 0.05, 0.0, 0.0))
    ]
    running = _named(database, recorded({"mxfp8": 0.0}, done=10, state="running"), "nightly")
    other = _named(database, recorded({"mxfp8": 0.0}), "weekly")
    for job_id in (*ids, other):
        _conclude(database, job_id)
    rows = _rows(database)
    assert [row.answer.job.id for row in rows] == [other, running, ids[-1]]
    folded = rows[-1]
    assert (folded.so_far, [repeat.job.id for repeat in folded.repeats]) == (
        "3 of 4 pass.",
        ids[::-1],
    )
    assert [figure.state for _, figure in folded.smalls] == ["pass", "fail", "pass", "pass"]
    assert [place for place, _ in folded.smalls] == [12.5, 37.5, 62.5, 87.5]
    (failed,) = _rows(database, verdict="fail")
    assert (failed.repeats, failed.answer.job.id) == ((), ids[1])


LONG = "llama3-8b-pretraining-with-a-name-that-somebody-has-generated-from-all-of-its-settings-and-its-seed-17"  # noqa: E501


def test_the_list_at_every_width_and_after_a_refresh(page: Page, database, recorded):
    for rerun in (1, 2):
        _conclude(database, _named(database, recorded({"mxfp8": 0.0}, rerun=rerun), LONG))
    _conclude(database, _named(database, recorded({"nvfp4": 0.05}), "<b>a & b</b>"))
    running = _named(database, recorded({"nvfp4": 0.0}, done=10, state="running"), "trains")
    page.clock.install()
    page.goto("/jobs")
    page.evaluate(AXE.read_text() + "; undefined")
    page.get_by_text("show 2").click()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in (1440, 1024, 390):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
            assert (
                page.evaluate(
                    "axe.run({resultTypes: ['violations']}).then((found) => "
                    "found.violations.map((each) => each.id))"
                )
                == []
            )
            end = page.locator(".cut.long span").last.bounding_box()
            assert 0 < end["x"] < end["x"] + end["width"] < width
    expect(page.get_by_text("<b>a & b</b>")).to_be_visible()
    page.evaluate(
        "window.shift = 0; new PerformanceObserver((list) => list.getEntries().forEach((each) => { "
        "window.shift += each.value; }))"
        ".observe({type: 'layout-shift'})"
    )
    with database.write() as session:
        session.query(Run).where(Run.job_id == running).update({"steps_done": 700})
    page.clock.fast_forward(5000)
    expect(page.locator(".answers tr.live")).to_contain_text("47")
    expect(page.locator("details[id]")).to_have_attribute("open", "")
    assert page.evaluate("window.shift") == 0


def test_the_heads_sort(page: Page, database, recorded):
    for name, gap in (("b", 0.0), ("a", 0.05), ("c", 0.1)):
        _conclude(database, _named(database, recorded({"nvfp4": gap}), name))
    names = page.locator(".answers .cut")
    page.goto("/jobs?find=nvfp4")
    for head, order, shown in (
        ("Answer", "ascending", ["a", "b", "c"]),
        ("Gap, nats", "descending", ["c", "a", "b"]),
        ("When", "descending", ["c", "a", "b"]),
        ("When", "ascending", ["b", "a", "c"]),
    ):
        page.locator("thead").get_by_role("link", name=head).click()
        expect(page.locator("[aria-sort]")).to_have_count(1)
        expect(page.locator(f"[aria-sort={order}]")).to_contain_text(head)
        expect(names).to_have_text(shown)
        expect(page).to_have_url(re.compile("find=nvfp4"))


def test_the_tag_filter_offers_the_tags_of_all_jobs(api, recorded):
    first, second = (
        recorded({"nvfp4": 0.0}, done=0, state="queued"),
        recorded({"nvfp4": 0.0}, done=0, state="queued"),
    )
    for job_id, tags in ((first, ["nightly", "release"]), (second, ["nightly"])):
        assert api.put(f"/api/v1/jobs/{job_id}/tags", json={"tags": tags}).status_code == 200
    page = api.get("/jobs?tag=release").text
    assert re.findall(r'<option value="(nightly|release)">', page) == ["nightly", "release"]
    assert 'list="tags"' in page


def test_a_row_shows_its_tags_and_each_leads_to_all_of_its_jobs(page: Page, api, recorded):
    tagged, other = (
        recorded({"nvfp4": 0.0}, done=0, state="queued"),
        recorded({"mxfp8": 0.0}, done=0, state="queued"),
    )
    tags = ["a", "nightly", "release-9", "zz"]
    assert api.put(f"/api/v1/jobs/{tagged}/tags", json={"tags": tags}).status_code == 200
    page.goto("/jobs")
    row = page.locator("tbody tr", has=page.locator(f"a[href='/jobs/{tagged}']"))
    expect(row.locator(".tag")).to_have_text(tags[:3])
    expect(row.locator(".tags")).to_contain_text("+1")
    without = page.locator("tbody tr", has=page.locator(f"a[href='/jobs/{other}']"))
    expect(without.locator(".tags")).to_have_count(0)
    row.get_by_text("release-9").click()
    page.wait_for_url("**/jobs?tag=release-9")
    expect(page.locator("tbody tr")).to_have_count(1)
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        box = page.locator(".tag").first.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


def test_keys_find_walk_and_open(page: Page, recorded):
    newest = [recorded({"nvfp4": 0.0}, done=10, state="running") for _ in range(2)][-1]
    page.goto("/jobs")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "find"
    page.keyboard.type("small?")
    expect(page.get_by_label("Find a job")).to_have_value("small?")
    page.keyboard.press("Escape")
    help_of_keys = page.locator(".keys")
    expect(help_of_keys).to_be_hidden()
    page.keyboard.press("?")
    expect(help_of_keys).to_contain_text("next and previous job")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{newest}")
    page.keyboard.press("/")
    page.wait_for_url("**/jobs#find")
    expect(page.get_by_label("Find a job")).to_be_focused()
