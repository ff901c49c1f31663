"""The header stands at the same place on every page, and no page shows a strip beside it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from server.jobs.conclude import conclude
from tests.server.pages.conftest import CHROMIUM

LOOKS = ["light"]
MOST_PIXELS = 8  # the name of the page that one is on is bold, which moves the names after it
# short ones and long ones, of every template with a main part of its own width
PATHS = ["/jobs", "/compare", "/trend", "/baselines", "/noise-tables", "/workers", "/tokens"]
PATHS += ["/public", "/public/gb200-continued", "/login", "/docs/api/", "/nowhere"]
PLACES = """[document.querySelector(".top"), ...document.querySelectorAll(".top a")].map((part) => {
  const { x, y } = part.getBoundingClientRect();
  return [part.matches("a") ? part.textContent : "", x, y];
})"""


@pytest.fixture
def barred(browser: Browser, served: str) -> Iterator[Page]:
    """A page in a browser whose scrollbars take room."""
    started = browser.browser_type.launch(
        executable_path=CHROMIUM,
        args=["--no-sandbox", "--disable-gpu"],
        ignore_default_args=["--hide-scrollbars"],
    )
    context = started.new_context(
        base_url=served, color_scheme="dark", viewport={"width": 1440, "height": 900}
    )
    yield context.new_page()
    started.close()


def _places(page: Page, paths: list[str]) -> dict[str, list]:
    places = {}
    for path in paths:
        page.goto(path)
        expect(page.locator(".top")).to_be_visible()
        found = page.evaluate(PLACES)
        places[path] = found
    return places


def test_nothing_of_it_moves_from_page_to_page(barred: Page, recorded):
    paths = [*PATHS, f"/jobs/{recorded({'nvfp4': 0.0}, done=10, state='running')}"]
    places = _places(barred, paths)
    widths = set()
    for path in paths:
        barred.goto(path)
        widths.add(barred.evaluate("document.documentElement.clientWidth"))
    assert len(widths) == 2, "some pages have a scrollbar, some have none"
    first = places[paths[0]]
    for path, found in places.items():
        assert [name for name, *_ in found] == [name for name, *_ in first], path
        assert found[0] == first[0], path
        assert found[1] == first[1], path
        moved = [abs(one[1] - other[1]) for one, other in zip(found, first, strict=True)]
        assert max(moved) <= MOST_PIXELS, path


def test_the_room_of_the_scrollbar_has_the_colour_of_the_page(barred: Page):
    barred.goto("/login")
    assert barred.evaluate("document.documentElement.scrollHeight <= innerHeight")
    inside, outside = (
        barred.screenshot(clip={"x": x, "y": 600, "width": 8, "height": 8}) for x in (1380, 1430)
    )
    assert inside == outside
    barred.emulate_media(color_scheme="light")
    assert barred.screenshot(clip={"x": 1430, "y": 600, "width": 8, "height": 8}) != outside


def test_the_window_and_the_panel_beside_it_have_one_shade(barred: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.05})
    conclude(database, job_id)
    for scheme in ("dark", "light"):
        barred.emulate_media(color_scheme=scheme)
        for path in (f"/jobs/{job_id}", "/public/gb200-continued"):
            barred.goto(path)
            shades = barred.evaluate(
                """[getComputedStyle(document.querySelector(".pic .win")).fill,
                getComputedStyle(document.querySelector(".pic .jud")).backgroundColor]"""
            )
            assert shades[0] == shades[1], (scheme, path)


def test_a_verdict_has_the_colour_of_its_page(barred: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.05})
    conclude(database, job_id)
    for path in (f"/jobs/{job_id}", "/public/gb200-continued"):
        barred.goto(path)
        places = barred.evaluate(
            """(() => { const { x, y, width } = document.querySelector(".v .screen, .v.screen").getBoundingClientRect();
            return [[x - 12, y + 2], [x + width - 10, y + 2]]; })()"""  # noqa: E501
        )
        beside, inside = (
            barred.screenshot(clip={"x": x, "y": y, "width": 6, "height": 6}) for x, y in places
        )
        assert beside == inside, path
