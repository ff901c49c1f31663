"""A job with more candidates than a chart can tell apart: few are highlighted, chosen in the
legend, and asked for in one request.
"""

from collections.abc import Callable
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Page, expect

from server.pages.job.page import JOB_MODULES

LOOKS = ["light"]
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
