"""Charts that a reader moves: zoom, cursor, smoothing, arms, address; each asks the server for what it needs."""

from urllib.parse import parse_qs, urlparse

import numpy as np
from playwright.sync_api import Page, expect

from server.database import store
from server.database.models import Run

LOOKS = ["light"]
LOSS = "figure[data-column=lm_loss]"


def _drag(page: Page, figure: str, start: float, end: float):
    plot = page.locator(f"{figure} .u-over")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + start * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + 50, steps=3)
    page.mouse.up()


def _asked(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlparse(page.url).query)


def test_a_drag_asks_again_and_says_that_it_is_exploratory(page: Page, recorded):
    page.goto(f"/jobs/{recorded({'nvfp4': 0.05})}")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("Showing 1,500 of 1,500 steps")
    requests: list[str] = []
    page.on("request", lambda sent: requests.append(sent.url))
    _drag(page, LOSS, 0.2, 0.4)
    expect(page.locator("#exploratory")).not_to_be_empty()
    first, last = (int(_asked(page)[name][0]) for name in ("from", "to"))
    assert abs(first - 300) < 5
    assert abs(last - 600) < 5
    expect(page.locator(f"{LOSS} .note")).to_contain_text(f"of {last - first + 1} steps")
    expect(page.locator("figure[data-candidate] .note")).to_contain_text(f"of {last - first + 1} common steps")
    expect(page.locator("#exploratory")).to_contain_text("The verdict does not change with it; it reads steps 1,200 to 1,499")
    for kind in ("/overlay?", "/gap?"):
        assert any(kind in url and f"from={first}&to={last}" in url for url in requests)
    page.locator(f"{LOSS} .u-over").dblclick()
    expect(page.locator(f"{LOSS} .note")).to_contain_text("of 1,500 steps")
    expect(page.locator("#exploratory")).to_be_empty()
    assert _asked(page) == {}


def test_the_address_says_what_is_shown(page: Page, recorded):
    job_id = recorded({"nvfp4": 0.05, "mxfp8": 0.0}, steps=600)
    page.goto(f"/jobs/{job_id}?from=100&to=199&x=time&log=1&half=30&pair=0.1&hide=mxfp8")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("Showing 100 of 100 steps")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("half-life of 30 steps")
    expect(page.get_by_label("x axis")).to_have_value("time")
    expect(page.get_by_label("log y")).to_be_checked()
    expect(page.locator("select[name=pair]")).to_have_value("0.1")
    expect(page.get_by_role("button", name="mxfp8")).to_have_attribute("aria-pressed", "false")
    page.get_by_role("button", name="mxfp8").click()
    page.get_by_role("button", name="The verdict's window").click()
    expect(page.locator(f"{LOSS} .note")).to_contain_text("Showing 120 of 120 steps")
    assert _asked(page) == {"from": ["480"], "to": ["599"], "x": ["time"], "log": ["1"], "half": ["30"], "pair": ["0.1"]}


def test_cursors_go_together_and_name_both_arms_and_the_difference(page: Page, recorded):
    page.goto(f"/jobs/{recorded({'nvfp4': 0.05}, steps=600)}?half=0")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("of 600 steps")
    page.locator("figure[data-column=grad_norm]").scroll_into_view_if_needed()
    expect(page.locator("figure[data-column=grad_norm] .note")).to_contain_text("of 600 steps")
    page.locator(f"{LOSS} .u-over").hover(position={"x": 300, "y": 80})
    tip = page.locator(f"{LOSS} .tip")
    expect(tip).to_contain_text("fp8_current 1.")
    expect(tip).to_contain_text("nvfp4 1.")
    expect(tip).to_contain_text("(+0.0")
    step = tip.locator("strong").text_content()
    expect(page.locator("figure[data-column=grad_norm] .tip strong")).to_have_text(step)
    expect(page.locator("figure[data-candidate] .readout")).to_contain_text("steps")


def test_nan_and_long_runs_are_said(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.0}, steps=50_000)
    with database.write() as session:
        run = session.query(Run).where(Run.job_id == job_id).order_by(Run.position).first()
        values = np.full(3, 1.4)
        values[1:] = np.nan, np.inf
        store.append(session, run.id, "train", 2, np.arange(49_997, 50_000), {"lm_loss": values})
    page.goto(f"/jobs/{job_id}")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("buckets of 50,000 steps")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("fp8_current 2, first 49,998")
    expect(page.locator("figure[data-column=grad_norm]")).to_be_attached()
    page.goto(f"/jobs/{job_id}?from=40000&to=49999")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("Showing 10,000 of 10,000 steps, each as it was recorded")


def test_what_is_shown_can_be_had(page: Page, recorded):
    page.goto(f"/jobs/{recorded({'nvfp4': 0.05}, steps=300)}?from=100&to=109")
    page.locator(f"{LOSS} summary").click()
    with page.expect_download() as csv:
        page.locator(LOSS).get_by_role("link", name="nvfp4 as CSV").click()
    lines = csv.value.path().read_text().splitlines()
    assert lines[0] == "step,lm_loss"
    assert [line.split(",")[0] for line in lines[1:]] == [str(step) for step in range(100, 110)]
    with page.expect_download() as png:
        page.locator(LOSS).get_by_role("button", name="PNG").click()
    assert png.value.path().read_bytes().startswith(b"\x89PNG")
    expect(page.locator(f"{LOSS} tbody tr")).to_have_count(10)


def test_charts_wait_until_the_reader_is_near(page: Page, recorded):
    page.set_viewport_size({"width": 1440, "height": 200})
    requests: list[str] = []
    page.on("request", lambda sent: requests.append(sent.url))
    page.goto(f"/jobs/{recorded({'nvfp4': 0.05, 'mxfp8': 0.0}, steps=300)}")
    expect(page.locator("figure[data-candidate=nvfp4] .note")).to_contain_text("of 300 common steps")
    assert not any("grad_norm" in url for url in requests)
    page.locator("figure[data-column=grad_norm]").scroll_into_view_if_needed()
    expect(page.locator("figure[data-column=grad_norm] .note")).to_contain_text("of 300 steps")
