"""Every page in every look: axe-core finds nothing serious, the keyboard reaches every control, nothing is cut off.

The dark look differs from the light one in colours alone (`prefers-color-scheme` sets nothing else), so only its colours are tried.
"""

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from server.database import store
from server.database.tables import Job
from server.jobs import baselines
from server.jobs.conclude import decide, write_outcome
from server.settings import CHECKOUT
from server.web import auth

AXE = CHECKOUT / "node_modules" / "axe-core" / "axe.min.js"
GRAVE = ("serious", "critical")
# The rows of a table of numbers are alike: the first few stand for hundreds, which would take most of the time.
_RUN_AXE = "(options) => axe.run({exclude: [['.numbers tr:nth-child(n+4)']]}, options).then((results) => results.violations)"
_ALL_RULES = {"resultTypes": ["violations"]}
_RULES_OF_COLOURS = _ALL_RULES | {"runOnly": ["cat.color"]}
_CONTROLS = "a[href], button:not(:disabled), input:not([type=hidden]), select:not(:disabled), summary, [tabindex='0']"


@pytest.fixture
def job_id(database, recorded):
    """A job with a fail, a pass, watched layers and a token beside it."""
    made = recorded({"nvfp4": 0.05, "mxfp8": 0.0})
    at = np.arange(0, 1500, 50)
    with database.write() as session:
        auth.create_token(session, "ada", ["submit"], 90)
        baselines.promote(session, "fp8", made, None, "a release", "local", 90)
        run = session.get_one(Job, made).arms[1].runs[0]
        store.append(session, run.id, "layers", 1, at, {f"{block}.up/x/underflow_share": at / 1500 + block for block in range(4)})
    with database.read() as session:
        outcome = decide(session, made)
    with database.write() as session:
        write_outcome(session, made, outcome)
    return made


def _settled(page: Page):
    """Bring every chart into view and wait until it has said what it shows."""
    for note in page.locator("figure:not([data-forecast]) .note").filter(visible=True).all():
        note.scroll_into_view_if_needed()
        expect(note).to_contain_text("Showing")
    page.evaluate("scrollTo(0, 0)")


def _walk(page: Page) -> list[str]:
    """Controls that a walk with the tabulator does not reach."""
    visible = f"[...document.querySelectorAll(`{_CONTROLS}`)].filter((e) => e.checkVisibility())"
    count = page.evaluate(f"(window.controls = new Set({visible})).size")
    page.evaluate("addEventListener('focusin', (event) => window.controls.delete(event.target))")
    page.evaluate("document.activeElement.blur()")
    for _ in range(count + 5):
        page.keyboard.press("Tab")
    return page.evaluate("[...window.controls].map((e) => e.outerHTML.slice(0, 120))")


def test_every_page(page: Page, look, job_id):
    faults: list[tuple[object, ...]] = []
    for path in (
        "/jobs",
        f"/compare?job={job_id}",
        "/trend?gate=small",
        f"/jobs/{job_id}",
        f"/jobs/{job_id}?candidate=nvfp4&column=train.tokens&order=gap",
        f"/jobs/{job_id}?from=300&to=900&x=time",
        f"/jobs/{job_id}/compare",
        "/baselines",
        f"/baselines/fp8/1?other={job_id}",
        "/floors",
        "/floors?family=any-decoder",
        "/workers",
        "/policies",
        "/tokens",
        "/login",
    ):
        page.goto(path)
        _settled(page)
        for summary in page.locator("summary").filter(visible=True).all():
            summary.click()
        page.evaluate(AXE.read_text() + "; undefined")
        violations = page.evaluate(_RUN_AXE, _RULES_OF_COLOURS if look == "dark" else _ALL_RULES)
        grave = [one for one in violations if one["impact"] in GRAVE]
        faults += [(path, one["id"], [node["html"][:160] for node in one["nodes"][:3]]) for one in grave]
        if look == "dark":
            continue
        faults += [(path, "not reached by the keyboard", control) for control in _walk(page)]
        if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            faults.append((path, "scrolls sideways", []))
    assert faults == []
