"""A job with more candidates than a chart can tell apart: few are highlighted, chosen in the
legend, and asked for in one request.
"""

import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Page, expect

from parity.judging.verdict import path
from server.pages.job.page import JOB_MODULES
from tests.server.pages.conftest import judged_candidates

LOOKS = ["light"]
MOST_BYTES, MOST_ELEMENTS = 200_000, 3_000  # of the page of thirty candidates
PATH = {"POINTS": path.POINTS, "FEWEST": path.FEWEST}  # as the product draws it
LOSS = "figure[data-column=lm_loss]"


@pytest.fixture
def legend(page: Page):
    return page.get_by_role("group", name="Candidates in the gap chart")


def _asked(requests: list[str], kind: str) -> list[dict[str, list[str]]]:
    return [parse_qs(urlparse(url).query) for url in requests if f"/{kind}?" in url]


def _wait(page: Page, true: Callable[[dict[str, list[str]]], bool]):
    """Wait until the address says something, which it may do a little after the charts."""
    for _ in range(200):
        if true(parse_qs(urlparse(page.url).query)):
            return
        page.wait_for_timeout(25)
    raise AssertionError(page.url)


def test_some_are_highlighted_and_the_legend_chooses_others(page: Page, legend, many_judged):
    requests: list[str] = []
    page.on("request", lambda sent: requests.append(sent.url))
    page.goto(f"/jobs/{many_judged}")
    expect(page.locator("figure[data-gaps] .note")).to_contain_text("Showing 150 bins")
    expect(page.locator("figure[data-gaps] .note")).not_to_contain_text("are loading")
    assert [query.get("candidates") for query in _asked(requests, "gaps")] == [
        ["c08,c09,c10,c11"],
        None,
    ]
    assert len(_asked(requests, "gap")) == 0
    expect(legend.locator("[aria-pressed=true]")).to_have_text(
        [f" {name}" for name in ("c08", "c09", "c10", "c11")]
    )
    page.locator(LOSS).scroll_into_view_if_needed()
    expect(page.locator(f"{LOSS} .note")).to_contain_text("Showing 5 of 13 arms")
    assert {tuple(query["arms"]) for query in _asked(requests, "overlay")} == {
        ("fp8_current,c08,c09,c10,c11",)
    }
    expect(
        page.get_by_role("group", name="Arms").locator("button").filter(visible=True)
    ).to_have_count(5)
    legend.get_by_role("button", name="c00").click()
    expect(page.locator(f"{LOSS} .note")).to_contain_text("Showing 6 of 13 arms")
    shown = {"fp8_current", "c00", "c08", "c09", "c10", "c11"}
    _wait(page, lambda query: set(query.get("show", [""])[0].split(",")) == shown)
    for name in ("c01", "c02", "c03", "c04"):
        legend.get_by_role("button", name=name).click()
    expect(legend.locator("[aria-pressed=true]")).to_have_count(8)
    page.reload()
    expect(legend.locator("[aria-pressed=true]")).to_have_count(8)
    expect(legend.get_by_role("button", name="c00")).to_have_attribute("aria-pressed", "true")
    page.get_by_label("the others in grey").uncheck()
    _wait(page, lambda query: query.get("others") == ["0"])


def test_the_page_names_all_modules_that_it_needs(page: Page, many_judged):
    requests: list[str] = []
    page.on("request", lambda sent: requests.append(sent.url))
    page.goto(f"/jobs/{many_judged}")
    expect(page.locator("figure[data-gaps] .note")).to_contain_text("Showing 150 bins")
    loaded = {
        urlparse(url).path.removeprefix("/static/") for url in requests if url.endswith(".js")
    }
    assert loaded == {"job.js", "verdict.js", "vendor/uplot/uPlot.esm.js", *JOB_MODULES}


def test_thirty_candidates_are_a_small_page(page: Page, database, make_job, monkeypatch):
    for name, number in PATH.items():
        monkeypatch.setattr(f"parity.judging.verdict.path.{name}", number)
    answer = page.goto(f"/jobs/{judged_candidates(database, make_job, 30)}")
    assert len(answer.body()) <= MOST_BYTES
    assert page.evaluate("document.querySelectorAll('*').length") <= MOST_ELEMENTS
    expect(page.locator(".cand tr[data-c]")).to_have_count(30)
    for place in ("", "?candidate=c05"):  # the next step is on the first screen
        page.goto(page.url.split("?")[0] + place)
        step = page.locator(".screen .next")
        box = step.bounding_box()
        assert box["y"] + box["height"] <= page.viewport_size["height"]
        expect(step.locator(".acts .btn").first).to_be_visible()
        assert page.locator(".strip").bounding_box()["y"] < page.viewport_size["height"]


def test_eight_candidates_have_all_that_decides_on_the_first_screen(page: Page, database, make_job):
    page.goto(f"/jobs/{judged_candidates(database, make_job, 8)}")
    expect(page.locator(".cand tr[data-c]")).to_have_count(8)
    for part in (".next", ".cand", ".strip"):
        box = page.locator(f".screen > {part}").bounding_box()
        assert box["y"] + box["height"] <= page.viewport_size["height"], part


def test_reasons_are_built_when_they_are_opened(page: Page, many_judged):
    page.goto(f"/jobs/{many_judged}")
    reasons = page.locator("details.candidate", has_text="c05")
    expect(page.locator("table.checks")).to_have_count(0)
    reasons.locator("summary").first.click()
    expect(reasons.locator("table.checks")).to_have_count(1)
    expect(reasons.locator("code").first).to_have_text(re.compile("^[A-Z_]+$"))
    expect(page.locator("table.checks")).to_have_count(1)


def test_a_part_that_does_not_come_says_so_and_comes_when_it_is_opened_again(
    page: Page, many_judged
):
    page.goto(f"/jobs/{many_judged}")
    page.route("**/parts/reasons*", lambda route: route.fulfill(status=204))
    reasons = page.locator("details.candidate", has_text="c05")
    reasons.locator("summary").first.click()
    expect(reasons.get_by_role("status")).to_contain_text("204")
    page.unroute("**/parts/reasons*")
    reasons.locator("summary").first.click()
    reasons.locator("summary").first.click()
    expect(reasons.locator("table.checks")).to_have_count(1)
    expect(reasons.get_by_role("status")).to_have_count(0)


def test_without_a_script_a_part_is_a_page(api, many_judged):
    page = api.get(f"/jobs/{many_judged}").text
    address = f"/jobs/{many_judged}/parts/reasons?candidate=c05"
    assert f'href="{address}"' in page
    assert "Checks of c05" in api.get(address).text
    missing = api.get(f"/jobs/{many_judged}/parts/reasons?candidate=nobody")
    assert missing.status_code == 404
    assert "c00" in missing.json()["detail"]


def test_one_of_many_gets_its_band_and_dots_when_it_is_chosen(page: Page, many_judged):
    page.goto(f"/jobs/{many_judged}")
    chosen = page.locator(".screen > .pic .cv.on")
    others = page.locator(".screen > .pic .cv:not(.on)")
    expect(others.locator(".band, .dots")).to_have_count(0)
    drawn = chosen.locator(".band").get_attribute("d")
    page.locator(".cand tr[data-c]", has_text="c07").click()
    expect(chosen.locator(".band")).to_have_count(1)
    assert chosen.locator(".band").get_attribute("d") != drawn
    expect(chosen.locator(".dots")).to_have_attribute("d", re.compile("^M.+h0$"))
