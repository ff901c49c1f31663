"""A gate's texts keep under the places' limits by whole sections."""

import dataclasses

import numpy as np

from parity.cli.gate.report import (
    SUMMARY_BYTES,
    ReportFiles,
    document,
    fits_a_comment,
    markdown,
    write,
)
from parity.gate.outcome import GateOutcome
from parity.gate.rules import GateRules
from parity.judging.case import Case
from parity.judging.curves.curve import curve_from_arrays
from parity.judging.policy import policy_from_mapping
from parity.wording import age_in_words
from tests.parity.golden.curves import GOLDEN, HONEST

OUTCOME = GateOutcome(
    result="infrastructure",
    revision="r",
    trouble="no worker",
    job="j1",
    source="new",
    reason="new",
    url="http://x/jobs/j1",
)


def test_whole_sections_are_left_out(monkeypatch):
    sections = [
        "head",
        "<details>" + "a" * 40_000 + "</details>",
        "<details>" + "b" * 40_000 + "</details>",
        "tail",
    ]
    monkeypatch.setattr("parity.cli.gate.report.markdown_sections", lambda *_: sections)
    text = markdown(
        dataclasses.replace(OUTCOME, result="fail", trouble=None), GateRules(), fits_a_comment
    )
    assert fits_a_comment(text)
    assert len(text) > 40_000
    assert (text.count("<details>"), text.count("</details>"), text.count("a" * 40_000)) == (
        1,
        1,
        1,
    )
    assert "1 sections are left out" in text
    assert "tail" in text


def test_a_summary_that_is_full_is_reported_and_not_cut(tmp_path, monkeypatch):
    full = tmp_path / "summary"
    full.write_bytes(b"x" * SUMMARY_BYTES)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(full))
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    assert write(OUTCOME, GateRules(), ReportFiles()) == [f"{full}: is full"]
    assert full.stat().st_size == SUMMARY_BYTES


def test_an_output_is_one_line_whatever_a_server_says(tmp_path, monkeypatch):
    output = tmp_path / "output"
    monkeypatch.setenv("GITHUB_OUTPUT", str(output))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    write(
        dataclasses.replace(OUTCOME, trouble="bad\nverdict=pass\r\nx"), GateRules(), ReportFiles()
    )
    assert output.read_text().count("\n") == 13
    assert "\nverdict=infrastructure\n" in "\n" + output.read_text()


def test_same_numerics_are_named_as_what_they_are_in_every_report():
    (verdict,) = comparisons()
    numerics = {
        verdict["candidate"]["name"]: {
            "exit_code": 0,
            "headline": "NUMERICS ONLY",
            "scope": "Says nothing about another precision.",
            "blocked": None,
        }
    }
    outcome = dataclasses.replace(
        OUTCOME, result="inconclusive", trouble=None, verdicts=[verdict], numerics=numerics
    )
    pinned = {"repository": "team/model", "on_inconclusive": "fail", "on_infra": "fail"}
    pinned |= {"advisory": False, "on_same_numerics": "pass"}
    for one, code in ((outcome, 3), (dataclasses.replace(outcome, pinned=pinned), 0)):
        said = document(one, GateRules())
        text = markdown(one, GateRules(), fits_a_comment)
        assert (said["result"], said["exit_code"]) == ("inconclusive", code)
        assert said["numerics"] == numerics
        assert "NUMERICS ONLY. Says nothing about another precision." in text
        title = "same numerics, no verdict (inconclusive)" if code == 0 else "inconclusive"
        assert text.startswith(f"### parity: {title}\n")


def comparisons():
    """The verdict on two short runs of one recipe."""
    base, head = (
        curve_from_arrays(np.arange(50), np.round(loss[:50], 5), recipe="bf16", seed=0)
        for loss in (GOLDEN, HONEST)
    )
    policy = policy_from_mapping({"margin": "1%"})
    case = Case(
        baseline=[base],
        candidates={"head": [head]},
        policy=policy,
        planned_steps=50,
        compares={"head": "revision"},
    )
    documents = case.documents()
    assert documents[0]["codes"][0] == "TOO_FEW_STEPS"
    return documents


def test_ages_in_words():
    assert [age_in_words(seconds) for seconds in (0.6, 1.6, 90, 120, 7200, 200_000)] == [
        *("1 second", "2 seconds", "90 seconds", "2.0 minutes", "2.0 hours", "2.3 days"),
    ]
