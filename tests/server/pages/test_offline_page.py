"""The page of `parity compare --html` in a browser without a network: charts are drawn, zoomed and followed, in every look."""

import numpy as np
import pytest
from playwright.sync_api import expect

import parity
from parity.report.interactive import comparison_page
from server.settings import CHECKOUT
from tests.server.pages.conftest import MOVING

LOOKS = ["dark", "narrow"]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    t, rng = np.arange(12_000), np.random.default_rng(0)
    base = 1.38 + 3.5 * np.exp(-t / 500) + rng.normal(0, 0.06, len(t))
    candidate = base + 0.03 + rng.normal(0, 0.01, len(t))
    candidate[[3000, 3001]] = np.nan
    result = parity.compare(base, candidate, margin="1%", planned_steps=12_000, names=("fp8", "nvfp4 <b>"))
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(comparison_page(result.case, [result.document]), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def opened(look, browser, address):
    scheme, width = {"light": ("light", 1440), "dark": ("dark", 1440), "narrow": ("light", 390)}[look]
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900}, offline=True)
    page = context.new_page()
    problems = []
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(address)
    page.wait_for_selector("html[data-charts=drawn]")
    yield page
    assert problems == []
    context.close()


def test_charts_are_drawn_and_zoomed_without_a_network(opened):
    notes = opened.locator(".note[role=status]")
    assert opened.locator("canvas").count() == 2
    assert "Showing 150 bins of 11,998 common steps." in notes.nth(0).inner_text()
    assert "2 steps are NaN or infinite, first 3,000" in notes.nth(0).inner_text()
    assert "buckets of 12,000 steps (mean and range of each)." in notes.nth(1).inner_text()
    assert not opened.evaluate("document.documentElement.scrollWidth > innerWidth")
    table = opened.locator("table.candidates")
    assert table.evaluate("table => table.scrollWidth <= table.parentElement.clientWidth")
    expect(table.locator("tbody tr")).to_contain_text("FAIL")
    expect(table.locator("tbody svg.forest")).to_be_visible()
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") in ("rgb(255, 255, 255)", "rgb(20, 23, 26)")
    opened.get_by_role("button", name="The verdict's window").click()
    expect(notes.nth(0)).to_contain_text("of 2,400 common steps")
    assert "charts show steps 9,600 to" in opened.locator("#exploratory").inner_text()
    opened.get_by_label("log x").check()
    opened.locator("[data-gaps] summary").click()
    expect(opened.locator("[data-gaps] table.numbers tbody tr").nth(20)).to_be_visible()
    opened.get_by_role("button", name="Reset").click()
    expect(notes.nth(0)).to_contain_text("of 11,998 common steps")


def test_axe_finds_nothing(opened):
    for summary in opened.locator("summary:visible").all():
        summary.press("Enter")
    opened.evaluate((CHECKOUT / "node_modules" / "axe-core" / "axe.min.js").read_text() + "; undefined")
    run = "() => axe.run({exclude: [['.numbers tr:nth-child(n+4)']]}, {resultTypes: ['violations']}).then((results) => results.violations)"
    grave = [one for one in opened.evaluate(run) if one["impact"] in ("moderate", "serious", "critical")]
    assert [(one["id"], one["nodes"][0]["html"][:160]) for one in grave] == []
    assert opened.evaluate(MOVING) == []
