"""What the first screen lets a visitor do, in a real browser: without a script, and only what the
visitor may.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from server.database.tables import Job
from server.jobs.conclude import conclude

LOOKS = ["light"]
# the browser reports what a form is refused
PROVOKED = "status of 4"


@pytest.fixture
def unscripted(browser: Browser, served: str):
    """A page without scripts."""
    context = browser.new_context(base_url=served, java_script_enabled=False)
    yield context.new_page()
    context.close()


@pytest.fixture
def failed(database, owner_database, recorded) -> str:
    """A concluded job whose candidate failed, of a model with several blocks."""
    job_id = recorded({"nvfp4": 0.3})
    conclude(database, job_id)
    with owner_database.write() as session:
        job = session.get_one(Job, job_id)
        job.spec = {**job.spec, "model": {**job.spec["model"], "n_layers": 4}}
    return job_id


def test_the_button_of_a_fail_makes_the_job_that_the_sentence_names(
    unscripted: Page, failed, database
):
    page = unscripted
    page.goto(f"/jobs/{failed}")
    expect(page.locator(".next p").first).to_contain_text("Keep the last blocks in bf16")
    page.locator(".acts button.btn:not(.q)").click()
    expect(page.locator(".ctx")).to_contain_text("nvfp4-last1-bf16 against fp8_current")
    with database.read() as session:
        made = session.query(Job).filter(Job.id != failed).one()
        assert [(arm.name, len(arm.overrides)) for arm in made.arms] == [
            ("fp8_current", 0),
            ("nvfp4-last1-bf16", 1),
        ]
        assert failed in made.notes[0].text


def test_a_job_that_did_not_finish_is_queued_again_by_its_button(
    unscripted: Page, database, recorded
):
    page, job_id = unscripted, recorded({"nvfp4": 0.0}, done=0, state="failed")
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.status, job.code, job.message = "failed", "CRASHED", "the trainer crashed"
    page.goto(f"/jobs/{job_id}")
    expect(page.locator("[data-do=copy-link]")).to_be_hidden()  # it needs a script
    page.get_by_role("button", name="Queue it again").click()
    expect(page.locator(".ans h1")).to_have_text("Nothing has trained yet.")
    with database.read() as session:
        made = session.query(Job).filter(Job.id != job_id).one()
        assert made.spec == session.get_one(Job, job_id).spec


def test_an_undecided_verdict_is_accepted_on_the_first_screen(unscripted: Page, database, recorded):
    page, job_id = unscripted, recorded({"nvfp4": 0.013})
    conclude(database, job_id)
    page.goto(f"/jobs/{job_id}")
    page.get_by_text("More", exact=True).click()
    page.locator(".acts .accept > summary").click()
    page.locator(".acts input[name=reason]").fill("the reruns are queued")
    page.locator(".acts input[name=days]").fill("7")
    page.get_by_role("button", name="Accept", exact=True).click()
    expect(page.locator(".ans .acc")).to_contain_text("the reruns are queued")
    expect(page.locator(".acts .accept")).to_have_count(0)


def test_a_run_is_added_while_the_job_waits_and_enter_does_not_do_it(
    page: Page, database, recorded
):
    job_id = recorded({"nvfp4": 0.0}, done=0, state="queued", replicates=1)
    page.goto(f"/jobs/{job_id}")
    expect(page.locator(".acts small")).to_contain_text("as one that was submitted")
    page.keyboard.press("Enter")
    with database.read() as session:
        assert len(session.get_one(Job, job_id).runs) == 2
    page.locator(".acts form button").click()
    expect(page.locator(".acts form button")).to_be_visible()
    expect(page.locator("#history > summary")).to_contain_text("1 note")
    with database.read() as session:
        runs = session.get_one(Job, job_id).runs
        assert len(runs) == 4, [(run.arm.name, run.replicate) for run in runs]


def test_what_is_refused_is_said_beside_the_field_and_what_was_typed_stays(
    page: Page, database, recorded
):
    job_id = recorded({"nvfp4": 0.013})
    conclude(database, job_id)
    page.goto(f"/jobs/{job_id}")
    page.get_by_text("More", exact=True).click()
    page.locator(".acts .accept > summary").click()
    form = page.locator(".acts .accept form")
    form.evaluate("(form) => { form.noValidate = true; }")
    form.locator("[name=reason]").fill("the reruns are queued")
    form.locator("[name=days]").fill("400")
    form.get_by_role("button", name="Accept").click()
    expect(form.get_by_role("alert")).to_contain_text("400")
    expect(form.locator("[name=reason]")).to_have_value("the reruns are queued")
    expect(form.locator("[name=days]")).to_be_focused()
    form.locator("[name=days]").fill("7")
    form.get_by_role("button", name="Accept").click()
    expect(page.locator(".ans .acc")).to_contain_text("the reruns are queued")


def test_only_the_advised_step_is_filled(page: Page, failed, database, recorded):
    page.goto(f"/jobs/{failed}")
    filled = page.locator(".acts .btn:not(.q):visible")
    expect(filled).to_have_text("Try nvfp4, last 1 block in bf16")
    undecided = recorded({"nvfp4": 0.013})
    conclude(database, undecided)
    page.goto(f"/jobs/{undecided}")
    expect(filled).to_have_count(0)
    expect(page.locator(".acts .accept")).not_to_be_visible()


def test_the_link_that_is_copied_has_what_is_chosen(page: Page, failed):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"/jobs/{failed}?from=300&to=900")
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Link copied")).to_be_visible()
    assert "from=300&to=900" in page.evaluate("navigator.clipboard.readText()")
