"""Zoom in the picture of a verdict: only the steps that are shown change. Line, band, axis of
values and judged panel stay as they are.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from parity.judging.verdict.path import with_path
from parity.report.html.page import case_report, report_page
from parity.report.picture.case_scene import case_scene
from parity.report.picture.scene import Marks
from server.jobs.conclude import conclude
from tests.server.pages.test_verdict_page import case_of, evaluations, shown

LOOKS = ["light"]
# The points of line and band as (step, nats), read back from the screen through the numbers of both
# axes; and what may not change at all.
READ = r"""() => {
  const first = ".screen > .pic ";
  const number = (text) => parseFloat(text.replace("−", "-").replace(/[+,]|step /g, ""));
  const box = (element) => element.getBoundingClientRect();
  const all = (selector) => [...document.querySelectorAll(first + selector)];
  const levels = all(".yax text").map((text) => [number(text.textContent), box(text).top + box(text).height / 2]);
  const [low, high] = [levels[0], levels.at(-1)];
  const nats = (y) => low[0] + ((y - low[1]) * (high[0] - low[0])) / (high[1] - low[1]);
  const area = box(all(".area")[0]);
  const [from, to] = [".xax .start", ".xax .end"].map((end) => number(all(end)[0].textContent));
  const step = (x) => from + ((x - area.left) * (to - from)) / area.width;
  const matrix = all(".area svg.s")[0].getScreenCTM();
  const points = (selector) => all(selector).map((path) => path.getAttribute("d").match(/-?[\d.]+ -?[\d.]+/g).map((pair) => {
    const [x, y] = pair.split(" ").map(Number);
    const at = new DOMPoint(x, y).matrixTransform(matrix);
    return [step(at.x), nats(at.y)];
  }));
  const dots = all(".cv.on .dots").map((path) => path.getAttribute("d").split("M").length - 1)[0];
  return {
    line: points(".cv.on .line"), band: points(".cv.on .band"), dots,
    ends: [from, to], a_step: (to - from) / area.width, a_nat: Math.abs(nats(1) - nats(0)),
    stays: [all(".yax"), all(".jud")].map(([one]) => one.innerHTML),
    box: [box(all(".plot")[0])].map(({ x, y, width, height }) => [x, y + scrollY, width, height].map(Math.round)),
    marks: all(".marks.on > svg").map((mark) => {
      const share = parseFloat(mark.getAttribute("x")) / 100;
      return [step(area.left + share * area.width), mark.querySelector("title").textContent];
    }),
  };
}"""  # noqa: E501


@pytest.fixture(scope="module")
def html() -> dict[str, str]:
    case = case_of({"mxfp8": 0.0, "nvfp4": 0.06})
    documents = with_path(case.verdicts())
    scene = case_scene(case, documents)
    marks = Marks(spikes=((100,), (300, 304, 309)), nonfinite=((), tuple(range(400, 420))))
    marked = replace(scene, traces=[replace(trace, marks=marks) for trace in scene.traces])
    return {
        "runs": case_report(case, documents),
        "marks": report_page(documents, marked, ["marks"], with_script=True),
        "evaluations": evaluations(),
    }


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context()
    yield made
    made.close()


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What a zoom has changed besides the steps that are shown."""
    found = [name for name in ("stays", "box") if before[name] != after[name]]
    # a step of rounding on the axis, and a pixel or so
    near = (1.0 + before["a_step"] + after["a_step"], 1.5 * before["a_nat"])
    for name in ("line", "band"):
        for old, new in zip(before[name], after[name], strict=True):
            pairs = zip(old, new, strict=True)
            if any(
                abs(a - b) > most
                for one, other in pairs
                for a, b, most in zip(one, other, near, strict=True)
            ):
                found.append(name)
    return found


def dragged(page: Page, start: float, end: float) -> None:
    box = page.locator(".screen > .pic .area").bounding_box()
    assert box
    page.mouse.move(box["x"] + start * box["width"], box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + 90, steps=3)
    page.mouse.up()


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)])
@pytest.mark.parametrize("kind", ["runs", "evaluations"])
def test_a_zoom_leaves_line_and_band_unchanged(
    kind: str, size: tuple[int, int], html: dict[str, str], context: BrowserContext
) -> None:
    page, _ = shown(context, html[kind], size)
    whole = page.evaluate(READ)
    dragged(page, 0.25, 0.5)
    near = page.evaluate(READ)
    low, high = whole["ends"]
    assert near["ends"] == pytest.approx(
        [low + 0.25 * (high - low), low + 0.5 * (high - low)], abs=0.01 * (high - low)
    )
    assert changes(whole, near) == []
    page.mouse.dblclick(*middle(page))
    assert page.evaluate(READ) == whole
    page.close()


def middle(page: Page) -> tuple[float, float]:
    box = page.locator(".screen > .pic .area").bounding_box()
    assert box
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.mark.parametrize(
    ("flaw", "plant"),
    [
        (
            "line",
            (
                "const line = document.querySelector('.cv.on .line'); line.setAttribute('d', "
                "line.getAttribute('d').replace(/ /g, ' 1'))"
            ),
        ),
        (
            "band",
            (
                "const band = document.querySelector('.cv.on .band'); band.setAttribute('d', "
                "band.getAttribute('d').replace(/L/g, 'L2'))"
            ),
        ),
        ("stays", "document.querySelector('.screen > .pic .yax text').textContent = '+0.5'"),
        ("box", "document.querySelector('.screen > .pic .plot').style.marginTop = '30px'"),
    ],
)
def test_a_change_by_zoom_would_be_found(
    flaw: str, plant: str, html: dict[str, str], context: BrowserContext
) -> None:
    page, _ = shown(context, html["runs"])
    whole = page.evaluate(READ)
    dragged(page, 0.25, 0.5)
    page.evaluate(plant)
    assert flaw in changes(whole, page.evaluate(READ))
    page.close()


def test_keys_and_wheel_zoom_pan_and_reset(html: dict[str, str], context: BrowserContext) -> None:
    page, _ = shown(context, html["runs"])
    whole = page.evaluate(READ)
    page.keyboard.press("+")
    assert page.evaluate(READ)["ends"] == pytest.approx([150, 449], abs=2)
    page.locator(".screen > .pic .plot").focus()
    page.keyboard.press("Shift+ArrowRight")
    assert page.evaluate(READ)["ends"] == pytest.approx([225, 524], abs=2)
    page.keyboard.press("ArrowLeft")
    assert re.match(r"nvfp4 · step \d+: ", page.locator("figcaption .r").first.inner_text())
    page.keyboard.press("Escape")
    assert page.locator("figcaption .r").first.inner_text().startswith("step 225 to 524 · dots")
    page.keyboard.press("-")
    page.keyboard.press("-")
    assert page.evaluate(READ) == whole
    page.mouse.move(*middle(page))
    page.mouse.wheel(0, -200)  # a wheel alone scrolls the page
    assert page.evaluate(READ)["ends"] == whole["ends"]
    page.mouse.move(*middle(page))
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    page.wait_for_function("document.querySelector('.pic.zoomed')")
    low, high = page.evaluate(READ)["ends"]
    assert 0.4 < (high - low) / 599 < 0.7
    for _ in range(9):
        page.keyboard.press("+")
    low, high = page.evaluate(READ)["ends"]
    # no less, because the points are rounded for about this
    assert high - low == pytest.approx(0.02 * 599, abs=1.5)
    page.get_by_role("button", name="whole run").click()
    assert page.evaluate(READ)["ends"] == whole["ends"]
    page.close()


def test_the_second_candidate_is_zoomed_as_well(
    html: dict[str, str], context: BrowserContext
) -> None:
    page, _ = shown(context, html["runs"])
    page.keyboard.press("j")
    whole = page.evaluate(READ)
    page.keyboard.press("k")
    page.keyboard.press("+")
    page.keyboard.press("j")
    assert changes(whole, page.evaluate(READ)) == []
    page.close()


def test_marks_that_a_zoom_parts_stand_at_their_own_steps(
    html: dict[str, str], context: BrowserContext
) -> None:
    page, _ = shown(context, html["marks"], (1440, 900))
    marks = page.evaluate(READ)["marks"]
    assert [title for _, title in marks] == [
        "spike at step 100",
        "3 spikes from step 300 to 309",
        "20 NaN from step 400 to 419",
    ]
    assert [step for step, _ in marks] == pytest.approx([100, 300, 400], abs=1)
    dragged(page, 0.49, 0.53)
    marks = page.evaluate(READ)["marks"]
    assert [title for _, title in marks] == [
        "spike at step 300",
        "spike at step 304",
        "spike at step 309",
    ]
    assert [step for step, _ in marks] == pytest.approx([300, 304, 309], abs=0.6)
    page.keyboard.press("0")
    assert len(page.evaluate(READ)["marks"]) == 3
    page.keyboard.press("Escape")
    assert (
        page.locator("figcaption .r")
        .first.inner_text()
        .endswith("▲ spike · ▼ spike of fp8 · △ NaN")
    )
    page.close()


def test_two_fingers_zoom_and_one_selects(html: dict[str, str], browser: Browser) -> None:
    touching = browser.new_context(has_touch=True)
    page, _ = shown(touching, html["runs"], (390, 844))
    wire = touching.new_cdp_session(page)
    box = page.locator(".screen > .pic .area").bounding_box()
    assert box

    def touch(kind: str, *shares: float) -> None:
        at = [
            {"x": box["x"] + share * box["width"], "y": box["y"] + 80, "id": number}
            for number, share in enumerate(shares)
        ]
        wire.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})

    touch("touchStart", 0.4, 0.6)
    touch("touchMove", 0.2, 0.8)
    touch("touchEnd")
    low, high = page.evaluate(READ)["ends"]
    assert (high - low) / 599 == pytest.approx(1 / 3, abs=0.03)
    assert (low + high) / 2 == pytest.approx(300, abs=9)
    page.keyboard.press("0")
    touch("touchStart", 0.2)
    touch("touchMove", 0.4)
    touch("touchMove", 0.6)
    touch("touchEnd")
    assert page.evaluate(READ)["ends"] == pytest.approx([120, 360], abs=12)
    touching.close()


def test_the_server_gives_finer_dots_and_nothing_else(page: Page, database, recorded) -> None:
    job = recorded({"nvfp4": 0.05, "mxfp8": 0.0})
    conclude(database, job)
    page.goto(f"/jobs/{job}")
    reading = page.locator(".screen > .pic figcaption .r")
    expect(reading).to_contain_text("dots: 10 steps")
    whole = page.evaluate(READ)
    page.locator("h1").click()
    page.keyboard.press("+")
    page.keyboard.press("+")
    expect(reading).to_contain_text(re.compile("dots: [23] steps"))
    near = page.evaluate(READ)
    assert near["dots"] > 0.9 * (near["ends"][1] - near["ends"][0]) / 3
    assert changes(whole, near) == []
    page.keyboard.press("k")
    expect(reading).to_contain_text(re.compile("dots: [23] steps"))
    page.keyboard.press("0")
    expect(reading).to_contain_text("dots: 10 steps")
    page.keyboard.press("j")
    again = page.evaluate(READ)
    assert changes(whole, again) == []
    assert (again["ends"], again["dots"]) == (whole["ends"], whole["dots"])
