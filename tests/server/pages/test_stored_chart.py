"""A page whose gap chart is stored asks for it once, before its modules, and names all modules that it needs."""

from urllib.parse import parse_qs, urlparse

from playwright.sync_api import Page, expect

from server.gaps.stored import store_chart
from server.pages.dashboard import JOB_MODULES

LOOKS = ["light"]


def test_a_stored_chart_is_loaded_with_one_request(page: Page, owner_database, many_judged):
    store_chart(owner_database, many_judged)
    requests: list[str] = []
    page.on("request", lambda sent: requests.append(sent.url))
    page.goto(f"/jobs/{many_judged}")
    expect(page.locator("figure[data-gaps] .note")).to_contain_text("Showing 150 bins")
    expect(page.locator("figure[data-gaps] .note")).not_to_contain_text("are loading")
    assert [parse_qs(urlparse(url).query) for url in requests if "/gaps?" in url] == [{}]
    loaded = {urlparse(url).path.removeprefix("/static/") for url in requests if url.endswith(".js")}
    assert loaded == {"job.js", "vendor/uplot/uPlot.esm.js", *JOB_MODULES}


def test_a_zoomed_page_reads_its_steps(page: Page, owner_database, many_judged):
    store_chart(owner_database, many_judged)
    requests: list[str] = []
    page.on("request", lambda sent: requests.append(sent.url))
    page.goto(f"/jobs/{many_judged}?from=100&to=300")
    expect(page.locator("figure[data-gaps] .note")).to_contain_text("Showing")
    expect(page.locator("figure[data-gaps] .note")).not_to_contain_text("are loading")
    asked = [parse_qs(urlparse(url).query) for url in requests if "/gaps?" in url]
    assert [(query["from"], query["to"]) for query in asked] == [(["100"], ["300"])] * 2
