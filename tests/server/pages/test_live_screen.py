"""The acceptance of the verdict's page for a job that trains, and for the list: what is drawn is
what is said, and nothing moves.
"""

import time
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from server.database.metrics import store
from server.database.sessions import Database
from server.database.tables import Run
from server.jobs import forecasts
from server.jobs.conclude import conclude
from tests.server.pages.test_verdict_page import (
    GEOMETRY,
    PIXELS,
    SHIFTS,
    SIZES,
    drawing_flaws,
    look_flaws,
)

LOOKS = ["light"]
ALL_FORECASTS = True
STEPS = 1500
_APPENDS = 3  # refreshes of the live page, at least a second apart
# Where the axes of the picture and its fixed labels stand, and what they say.
AXES = """() => JSON.stringify([".yax text", ".xax text", ".area", ".jud", ".win"].map((part) =>
  [...document.querySelectorAll(`.screen > .pic ${part}`)].map((one) => {
    const { x, y, width, height } = one.getBoundingClientRect();
    return [x, y, width, height, one.matches("text") ? one.textContent : ""];
  })))"""
SHIFTED = """window.moved = []; new PerformanceObserver((list) => list.getEntries().forEach((entry) =>
  window.moved.push([entry.value, ...entry.sources.map((one) => one.node?.outerHTML?.slice(0, 80))])))
  .observe({ type: 'layout-shift', buffered: true })"""  # noqa: E501
# A row's figure read back: its mean and its ends in margins, through the lines of zero and of the
# margin; and what the row says, nats.
ROWS = r"""() => [...document.querySelectorAll(".answers tbody > tr:has(.fg line.interval)")].map((row) => {
  const number = (text) => parseFloat(text.replace("−", "-").replace("+", ""));
  const at = (what, side = "left") => row.querySelector(`.fg ${what}`).getBoundingClientRect()[side];
  const [zero, margin] = [at(".zero"), at(".edge")];
  const place = (x) => (x - zero) / (margin - zero);
  const mark = row.querySelector(".fg svg > svg > :is(circle, rect, path:not(.arrow))")?.getBoundingClientRect();
  return {
    mean: mark ? place(mark.left + mark.width / 2) : null, px: Math.abs(1 / (margin - zero)),
    low: place(at(".interval")), high: place(at(".interval", "right")),
    said: [number(row.querySelector(".value").textContent), ...row.querySelector("td.iv").textContent.split(" to ").map(number)],
    lead: row.querySelector(".lead").textContent,
  };
})"""  # noqa: E501


@pytest.fixture
def live(database: Database, recorded) -> str:
    """A job at a fifth of its steps, with a forecast."""
    job_id: str = recorded({"nvfp4": 0.02}, done=300, state="running")
    forecasts.watch(database, job_id)
    return job_id


def append(database: Database, job_id: str, first: int, last: int) -> None:
    """Steps of all runs, as they were recorded so far."""
    generator, at = np.random.default_rng(first), np.arange(first, last)
    batch = generator.normal(0, 0.1, len(at))
    with database.write() as session:
        for run in session.query(Run).where(Run.job_id == job_id):
            loss = (
                1.4
                + 1.5 * np.exp(-at / 100)
                + batch
                + 0.02 * run.arm.position
                + generator.normal(0, 0.01, len(at))
            )
            store.append(
                session,
                run.id,
                "train",
                1,
                at,
                {"lm_loss": loss, "step_seconds": np.full(len(at), 0.04)},
            )
            run.steps_done, run.recorded_at = last, time.time()
    forecasts.watch(database, job_id)


def narrow(page: Page, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})


def live_flaws(page: Page, size: tuple[int, int]) -> Iterator[str]:
    """A live page: the forecast's mark and whisker are what the sentence says; the band ends now,
    at no verdict.
    """
    page.evaluate("scrollTo(0, 0)")
    geometry = page.evaluate(GEOMETRY)
    limit = SIZES[size]
    checks = {
        "sideways": geometry["sideways"] <= 0,
        "inside": geometry["inside"],
        "low": limit is None or geometry["bottom"] <= limit + 44,
    }
    yield from (name for name, holds in checks.items() if not holds)
    yield from (flaw for flaw in drawing_flaws(geometry) if flaw != "band")


def list_flaws(page: Page) -> Iterator[str]:
    rows = page.evaluate(ROWS)
    if not rows:
        yield "rows"
    for row in rows:
        mean, low, high = row["said"]
        near = PIXELS * row["px"]
        margin = (high - low) / (row["high"] - row["low"])  # nats; the list prints none
        if (
            abs(row["low"] * margin - low) > near * margin
            or abs(row["mean"] * margin - mean) > near * margin
        ):
            yield "figure"
        fails = any(words in row["lead"] for words in ("Do not switch", " fails"))
        passes = not fails and "You may switch" in row["lead"]
        if (row["low"] > 1.0 + near) != fails or (row["high"] < 1.0 - near) != passes:
            yield "lead"
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        yield "sideways"


def test_a_live_screen_shows_what_it_says(page: Page, live: str) -> None:
    for size in SIZES:
        narrow(page, size)
        page.goto(f"/jobs/{live}")
        expect(page.locator(".meas strong")).to_be_visible()
        assert list(live_flaws(page, size)) == [], size
    assert page.locator(".fan").count() == 2
    assert list(look_flaws(page)) == []


@pytest.mark.parametrize(
    ("flaw", "plant"),
    [
        ("headline", "document.querySelector('.meas strong').textContent = '0.9999 nats'"),
        ("mark", "document.querySelector('.j.on .mk').closest('svg').setAttribute('y', '3%')"),
        ("whisker", "document.querySelector('.j.on .wh').setAttribute('y1', '1%')"),
        ("sideways", "document.querySelector('.strip').style.width = '2000px'"),
        ("low", "document.querySelector('h1').style.marginBottom = '600px'"),
    ],
)
def test_a_flaw_of_a_live_screen_is_found(flaw: str, plant: str, page: Page, live: str) -> None:
    narrow(page, (1440, 900))
    page.goto(f"/jobs/{live}")
    expect(page.locator(".meas strong")).to_be_visible()
    page.evaluate(plant)
    assert flaw in list(live_flaws(page, (1440, 900)))


@pytest.fixture
def closed(browser: Browser, served: str) -> Iterator[Page]:
    """A page whose details are closed, as a reader finds it."""
    context = browser.new_context(base_url=served, viewport={"width": 1440, "height": 900})
    opened = context.new_page()
    opened.add_init_script(SHIFTS)
    opened.add_init_script(SHIFTED)
    yield opened
    context.close()


def moved(page: Page, database: Database, job_id: str, appends: int) -> tuple[float, list[str]]:
    """The layout shift of a page that stays open while steps come, and the axes of its picture
    wherever they differ from those before.
    """
    page.goto(f"/jobs/{job_id}")
    expect(page.locator("#connection")).to_have_text("live")
    axes = [page.evaluate(AXES)]
    appended_steps = (STEPS - 300) // (appends + 1)
    for number in range(appends):
        last = 300 + (number + 1) * appended_steps
        append(database, job_id, last - appended_steps, last)
        expect(page.locator("[data-live=runs]")).to_contain_text(f"{last:,} of 1,500")
        now = page.evaluate(AXES)
        axes += [now] if now != axes[-1] else []
        page.wait_for_timeout(500)
    return page.evaluate("window.shift"), axes


def test_nothing_moves_while_steps_come(closed: Page, database: Database, live: str) -> None:
    shift, axes = moved(closed, database, live, _APPENDS)
    assert closed.locator(".now").count() > 0
    assert shift <= 0.05, closed.evaluate("window.moved")
    assert len(axes) == 1, axes


def test_a_shift_and_a_moving_axis_would_be_found(
    closed: Page, database: Database, live: str
) -> None:
    closed.add_init_script(
        """document.addEventListener("parity:drawn", () => {
        setTimeout(() => {
          document.getElementById("main").style.paddingTop = `${(window.pushed = (window.pushed ?? 0) + 200)}px`;
        }, 100);
      })"""  # noqa: E501
    )
    shift, axes = moved(closed, database, live, 2)
    assert shift > 0.05, closed.evaluate("window.moved")
    assert len(axes) > 1


def test_a_list_draws_what_it_says(page: Page, database: Database, recorded) -> None:
    for gaps in ({"nvfp4": 0.05}, {"mxfp8": 0.0}, {"nvfp4": 0.04, "mxfp8": 0.0}):
        conclude(database, recorded(gaps))
    recorded({"nvfp4": 0.0}, done=300, state="running")
    requests: list[str] = []
    page.add_init_script(SHIFTS)
    page.on("request", lambda sent: requests.append(sent.url))
    for size in SIZES:
        narrow(page, size)
        page.goto("/jobs")
        if size[0] > 1100:
            assert list(list_flaws(page)) == [], size
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), size
        assert page.evaluate("window.shift") <= 0.05
        assert "oading" not in page.locator("body").inner_text()
    assert len(requests) < 8 * len(SIZES)
    assert list(look_flaws(page)) == []
    narrow(page, (1440, 900))
    for flaw, plant in (
        ("figure", "document.querySelector('.fg line.interval').setAttribute('x1', '5%')"),
        (
            "lead",
            (
                "document.querySelectorAll('.lead').forEach((one) => { one.textContent = "
                "'Undecided.'; })"
            ),
        ),
        ("sideways", "document.querySelector('table.answers').style.width = '3000px'"),
        ("rows", "document.querySelector('table.answers').remove()"),
    ):
        page.goto("/jobs")
        page.evaluate(plant)
        assert flaw in list(list_flaws(page)), flaw
