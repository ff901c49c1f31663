"""A gate's texts keep under the places' limits by whole sections."""

import dataclasses

from parity.cli.gate.report import SUMMARY_BYTES, ReportFiles, fits_a_comment, markdown, write
from parity.gate.outcome import GateOutcome
from parity.gate.rules import GateRules
from parity.wording import age_in_words

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


def test_ages_in_words():
    assert [age_in_words(seconds) for seconds in (0.6, 1.6, 90, 120, 7200, 200_000)] == [
        *("1 second", "2 seconds", "90 seconds", "2.0 minutes", "2.0 hours", "2.3 days"),
    ]
