"""The first screen of a job's page in each of its states, on a real server: what it says, and that
it is the same without a script.
"""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from parity.report.view import view_of
from parity.report.words import words
from parity.wording import minus
from server.database.metrics import store
from server.database.states import JOB_ENDED
from server.database.tables import Job, Run
from server.jobs import forecasts, sign_offs
from server.jobs.conclude import conclude
from server.jobs.lifecycle import cancel_job

LOOKS = ["light"]


def _seen(page: Page, name: str) -> None:
    """Keep a picture of the page for a person, where PARITY_SHOTS names a folder."""
    if folder := os.environ.get("PARITY_SHOTS"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


def test_a_verdict_is_told_in_its_own_words_with_its_picture_and_its_details_closed(
    page: Page, api, database, recorded
):
    job_id = recorded({"nvfp4": 0.05})
    conclude(database, job_id)
    verdict_words = words(view_of(api.get(f"/api/v1/jobs/{job_id}").json()["verdicts"][0]))
    page.goto(f"/jobs/{job_id}")
    expect(page.locator("h1")).to_have_text(verdict_words.lead)
    expect(page.locator(".meas")).to_have_text(minus(verdict_words.measure))
    expect(page.locator(".int")).to_have_text(minus(verdict_words.interval))
    expect(page.locator(".next p")).to_contain_text(minus(verdict_words.next))
    expect(page.locator(".strip dt")).to_have_text(
        ["Cost", "Speed", "Evidence", "Run-to-run noise", "What changes it"]
    )
    expect(page.locator(".strip dd").first).to_contain_text("device")
    assert page.locator(".screen > .pic .cv.on .line").count() == 1
    _seen(page, "fail")


def test_a_detail_opens_by_its_letter_and_by_its_address(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.05})
    conclude(database, job_id)
    page.goto(f"/jobs/{job_id}")
    page.evaluate(
        "document.querySelectorAll('.more > details').forEach((one) => { one.open = false; })"
    )
    page.keyboard.press("n")
    expect(page.locator("#runs")).to_have_attribute("open", "")
    expect(page.locator("#reasons")).not_to_have_attribute("open", "")
    page.evaluate("location.hash = '#remarks-heading'")
    expect(page.locator("#history")).to_have_attribute("open", "")


def test_a_job_in_training_has_the_axes_of_the_plan_a_forecast_and_its_chances(
    page: Page, database, recorded
):
    job_id = recorded({"nvfp4": 0.0145}, done=600, state="running")
    page.goto(f"/jobs/{job_id}")
    expect(page.locator("h1")).to_have_text("Too early for a forecast.")
    expect(page.locator(".screen > .pic .xax")).to_contain_text("1,499")
    _seen(page, "begun")
    assert forecasts.watch(database, job_id) is not None
    page.reload()
    expect(page.locator("h1")).to_have_text(
        re.compile(r"^nvfp4 (is on course to|will probably stay|is still)")
    )
    expect(page.locator(".meas")).to_have_text(
        re.compile(r"^Its final gap is forecast at 0\.\d{4,} nats above fp8_current\.$")
    )
    expect(page.locator(".int")).to_contain_text(" (1 % of today's loss). At step 599 the gap is")
    expect(page.locator(".screen > .pic .plot")).to_contain_text("(1 % of today's loss)")
    expect(page.locator(".chances")).to_have_count(1)
    expect(page.locator(".screen > .pic .xax")).to_contain_text("1,499")
    expect(page.locator(".chip").first).to_contain_text("NO VERDICT YET · 40 % OF THE STEPS")
    _seen(page, "live")


def test_a_choice_and_the_box_of_the_picture_stay_while_a_job_trains(
    page: Page, database, recorded
):
    job_id = recorded({"nvfp4": 0.0145, "mxfp8": 0.0}, done=600, state="running")
    forecasts.watch(database, job_id)
    page.goto(f"/jobs/{job_id}")
    expect(page.locator("#connection")).to_have_text("live")
    before = page.locator(".screen > .pic .plot").bounding_box()
    name = page.locator(".screen > .pic figcaption .name")
    first = name.text_content()
    page.keyboard.press("j")
    expect(name).not_to_have_text(first or "")
    second = name.text_content() or ""
    page.evaluate("document.dispatchEvent(new Event('parity:drawn'))")
    with database.write() as session:
        session.query(Run).where(Run.job_id == job_id).update({"last_loss": "1.5"})
    expect(name).to_have_text(second)
    assert page.locator(".screen > .pic .plot").bounding_box() == before


@pytest.mark.parametrize(
    ("end", "lead"),
    [("cancelled", "This job was cancelled."), ("failed", "This job did not finish.")],
)
def test_a_job_that_ended_without_a_verdict_never_says_fail(
    end: str, lead: str, page: Page, database, recorded
):
    job_id = recorded({"nvfp4": 0.0}, done=300, state="running")
    with database.write() as session:
        if end == "cancelled":
            cancel_job(session, job_id)
        for run in session.query(Run).where(Run.job_id == job_id):
            run.state, run.code, run.message = (
                end,
                "WORKER_CRASHED",
                "the training process ended with status -9\nTraceback:\nValueError: no shape\n",
            )
    if end == "failed":
        conclude(database, job_id)
    with database.read() as session:
        assert session.get_one(Job, job_id).status in JOB_ENDED
    page.goto(f"/jobs/{job_id}")
    expect(page.locator("h1")).to_have_text(lead)
    assert "FAIL" not in (page.locator(".chip").first.text_content() or "")
    if end == "failed":
        expect(page.locator(".meas")).not_to_contain_text("Traceback")
        expect(page.locator(".int")).to_have_text("Its output ends: ValueError: no shape")
    _seen(page, end)


def test_a_live_job_says_when_it_ends(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=300, state="running")
    with database.write() as session:
        for run in session.query(Run).where(Run.job_id == job_id):
            run.steps_per_second = 2.0
    page.goto(f"/jobs/{job_id}")
    expect(page.locator(".strip dd").first).to_contain_text(
        re.compile(r"min \d\d\ss left, ends about (\d+\s\w{3}, )?\d\d:\d\d\sUTC")
    )


def test_an_accepted_verdict_names_who_and_until_when_and_stays_inconclusive(
    page: Page, database, recorded
):
    job_id = recorded({"nvfp4": 0.0145})
    conclude(database, job_id)
    with database.write() as session:
        sign_offs.sign_off(
            session, job_id, "nvfp4", "local", "the release is today, reruns follow", 14.0
        )
    page.goto(f"/jobs/{job_id}")
    expect(page.locator(".chip").first).to_have_text("◇ INCONCLUSIVE")
    expect(page.locator("h1")).to_have_text(
        re.compile(r"^nvfp4 is open, but accepted: you may use it until \d{4}-\d\d-\d\d\.$")
    )
    expect(page.locator(".ans .acc")).to_have_text(
        re.compile(
            r"^Accepted, not a pass: \S.* signed off the inconclusive verdict on nvfp4 until "
        )
    )
    _seen(page, "accepted")


def test_while_the_baseline_trains_alone_its_loss_is_drawn_and_the_start_of_the_candidate_told(
    page: Page, database, recorded, register
):
    job_id = recorded({"nvfp4": 0.0}, done=600, state="running", replicates=1)
    register()
    with database.write() as session:
        base, candidate = session.get_one(Job, job_id).runs
        base.steps_per_second = 2.5
        candidate.state, candidate.steps_done, candidate.attempt_number = "queued", 0, 0
    page.goto(f"/jobs/{job_id}")
    expect(page.locator("h1")).to_have_text("The baseline trains first.")
    expect(page.locator(".meas")).to_have_text(
        re.compile(
            r"^fp8_current is at step 600 of 1,500, loss \d\.\d{4}\. nvfp4 starts in about 6 min\.$"
        )
    )
    expect(page.locator(".screen > .pic .what")).to_have_text("Loss of fp8_current, nats per token")
    expect(page.locator(".screen > .pic .cv .line")).to_have_count(1)
    expect(page.locator(".screen > .pic .jl")).to_have_text("fp8_current")


def test_a_forecast_says_what_it_has_not_seen(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=600, state="running")
    forecasts.watch(database, job_id)
    page.goto(f"/jobs/{job_id}")
    expect(page.locator(".int")).to_contain_text("Run-to-run noise is not measured here")
    expect(page.locator(".int")).not_to_contain_text("The gap has")


def test_on_a_phone_the_next_step_stands_below_the_answer(page: Page, database, recorded):
    judged = recorded({"nvfp4": 0.05})
    conclude(database, judged)
    failed = recorded({"nvfp4": 0.0}, done=300, state="failed")
    with database.write() as session:
        job = session.get_one(Job, failed)
        job.status, job.code = "failed", "WORKER_CRASHED"
    live = recorded({"nvfp4": 0.02}, done=300, state="running")
    forecasts.watch(database, live)
    page.set_viewport_size({"width": 390, "height": 844})
    for job_id in (judged, failed, live):
        page.goto(f"/jobs/{job_id}")
        expect(page.locator(".next .steps")).to_be_visible()
        page.evaluate("scrollTo(0, 0)")
        step, picture, strip = (
            page.locator(part).bounding_box() or {}
            for part in (".next .steps", ".screen > .pic", ".strip")
        )
        assert step["y"] + step["height"] < picture["y"] < strip["y"], job_id
        assert picture["y"] + picture["height"] < 844, job_id


def test_losses_with_nan_are_drawn_with_the_steps_at_which_they_are(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=1380)
    with database.write() as session:
        for run in session.get_one(Job, job_id).runs:
            at = np.arange(1380, 1500)
            is_broken = run.arm.position == 1 and run.replicate == 1
            loss = np.where(is_broken & (at >= 1460), np.nan, 1.4 + 0.01 * np.sin(at))
            store.append(session, run.id, "train", 1, at, {"lm_loss": loss})
            run.steps_done, run.last_loss = 1500, repr(float(loss[-1]))
    conclude(database, job_id)
    page.goto(f"/jobs/{job_id}")
    expect(page.locator("h1")).to_have_text("Do not switch to nvfp4.")
    expect(page.locator(".meas")).to_have_text(
        "nvfp4 has 40 NaN, infinite or blank losses, the first at step 1,460; 1 of its 2 runs ends "
        "with one."
    )
    picture = page.locator(".screen > .pic")
    expect(picture.locator(".what")).to_have_text("Losses of fp8_current and nvfp4, nats per token")
    expect(picture.locator(".broken text")).to_have_text("NaN from step 1,460 to 1,499")
    assert picture.locator("rect.nan").count() == 1


@pytest.mark.parametrize(
    ("early_stop", "value"), [("advise", "Off"), ("stop", "On"), (None, "Off")]
)
def test_the_strip_of_a_live_job_says_what_a_forecast_of_a_fail_does(
    early_stop: str | None, value: str, page: Page, database, recorded
):
    job_id = recorded({"nvfp4": 0.02}, done=300, state="running")
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.policy = {**job.policy, **({"early_stop": early_stop} if early_stop else {})}
    page.goto(f"/jobs/{job_id}")
    expect(page.locator(".strip dd").last).to_contain_text(value)
    does = "are ended" if value == "On" else "ends no run"
    expect(page.locator(".strip dd").last).to_contain_text(does)


def test_only_a_job_in_training_has_steps_to_be_judged(page: Page, database, recorded):
    trains, *ended = (
        recorded({"nvfp4": 0.05}, done=300, state="running"),
        recorded({"nvfp4": 0.05}),
        recorded({"nvfp4": 0.05}, done=300, state="failed"),
        recorded({"nvfp4": 0.05}, done=300, state="cancelled"),
    )
    conclude(database, ended[0])
    with database.write() as session:
        for job_id, status in zip(ended[1:], ("failed", "cancelled"), strict=True):
            session.get_one(Job, job_id).status = status
    page.goto(f"/jobs/{trains}")
    expect(page.locator(".screen > .pic .plot")).to_contain_text("to be judged")
    for job_id in ended:
        page.goto(f"/jobs/{job_id}")
        expect(page.locator(".screen > .pic .plot")).to_be_visible()
        expect(page.locator("body")).not_to_contain_text("to be judged")
    page.goto(f"/jobs/{ended[0]}")
    expect(page.locator(".screen > .pic .plot")).to_contain_text("judged 1,200 to 1,499")


def test_a_job_that_ended_without_a_step_announces_none(page: Page, owner_database, recorded):
    failed, queued = (
        recorded({"nvfp4": 0.0}, done=0, state=state) for state in ("failed", "queued")
    )
    with owner_database.write() as session:
        job = session.get_one(Job, failed)
        job.status, job.code = "failed", "WORKER_CRASHED"
    page.goto(f"/jobs/{queued}")
    expect(page.locator(".screen > .pic")).to_contain_text("no step yet")
    expect(page.locator(".screen > .pic .note")).to_have_count(1)
    page.goto(f"/jobs/{failed}")
    expect(page.locator(".screen > .pic")).to_contain_text("no step was recorded")
    expect(page.locator(".screen")).not_to_contain_text("yet")
    expect(page.locator(".screen > .pic .note")).to_have_count(0)
    expect(page.locator(".next")).to_contain_text("out of memory on the host")
    expect(page.locator(".next code")).to_have_text(f"parity again {failed}")
    expect(page.locator(".acts .btn")).to_have_text(["Queue it again", "Copy link"])
