import dataclasses
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.decision import CheckName
from parity.judging.document_types import REUSED
from parity.judging.policy import POLICY_CHECKS, Policy, policy_from_mapping
from parity.judging.precedence import table
from parity.judging.secondary.accuracy import TaskResult
from parity.judging.verdict.verdict import judge
from parity.report.formats.junit import CHECKS, render_junit

MakeRun = Callable[..., Curve]


@pytest.mark.parametrize(
    ("name", "failures", "errors", "skipped", "check"),
    [
        ("good", 0, 0, 0, None),
        ("worse", 1, 0, 0, "gap against margin"),
        ("nan", 1, 1, 1, "finite losses"),
        ("edge", 0, 1, 0, "gap against margin"),
    ],
)
def test_cases(
    name: str,
    failures: int,
    errors: int,
    skipped: int,
    check: str | None,
    make_run: MakeRun,
    one_percent: Policy,
) -> None:
    runs = {
        "good": make_run(seed=2),
        "worse": make_run(seed=2, gap=0.1),
        "nan": curve_from_arrays(np.arange(2000), np.full(2000, np.nan)),
        "edge": make_run(seed=2, gap=0.0265),
    }
    (verdict,) = judge(
        [make_run()], {f"{name}<\x00&>": [runs[name]]}, one_percent, planned_steps=2000
    )
    root = ElementTree.fromstring(render_junit([verdict.document()]).split("\n", 1)[1])  # noqa: S314
    suite = root.find("testsuite")
    assert suite is not None
    # not recorded here: spikes alone are counted, where there is a window
    beside = len(POLICY_CHECKS) - 1
    unmeasured = beside if name == "nan" else beside - 1
    expected = [len(CHECKS) + beside, failures, errors, skipped + unmeasured]
    assert [int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped")] == expected
    assert root.get("tests") == suite.get("tests")
    bad = {case.get("name"): case[0].tag for case in suite.findall("testcase") if len(case)}
    if check:
        assert check in bad
    assert {item.get("name"): item.get("value") for item in suite.iter("property")}[
        "verdict"
    ] == verdict.verdict


def test_equal_runs_of_two_revisions_are_no_error(make_run: MakeRun, one_percent: Policy) -> None:
    runs = {"head": [make_run()], "copy": [make_run()]}
    verdicts = judge(
        [make_run()], runs, one_percent, planned_steps=2000, compares={"head": "revision"}
    )
    head, copy = (
        ElementTree.fromstring(render_junit([each.document()]).split("\n", 1)[1])  # noqa: S314
        for each in verdicts
    )
    suites = [suite for root in (head, copy) for suite in root.iter("testsuite")]
    assert [suite.get(key) for suite in suites for key in ("failures", "errors")] == [
        "0",
        "0",
        "0",
        "1",
    ]
    gap = next(case for case in head.iter("testcase") if case.get("name") == "gap against margin")
    assert [child.tag for child in gap] == []


def test_every_code_that_decides_belongs_to_a_check() -> None:
    assert {entry.code for state, entry in table() if entry.check is None} == {
        entry.code for state, entry in table() if state is None
    }
    assert {entry.check for _, entry in table()} - {None} == set(get_args(CheckName))
    assert "policy check" not in CHECKS


@pytest.mark.parametrize(
    ("checks", "tag"), [(["loss", "accuracy"], "failure"), (["loss"], "system-out")]
)
def test_a_check_fails_its_case_and_advice_is_told(
    checks: list[str], tag: str, make_run: MakeRun
) -> None:
    results = {
        "base": {"arc": TaskResult(correct=700, items=1000)},
        "cand": {"arc": TaskResult(correct=500, items=1000)},
    }
    policy = policy_from_mapping({"schedule": "decayed", "margin": "1%", "checks": checks})
    options = {"planned_steps": 2000, "baseline_name": "base", "evaluations": results}
    (verdict,) = judge([make_run()], {"cand": [make_run(seed=2)]}, policy, **options)
    suite = ElementTree.fromstring(render_junit([verdict.document()]).split("\n", 1)[1]).find(  # noqa: S314
        "testsuite"
    )
    assert suite is not None
    (case,) = (
        case
        for case in suite.findall("testcase")
        if case.get("name") == "beside the loss: accuracy"
    )
    assert case[0].tag == tag
    assert "arc 50.0 % against 70.0 %" in (case[0].get("message") or case[0].text or "")
    assert suite.get("failures") == ("1" if tag == "failure" else "0")
    assert any(item.get("name") == "downstream.arc" for item in suite.iter("property"))


def test_a_reused_baseline_and_where_the_verdict_comes_from_are_told(
    make_run: MakeRun, one_percent: Policy
) -> None:
    note = f"{REUSED}trained as run r1 of job j1, ended 2026-11-01 10:00 UTC, 3.0 days before"
    (verdict,) = judge(
        [dataclasses.replace(make_run(), notes=(note,))],
        {"cand": [make_run(seed=2)]},
        one_percent,
        planned_steps=2000,
    )
    facts = {"origin": "cached: job j2 concluded 3.2 hours ago", "url": None}
    suite = ElementTree.fromstring(  # noqa: S314
        render_junit([verdict.document()], facts=facts).split("\n", 1)[1]
    ).find("testsuite")
    assert suite is not None
    (case,) = (case for case in suite.findall("testcase") if case.get("name") == "same ground")
    assert (case[0].tag, (case[0].text or "").endswith(note.removeprefix(REUSED))) == (
        "system-out",
        True,
    )
    properties = {item.get("name"): item.get("value") for item in suite.iter("property")}
    assert (properties["origin"], "url" in properties) == (facts["origin"], False)
