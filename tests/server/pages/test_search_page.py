"""The page of a search in a real browser: its answer, its chart, and the links between a job, its
searches and their confirmation.
"""

from playwright.sync_api import Page, expect

from parity_lab.server.record import find_search, search_document, submit_search
from parity_lab.server.searches import Wish
from parity_lab.server.web import HEIGHT, WIDTH, chart
from tests.server.played import make_base, play

LOOKS = ["light"]


def test_from_a_job_to_its_search_and_on_to_the_confirmation(page: Page, database):
    base = make_base(database)
    with database.write() as session:
        search = submit_search(session, base, Wish(pairs=4)).id
    page.goto(f"/jobs/{base}")
    page.get_by_role("link", name=search).click()
    expect(page.locator("#state ~ p").first).to_contain_text("Step 1: forks, queued")
    play(database, search)
    page.goto(f"/searches/{search}")
    expect(page.locator(".verdict")).to_contain_text("Confirmed: 110")
    expect(page.locator(".assignments .confirmed text")).to_have_text("110")
    page.get_by_role("link", name="confirmation", exact=True).click()
    expect(page.get_by_role("link", name="a search")).to_have_attribute(
        "href", f"/searches/{search}"
    )


def test_forks_and_pilots_lead_to_their_search_because_they_have_no_verdict(page: Page, database):
    with database.write() as session:
        search = submit_search(session, make_base(database), Wish(pairs=4)).id
    play(database, search)
    with database.read() as session:
        steps = [
            (step.evaluations[0]["kind"], step.job_id)
            for step in find_search(session, search).steps
        ]
    assert {kind for kind, _ in steps} == {"fork", "run", "confirmation"}
    for kind, job in steps:
        page.goto(f"/jobs/{job}")
        expect(page).to_have_url(
            f"/jobs/{job}" if kind == "confirmation" else f"/searches/{search}"
        )


def test_the_chart_holds_every_assignment_the_margin_and_round_ticks(database):
    with database.write() as session:
        search = submit_search(session, make_base(database), Wish(pairs=4)).id
    with database.read() as session:
        assert chart(search_document(find_search(session, search))) is None
    play(database, search)
    with database.read() as session:
        document = search_document(find_search(session, search))
    drawn = chart(document)
    assert drawn is not None
    assert {mark.assignment.assignment for mark in drawn.marks} == {
        each.assignment for each in document.assignments
    }
    for mark in drawn.marks:
        assert drawn.left <= mark.x <= drawn.right < WIDTH
        assert 0 <= mark.high <= mark.y <= mark.low <= drawn.bottom < HEIGHT
    assert drawn.bottom > drawn.target > drawn.margin > 0
    assert 1.0 in [round(speed, 9) for _, speed in drawn.speeds]
    assert 0.0 in [gap for _, gap in drawn.gaps]
    steps = {
        round(after[1] - before[1], 9)
        for before, after in zip(drawn.gaps, drawn.gaps[1:], strict=False)
    }
    assert len(steps) == 1
