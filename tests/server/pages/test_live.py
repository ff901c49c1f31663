"""A page that stays open: it moves without a reload, and survives a server that restarts, a lost
connection and a laptop that slept.

What is shown while nothing comes is said to be old; a run is never shown as broken because the page
lost its connection.
"""

import time

import numpy as np
from playwright.sync_api import Page, expect

from server.database.metrics import store
from server.database.states import begin_attempt
from server.database.tables import Job, Run
from server.jobs.lifecycle import cancel_job

LOOKS = ["light"]
PROVOKED = r"status of 50\d|net::ERR_"
GAP = "figure[data-gaps] .note"
_SECONDS = 20_000


def _wait_for_timers(page: Page):
    """Let the page's timers of up to five seconds fire at once; its clock must be installed."""
    page.clock.fast_forward(5000)


def _append(database, job_id, first, last):
    """Steps of all runs, and when they came."""
    with database.write() as session:
        for run in session.query(Run).where(Run.job_id == job_id):
            steps = np.arange(first, last)
            store.append(
                session, run.id, "train", 1, steps, {"lm_loss": np.full(last - first, 1.4)}
            )
            run.steps_done, run.recorded_at = last, time.time()


def _open(page: Page, job_id: str):
    page.goto(f"/jobs/{job_id}")
    expect(page.locator("#connection")).to_have_text("live")
    expect(page.locator(GAP)).to_contain_text("of 300 common steps")
    page.evaluate("window.stays = true")


def _is_stale_and_not_broken(page: Page, words: str):
    expect(page.locator("#connection.lost")).to_contain_text(words, timeout=_SECONDS)
    expect(page.locator("[data-live=runs] .chip.running")).to_have_count(4)
    expect(page.locator("[data-live=runs]")).to_contain_text("300 of 1,500")
    expect(page.locator(GAP)).to_contain_text("of 300 common steps")


def _is_live_again(page: Page, steps: int):
    expect(page.locator("[data-live=runs]")).to_contain_text(f"{steps} of 1,500", timeout=_SECONDS)
    expect(page.locator(GAP)).to_contain_text(f"of {steps} common steps", timeout=_SECONDS)
    expect(page.locator("#connection")).to_have_text("live")
    assert page.evaluate("window.stays")


def test_a_running_job_moves_without_reload(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.01}, done=300, state="running")
    _open(page, job_id)
    _append(database, job_id, 300, 600)
    _is_live_again(page, 600)
    with database.write() as session:
        session.get_one(Job, job_id).runs[0].state = "finished"
    with database.write() as session:
        cancel_job(session, job_id)
    expect(page.locator("h1")).to_have_text("This job was cancelled.")
    assert page.evaluate("window.stays")


def test_a_page_outlives_a_restart_of_the_server(page: Page, server, database, recorded):
    job_id = recorded({"nvfp4": 0.01}, done=300, state="running")
    _open(page, job_id)
    server.stop()
    _is_stale_and_not_broken(page, "connection lost")
    _append(database, job_id, 300, 400)
    server.start()
    _is_live_again(page, 400)


def test_a_page_outlives_a_lost_connection(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.01}, done=300, state="running")
    _open(page, job_id)
    page.context.set_offline(True)
    _append(database, job_id, 300, 400)
    _is_stale_and_not_broken(page, "The server does not answer")
    page.context.set_offline(False)
    _is_live_again(page, 400)


def test_a_page_wakes_with_the_laptop(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.01}, done=300, state="running")
    page.clock.install()
    _open(page, job_id)
    # a network that answers nothing, as before it has woken itself
    page.route("**/events?*", lambda _: None)
    page.clock.fast_forward("01:00:00")
    _is_stale_and_not_broken(page, "no data since")
    page.unroute("**/events?*")
    _append(database, job_id, 300, 400)
    page.clock.fast_forward("01:00")
    _is_live_again(page, 400)


def test_a_page_outlives_a_server_in_trouble(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.01}, done=300, state="running")
    answers = {"gaps": 1, "events": 1}

    def once(kind):
        def handle(route):
            if answers[kind]:
                answers[kind] -= 1
                route.fulfill(status=500, content_type="text/plain", body="in trouble")
            else:
                route.continue_()

        return handle

    page.clock.install()
    page.route("**/gaps?*", once("gaps"))
    page.route("**/events?*", once("events"))
    with (
        page.expect_response(lambda answer: "/gaps?" in answer.url and answer.status == 500),
        page.expect_response(lambda answer: "/events?" in answer.url and answer.status == 500),
    ):
        page.goto(f"/jobs/{job_id}")
    expect(page.locator("#connection.lost")).not_to_be_empty(timeout=20_000)
    _wait_for_timers(page)
    expect(page.locator("#connection")).to_have_text("live", timeout=20_000)
    expect(page.locator("figure[data-gaps] .note")).to_contain_text(
        "of 300 common steps", timeout=20_000
    )


def test_the_focus_survives_a_refresh(page: Page, database, recorded):
    recorded({"nvfp4": 0.0}, done=10, state="running")
    page.clock.install()
    page.goto("/jobs")
    page.get_by_role("link", name="Training; no forecast yet.").focus()
    with database.write() as session:
        session.query(Run).update({"steps_done": 700})
    _wait_for_timers(page)
    expect(page.locator("[data-live=jobs]")).to_contain_text("47", timeout=15_000)
    assert page.evaluate("document.activeElement.textContent") == "Training; no forecast yet."


def test_what_was_unfolded_or_scrolled_stays_so(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.01}, done=300, state="running")
    page.set_viewport_size({"width": 390, "height": 900})
    _open(page, job_id)
    facts = page.locator("[data-live=differences] details")
    facts.locator("summary").click()
    page.evaluate("document.querySelector('[data-live=runs] .scroll').scrollLeft = 100")
    with database.write() as session:
        for run in session.query(Run).where(Run.job_id == job_id):
            run.manifest = {**run.manifest, "device_class": "other"}
    _append(database, job_id, 300, 400)
    _is_live_again(page, 400)
    expect(facts).to_contain_text("other")
    expect(facts).to_have_attribute("open", "")
    assert page.evaluate("document.querySelector('[data-live=runs] .scroll').scrollLeft") == 100


def test_a_list_that_is_old_says_so(page: Page, server, database, recorded):
    recorded({"nvfp4": 0.0}, done=10, state="running")
    page.clock.install()
    page.goto("/jobs")
    server.stop()
    _wait_for_timers(page)
    expect(page.locator("#stale")).to_contain_text("shows the state at", timeout=_SECONDS)
    expect(page.locator(".answers tr.live")).to_have_count(1)
    server.start()
    _wait_for_timers(page)
    expect(page.locator("#stale")).to_be_empty(timeout=_SECONDS)


def test_what_is_being_typed_is_left_alone(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.01}, done=300, state="running")
    _open(page, job_id)
    page.get_by_label("from step").press_sequentially("10")
    page.get_by_label("smoothing").press_sequentially("0")
    _append(database, job_id, 300, 400)
    _is_live_again(page, 400)
    expect(page.get_by_label("from step")).to_have_value("10")
    expect(page.get_by_label("smoothing")).to_have_value("150")


def test_a_cursor_stays_when_new_steps_come(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.01}, done=300, state="running")
    page.clock.install()
    _open(page, job_id)
    _wait_for_timers(page)  # forecasts are asked for no more often
    page.locator("figure[data-gaps] .u-over").hover(position={"x": 150, "y": 80})
    cursor = page.locator("figure[data-gaps] .u-cursor-x")
    before = cursor.get_attribute("style")
    expect(page.locator("figure[data-gaps] .readout")).to_contain_text("steps ")
    _append(database, job_id, 300, 400)
    _is_live_again(page, 400)
    page.wait_for_timeout(300)
    assert cursor.get_attribute("style") == before
    expect(page.locator("figure[data-gaps] .readout")).to_contain_text("steps ")
    # the plot is replaced under the mouse
    page.get_by_label("log x").evaluate("box => box.click()")
    expect(page.locator("figure[data-gaps] .note")).not_to_contain_text("Showing 146 bins")
    expect(page.locator("figure[data-gaps] .readout")).to_contain_text("steps ")


def test_a_log_that_is_being_read_stays_where_it_is(page: Page, settings, database, recorded):
    job_id = recorded({"nvfp4": 0.01}, done=300, state="running")
    with database.write() as session:
        run = session.get_one(Job, job_id).runs[0]
        begin_attempt(session, run.id, 1, None)
        file = settings.state_dir / "logs" / "runs" / f"{run.id}-1.log"
    file.parent.mkdir(parents=True)
    file.write_text("".join(f"line {i}\n" for i in range(200)))
    page.clock.install()
    _open(page, job_id)
    page.get_by_text("Logs and profiles").click()
    text = page.locator("pre.log")
    expect(text).to_contain_text("line 199")
    assert text.evaluate("text => text.scrollTop") > 100
    text.evaluate("text => { text.scrollTop = 100; text.focus(); }")
    file.write_text("".join(f"line {i}\n" for i in range(201)))
    _wait_for_timers(page)  # a log is asked for no more often
    _append(database, job_id, 300, 400)
    expect(text).to_contain_text("line 200")
    assert text.evaluate("text => [text.scrollTop, document.activeElement === text]") == [100, True]
    page.context.set_offline(True)
    page.locator(".log-view select").select_option(label="nvfp4, replicate 1")
    expect(page.locator(".logs")).to_contain_text("The server does not answer")


def test_a_page_that_nobody_sees_leaves_its_connection_to_others(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.01}, done=300, state="running")
    _open(page, job_id)
    turn = """hidden => {
      Object.defineProperty(document, "hidden", { configurable: true, value: hidden });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    with page.expect_event("requestfailed", lambda request: "/events?" in request.url):
        page.evaluate(turn, True)
    _append(database, job_id, 300, 400)
    page.wait_for_timeout(1500)
    expect(page.locator("[data-live=runs]")).to_contain_text("300 of 1,500")
    page.evaluate(turn, False)
    _is_live_again(page, 400)


def test_the_last_lines_of_a_log_come_after_the_end(page: Page, settings, database, recorded):
    job_id = recorded({"nvfp4": 0.01}, done=300, state="running")
    with database.write() as session:
        run = session.get_one(Job, job_id).runs[0]
        begin_attempt(session, run.id, 1, None)
        file = settings.state_dir / "logs" / "runs" / f"{run.id}-1.log"
    file.parent.mkdir(parents=True)
    file.write_text("begin\n")
    page.clock.install()
    _open(page, job_id)
    page.get_by_text("Logs and profiles").click()
    expect(page.locator("pre.log")).to_have_text("begin")
    file.write_text("begin\nTraceback\n")
    with database.write() as session:
        cancel_job(session, job_id)
    expect(page.locator("h1")).to_have_text("This job was cancelled.")
    _wait_for_timers(page)
    expect(page.locator("pre.log")).to_contain_text("Traceback", timeout=10_000)
