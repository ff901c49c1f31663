"""The pages as a person sees them, in a real browser, wide and narrow; test_accessible looks at
each in the dark too.
"""

import re

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from server.database.metrics import store
from server.database.states import begin_attempt, end_attempt
from server.database.tables import Job, Run
from server.jobs import forecasts
from server.jobs.conclude import decide, write_outcome

LOOKS = ["light"]


def _conclude(database, job_id):
    with database.read() as session:
        outcome = decide(session, job_id)
    with database.write() as session:
        write_outcome(session, job_id, outcome)


def _fits(page: Page):
    """Nothing makes the page itself scroll sideways, on a wide screen or on a phone's."""
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        for _ in range(100):  # charts follow the width a little later
            if page.evaluate("document.documentElement.scrollWidth") <= width:
                break
            page.wait_for_timeout(50)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def _ink(page: Page, selector: str) -> int:
    """How many different colours a canvas shows: a blank one has one."""
    return page.evaluate(
        """(selector) => { const c = document.querySelector(selector);
        const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data; const seen = new Set();
        for (let i = 0; i < d.length; i += 4) seen.add(`${d[i]},${d[i+1]},${d[i+2]},${d[i+3]}`); return seen.size; }""",  # noqa: E501
        selector,
    )


def test_an_empty_list_says_what_to_do(page: Page):
    page.goto("/")
    expect(page.get_by_text("No jobs yet.")).to_be_visible()
    _fits(page)


def test_the_list_shows_verdicts_in_words(page: Page, database, recorded):
    _conclude(database, recorded({"nvfp4": 0.05, "mxfp8": 0.0}))
    page.goto("/jobs")
    expect(page.get_by_role("link", name="nvfp4 fails. You may switch to mxfp8.")).to_be_visible()
    expect(page.locator(".tally").get_by_role("img", name="fail")).to_be_visible()
    expect(page.get_by_text("small · 2 candidates against fp8_current")).to_be_visible()
    _fits(page)


def test_a_concluded_job(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.05, "mxfp8": 0.0})
    _conclude(database, job_id)
    page.goto(f"/jobs/{job_id}")
    expect(page.locator("h1")).to_have_text("nvfp4 fails. You may switch to mxfp8.")
    table = page.get_by_role("grid", name="Candidates, safest first")
    expect(table.get_by_role("row", name="nvfp4")).to_contain_text("fail")
    expect(table.get_by_role("row", name="mxfp8")).to_contain_text("pass")
    expect(page.locator("#reasons summary").first).to_contain_text(
        "mxfp8 WITHIN_MARGIN · nvfp4 GAP_EXCEEDS_MARGIN"
    )
    table.get_by_role("row", name="nvfp4").click()
    expect(page.locator(".screen > .pic figcaption .name")).to_have_text("nvfp4")
    expect(page.locator("h1")).to_have_text("Do not switch to nvfp4.")
    expect(page.locator("figure[data-gaps] .note").first).to_contain_text("of 1,500 common steps")
    assert _ink(page, "figure canvas") > 5
    page.locator("figure[data-gaps] summary").click()
    expect(
        page.locator("figure[data-gaps] table.numbers").first.locator("tbody tr").first
    ).to_contain_text("0 to")
    _fits(page)


def test_a_nan_is_said_and_drawn(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=300, state="running")
    with database.write() as session:
        run = session.query(Run).where(Run.job_id == job_id).order_by(Run.position.desc()).first()
        store.append(
            session,
            run.id,
            "train",
            1,
            np.arange(300, 302),
            {"lm_loss": np.array([np.nan, np.inf])},
        )
        run.last_loss = "inf"
    page.goto(f"/jobs/{job_id}")
    expect(page.locator("figure[data-gaps] .note")).to_contain_text(
        "2 steps are NaN or infinite, first 300"
    )
    expect(page.locator("[data-live=runs]")).to_contain_text("∞")


def test_a_job_before_its_first_step(page: Page, recorded):
    page.goto(f"/jobs/{recorded({'nvfp4': 0.0}, done=0, state='queued')}")
    expect(page.locator(".meas")).to_contain_text("none is registered")
    expect(page.get_by_text("Charts follow with the first recorded step.")).to_be_visible()
    expect(page.locator("figure.chart").filter(visible=True)).to_have_count(0)
    expect(page.locator("h1")).to_have_text("Nothing has trained yet.")
    expect(page.locator("select").filter(visible=True)).to_have_count(0)
    _fits(page)


def test_a_failed_job_says_why(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=0, state="running")
    with database.write() as session:
        for run in session.query(Run).where(Run.job_id == job_id):
            run.state, run.code, run.message = (
                "failed",
                "DATA_NOT_FOUND",
                "there is no /corpus on this worker",
            )
    _conclude(database, job_id)
    page.goto(f"/jobs/{job_id}")
    expect(page.locator("h1")).to_have_text("This job did not finish.")
    expect(page.locator(".meas")).to_contain_text("there is no /corpus on this worker")
    _fits(page)


def test_a_run_that_ended_early_says_why_and_keeps_the_end_of_its_log_behind_a_fold(
    page: Page, database, recorded
):
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        run = session.query(Run).where(Run.job_id == job_id).first()
        run.code, run.message = (
            "MAXTEXT_ENDED_EARLY",
            "MaxText ended: its data ended; the last lines:\ncompleted step: 71",
        )
    page.goto(f"/jobs/{job_id}")
    message = page.locator(".message").filter(has_text="its data ended").first
    expect(message).to_be_visible()
    expect(message.get_by_text("completed step: 71")).to_be_hidden()
    message.get_by_text("Show it").click()
    expect(message.get_by_text("completed step: 71")).to_be_visible()
    _fits(page)


def test_a_run_shows_what_was_noted_of_its_only_attempt(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        run = session.query(Run).where(Run.job_id == job_id).first()
        begin_attempt(session, run.id, 1, None)
        end_attempt(session, run.id, 1, "finished", None, "MaxText cuts 50 of 200 documents")
    page.goto(f"/jobs/{job_id}")
    expect(page.locator(".message")).to_have_text("MaxText cuts 50 of 200 documents")
    with database.write() as session:
        session.get_one(Run, run.id).message = "MaxText cuts 50 of 200 documents"
    page.goto(f"/jobs/{job_id}")
    expect(page.locator(".message")).to_have_count(1)
    _fits(page)


def test_no_worker(page: Page):
    page.goto("/workers")
    expect(page.get_by_text("No worker has registered.")).to_be_visible()
    _fits(page)


def test_a_pair_that_will_fail_and_a_run_that_was_tried_again_are_told(
    page: Page, database, recorded
):
    job_id = recorded({"nvfp4": 0.3}, done=700, state="running")
    assert forecasts.watch(database, job_id) == ["nvfp4"]
    with database.write() as session:
        run = session.get_one(Job, job_id).runs[0]
        begin_attempt(session, run.id, 1, None)
        end_attempt(
            session,
            run.id,
            1,
            "crashed",
            "WORKER_CRASHED",
            "the training process ended with status -9",
        )
        begin_attempt(session, run.id, 2, None)
        run.attempt_number = 2
    page.goto(f"/jobs/{job_id}")
    expect(page.locator(".will-fail")).to_contain_text(
        "Will fail: the final gap is surely above the margin"
    )
    expect(page.locator(".will-fail")).to_contain_text("the runs continue")
    expect(page.locator(".attempts li")).to_have_count(2)
    expect(page.locator(".attempts li").first).to_contain_text("crashed")
    _fits(page)


def test_the_log_of_a_run_is_there_when_it_is_opened(page: Page, settings, database, recorded):
    job_id = recorded({"nvfp4": 0.0}, steps=30)
    with database.write() as session:
        run = session.get_one(Job, job_id).runs[0]
        begin_attempt(session, run.id, 1, None)
        store.append(
            session,
            run.id,
            "profile",
            1,
            np.arange(29, 30),
            {"compile_seconds": np.array([3.25]), "idle_share": np.array([np.nan])},
        )
        path = settings.state_dir / "logs" / "runs" / f"{run.id}-1.log"
        trace = settings.state_dir / "artifacts" / f"{run.id}-1" / "plugins" / "trace.json"
    for file in (path, trace):
        file.parent.mkdir(parents=True)
        file.touch()
    path.write_text("compiled in 3 s\n<b>done</b>\n")
    page.goto(f"/jobs/{job_id}")
    page.get_by_text("Logs and profiles").click()
    expect(page.locator("pre.log")).to_have_text("compiled in 3 s\n<b>done</b>\n".rstrip())
    expect(page.locator(".logs")).to_contain_text("Profile: compiled 3.3 s. As CSV")
    expect(page.locator(".logs")).to_contain_text("plugins/trace.json")
    page.locator(".log-view select").select_option(label="nvfp4, replicate 1")
    expect(page.locator(".logs")).to_contain_text("This run has not started.")


def test_the_heat_map_opens_with_candidate_minus_baseline(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.05})
    with database.write() as session:
        baseline, candidate = session.get_one(Job, job_id).arms
        for arm, more in ((baseline, 0.0), (candidate, 1.0)):
            at = np.arange(0, 1500, 50)
            watched = {
                f"{block}.up/x/snr_db": 20.0 - more * (block - 1) + 0 * at for block in range(4)
            }
            watched["3.up/x/snr_db"] = np.where(
                (at < 700) & (more > 0), np.nan, watched["3.up/x/snr_db"]
            )
            store.append(session, arm.runs[0].id, "layers", 1, at, watched)
    page.goto(f"/jobs/{job_id}")
    figure = page.locator("figure[data-heat]")
    figure.scroll_into_view_if_needed()
    note = figure.locator(".note")
    expect(note).to_contain_text("Vermilion: nvfp4 has more than fp8_current; blue: less.")
    expect(note).to_contain_text("Hatched: one of them has no finite value")
    expect(figure.locator("canvas.heat")).to_have_attribute(
        "aria-label", re.compile("nvfp4 minus fp8_current: .* from −2 to \\+1 dB")
    )
    # 0.up is above the baseline, 1.up level with it, 2.up below it, and half of 3.up has no number.
    above, level, below = (_cell(page, row) for row in range(3))
    assert above[0] > above[2] + 40
    assert below[2] > below[0] + 40
    assert max(level) - min(level) < 12
    assert len(_colours(page, 3)) > 1 + len(_colours(page, 0))
    figure.locator("summary").click()
    expect(figure.locator("tbody tr").nth(0)).to_contain_text("+1")
    page.get_by_label("shown").select_option("values")
    expect(note).not_to_contain_text("Vermilion")
    expect(figure.locator("tbody tr").nth(0)).to_contain_text("21")
    assert "heat-of=values" in page.url
    page.locator("figure[data-heat] select[name=run]").select_option(
        label="fp8_current, replicate 0"
    )
    expect(figure.locator(".shown")).to_have_text("fp8_current, by layer and step")


def _colours(page: Page, row: int) -> list[list[int]]:
    """The colours of a row of the heat map, the most frequent first."""
    colours: list[list[int]] = page.evaluate(
        """row => {
      const canvas = document.querySelector("canvas.heat");
      const rowHeight = 18 * devicePixelRatio;
      const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
      copy.drawImage(canvas, 0, 0);
      const { data } = copy.getImageData(canvas.width * 0.25, row * rowHeight, canvas.width * 0.7, rowHeight - 1);
      const seen = new Map();
      for (let i = 0; i < data.length; i += 4) {
        const colour = data.slice(i, i + 3).join();
        seen.set(colour, (seen.get(colour) ?? 0) + 1);
      }
      return [...seen].sort((a, b) => b[1] - a[1]).map(([colour]) => colour.split(",").map(Number));
    }""",  # noqa: E501
        row,
    )
    return colours


def _cell(page: Page, row: int) -> list[int]:
    return _colours(page, row)[0]


def test_checks_speed_layers_and_what_differs(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.05})
    with database.write() as session:
        candidate = session.get_one(Job, job_id).arms[1]
        at = np.arange(0, 1500, 50)
        watched = {
            f"{block}.up/{operand}/underflow_share": at / 3000 + block / 10
            for block in range(3)
            for operand in ("grad", "x")
        }
        store.append(session, candidate.runs[0].id, "layers", 1, at, watched)
        for run in candidate.runs:
            run.manifest = {**run.manifest, "device_class": "other"}
    _conclude(database, job_id)
    page.goto(f"/jobs/{job_id}")
    checks = page.get_by_role("region", name="Checks of nvfp4")
    expect(checks.get_by_role("row", name="grad norm")).to_contain_text("advisory")
    expect(checks.get_by_role("row", name="loss decides")).to_contain_text(
        "against a margin of 0.0140"
    )
    expect(page.locator("[data-live=details]")).to_contain_text(
        "the runs trained on different device classes"
    )
    expect(page.locator("[data-live=differences]")).to_contain_text("Confounded.")
    expect(
        page.get_by_role("region", name="Differences").get_by_role("row", name="device_class")
    ).to_contain_text("other")
    page.locator("figure[data-heat]").scroll_into_view_if_needed()
    expect(page.locator("figure[data-heat] .note")).to_contain_text(
        "Showing 30 buckets of 30 watched steps, 3 layers"
    )
    assert _ink(page, "canvas.heat") > 20
    page.get_by_label("operand").select_option("x")
    expect(page.locator("canvas.heat")).to_have_attribute(
        "aria-label", re.compile(r"\(x, for fprop\) of 3 layers")
    )
    page.locator("figure[data-heat] summary").click()
    expect(page.locator("figure[data-heat] tbody tr").nth(2)).to_contain_text("2.up")
    with page.expect_download() as csv:
        page.locator("figure[data-heat]").get_by_role("button", name="CSV").click()
    lines = csv.value.path().read_text().splitlines()
    assert csv.value.suggested_filename == "small-layers-nvfp4-underflow_share-x.csv"
    assert (lines[0], len(lines)) == ("first_step,last_step,0.up,1.up,2.up", 31)
    assert [float(cell) for cell in lines[2].split(",")[2:]] == pytest.approx(
        [50 / 3000, 50 / 3000 + 0.1, 50 / 3000 + 0.2], rel=1e-4
    )
    page.locator("figure[data-heat] select[name=run]").select_option(
        label="fp8_current, replicate 0"
    )
    expect(page.locator("figure[data-heat] .note")).to_contain_text(
        "No statistics by layer were recorded"
    )
    expect(page.locator("figure[data-heat] tbody tr")).to_have_count(0)
    _fits(page)
    page.goto(f"/jobs/{job_id}?heat-run=gone")
    page.locator("figure[data-heat]").scroll_into_view_if_needed()
    expect(page.locator("figure[data-heat] .note")).to_contain_text(
        "Showing 30 buckets of 30 watched steps, 3 layers"
    )
