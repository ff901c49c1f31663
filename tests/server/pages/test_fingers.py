"""Charts under fingers, on a phone: sideways chooses, two zoom and move, up and down scrolls the
page.
"""

from collections.abc import Sequence
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Page, expect

LOOKS = ["narrow"]
TOUCH = True
LOSS = "figure[data-column=lm_loss]"
PLOT = f"{LOSS} .u-over"


@pytest.fixture
def fingers(page: Page, recorded):
    """A function that puts fingers down at shares of the loss chart's width and height, moves them
    on, and lifts them.
    """
    page.goto(f"/jobs/{recorded({'nvfp4': 0.05}, steps=600)}")
    page.locator(LOSS).scroll_into_view_if_needed()
    expect(page.locator(f"{LOSS} .note")).to_contain_text("of 600 steps")
    plot = page.locator(PLOT)
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    wire = page.context.new_cdp_session(page)

    def send(kind: str, places: Sequence[tuple[float, float]]) -> None:
        points = [
            {"x": box["x"] + x * box["width"], "y": box["y"] + y * box["height"], "id": at}
            for at, (x, y) in enumerate(places)
        ]
        wire.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    def move(*paths: Sequence[tuple[float, float]]) -> None:
        """Each path is where one finger begins and where it ends."""
        for at in range(len(paths)):
            send("touchStart", [path[0] for path in paths[: at + 1]])
        for part in (0.25, 0.5, 0.75, 1.0):
            send(
                "touchMove",
                [tuple(a + part * (b - a) for a, b in zip(*path, strict=True)) for path in paths],
            )
        send("touchEnd", [])

    return move


def _window(page: Page) -> tuple[int, int] | None:
    """The steps that the address says, a moment after the last change."""
    page.wait_for_timeout(300)
    query = parse_qs(urlparse(page.url).query)
    return (int(query["from"][0]), int(query["to"][0])) if "from" in query else None


def test_one_finger_sideways_chooses_a_range(page: Page, fingers):
    fingers([(0.8, 0.5), (0.2, 0.6)])
    assert _window(page) == pytest.approx((120, 480), abs=6)
    expect(page.locator(f"{LOSS} .note")).not_to_contain_text("of 600 steps")
    expect(page.locator("#exploratory")).to_contain_text("Exploratory")


def test_two_fingers_zoom_and_move_the_chart_and_not_the_page(page: Page, fingers):
    fingers([(0.4, 0.5), (0.2, 0.5)], [(0.6, 0.5), (0.8, 0.5)])
    zoomed = _window(page)
    assert zoomed == pytest.approx((200, 400), abs=8)
    fingers([(0.3, 0.5), (0.5, 0.5)], [(0.6, 0.5), (0.8, 0.5)])
    moved = _window(page)
    assert moved == pytest.approx((zoomed[0] - 40, zoomed[1] - 40), abs=8)
    fingers([(0.1, 0.5), (0.48, 0.5)], [(0.9, 0.5), (0.52, 0.5)])
    assert _window(page) is None
    expect(page.locator(f"{LOSS} .note")).to_contain_text("of 600 steps")
    assert page.evaluate("visualViewport.scale") == 1


def test_one_finger_up_scrolls_the_page_and_a_tap_reads(page: Page, fingers):
    before = page.evaluate("scrollY")
    fingers([(0.5, 0.9), (0.52, 0.1)])
    assert _window(page) is None
    assert page.evaluate("scrollY") > before + 50
    expect(page.get_by_text("two fingers zoom and move")).to_be_visible()
    expect(page.get_by_text("Ctrl and wheel zoom")).to_be_hidden()
    # A page that still scrolls takes a tap as "stop", not as a tap.
    page.wait_for_function(
        "() => new Promise(done => { const y = scrollY; setTimeout(() => done(scrollY === y), 200) "
        "})"
    )
    page.locator(PLOT).tap(position={"x": 100, "y": 80})
    expect(page.locator(f"{LOSS} .tip strong")).to_contain_text("step")
