"""Several jobs on one chart: a line for each arm of each job, told apart and named, with no more
data than a chart shows.
"""

import json
import re
from importlib.resources import files
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from parity_lab.server.analyses import WhyRequest, submit_analysis
from server.database.metrics import store
from server.database.tables import Job
from server.jobs.conclude import conclude
from server.pages.es_modules import CHARTS
from server.pages.lists.job_lines import COLOURS, DASHES
from server.pages.lists.matrix import COMPARE_MODULES
from tests.server.analyses import make_explained

LOOKS = ["light"]
PROVOKED = "status of 503"
LOSS, GAP = "figure[data-column=lm_loss]", "figure[data-gaps]"
MOST_BYTES = 200_000
LINE_PIXELS = 15
PERIOD_MS = 15_000  # of compare.js
# Every text that a canvas shows, newest last, by its figure.
RECORD_TEXTS = """
  const fill = CanvasRenderingContext2D.prototype.fillText;
  window.texts = [];
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    const column = this.canvas.closest("figure")?.dataset.column ?? "gap";
    window.texts.push({ column, text, x, y });
    return fill.apply(this, arguments);
  };
"""


@pytest.fixture
def jobs(database, owner_database, recorded):
    """Two judged jobs of different lengths and names."""
    ids = [
        recorded({"nvfp4": 0.05, "mxfp8": 0.0}),
        recorded({"mxfp8": 0.001}, steps=1200, level=1.5, rerun=3),
    ]
    with owner_database.write() as session:
        session.get_one(Job, ids[1]).name = "nightly"
    for job_id in ids:
        conclude(database, job_id)
    return ids


def _address(ids: list[str], more: str = "") -> str:
    return "/compare?" + "&".join(f"job={job_id}" for job_id in ids) + more


def _drawn(page: Page, figure: str = LOSS):
    note = page.locator(f"{figure} .note")
    note.scroll_into_view_if_needed()
    expect(note).to_contain_text("Showing")


def _lines(page: Page) -> dict[str, tuple[str, str | None]]:
    """Colour and dashes of each line, as its key in the legend has them."""
    return page.evaluate(
        """Object.fromEntries([...document.querySelectorAll(".job-lines button")].map((button) => {
            const path = button.querySelector("path");
            return [button.getAttribute("aria-label"), [getComputedStyle(path).stroke, path.getAttribute("stroke-dasharray")]];
        }))"""  # noqa: E501
    )


class TestOneChart:
    def test_every_arm_of_every_job_is_a_line_of_its_own(self, page: Page, jobs):
        requests: list[str] = []
        page.on("request", lambda sent: requests.append(sent.url))
        page.goto(_address(jobs))
        _drawn(page)
        _drawn(page, GAP)
        names = {
            *(f"small · {arm}" for arm in ("fp8_current", "nvfp4", "mxfp8")),
            *(f"nightly · {arm}" for arm in ("fp8_current", "mxfp8")),
        }
        lines = _lines(page)
        assert lines.keys() == names
        assert len({tuple(style) for style in lines.values()}) == len(lines)
        assert len({dash for _, dash in lines.values()}) == len(lines)
        assert len({stroke for stroke, _ in lines.values()}) == len(jobs)
        for kind in ("overlay", "gaps"):
            asked = [urlparse(url).path for url in requests if f"/{kind}?" in url]
            assert {f"/api/v1/jobs/{job_id}/{kind}" for job_id in jobs} <= set(asked)
        table = page.locator(f"{GAP} table.numbers")
        page.locator(f"{GAP} summary").click()
        heads = [f"{name}, nats" for name in sorted(names) if "fp8_current" not in name]
        expect(table.locator("th")).to_have_count(1 + len(heads))
        assert sorted(table.locator("th").all_text_contents()[1:]) == heads

    def test_the_pointer_names_job_arm_step_and_value(self, page: Page, jobs):
        page.goto(_address(jobs, "&half=0"))
        _drawn(page)
        page.locator(f"{LOSS} .u-over").hover(position={"x": 300, "y": 80})
        tip = page.locator(f"{LOSS} .tip")
        expect(tip.locator("strong")).to_have_text(re.compile(r"^step [\d,]+$"))
        expect(tip).to_contain_text(re.compile(r"small · nvfp4 1\.\d+ \(\+0\.0\d+\)"))
        expect(tip).to_contain_text(re.compile(r"nightly · fp8_current 1\.\d+"))
        page.locator(f"{GAP} .u-over").hover(position={"x": 300, "y": 80})
        tip = page.locator(f"{GAP} .tip")
        expect(tip.locator("strong")).to_have_text(re.compile(r"^steps [\d,]+ to [\d,]+$"))
        expect(tip).to_contain_text(re.compile(r"small · nvfp4 \+0\.0[45]\d+"))
        expect(tip).to_contain_text(re.compile("nightly · mxfp8 [+−]0\\.0"))

    def test_a_line_that_has_ended_is_not_read_beyond_its_end(self, page: Page, jobs):
        page.goto(_address(jobs, "&half=0"))
        _drawn(page)
        plot = page.locator(f"{LOSS} .u-over")
        plot.hover(position={"x": int(plot.bounding_box()["width"]) - 20, "y": 80})
        tip = page.locator(f"{LOSS} .tip")
        expect(tip).to_contain_text("nightly · mxfp8 no data here")
        expect(tip).to_contain_text(re.compile(r"small · mxfp8 1\.\d+"))

    def test_the_legend_chooses_and_the_address_keeps_it(self, page: Page, jobs):
        page.goto(_address(jobs))
        button = page.locator(".job-lines").get_by_role("button", name="small · nvfp4")
        button.click()
        expect(button).to_have_attribute("aria-pressed", "false")
        page.wait_for_url("**hide=0.1**")
        page.reload()
        expect(button).to_have_attribute("aria-pressed", "false")
        _drawn(page, GAP)
        page.locator(f"{GAP} .u-over").hover(position={"x": 300, "y": 80})
        tip = page.locator(f"{GAP} .tip")
        expect(tip).to_contain_text("small · mxfp8")
        expect(tip).not_to_contain_text("nvfp4")

    def test_a_range_and_the_training_time(self, page: Page, jobs):
        page.goto(_address(jobs, "&from=200&to=399&x=time"))
        _drawn(page)
        expect(page.locator(f"{LOSS} .note")).to_contain_text("Showing 200 of 200 steps")
        page.locator(f"{LOSS} .u-over").hover(position={"x": 300, "y": 80})
        expect(page.locator(f"{LOSS} .tip strong")).to_contain_text(" s, about step ")
        expect(page.locator("#exploratory")).to_contain_text("200 to 399")

    def test_the_curves_of_a_job_in_training_grow(self, page: Page, database, recorded, jobs):
        trains = recorded({"nvfp4": 0.0}, done=300, state="running")
        page.clock.install()
        page.goto(_address([trains]))
        _drawn(page)
        expect(page.locator(f"{LOSS} .note")).to_contain_text("of 300 steps")
        with database.write() as session:
            for run in session.get_one(Job, trains).runs:
                losses = {"lm_loss": np.full(50, 1.4)}
                store.append(session, run.id, "train", 1, np.arange(300, 350), losses)
                run.steps_done, run.recorded_at = 350, (run.recorded_at or 0.0) + 1.0
        page.clock.run_for(PERIOD_MS)
        expect(page.locator(f"{LOSS} .note")).to_contain_text("of 350 steps")
        requests: list[str] = []
        page.goto(_address(jobs))
        _drawn(page)
        page.on("request", lambda sent: requests.append(sent.url))
        page.clock.run_for(2 * PERIOD_MS)  # those of jobs that have ended are not asked for again
        assert not [url for url in requests if "overlay" in url]

    def test_jobs_of_one_name_are_told_apart(self, page: Page, recorded):
        same = [recorded({"nvfp4": 0.0}, steps=300, rerun=rerun) for rerun in (0, 3)]
        page.goto(_address(same))
        _drawn(page)
        labels = [*_lines(page)]
        assert len({label.split(" · ")[0] for label in labels}) == len(same)

    def test_the_page_names_all_modules_that_it_needs(self, page: Page, jobs):
        requests: list[str] = []
        page.on("request", lambda sent: requests.append(sent.url))
        page.goto(_address(jobs))
        _drawn(page)
        loaded = {
            urlparse(url).path.removeprefix("/static/") for url in requests if url.endswith(".js")
        }
        assert loaded == {"compare.js", "vendor/uplot/uPlot.esm.js", *COMPARE_MODULES}


class TestNamesAtTheLinesEnds:
    def _names(self, page: Page, column: str) -> list[dict]:
        found = page.evaluate("window.texts")
        newest: dict[str, dict] = {
            each["text"]: each
            for each in found
            if each["column"] == column and " · " in each["text"]
        }
        return [*newest.values()]

    def test_every_line_is_named_and_no_name_covers_another(self, page: Page, jobs):
        page.add_init_script(RECORD_TEXTS)
        page.goto(_address(jobs))
        _drawn(page)
        _drawn(page, GAP)
        for column, lines in (("lm_loss", 5), ("gap", 3)):
            names = self._names(page, column)
            assert len(names) == lines, column
            heights = sorted(name["y"] for name in names)
            assert min(np.diff(heights)) >= LINE_PIXELS - 1e-6, column

    def test_a_narrow_chart_has_its_legend_alone(self, page: Page, jobs):
        page.set_viewport_size({"width": 390, "height": 900})
        page.add_init_script(RECORD_TEXTS)
        page.goto(_address(jobs))
        _drawn(page)
        assert self._names(page, "lm_loss") == []
        expect(page.locator(".job-lines button")).to_have_count(5)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        _drawn(page, GAP)
        page.locator(f"{LOSS} .u-over").hover(position={"x": 150, "y": 80})
        expect(page.locator(f"{LOSS} .tip")).to_be_visible()
        expect(page.locator(f"{GAP} .tip")).to_be_hidden()  # it would cover what is below
        plot, tip = (page.locator(f"{LOSS} {part}").bounding_box() for part in (".u-over", ".tip"))
        assert tip["y"] >= plot["y"] + plot["height"]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


class TestWhatHasNoCurve:
    def test_jobs_without_a_common_step_say_so(self, page: Page, database, recorded):
        early = recorded({"nvfp4": 0.0}, steps=300)
        late = recorded({"nvfp4": 0.0}, steps=1500, done=0)
        at = np.arange(1000, 1200)
        with database.write() as session:
            for run in session.get_one(Job, late).runs:
                store.append(session, run.id, "train", 1, at, {"lm_loss": 1.4 + 0.0 * at})
                run.steps_done = 1200
        page.goto(_address([early, late]))
        _drawn(page)
        expect(page.locator(f"{LOSS} .note")).to_contain_text("no step in common")
        expect(page.locator(f"{LOSS} .note")).to_contain_text("1,000 to 1,199")
        page.goto(_address([early, early]))
        _drawn(page)
        expect(page.locator(f"{LOSS} .note")).not_to_contain_text("no step in common")

    def test_why_each_job_has_none(self, api, owner_database, recorded):
        failed, queued = (recorded({"nvfp4": 0.0}, done=0, state="failed") for _ in range(2))
        evaluated = recorded({"nvfp4": 0.0}, done=0)
        with owner_database.write() as session:
            job = session.get_one(Job, failed)
            job.status, job.code = "failed", "CRASHED"
            session.get_one(Job, queued).status = "queued"
            for run in session.get_one(Job, evaluated).runs:
                store.append(
                    session, run.id, "validation", 1, np.arange(3) * 100, {"loss": np.ones(3)}
                )
        page = api.get(_address([failed, queued, evaluated])).text
        assert "failed (CRASHED) and has no curves" in page
        assert "has not recorded a step yet" in page
        assert "has no training losses" in page
        assert 'data-column="loss"' in page
        assert 'data-column="lm_loss"' not in page
        alone = api.get(_address([failed])).text
        assert "data-lines" not in alone
        assert "compare.js" not in alone

    def test_an_analysis_says_so(self, api, database):
        explained = make_explained(database)
        with database.write() as session:
            analysis = submit_analysis(session, explained, WhyRequest())[0].id
        assert "is an analysis" in api.get(_address([analysis])).text


class TestJobsThatDoNotAnswer:
    def test_the_others_are_drawn_and_it_is_named(self, page: Page, jobs):
        page.route(f"**/jobs/{jobs[1]}/overlay?*", lambda route: route.fulfill(status=503))
        page.route(f"**/jobs/{jobs[1]}/gaps?*", lambda route: route.fulfill(status=503))
        page.goto(_address(jobs))
        for figure in (LOSS, GAP):
            _drawn(page, figure)
            expect(page.locator(f"{figure} .note")).to_contain_text("Not loaded: nightly")
            expect(page.locator(f"{figure} .note")).not_to_contain_text("Not recorded")
        expect(page.locator("#stale")).to_be_empty()

    def test_without_any_answer_the_page_says_so(self, page: Page, jobs):
        page.route("**/overlay?*", lambda route: route.fulfill(status=503))
        page.goto(_address(jobs))
        page.locator(LOSS).scroll_into_view_if_needed()
        expect(page.locator("#stale")).to_contain_text("503")


class TestManyLines:
    def test_no_more_are_asked_for_than_are_shown(self, page: Page, recorded):
        ids = [recorded({"nvfp4": 0.01 * n}, steps=300, replicates=1) for n in range(10)]
        requests: list[str] = []
        page.on("request", lambda sent: requests.append(sent.url))
        answer = page.goto(_address(ids))
        assert len(answer.body()) <= MOST_BYTES
        _drawn(page)
        expect(page.locator(".job-lines [aria-pressed=true]")).to_have_count(8)
        asked = [parse_qs(urlparse(url).query) for url in requests if "/overlay?name=lm_" in url]
        assert [query["arms"] for query in asked] == [["nvfp4"]] * 8
        assert {query["raw_values"][0] for query in asked} == {"7500"}
        requests.clear()
        page.locator(".job-lines button").last.click()
        expect(page.locator(".job-lines [aria-pressed=true]")).to_have_count(8)
        expect(page.locator(f"{LOSS} .note")).to_contain_text("Showing 8 of 20 lines")
        assert any(f"/jobs/{ids[9]}/overlay" in url for url in requests)
        assert not any(f"/jobs/{ids[0]}/overlay" in url for url in requests)

    def test_many_candidates_of_a_cell_are_counted_and_folded(self, page: Page, many_judged, jobs):
        page.goto(_address([many_judged, *jobs]))
        cell = page.locator("table.matrix tbody tr").first.locator("td details")
        expect(cell.locator("summary")).to_have_text("12 candidates: 7 fail, 5 inconclusive")
        expect(cell.locator(".cell").first).to_be_hidden()
        cell.locator("summary").click()
        expect(cell.locator(".cell").filter(visible=True)).to_have_count(12)
        expect(page.locator("table.matrix tbody tr").nth(1).locator("details")).to_have_count(0)

    def test_arms_of_many_long_jobs_are_left_to_their_own_pages(
        self, api, many_judged, monkeypatch
    ):
        monkeypatch.setattr("server.pages.lists.job_lines.MOST_LINES", 10)
        page = api.get(_address([many_judged])).text
        assert page.count("data-arm=") == 10
        assert "the first 10 arms of small" in page
        monkeypatch.undo()
        page = api.get(_address([many_judged])).text
        assert page.count("data-arm=") == 13
        assert "arms of small" not in page


class TestTheColoursOfJobs:
    def test_each_is_seen_on_the_page_and_none_is_a_verdicts(self):
        looks = re.findall(r"\{([^{}]*--chart-job-0[^{}]*)\}", _static("parity.css"))
        assert len(looks) == 2  # light and dark
        for look in looks:
            colours = dict(re.findall(r"--([\w-]+): (#\w+);", look))
            jobs = [colours[f"chart-job-{number}"] for number in range(COLOURS)]
            assert f"chart-job-{COLOURS}" not in colours
            others = [value for name, value in colours.items() if "job" not in name]
            assert len({*jobs}) == COLOURS
            assert not {*jobs} & {*others}
            assert min(_contrast(colour, colours["paper"]) for colour in jobs) >= 3.0

    def test_there_are_as_many_dashes_as_the_charts_have(self):
        [dashes] = re.findall(r"const DASHES = (\[.*\]);", _static("arms.js"))
        assert len(json.loads(dashes.replace("undefined", "null"))) == DASHES


def _static(name: str) -> str:
    return (Path(str(files(CHARTS[0]))) / CHARTS[1] / name).read_text(encoding="utf-8")


def _contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG defines it."""

    def luminance(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
        parts = np.array([int(digits[at : at + 2], 16) for at in (0, 2, 4)]) / 255.0
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)
