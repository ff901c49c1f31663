"""A page that stays open longer than the session of its reader says so, and what a link shows
outlives the login.
"""

import re

import pytest
from playwright.sync_api import Page, expect

from server.database.tables import Token
from server.web.access import api_tokens

LOOKS = ["light"]
PROVOKED = "status of 401"
_SECONDS = 20_000


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"require_tokens": True})


@pytest.fixture
def visit(page: Page, database):
    """A function that opens a page as somebody whom it asks to log in."""

    def go(address: str) -> None:
        with database.write() as session:
            _, text = api_tokens.create_token(session, "reader", ["view"], None)
        page.goto(address)
        page.get_by_label("Token").fill(text)
        page.get_by_role("button", name="Log in").click()

    return go


def _end(database):
    with database.write() as session:
        api_tokens.revoke_token(session, session.query(Token).one().id)


def test_a_link_shows_the_same_after_the_login(page: Page, visit, recorded):
    visit(f"/jobs/{recorded({'nvfp4': 0.0}, steps=300)}?from=100&to=109&hide=nvfp4")
    expect(page).to_have_url(re.compile(r"/jobs/j\w+-\w+\?from=100&to=109&hide=nvfp4$"))
    expect(page.locator("figure[data-column=lm_loss] .note")).to_contain_text("of 10 steps")


def test_a_list_whose_session_has_ended_says_so(page: Page, visit, database, recorded):
    recorded({"nvfp4": 0.0}, done=10, state="running")
    page.clock.install()
    visit("/jobs")
    expect(page.locator(".answers tr.live")).to_have_count(1)
    _end(database)
    page.clock.fast_forward(5000)  # the list's period
    expect(page.locator("#stale")).to_contain_text("Your session has ended", timeout=_SECONDS)
    expect(page.locator(".answers tr.live")).to_have_count(1)


def test_a_job_whose_session_has_ended_says_so(page: Page, visit, database, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=300, state="running")
    visit(f"/jobs/{job_id}")
    expect(page.locator("#connection")).to_have_text("live")
    _end(database)
    page.get_by_label("from step").fill("100")
    page.get_by_label("to", exact=True).fill("109")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#connection.lost")).to_contain_text(
        "Your session has ended", timeout=_SECONDS
    )
    expect(page.locator("[data-live=runs] .chip.running")).to_have_count(4)
