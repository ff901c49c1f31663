"""A selected candidate: headline, measure, next step, strip, table, picture and address change
together, with a script and without.
"""

import re

import numpy as np
from playwright.sync_api import Page, expect

from parity.report.view import view_of
from parity.report.words import words
from parity.wording import minus
from server.database.metrics import store
from server.database.tables import Job
from server.jobs.conclude import conclude

LOOKS = ["light"]


def _said(api, job_id: str, name: str):
    verdicts = api.get(f"/api/v1/jobs/{job_id}").json()["verdicts"]
    return words(view_of(next(one for one in verdicts if one["candidate"]["name"] == name)))


def _shows(page: Page, said, name: str) -> None:
    """Whether every part of the screen is about this candidate."""
    expect(page.locator(".ans .chip > span")).to_have_text(f"{said.chip} \u00b7 {name}")
    expect(page.locator(".ans")).to_have_class(re.compile(rf"\bc-{said.verdict}\b"))
    expect(page.locator("h1")).to_have_text(said.lead)
    expect(page.locator(".meas")).to_have_text(minus(said.measure))
    expect(page.locator(".int")).to_have_text(minus(said.interval))
    expect(page.locator(".cand tr[aria-selected=true] .nm")).to_have_text(name)
    expect(page.locator(".screen > .pic figcaption .name")).to_have_text(name)
    expect(page.locator(".strip .own .of").last).to_have_text(f" \u00b7 {name}")
    if said.next:
        step = page.locator(".next .steps p:not(.also)")
        expect(step).to_have_text(minus(said.next).replace("`", ""))
        assert step.locator("code").all_text_contents() == re.findall("`([^`]+)`", minus(said.next))


def test_a_choice_changes_all_parts_and_the_address_leads_to_it_again(
    page: Page, api, database, recorded
):
    job_id = recorded({"nvfp4": 0.05, "mxfp8": 0.0})
    conclude(database, job_id)
    page.goto(f"/jobs/{job_id}")
    everyone = page.locator(".ans").inner_text()
    expect(page.locator(".ans .chip")).to_have_text("\u25a0 FAIL")
    page.locator(".cand tr[data-c]", has_text="mxfp8").click()
    _shows(page, _said(api, job_id, "mxfp8"), "mxfp8")
    expect(page.locator(".of-all")).to_have_text("\u25a0 FAIL in all")
    expect(page).to_have_url(re.compile(r"candidate=mxfp8"))
    page.reload()  # as the server draws it
    _shows(page, _said(api, job_id, "mxfp8"), "mxfp8")
    expect(page.locator(".of-all")).to_have_text("\u25a0 FAIL in all")
    page.locator(".of-all").click()
    expect(page).not_to_have_url(re.compile("candidate="))
    assert page.locator(".ans").inner_text() == everyone
    expect(page.locator(".cand tr[aria-selected=true] .nm")).to_have_text("nvfp4")


def test_keys_choose_and_escape_goes_back_to_all(page: Page, api, database, recorded):
    job_id = recorded({"nvfp4": 0.05, "mxfp8": 0.0})
    conclude(database, job_id)
    page.goto(f"/jobs/{job_id}")
    page.keyboard.press("k")
    _shows(page, _said(api, job_id, "mxfp8"), "mxfp8")
    page.keyboard.press("j")
    _shows(page, _said(api, job_id, "nvfp4"), "nvfp4")
    page.keyboard.press("Escape")
    expect(page.locator("h1")).to_have_text("nvfp4 fails. You may switch to mxfp8.")
    expect(page.locator(".of-all")).to_have_count(0)


def test_a_candidate_with_nan_can_be_selected(page: Page, api, database, recorded):
    job_id = recorded({"nvfp4": 0.05, "mxfp8": 0.0})
    with database.write() as session:
        for run in session.get_one(Job, job_id).arms[1].runs:
            store.append(session, run.id, "train", 1, np.array([1500]), {"lm_loss": [np.nan]})
            run.steps_done = 1501
    conclude(database, job_id)
    said = _said(api, job_id, "nvfp4")
    page.goto(f"/jobs/{job_id}?candidate=mxfp8")
    page.locator(".cand tr[data-c]", has_text="nvfp4").click()
    _shows(page, said, "nvfp4")
    expect(page).to_have_url(re.compile("candidate=nvfp4"))


def test_a_candidate_has_one_line_on_every_chart_and_the_pointer_names_it(
    page: Page, database, recorded
):
    job_id = recorded({"nvfp4": 0.05, "mxfp8": 0.0, "mxfp4": 0.09})
    conclude(database, job_id)
    page.goto(f"/jobs/{job_id}")
    expect(page.locator("figure[data-gaps] .note")).to_contain_text("Showing")
    drawn = {
        name: page.locator(f".screen > .pic .cv.d{place} .line").evaluate(
            "(line) => getComputedStyle(line).strokeDasharray.match(/[\\d.]+/g)?.join(' ') ?? null"
        )
        for place, name in enumerate(("nvfp4", "mxfp8", "mxfp4"))
    }
    assert len(set(drawn.values())) == 3
    for chart in ("Candidates in the gap chart", "Arms"):
        keys = page.get_by_role("group", name=chart)
        for name, dash in drawn.items():
            key = keys.locator(f"[data-arm={name}] .swatch path")
            assert key.get_attribute("stroke-dasharray") == dash, (chart, name)
    area = page.locator(".screen > .pic .area")
    area.scroll_into_view_if_needed()
    line = page.locator(".screen > .pic .cv.d0 .line").bounding_box()
    box = area.bounding_box()
    page.mouse.move(box["x"] + 0.6 * box["width"], line["y"] + line["height"] / 2)
    expect(page.locator(".screen > .pic figcaption .r")).to_have_text(
        re.compile("^nvfp4 \u00b7 step")
    )


def test_commands_in_a_next_step_look_like_code_whoever_is_chosen(
    page: Page, api, owner_database, recorded
):
    job_id = recorded({"nvfp4": 0.05, "mxfp8": 0.0})
    with owner_database.write() as session:  # of no recorded size, so that a pass asks for it
        job = session.get_one(Job, job_id)
        job.engine, job.spec = "external", {**job.spec, "model": None}
    conclude(owner_database, job_id)
    said = _said(api, job_id, "mxfp8")
    assert "`" in said.next
    page.goto(f"/jobs/{job_id}?candidate=mxfp8")  # as the server draws it
    _shows(page, said, "mxfp8")
    drawn = page.locator(".next .steps p:not(.also)").inner_html()
    page.locator(".cand tr[data-c]", has_text="nvfp4").click()
    page.locator(".cand tr[data-c]", has_text="mxfp8").click()  # as the script does
    _shows(page, said, "mxfp8")
    assert page.locator(".next .steps p:not(.also)").inner_html() == drawn


def test_buttons_of_several_candidates_are_said_to_be_the_jobs(page: Page, database, recorded):
    one, two = recorded({"nvfp4": 0.05}), recorded({"nvfp4": 0.05, "mxfp8": 0.0})
    for job_id in (one, two):
        conclude(database, job_id)
    page.goto(f"/jobs/{two}?candidate=nvfp4")
    expect(page.locator(".acts .whose")).to_be_visible()
    page.goto(f"/jobs/{one}")
    expect(page.locator(".acts .btn").first).to_be_visible()
    expect(page.locator(".acts .whose")).to_have_count(0)
