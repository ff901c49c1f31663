"""Every surface that is made without a server shows one state, one lead, one measure, one interval
and one next step, in each situation that a reader meets.
"""

import html
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from parity.cli.gate.report import ReportFiles, fits_a_comment, markdown, write
from parity.gate.outcome import GateOutcome, result_of
from parity.gate.rules import GateRules
from parity.judging.curves.curve import Curve
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.policy import Policy, policy_from_mapping
from parity.judging.verdict.verdict import judge
from parity.report.answer import answer_words
from parity.report.candidates import deciding
from parity.report.formats.junit import render_junit
from parity.report.formats.markdown import render_markdown
from parity.report.formats.terminal import plain_text
from parity.report.html.page import report_page
from parity.report.picture.scene import scene_of
from parity.report.view import EvaluationView, views_of
from parity.report.words import MARKS
from parity.wording import minus

MakeRun = Callable[..., Curve]
Documents = list[Any]
SITUATIONS = (
    "pass",
    "fail",
    "open",
    "pass and fail",
    "17 of 30",
    "as of a step",
    "confounded",
    "two questions",
    "evaluations",
)
STATES = {"pass": "pass", "open": "inconclusive", "as of a step": "inconclusive"}
STATES |= {"confounded": "inconclusive"}  # every other one fails


@pytest.fixture
def situations(
    make_run: MakeRun, one_percent: Policy, compared: Callable[..., EvaluationDocument]
) -> Callable[[str], Documents]:
    """A function that gives the documents of a situation."""

    def judged(
        candidates: Mapping[str, list[Curve]],
        policy: Policy = one_percent,
        rate: str = "",
        **options: Any,
    ) -> Documents:
        options = {"planned_steps": 2000, "baseline_name": "fp8"} | options
        context = {"learning_rate": rate} if rate else {}
        baseline = [make_run(seed=1, recipe="fp8_current", context=context)]
        verdicts = judge(baseline, candidates, policy, **options)
        return [dict(verdict.document()) for verdict in verdicts]

    def run(gap: float, seed: int = 2, **more: Any) -> list[Curve]:
        return [make_run(seed=seed, gap=gap, recipe="mxfp8", **more)]

    def situation(name: str) -> Documents:
        if name == "evaluations":
            return [dict(compared(gap=0.08))]
        if name == "17 of 30":
            ends = [0.06] * 17 + [0.027] * 11 + [0.0] * 2
            return judged({f"cand{i:02}": run(gap, 2 + i) for i, gap in enumerate(ends)})
        if name == "two questions":
            head = {"head": run(0.0), "head-mxfp8": run(0.06, 3)}
            return judged(head, against={"head-mxfp8": "head"})
        if name == "as of a step":
            early = policy_from_mapping({"margin": "1 %"})
            return judged({"mxfp8": run(0.0)}, early, planned_steps=4000)
        if name == "confounded":
            arms = {"mxfp8": run(0.06, context={"learning_rate": "3e-4"})}
            return judged(arms, rate="6e-4")
        gaps = {
            "pass": {"a": 0.0},
            "fail": {"a": 0.06},
            "open": {"a": 0.027},
            "pass and fail": {"a": 0.0, "b": 0.06},
        }
        named = enumerate(gaps[name].items(), 2)
        return judged({arm: run(gap, seed) for seed, (arm, gap) in named})

    return situation


def joined(text: str) -> str:
    return " ".join(html.unescape(text).split())


def part(page: str, pattern: str) -> str:
    found = re.search(pattern, page, re.DOTALL)
    assert found, pattern
    return joined(re.sub(r"<[^>]+>", "", found[1]))


@pytest.mark.parametrize("name", SITUATIONS)
def test_terminal_comment_and_page_show_one_answer(
    name: str, situations: Callable[[str], Documents]
) -> None:
    documents = situations(name)
    said = answer_words(views_of(documents))
    assert said.verdict == STATES.get(name, "fail")
    measure, interval = minus(said.measure), minus(said.interval)

    terminal = plain_text(documents)
    assert terminal.startswith(f"{said.chip}  ")
    assert f"{said.lead} {measure} {interval}".strip() in joined(terminal)

    comment = joined(render_markdown(documents).replace("&#8203;", ""))
    head = f"### {said.chip}: {said.lead} {measure} {interval}".strip()
    assert comment.startswith(head)
    assert not said.next or f"**Next:** {joined(minus(said.next))}" in comment
    also = said.next_open
    is_open = any(document["verdict"] == "inconclusive" for document in documents)
    assert bool(also) == (said.verdict == "fail" and is_open)
    assert not also or f"**Open:** {joined(minus(also))}" in comment

    page = report_page(documents, scene_of(documents), ["parity compare"])
    assert not also or part(page, r'class="also">(.*?)</p>') == minus(also).replace("`", "")
    assert not also or f"Open {also.split('.')[0]}"[:60] in joined(terminal)
    assert part(page, r'class="chip">(.*?)</p>') == said.chip
    assert part(page, r"<h1[^>]*>(.*?)</h1>") == said.lead
    assert part(page, r'class="meas">(.*?)</p>') == measure
    assert not interval or part(page, r'class="int">(.*?)</p>') == interval
    assert part(page, r"<title>(.*?)</title>") == f"{said.verdict.upper()}: {said.lead}"
    for shown in (terminal.splitlines()[0], comment[: len(head)]):
        assert [mark for mark in MARKS.values() if mark in shown] == [MARKS[said.verdict]]


@pytest.mark.parametrize("name", [name for name in SITUATIONS if name != "evaluations"])
def test_a_gate_shows_the_same_answer_and_leaves_with_its_code(
    name: str,
    situations: Callable[[str], Documents],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    documents = situations(name)
    outcome = GateOutcome(
        result=result_of(documents), revision="r", verdicts=documents, source="files"
    )
    said = answer_words(outcome.views)
    assert outcome.result == said.verdict
    assert said.line in outcome.line
    comment = joined(markdown(outcome, GateRules(), fits_a_comment).replace("&#8203;", ""))
    assert comment.startswith(f"### parity: {said.verdict}")
    assert f"### {said.chip}: {said.lead}" in comment

    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "outputs"))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    write(outcome, GateRules(), ReportFiles())
    outputs = dict(line.split("=", 1) for line in (tmp_path / "outputs").read_text().splitlines())
    view = deciding(outcome.views)
    assert outputs["verdict"] == said.verdict
    assert outputs["candidate"] == view.candidate.name
    if view.recorded_gap:
        ends = (view.recorded_gap.lo, view.recorded_gap.hi, view.confidence)
        shown = tuple(float(outputs[key]) for key in ("ci_low", "ci_high", "ci_level"))
        assert shown == pytest.approx(ends)


@pytest.mark.parametrize("name", SITUATIONS)
def test_junit_has_a_suite_a_candidate_with_its_own_state_and_interval(
    name: str, situations: Callable[[str], Documents]
) -> None:
    documents = situations(name)
    suites = ElementTree.fromstring(render_junit(documents)).findall("testsuite")  # noqa: S314
    for suite, view in zip(suites, views_of(documents), strict=True):
        values = {one.get("name"): one.get("value") for one in suite.iter("property")}
        assert values["verdict"] == view.state
        assert bool(int(suite.get("failures") or 0)) == (view.state == "fail")
        assert view.state != "pass" or suite.get("errors") == "0"
        if view.recorded_gap and not isinstance(view, EvaluationView):
            assert float(values["ci_low"] or "nan") == pytest.approx(view.recorded_gap.lo)
            assert float(values["ci_level"] or "nan") == pytest.approx(view.confidence)


def test_a_failed_job_has_no_state_of_a_verdict() -> None:
    outcome = GateOutcome(result="infrastructure", revision="r", trouble="no worker")
    comment = markdown(outcome, GateRules(), fits_a_comment)
    assert comment.startswith("### parity: infrastructure")
    assert outcome.line == "NO VERDICT (infrastructure): no worker"
    for shown in (comment, outcome.line):
        assert not any(mark in shown for mark in MARKS.values())
