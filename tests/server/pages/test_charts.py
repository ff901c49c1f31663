"""Charts that a reader moves: zoom, cursor, smoothing, arms, address; each asks the server for what
it needs.
"""

import contextlib
import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlparse

import numpy as np
import pyarrow as pa
import pytest
from playwright.sync_api import Locator, Page, expect

from server.database.metrics import store
from server.database.tables import Job, Run
from server.jobs.conclude import conclude

LOOKS = ["light"]
LOSS = "figure[data-column=lm_loss]"


def _drag(page: Page, figure: str, start: float, end: float):
    # drawn: what is below it moves no more
    expect(page.locator("figure[data-gaps] .note")).to_contain_text("Showing")
    plot = page.locator(f"{figure} .u-over")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + start * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + 50, steps=3)
    page.mouse.up()


def _point(plot: Locator, x: float, shows: Locator, text: str):
    """Point at x pixels from the left of a plot until `shows` contains the text: charts above, once
    drawn, may move the plot away.
    """
    for _ in range(20):
        plot.page.mouse.move(0, 0)
        plot.hover(position={"x": x, "y": 80})
        with contextlib.suppress(AssertionError):
            expect(shows).to_contain_text(text, timeout=500)
            return
    expect(shows).to_contain_text(text)


def _query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlparse(page.url).query)


def test_a_drag_asks_again_and_says_that_it_is_exploratory(page: Page, recorded):
    page.goto(f"/jobs/{recorded({'nvfp4': 0.05})}")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("Showing 1,500 of 1,500 steps")
    requests: list[str] = []
    page.on("request", lambda sent: requests.append(sent.url))
    _drag(page, LOSS, 0.2, 0.4)
    expect(page.locator("#exploratory")).not_to_be_empty()
    first, last = (int(_query(page)[name][0]) for name in ("from", "to"))
    assert abs(first - 300) < 5
    assert abs(last - 600) < 5
    expect(page.locator(f"{LOSS} .note")).to_contain_text(f"of {last - first + 1} steps")
    expect(page.locator("figure[data-gaps] .note")).to_contain_text(
        f"of {last - first + 1} common steps"
    )
    expect(page.locator("#exploratory")).to_contain_text(
        "the verdict, which reads steps 1,200 to 1,499"
    )
    for kind in ("/overlay?", "/gaps?"):
        assert any(kind in url and f"from={first}&to={last}" in url for url in requests)
    page.locator(f"{LOSS} .u-over").dblclick()
    expect(page.locator(f"{LOSS} .note")).to_contain_text("of 1,500 steps")
    expect(page.locator("#exploratory")).to_be_empty()
    assert _query(page) == {}
    page.get_by_label("from step").fill("1000")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(f"{LOSS} .note")).to_contain_text("of 500 steps")


def test_the_address_says_what_is_shown(page: Page, recorded):
    job_id = recorded({"nvfp4": 0.05, "mxfp8": 0.0}, steps=600)
    page.goto(f"/jobs/{job_id}?from=100&to=199&x=time&log=1&half=30&pair=0.1&hide=mxfp8")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("Showing 100 of 100 steps")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("half-life 30 steps")
    expect(page.get_by_label("x axis")).to_have_value("time")
    expect(page.get_by_label("log y")).to_be_checked()
    expect(page.locator("select[name=pair]")).to_have_value("0.1")
    for legend in ("Arms", "Candidates in the gap chart"):
        button = page.get_by_role("group", name=legend).get_by_role("button", name="mxfp8")
        expect(button).to_have_attribute("aria-pressed", "false")
    button.click()
    page.get_by_role("button", name="The verdict's window").click()
    expect(page.locator(f"{LOSS} .note")).to_contain_text("Showing 120 of 120 steps")
    assert _query(page) == {
        "from": ["480"],
        "to": ["599"],
        "x": ["time"],
        "log": ["1"],
        "half": ["30"],
        "pair": ["0.1"],
    }


def test_cursors_go_together_and_name_both_arms_and_the_difference(page: Page, recorded):
    page.goto(f"/jobs/{recorded({'nvfp4': 0.05}, steps=600)}?half=0")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("of 600 steps")
    page.locator("figure[data-column=grad_norm]").scroll_into_view_if_needed()
    expect(page.locator("figure[data-column=grad_norm] .note")).to_contain_text("of 600 steps")
    tip = page.locator(f"{LOSS} .tip")
    _point(page.locator(f"{LOSS} .u-over"), 300, tip, "fp8_current 1.")
    expect(tip).to_contain_text("nvfp4 1.")
    expect(tip).to_contain_text("(+0.0")
    step = tip.locator("strong").text_content()
    expect(page.locator("figure[data-column=grad_norm] .tip strong")).to_have_text(step)
    expect(page.locator("figure[data-gaps] .readout")).to_contain_text("steps")


def test_lines_are_named_at_their_ends_none_over_another(page: Page, recorded):
    page.add_init_script(
        """const fill = CanvasRenderingContext2D.prototype.fillText;
        window.texts = [];
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
          const { column } = this.canvas.closest("figure")?.dataset ?? {};
          window.texts.push({ column: column ?? "gap", text, x, y, right: this.measureText(text).width + x, across: this.canvas.width });
          return fill.apply(this, arguments);
        };"""  # noqa: E501
    )
    job_id = recorded({"nvfp4": 0.0005, "mxfp8": 0.0, "bf16": 0.0002}, steps=600)
    page.goto(f"/jobs/{job_id}")
    arms = {"fp8_current", "nvfp4", "mxfp8", "bf16"}
    for column, names in (("lm_loss", arms), ("gap", arms - {"fp8_current"})):
        figure = "figure[data-gaps]" if column == "gap" else f"figure[data-column={column}]"
        page.locator(figure).scroll_into_view_if_needed()
        expect(page.locator(f"{figure} .note")).to_contain_text("Showing")
        drawn = [one for one in page.evaluate("window.texts") if one["column"] == column]
        ends = {one["text"]: one for one in drawn if one["text"] in arms}
        assert ends.keys() == names
        heights = sorted(one["y"] for one in ends.values())
        assert min(np.diff(heights)) >= 15 - 1e-6
        assert all(one["right"] <= one["across"] for one in ends.values())
    page.evaluate("window.texts = []")
    page.set_viewport_size({"width": 390, "height": 900})
    page.get_by_role("group", name="Arms").get_by_role("button", name="mxfp8").click()
    page.wait_for_timeout(300)
    drawn = [one for one in page.evaluate("window.texts") if one["column"] == "lm_loss"]
    assert drawn
    assert not [one for one in drawn if one["text"] in arms]


def _wait(page: Page, true: Callable[[], bool]):
    """Wait until something holds; the pages' policy forbids the evaluation that the browser's own
    wait would need.
    """
    for _ in range(200):
        if true():
            return
        page.wait_for_timeout(25)
    raise AssertionError(page.url)


def _window(page: Page) -> tuple[int, int]:
    """The steps that the address says, which it may do a little after the charts."""
    _wait(page, lambda: "from" in _query(page))
    query = _query(page)
    return int(query["from"][0]), int(query["to"][0])


def test_wheel_shift_drag_and_keys_move_all_charts(page: Page, recorded):
    page.goto(f"/jobs/{recorded({'nvfp4': 0.05}, steps=600)}")
    note = page.locator(f"{LOSS} .note")
    expect(note).to_contain_text("of 600 steps")
    plot = page.locator(f"{LOSS} .u-over")
    # drawn: what is below it moves no more
    expect(page.locator("figure[data-gaps] .note")).to_contain_text("Showing")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 80)
    page.keyboard.down("Control")
    for _ in range(4):
        page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    _wait(page, lambda: _window(page)[1] < 440)
    first, last = _window(page)
    assert 0.4 < (last - first) / 600 < 0.5
    assert abs((first + last) / 2 - 300) < 5
    assert plot.bounding_box()["y"] == pytest.approx(box["y"], abs=1)
    expect(page.locator("#exploratory")).to_contain_text("Exploratory")
    page.keyboard.down("Shift")
    _drag(page, LOSS, 0.6, 0.4)
    page.keyboard.up("Shift")
    _wait(page, lambda: _window(page)[0] > first + 0.19 * (last - first))
    moved = _window(page)
    assert moved[1] - moved[0] == pytest.approx(last - first, abs=2)
    assert moved[0] - first == pytest.approx(0.2 * (last - first), abs=5)
    expect(page.locator("figure[data-gaps] .note")).to_contain_text(
        f"of {moved[1] - moved[0] + 1} common steps"
    )
    page.locator(f"{LOSS} .plot").focus()
    page.keyboard.press("+")
    expect(note).to_contain_text(f"of {round((moved[1] - moved[0]) / 2) + 1} steps")
    _wait(page, lambda: _window(page)[1] - _window(page)[0] < 0.6 * (moved[1] - moved[0]))
    zoomed = _window(page)
    page.keyboard.press("Shift+ArrowLeft")
    _wait(page, lambda: _window(page)[0] != zoomed[0])
    assert _window(page)[0] - zoomed[0] == pytest.approx(-0.25 * (zoomed[1] - zoomed[0]), abs=2)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(f"{LOSS} .tip strong")).to_contain_text("step")
    page.keyboard.press("0")
    expect(note).to_contain_text("of 600 steps")
    expect(page).not_to_have_url(re.compile("from="))
    page.mouse.wheel(0, 300)
    expect(note).to_contain_text("of 600 steps")


def test_a_log_axis_asks_for_ranges_of_equal_ratio(page: Page, recorded):
    page.goto(f"/jobs/{recorded({'nvfp4': 0.05}, steps=600)}")
    requests: list[str] = []
    page.on("request", lambda sent: requests.append(sent.url))
    expect(page.locator(f"{LOSS} .note")).to_contain_text("of 600 steps")
    page.get_by_label("log x").check()
    expect(page.locator("figure[data-gaps] .note")).not_to_contain_text("Showing 146 bins")
    _wait(page, lambda: _query(page) == {"logx": ["1"]})
    assert all(
        any(kind in url and "spacing=log" in url for url in requests)
        for kind in ("/gaps?", "/overlay?")
    )
    page.get_by_label("x axis").select_option("tokens")
    with page.expect_response(lambda answer: "seconds=true" in answer.url):
        page.get_by_label("x axis").select_option("time")
    expect(page.locator("figure[data-gaps] .note")).to_contain_text("x axis shows steps")
    # every chart is drawn anew, and a plot that is replaced under a drag selects something else
    page.wait_for_timeout(500)
    _drag(page, "figure[data-gaps]", 0.5, 0.9)
    expect(page.locator("#exploratory")).to_contain_text("Exploratory")
    first, last = _window(page)
    assert first == pytest.approx(600**0.5, rel=0.05)
    assert last == pytest.approx(600**0.9, rel=0.05)


def test_a_drag_in_a_chart_that_is_replaced_meanwhile_selects_nothing(page: Page, recorded):
    page.goto(f"/jobs/{recorded({'nvfp4': 0.05}, steps=600)}")
    figure = "figure[data-gaps]"
    expect(page.locator(f"{figure} .note")).to_contain_text("of 600 common steps")
    # drawn: what is below it moves no more
    expect(page.locator("figure[data-gaps] .note")).to_contain_text("Showing")
    plot = page.locator(f"{figure} .u-over")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 50, steps=3)
    page.get_by_label("log x").evaluate("box => box.click()")
    _wait(page, lambda: _query(page) == {"logx": ["1"]})
    page.wait_for_timeout(300)
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 50, steps=3)
    page.mouse.up()
    page.wait_for_timeout(300)
    expect(page.locator("#exploratory")).to_be_empty()
    assert _query(page) == {"logx": ["1"]}


def test_nan_and_long_runs_are_said(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.0}, steps=50_000)
    with database.write() as session:
        run = session.query(Run).where(Run.job_id == job_id).order_by(Run.position).first()
        values = np.full(3, 1.4)
        values[1:] = np.nan, np.inf
        store.append(session, run.id, "train", 2, np.arange(49_997, 50_000), {"lm_loss": values})
    page.goto(f"/jobs/{job_id}")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("buckets of 50,000 steps")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("fp8_current 2, first 49,998")
    expect(page.locator("figure[data-column=grad_norm]")).to_be_attached()
    page.goto(f"/jobs/{job_id}?from=40000&to=49999")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("Showing 10,000 of 10,000 steps")


def test_what_is_shown_can_be_had(page: Page, recorded, database):
    job_id = recorded({"nvfp4": 0.05}, steps=300)
    conclude(database, job_id)
    page.goto(f"/jobs/{job_id}?from=100&to=109")
    # drawn: the menu below it moves no more
    expect(page.locator(f"{LOSS} .note")).to_contain_text("Showing 10 of 10 steps")
    page.locator(f"{LOSS} summary").click()
    with page.expect_download() as csv:
        page.locator(LOSS).get_by_role("link", name="nvfp4 as CSV").click()
    lines = csv.value.path().read_text().splitlines()
    assert lines[0] == "step,lm_loss"
    assert [line.split(",")[0] for line in lines[1:]] == [str(step) for step in range(100, 110)]
    with page.expect_download() as arrow:
        page.locator(LOSS).get_by_role("link", name="nvfp4 as Arrow").click()
    assert pa.ipc.open_stream(arrow.value.path().read_bytes()).read_all()[
        "step"
    ].to_pylist() == list(range(100, 110))
    expect(page.locator(LOSS).get_by_role("link", name="nvfp4 as Parquet")).to_have_count(0)
    with page.expect_download() as gap:
        page.locator("figure[data-gaps] summary").click()
        page.locator("figure[data-gaps]").get_by_role("button", name="CSV").click()
    assert gap.value.path().read_text().startswith("first_step,last_step,gap_nats\n100,100,")
    assert gap.value.suggested_filename == "small-Do-not-switch-to-nvfp4-gap-nats.csv"
    with page.expect_download() as png:
        page.locator(LOSS).get_by_role("button", name="PNG").click()
    assert png.value.path().read_bytes().startswith(b"\x89PNG")
    expect(page.locator(f"{LOSS} tbody tr")).to_have_count(10)


def test_charts_wait_until_the_reader_is_near(page: Page, recorded):
    page.set_viewport_size({"width": 1440, "height": 200})
    requests: list[str] = []
    page.on("request", lambda sent: requests.append(sent.url))
    page.goto(f"/jobs/{recorded({'nvfp4': 0.05, 'mxfp8': 0.0}, steps=300)}")
    expect(page.locator("figure[data-gaps] .note")).to_contain_text("of 300 common steps")
    assert not any("grad_norm" in url for url in requests)
    page.locator("figure[data-column=grad_norm]").scroll_into_view_if_needed()
    expect(page.locator("figure[data-column=grad_norm] .note")).to_contain_text("of 300 steps")


def test_validation_losses_have_a_chart_where_they_are_taken(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.05}, steps=300)
    chart = page.locator("figure[data-kind=validation]")
    page.goto(f"/jobs/{job_id}")
    expect(chart).to_be_hidden()
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.spec = job.spec | {"schedule": job.spec["schedule"] | {"validation_every": 50}}
        for arm, loss in zip(job.arms, (1.5, 1.625), strict=True):
            store.append(
                session,
                arm.runs[0].id,
                "validation",
                1,
                np.arange(49, 300, 50),
                {"loss": np.full(6, loss)},
            )
    page.goto(f"/jobs/{job_id}")
    chart.scroll_into_view_if_needed()
    expect(chart.locator(".note")).to_have_text("Showing 6 of 6 steps.")
    _point(chart.locator(".u-over"), 300, chart.locator(".tip"), "nvfp4 1.62500 (+0.1250)")
    chart.locator("summary").click()
    assert "kind=validation" in chart.get_by_role("link", name="nvfp4 as CSV").get_attribute("href")


def test_a_log_axis_without_a_value_leaves_the_page_alive(page: Page, recorded):
    page.set_default_timeout(10_000)
    page.goto(f"/jobs/{recorded({'nvfp4': 0.05}, steps=300)}?log=1")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("of 300 steps")
    arms = page.locator("[data-arm]")
    for arm in arms.all():
        arm.click()
    page.wait_for_timeout(200)
    arms.first.click()
    expect(arms.first).to_have_attribute("aria-pressed", "true")
    _point(page.locator(f"{LOSS} .u-over"), 300, page.locator(f"{LOSS} .tip"), "fp8_current")


def test_a_range_of_nan_alone_has_its_triangles_by_time_too(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.05}, steps=600)
    with database.write() as session:
        for run in session.query(Run).where(Run.job_id == job_id):
            values = {"lm_loss": np.full(200, np.nan), "step_seconds": np.full(200, 0.04)}
            store.append(session, run.id, "train", 2, np.arange(400, 600), values)
    page.goto(f"/jobs/{job_id}?x=time&from=450&to=550")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("nvfp4 101, first 450")
    expect(page.locator(f"{LOSS} canvas")).to_have_attribute(
        "aria-label", re.compile("nvfp4 without a finite value")
    )
    page.locator("figure[data-gaps] .plot").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(200)  # for the page's own errors, which no test may leave


def test_a_wheel_zooms_an_axis_of_time_where_the_pointer_is(page: Page, recorded):
    page.goto(f"/jobs/{recorded({'nvfp4': 0.05}, done=300, state='running')}?x=time")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("of 300 steps")
    plot = page.locator(f"{LOSS} .u-over")
    plot.scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 50)
    expect(page.locator(f"{LOSS} .tip strong")).to_contain_text("about step")
    page.keyboard.down("Control")
    page.mouse.wheel(0, -600)
    page.keyboard.up("Control")
    _wait(page, lambda: "from" in _query(page))
    first, last = _window(page)
    assert first < 150 < last < 600
    assert (150 - first) / (last - first) == pytest.approx(150 / 1500, abs=0.02)


_DRAWN = """(figure, [r, g, b]) => {
  const canvas = document.querySelector(`${figure} canvas`);
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const near = (at, value) => Math.abs(data[at] - value) < 30;
  return [...Array(data.length / 4).keys()].filter((i) => near(4 * i, r) && near(4 * i + 1, g) && near(4 * i + 2, b)).length;
}"""  # noqa: E501


def test_an_arm_that_logs_less_often_is_a_line_and_its_nan_a_gap(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.2}, done=0, steps=600, state="running")
    with database.write() as session:
        for run in session.query(Run).where(Run.job_id == job_id):
            at = np.arange(0, 600, 10 if run.arm.name == "nvfp4" else 1)
            loss = np.full(len(at), 1.6 if run.arm.name == "nvfp4" else 1.4)
            loss[at == 300] = np.nan
            store.append(session, run.id, "train", 1, at, {"lm_loss": loss})
    page.goto(f"/jobs/{job_id}?half=0")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("nvfp4 1, first 300")
    page.wait_for_timeout(300)
    drawn = page.evaluate(
        f"([figure, colour]) => ({_DRAWN})(figure, colour)", [LOSS, [0x5C, 0x64, 0x6E]]
    )
    assert drawn > 300
    plot, tip = page.locator(f"{LOSS} .u-over"), page.locator(f"{LOSS} .tip")
    width = plot.bounding_box()["width"]
    _point(plot, width * 305 / 600, tip, "nvfp4 no data here")
    _point(plot, width * 300 / 600, tip, "nvfp4 no finite value")


def test_arrow_keys_go_past_steps_of_several_arms_at_one_time(page: Page, recorded):
    page.goto(f"/jobs/{recorded({'nvfp4': 0.05}, steps=300)}?x=time")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("of 300 steps")
    # a page that has just been loaded asks once more, and a plot that is drawn anew has no cursor
    page.wait_for_timeout(500)
    page.locator(f"{LOSS} .plot").focus()
    for step in range(3):
        page.keyboard.press("ArrowRight")
        expect(page.locator(f"{LOSS} .tip strong")).to_contain_text(f"about step {step}")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(f"{LOSS} .tip strong")).to_contain_text("about step 1")


def test_where_nothing_is_shown_no_number_stays(page: Page, recorded):
    page.goto(f"/jobs/{recorded({'nvfp4': 0.05}, steps=300)}")
    rows = page.locator("figure[data-gaps] tbody tr")
    page.locator("figure[data-gaps] summary").click()
    expect(rows).not_to_have_count(0)
    page.get_by_label("from step").fill("1000")
    page.get_by_label("to", exact=True).fill("2000")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("figure[data-gaps] .note")).to_contain_text("No gap: ")
    expect(rows).to_have_count(0)
    expect(page.locator("figure[data-gaps] canvas")).to_have_attribute(
        "aria-label", "Gap chart without a value"
    )


def test_any_recorded_column_can_be_charted(page: Page, recorded):
    page.goto(f"/jobs/{recorded({'nvfp4': 0.05}, steps=300)}")
    chart = page.locator("figure[data-menu]")
    chart.scroll_into_view_if_needed()
    columns = ["grad_norm", "learning_rate", "lm_loss", "loss", "step_seconds", "tokens"]
    expect(chart.locator("option")).to_have_text([re.compile("choose one"), *columns])
    chart.locator("select").select_option("train.tokens")
    expect(chart.locator(".note")).to_contain_text("Showing 300 of 300 steps")
    assert _query(page)["column"] == ["train.tokens"]
    chart.locator("summary").click()
    with page.expect_download() as csv:
        chart.get_by_role("button", name="CSV").click()
    assert csv.value.suggested_filename == "small-tokens.csv"
    assert csv.value.path().read_text().splitlines()[:3] == [
        "first_step,last_step,fp8_current,nvfp4",
        "0,0,0,0",
        "1,1,64,64",
    ]


def test_an_empty_chart_has_no_numbers_and_no_error(page: Page, recorded):
    page.goto(f"/jobs/{recorded({'nvfp4': 0.05}, steps=300)}?pair=9.9")
    expect(page.locator(f"{LOSS} .note")).to_contain_text("No run of this seed and replicate")
    page.locator(f"{LOSS} summary").click()
    for name in ("PNG", "CSV"):
        page.locator(LOSS).get_by_role("button", name=name).click()
    expect(page.locator(f"{LOSS} tbody tr")).to_have_count(0)


def test_the_y_axis_fits_the_second_half_or_the_whole(page: Page, recorded):
    page.goto(f"/jobs/{recorded({'nvfp4': 0.05}, steps=600)}?half=0")
    note = page.locator(f"{LOSS} .note")
    expect(note).to_contain_text("The y axis fits the second half")
    page.locator("select[name=y]").select_option("whole")
    expect(note).not_to_contain_text("second half")
    assert _query(page) == {"half": ["0"], "y": ["whole"]}


def test_a_number_that_rounds_to_zero_has_no_minus(page: Page, recorded):
    page.goto(f"/jobs/{recorded({'nvfp4': 0.0}, done=0, state='queued')}")
    shown = page.evaluate(
        """() => import("/static/chart_parts.js").then(({ signed }) => {
        return [[-0.00004], [-0.00006], [0], [-0.0004, 3], [-0.0006, 3]].map((one) => signed(...one));
      })"""  # noqa: E501
    )
    assert shown == ["+0.0000", "−0.0001", "+0.0000", "+0.000", "−0.001"]


def test_smoothing_leaves_a_straight_line_and_what_is_missing(page: Page, recorded):
    page.goto(f"/jobs/{recorded({'nvfp4': 0.0}, done=0, state='queued')}")
    made = page.evaluate(
        """() => import("/static/smoothing.js").then(({ smoothed }) => {
        const x = [0, 1, 2, 5, 9, 10, 30, 31, 200];
        const line = x.map((at) => 3 - 0.5 * at);
        line[4] = null;
        const noisy = [...Array(2000).keys()].map((at) => Math.exp(-at / 200) + (at % 2 ? 0.1 : -0.1));
        return [smoothed(x, line, 4), smoothed(noisy.map((_, at) => at), noisy, 10), smoothed([7], [2], 10)];
      })"""  # noqa: E501
    )
    x = [0, 1, 2, 5, 9, 10, 30, 31, 200]
    assert made[0] == [pytest.approx(3 - 0.5 * at, abs=1e-6) if at != 9 else None for at in x]
    assert made[1] == pytest.approx(np.exp(-np.arange(2000) / 200), abs=0.03)
    assert made[2] == [2]
