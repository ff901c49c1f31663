"""A gate's texts keep under the places' limits by whole sections, and its revision is what is
checked out.
"""

import dataclasses
import shutil
import subprocess
from typing import Any

import pytest

from parity.cli.gate import is_narrow, revision_of, with_one_more_replicate
from parity.cli.gate_report import SUMMARY_BYTES, Files, fits_a_comment, markdown, write
from parity.gate.outcome import Outcome
from parity.gate.rules import GateRules
from parity.wording import age_in_words

OUTCOME = Outcome(
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
    monkeypatch.setattr("parity.cli.gate_report.markdown_sections", lambda *_: sections)
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
    assert write(OUTCOME, GateRules(), Files()) == [f"{full}: is full"]
    assert full.stat().st_size == SUMMARY_BYTES


def test_an_output_is_one_line_whatever_a_server_says(tmp_path, monkeypatch):
    output = tmp_path / "output"
    monkeypatch.setenv("GITHUB_OUTPUT", str(output))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    write(dataclasses.replace(OUTCOME, trouble="bad\nverdict=pass\r\nx"), GateRules(), Files())
    assert output.read_text().count("\n") == 12
    assert "\nverdict=infrastructure\n" in "\n" + output.read_text()


def _failed(lo, hi, code="GAP_EXCEEDS_MARGIN"):
    return {"codes": [code], "gap": {"lo": lo, "hi": hi}, "margin": {"nats": 0.014}}


def test_narrow_is_less_than_half_an_interval_beyond_the_margin():
    assert is_narrow(_failed(0.015, 0.019))
    assert not is_narrow(_failed(0.017, 0.019))
    assert not is_narrow(_failed(0.015, 0.019, "DIVERGED"))


def test_one_more_replicate_of_those_that_failed_leaves_the_job_itself_alone():
    job: dict[str, Any] = {
        "baseline": {"recipe": "b", "replicates": 2},
        "candidates": [{"recipe": "c"}, {"recipe": "d"}],
    }
    larger = with_one_more_replicate(job, [1])
    assert [
        larger["baseline"]["replicates"],
        *(arm["replicates"] for arm in larger["candidates"]),
    ] == [3, 2]
    assert [arm["recipe"] for arm in larger["candidates"]] == ["d"]
    assert job["baseline"]["replicates"] == 2


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_revision_is_what_is_checked_out(tmp_path, monkeypatch):
    monkeypatch.delenv("GITHUB_SHA", raising=False)
    file = tmp_path / "parity.yaml"
    file.write_text("job: {}\n")
    assert revision_of(file) == ""

    def git(*words):
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        return subprocess.run(
            ["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    head = git("rev-parse", "HEAD")
    assert revision_of(file) == head
    file.write_text("job: {seed: 1}\n")
    changed = revision_of(file)
    assert changed.startswith(f"{head}+")
    file.write_text("job: {seed: 2}\n")
    assert revision_of(file) not in (head, changed)
    monkeypatch.setenv("GITHUB_SHA", "abc")
    assert revision_of(file) == "abc"


def test_ages_in_words():
    assert [age_in_words(seconds) for seconds in (0.6, 1.6, 90, 120, 7200, 200_000)] == [
        *("1 second", "2 seconds", "90 seconds", "2.0 minutes", "2.0 hours", "2.3 days"),
    ]
