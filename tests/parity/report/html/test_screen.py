"""The first screen and the report: the words of the verdict as they are, safest first, and nothing
that a name could write or load.
"""

import base64
import csv
import hashlib
import io
import re
import urllib.parse
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest

from parity.judging.case import Case
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.path import with_path
from parity.report.answer import answer_words
from parity.report.candidates import safest_first
from parity.report.html.candidates_table import candidates_table
from parity.report.html.notebook import notebook_html
from parity.report.html.page import case_report, job_report, report_page
from parity.report.html.screen import (
    DetailsRow,
    Screen,
    ScreenAnswer,
    answer_of,
    button,
    chances_html,
    live_answer,
    screen_html,
    selected_answer,
)
from parity.report.number_words import mean_words
from parity.report.picture.case_scene import case_scene
from parity.report.picture.picture import picture
from parity.report.picture.scene import scene_of
from parity.report.strip import StripItem
from parity.report.view import views_of
from parity.wording import minus
from tests.parity.conftest import synthetic
from tests.parity.report.picture.test_picture import Forecast

STEPS = 400
WRITES = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


def case_of(gaps: dict[str, float]) -> Case:
    runs = {
        name: [synthetic(STEPS, seed=10 + place, gap=gap)]
        for place, (name, gap) in enumerate(gaps.items())
    }
    policy = policy_from_mapping({"schedule": "decayed", "margin": "1.0%"})
    return Case(
        baseline=[synthetic(STEPS)],
        candidates=runs,
        policy=policy,
        baseline_name="fp8",
        planned_steps=STEPS,
    )


@pytest.fixture(scope="module")
def three() -> tuple[Case, list]:
    case = case_of({"nvfp4": 0.06, "mxfp8": 0.0, "nvfp4-wgrad16": 0.024})
    return case, with_path(case.verdicts())


class Page(HTMLParser):
    """The text of the elements of each class, and every address, event and style in attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[tuple[str, str]] = []
        self.texts: dict[str, list[str]] = {}
        self.addresses: list[str] = []
        self.forbidden: list[str] = []
        self.tags: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.addresses += [given[key] or "" for key in ("href", "src") if key in given]
        self.forbidden += [key for key in given if key == "style" or key.startswith("on")]
        if tag not in ("meta", "link", "br", "img"):
            self.open.append((tag, given.get("class") or tag))
            for look in (given.get("class") or tag).split():
                self.texts.setdefault(look, []).append("")

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        for look in {look for _, looks in self.open for look in looks.split()}:
            self.texts[look][-1] += data


def test_the_answer_of_several_candidates_has_their_worst_state_and_its_words(three):
    case, documents = three
    page = Page(report_page(documents, case_scene(case, documents), ["parity"]))
    told = answer_words(views_of(documents))
    assert page.texts["chip"] == [told.chip] == ["■ FAIL"]
    assert page.texts["h1"] == [told.lead]
    assert told.lead == "nvfp4 fails. You may switch to mxfp8. nvfp4-wgrad16 is open."
    assert page.texts["meas"] == [minus(told.measure)]
    assert page.texts["int"] == [minus(told.interval)]
    assert page.texts["strong"][0].endswith(" nats")
    for fact, shown in zip(told.strip, page.texts["dd"], strict=True):
        assert shown == minus(fact.value + fact.why)


def test_the_table_is_in_the_order_of_the_picture_with_its_numbers(three):
    _, documents = three
    page = Page(candidates_table(documents))
    assert page.texts["nm"] == ["mxfp8", "nvfp4-wgrad16", "nvfp4"]
    assert page.texts["v-gap"] == [
        minus(mean_words(view)) for view in safest_first(views_of(documents))
    ]
    picture_labels = re.findall(
        r"<tspan(?: data-judged=\"1\")?>([^<]+)</tspan>", picture(scene_of(documents))
    )
    assert [label for label in picture_labels if label in page.texts["v-gap"]] == page.texts[
        "v-gap"
    ]
    assert candidates_table(documents[:1]) == ""


def test_many_candidates_are_counted_and_all_in_the_table():
    case = case_of({f"policy-{place}": 0.004 * place for place in range(12)})
    documents = with_path(case.verdicts())
    html = report_page(documents, case_scene(case, documents), ["parity"])
    page = Page(html)
    assert len(page.texts["nm"]) == 12
    assert sum(map(int, re.findall(r"\d+", page.texts["tally"][0]))) == 12
    assert 'class="screen crowd"' in html
    assert (
        len(re.search(r'<div class="screen.*?<section class="more"', html, re.DOTALL)[0]) < 110_000
    )


def test_the_next_step_is_said_once_with_at_most_the_buttons_given(three):
    _, documents = three
    answer = answer_of(documents)
    buttons = [button("Add 4 runs", "/x?a=1&b=2"), button("Cancel", "/y", is_first=False)]
    html = screen_html(Screen(context=["job"], answer=answer, picture="", buttons=buttons))
    assert html.count('class="btn"') == 1
    assert html.count('class="btn q"') == 1
    assert 'href="/x?a=1&amp;b=2"' in html
    assert unescape(html).count(answer.next) == 1
    report = report_page(documents, scene_of(documents), ["parity"])
    assert unescape(report).count(answer.next) == 1


def report_of(case: Case) -> str:
    return case_report(case, with_path(case.verdicts()))


def test_details_open_by_their_letters_and_are_open_in_a_report(three):
    case, documents = three
    rows = [
        DetailsRow("r", "Reasons", "why", "<p>body</p>"),
        DetailsRow("c", "Curves", "loss", "", is_open=True),
    ]
    html = screen_html(
        Screen(context=["job"], answer=answer_of(documents), picture="", details=rows)
    )
    assert '<details data-key="r" name="more">' in html
    assert '<details data-key="c" open>' in html
    report = report_of(case)
    assert report.count("<details") == report.count(" open>")


def test_who_accepted_a_verdict_stands_under_the_lead(three):
    _, documents = three
    signed: Any = {
        "nvfp4-wgrad16": {
            "candidate": "nvfp4-wgrad16",
            "who": "<Ada>",
            "expires_at": "2026-12-13T17:00:00Z",
            "reason": "out on Friday",
        }
    }
    html = report_page(documents, scene_of(documents), ["parity"], accepted=signed)
    words = "<b>Accepted, not a pass:</b> &lt;Ada&gt; signed off the inconclusive verdict"
    assert html.index("</h1>") < html.index(words) < html.index('class="meas"')
    assert "Accepted, not a pass" not in report_page(documents, scene_of(documents), ["parity"])


def test_the_step_of_an_open_candidate_stands_below_that_of_the_fail(three):
    _, documents = three
    everyone = answer_of(documents)
    html = screen_html(Screen(context=["job"], answer=everyone, picture=""))
    assert everyone.next_open.startswith("nvfp4-wgrad16, which is open: ")
    assert html.index('<div class="steps"><p>') < html.index('<p class="also">')
    views = safest_first(views_of(documents))
    selected = selected_answer(everyone, views[0])
    html = screen_html(Screen(context=["job"], answer=selected, picture=""))
    assert '<p class="also unsaid">' in html


def test_the_axis_of_the_candidates_says_what_its_lines_are():
    for gaps, words in (
        ({"a": 0.0, "b": 0.05}, "line: 0 · dashed: margin"),
        ({"a": 0.0, "b": 0.5}, "line: 0 · dashed: margin · › beyond"),
    ):
        table = candidates_table(case_of(gaps).documents())
        assert re.findall(r'<th class="mid">(.*?)</th>', table) == [words]


def test_the_answer_of_a_forecast_has_its_words_and_chances():
    answer = live_answer(
        ("fp8", "nvfp4"), Forecast(), 400, [StripItem("Progress", "100 of 400 steps")]
    )
    html = screen_html(
        Screen(context=["job"], answer=answer, picture="", chances=chances_html(Forecast()))
    )
    page = Page(html)
    assert page.texts["chip"] == ["▸ NO VERDICT YET · 25 % OF THE STEPS"]
    assert page.texts["h1"] == ["nvfp4 will probably stay inconclusive."]
    assert page.texts["said"] == ["pass 0 %inconclusive 96 %fail 4 %"]
    assert page.texts["dt"] == ["Progress"]


def test_names_write_nothing_load_nothing_and_style_nothing():
    case = case_of({WRITES: 0.05, "=1+1": 0.0})
    documents = with_path(case.verdicts())
    job = {
        "id": "j1",
        "name": WRITES,
        "finished_at": "2026-11-24T03:49:00",
        "verdicts": documents,
        "policy": {},
        "spec": {"a": WRITES},
    }
    alone = with_path(case_of({WRITES: 0.05}).verdicts())
    notebook = notebook_html(alone[0], scene_of(alone))
    for html, scripts in (
        (report_of(case), 2),
        (job_report(job, "https://host/jobs/j1"), 0),
        (notebook, 0),
    ):
        page = Page(html)
        assert page.tags.count("script") == scripts
        assert "img" not in page.tags
        assert page.forbidden == []
        assert {address.partition(":")[0] for address in page.addresses} <= {"data", "https"}
    assert Page(report_of(case)).texts["h1"] == ["1 of 2 fails. You may switch to =1+1."]


def test_a_report_runs_its_own_script_alone_or_none(three):
    case, documents = three
    html = report_of(case)
    script = re.search(r"<script>(.*?)</script>", html, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src "
        f"'sha256-{digest}'\"" in html
    )
    assert "script" not in report_page(documents, scene_of(documents), ["parity"])
    assert len(html) < 150_000


def test_the_path_can_be_saved_as_csv():
    documents = with_path(case_of({'=a,"b"': 0.05}).verdicts())
    html = report_page(documents, scene_of(documents), ["parity"])
    text = urllib.parse.unquote(re.search(r'href="data:text/csv;charset=utf-8,([^"]+)"', html)[1])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["candidate"] for row in rows} == {'\'=a,"b"'}
    assert [int(row["step"]) for row in rows] == [point["step"] for point in documents[0]["path"]]
    assert float(rows[-1]["mean_nats"]) == pytest.approx(documents[0]["gap"]["mean"], rel=1e-4)


def test_an_answer_without_an_interval_has_no_empty_line():
    answer = ScreenAnswer(
        state="fail", chip="■ FAIL", lead="Do not.", measure="NaN.", interval="", next="", strip=[]
    )
    html = screen_html(Screen(context=["job"], answer=answer, picture=""))
    assert 'class="int"' not in html
    assert 'class="next"' not in html


def test_commands_in_a_next_step_are_code_and_nothing_else_is_markup():
    answer = ScreenAnswer(
        state="inconclusive",
        chip="c",
        lead="l",
        measure="m",
        interval="",
        next="Then type `parity compare <b>a</b>.csv --planned-steps 9`, or a single ` here.",
        strip=(),
    )
    html = screen_html(Screen(context=["a"], answer=answer, picture=""))
    command = "parity compare &lt;b&gt;a&lt;/b&gt;.csv --planned-steps 9"
    assert f"<p>Then type <code>{command}</code>, or a single ` here.</p>" in html


def test_a_row_whose_gap_lies_beyond_the_axis_points_there():
    gaps = {"c0": 0.0, "c1": 0.004, "far": 3.0}
    table = candidates_table(case_of(gaps).documents())
    rows = {
        name: row
        for row in re.findall(r"<tr class.*?</tr>", table)
        for name in re.findall(r'class="nm" title="(\w+)"', row)
    }
    assert rows.keys() == gaps.keys()
    assert [name for name, row in rows.items() if "beyond" in row] == ["far"]
