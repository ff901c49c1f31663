"""Every page in every look: axe-core finds nothing, the keyboard reaches every control and shows
where it is, nothing moves or is cut off.

The dark look differs from the light one in colours alone (`prefers-color-scheme` sets nothing
else), so only its colours are tried, on the narrow page: of each route's first state, and of all
states where tests are thorough. Nothing on these pages moves by itself, so no reader has to ask for
less motion.
"""

from importlib import import_module
from pkgutil import walk_packages

from fastapi import APIRouter
from fastapi.routing import APIRoute
from playwright.sync_api import Page, expect

import server.pages
from server.jobs.conclude import conclude
from server.settings import CHECKOUT
from server.web.lab_additions import additions
from tests.conftest import THOROUGH
from tests.server.pages.conftest import MOVING, PAGES, REFUSED

# Browsers report pages of refusals and wrong tokens as failed requests.
PROVOKED = "status of 4(01|04|22)"
AXE = CHECKOUT / "node_modules" / "axe-core" / "axe.min.js"
LOOKS = ["light"]  # this module changes the look itself, on the page that is open
WIDTHS = (1440, 390)
GRAVE = ("moderate", "serious", "critical")
# The rows of a table of numbers are alike: the first few stand for hundreds, which would take most
# of the time, whether axe looks at them or is told not to.
_RUN_AXE = """(options) => {
  for (const row of document.querySelectorAll(".numbers tr:nth-child(n+4)")) row.remove();
  return axe.run(document, options).then((results) => results.violations);
}"""
_ALL_RULES = {"resultTypes": ["violations"]}
# What a narrow page and the dark look can break: the structure and the names are those of the wide,
# light page.
_RULES_OF_LOOKS = _ALL_RULES | {
    "runOnly": ["color-contrast", "link-in-text-block", "scrollable-region-focusable"]
}
_CONTROLS = (
    "a[href], button:not(:disabled), input:not([type=hidden]), select:not(:disabled), summary, "
    "[tabindex='0']"
)

# "/" leads to the list of jobs; tests/server/pages/test_documentation.py tries the documentation.
_ELSEWHERE = {"/", "/docs/api", "/docs/api/", "/trend.svg"}


def _settled(page: Page):
    """Bring every chart into view and wait until it has said what it shows."""
    for note in page.locator("figure .note").filter(visible=True).all():
        note.scroll_into_view_if_needed()
        expect(note).not_to_contain_text("Loading", timeout=20_000)
    page.evaluate("scrollTo(0, 0)")


def _walk(page: Page) -> list[str]:
    """Controls that a walk with the tabulator does not reach, or that do not show that they have
    the focus.
    """
    visible = f"[...document.querySelectorAll(`{_CONTROLS}`)].filter((e) => e.checkVisibility())"
    count = page.evaluate(f"(window.controls = new Set({visible})).size")
    page.evaluate(
        """addEventListener("focusin", ({ target }) => {
        const style = getComputedStyle(target);
        if (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) window.controls.delete(target); })"""  # noqa: E501
    )
    page.evaluate("document.activeElement.blur()")
    left: list[str] = []
    # a chart that came meanwhile has controls of its own, on which the first round spent some of
    # its steps
    for _ in range(2):
        for _ in range(count + 5):
            page.keyboard.press("Tab")
        left = page.evaluate(
            "[...window.controls].filter((e) => e.isConnected).map((e) => e.outerHTML.slice(0, "
            "120))"
        )
        if not left:
            break
    return left


def _axe(page: Page, options: dict[str, object]) -> list[tuple[object, ...]]:
    violations = page.evaluate(_RUN_AXE, options)
    return [
        (one["id"], one["impact"], [node["html"][:160] for node in one["nodes"][:3]])
        for one in violations
        if one["impact"] in GRAVE
    ]


def _sideways(page: Page) -> list[tuple[object, ...]]:
    """Whether the page itself scrolls sideways; charts follow the width a little later."""
    for _ in range(100):
        if page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
            return []
        page.wait_for_timeout(50)
    return [("scrolls sideways",)]


def _faults(page: Page, *, in_both_looks: bool = True) -> list[tuple[object, ...]]:
    """What is wrong with a page that is open, wide and light; it is left narrow.

    Keys open the details of the first state of a page alone (`in_both_looks`), and reach every
    control there.
    """
    if in_both_looks:
        for summary in page.query_selector_all("details:not([open]) > summary"):
            if summary.is_visible():
                summary.press("Enter")
    else:
        for _ in range(2):  # what is fetched when it is opened has details of its own
            page.evaluate(
                "for (const details of document.querySelectorAll('details')) details.open = true"
            )
            expect(page.locator("details[data-part][open]:not([data-filled])")).to_have_count(0)
    _settled(page)  # what was opened may have charts
    faults: list[tuple[object, ...]] = []
    if page.locator("details:visible:not([open])").count():
        faults.append(("details that Enter does not open",))
    page.evaluate(AXE.read_text() + "; undefined")
    faults += [("moves", element) for element in page.evaluate(MOVING)]
    wide, narrow = WIDTHS
    page.set_viewport_size({"width": wide, "height": 900})
    faults += [(wide, *fault) for fault in _sideways(page) + _axe(page, _ALL_RULES)]
    page.set_viewport_size({"width": narrow, "height": 900})
    if not in_both_looks:
        return faults + [(narrow, *fault) for fault in _sideways(page)]
    page.emulate_media(color_scheme="dark")
    of_width = _sideways(page) + _axe(page, _RULES_OF_LOOKS)
    of_width += [
        ("not reached by the keyboard, or without a visible focus", control)
        for control in _walk(page)
    ]
    page.emulate_media(color_scheme="light")
    return faults + [(narrow, "dark", *fault) for fault in of_width]


def test_each_route_of_a_page_is_tried():
    modules = [
        import_module(module.name)
        for module in walk_packages(server.pages.__path__, "server.pages.")
    ]
    ours = [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, APIRouter)
    ]
    routers = [*ours, *additions().pages]
    pages = {
        route.path
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute) and "GET" in route.methods
    }
    assert pages == PAGES.keys() | _ELSEWHERE


def test_every_page(page: Page, addresses):
    faults: list[tuple[object, ...]] = []
    is_first = [place == 0 for paths in (*PAGES.values(), REFUSED) for place in range(len(paths))]
    for path, first in zip(addresses, is_first, strict=True):
        page.set_viewport_size({"width": WIDTHS[0], "height": 900})
        page.goto(path)
        _settled(page)
        faults += [(path, *fault) for fault in _faults(page, in_both_looks=first or THOROUGH)]
    assert not faults, "\n".join(map(str, faults))


def test_pages_that_answer_a_form(page: Page):
    page.goto("/login")
    page.get_by_label("Token").fill("wrong")
    page.get_by_label("Token").press("Enter")
    expect(page.get_by_role("alert")).to_be_visible()
    assert _faults(page) == []
    page.goto("/jobs")
    assert _faults(page) == []
    page.goto("/tokens")
    page.get_by_label("Owner or purpose").fill("nightly")
    page.get_by_role("button", name="Create token").press("Enter")
    expect(page.locator(".secret")).to_be_visible()
    assert _faults(page) == []


def _reach(page: Page, control: str) -> None:
    """Press Tab until the control has the focus."""
    for _ in range(200):
        page.keyboard.press("Tab")
        if page.evaluate("(control) => document.activeElement.matches(control)", control):
            return
    raise AssertionError(f"{control} is not reached")


class TestByKeyboard:
    def test_jobs_are_selected_and_compared(self, page: Page, recorded):
        for _ in range(2):
            recorded({"nvfp4": 0.0}, done=10, state="running")
        page.goto("/jobs")
        _reach(page, "summary")
        page.keyboard.press("Enter")
        expect(page.get_by_label("branch")).to_be_visible()
        for _ in range(2):
            _reach(page, "input[name=job]")
            page.keyboard.press("Space")
        page.keyboard.press("Enter")
        expect(page.locator("table.matrix tbody tr")).to_have_count(2)

    def test_a_verdict_is_signed_off_and_a_note_added(self, page: Page, database, recorded):
        made = recorded({"nvfp4": 0.013})
        conclude(database, made)
        page.goto(f"/jobs/{made}")
        for folded in (".more-acts", ".accept"):
            _reach(page, f".acts {folded} > summary")
            page.keyboard.press("Enter")
        _reach(page, "input[name=reason]")
        page.keyboard.type("the run is a rehearsal")
        page.keyboard.press("Enter")
        expect(page.locator(".note-text")).to_have_text("the run is a rehearsal")
        _reach(page, ".remarks details:has(textarea) > summary")
        page.keyboard.press("Enter")
        _reach(page, "textarea")
        page.keyboard.type("seen on the second node too")
        _reach(page, "details:has(textarea) button")
        page.keyboard.press("Space")
        expect(page.locator(".note-text").last).to_have_text("seen on the second node too")

    def test_a_chart_is_zoomed_and_reset(self, page: Page, job_id):
        page.goto(f"/jobs/{job_id}")
        note = page.locator("figure[data-gaps] .note")
        expect(note).to_contain_text("of 1,500 common steps")
        _reach(page, "figure[data-gaps] .plot")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("+")
        expect(note).not_to_contain_text("of 1,500 common steps")
        page.keyboard.press("0")
        expect(note).to_contain_text("of 1,500 common steps")
