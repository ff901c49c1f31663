"""What a gate leaves behind: a line for the log, and files for CI.

The files are JSON, JUnit, Markdown, GitHub's summary and outputs. GitHub drops a step's summary
above 1024 KiB and refuses a comment above 65,536 characters. Whole sections are left out, never a
part of one, and the text says how many.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from parity.canonical_json import canonical_json
from parity.cli.terminal.option_words import OUTPUT
from parity.cli.terminal.options import Options, option
from parity.cli.terminal.wrong_calls import UsageError
from parity.gate.exit_under_rules import SAME_NUMERICS, exit_code_under, takes_same_numerics
from parity.gate.gate_document import GateReportDocument
from parity.gate.outcome import (
    NOT_JUDGED,
    STATED_ONLY,
    GateOutcome,
    numerics_lines,
    origin,
)
from parity.gate.rules import GateRules
from parity.report.candidates import deciding
from parity.report.formats.json_text import judge_of
from parity.report.formats.junit import render_junit
from parity.report.formats.markdown import escaped, markdown_sections
from parity.report.sign_off_words import NOT_A_PASS
from parity.version import VERSION

SCHEMA = "parity.gate/1"
STDOUT = "-"
COMMENT_CHARACTERS = 65_000  # some are left for the mark by which a comment is found again
SUMMARY_BYTES = 1024 * 1024


class ReportFiles(Options, panel=OUTPUT):
    """The reports that are wanted."""

    json: str | None = option(
        None, "Write the outcome as JSON; `-` prints it instead of the headline.", "FILE"
    )
    junit: str | None = option(None, "Write JUnit XML to this file.", "FILE")
    markdown: str | None = option(
        None, "Write the text of a pull-request comment to this file.", "FILE"
    )

    def prepare(self) -> None:
        """Check that they can be written, before hours are waited; one of an earlier gate goes, so
        that none is taken for this.
        """
        for path in (
            Path(path) for path in (self.json, self.junit, self.markdown) if path and path != STDOUT
        ):
            if not path.parent.is_dir() or path.is_dir() or not os.access(path.parent, os.W_OK):
                raise UsageError(
                    f"{path}: cannot be written; expected a file name in an existing folder"
                )
            path.unlink(missing_ok=True)


def document(outcome: GateOutcome, rules: GateRules) -> GateReportDocument:
    """The outcome as JSON-able values, with every verdict whole."""
    code, note = exit_code_under(outcome, rules)
    return GateReportDocument(
        schema=SCHEMA,
        engine_version=judge_of(outcome.verdicts),
        result=outcome.result,
        exit_code=code,
        note=note,
        headline=outcome.line,
        trouble=outcome.trouble,
        cached=outcome.source == "concluded",
        origin=origin(outcome),
        age_seconds=outcome.age_seconds,
        expires_at=outcome.expires_at,
        reused=outcome.reused,
        confirms=outcome.confirms,
        unconfirmed=outcome.unconfirmed,
        job=outcome.job,
        url=outcome.url,
        config_hash=outcome.config_hash,
        revision=outcome.revision,
        trained=list(outcome.trained),
        accepted=outcome.is_accepted,
        sign_offs=list(outcome.sign_offs),
        earlier=list(outcome.earlier),
        numerics={name: dict(values) for name, values in outcome.numerics.items()},
        verdicts=list(outcome.verdicts),
    )


def markdown(outcome: GateOutcome, rules: GateRules, fits: Callable[[str], bool]) -> str:
    """A comment or a summary: the result first, then as many whole sections as fit."""
    note = exit_code_under(outcome, rules)[1]
    link = f"[the job's page]({outcome.url})" if outcome.url else ""
    facts = [
        escaped(origin(outcome)),
        f"revision `{outcome.revision}`" if outcome.revision else "",
        link,
        escaped(note),
    ]
    title = NOT_JUDGED if outcome.result == "unrecorded" else outcome.result
    if outcome.is_accepted:
        title = f"{NOT_A_PASS.lower()} ({outcome.result})"
    elif takes_same_numerics(outcome):
        title = f"{SAME_NUMERICS} ({outcome.result})"
    listed = [
        *outcome.trained,
        *(f"earlier answer: {answer}" for answer in outcome.earlier),
        *numerics_lines(outcome),
    ]
    trained = "".join(f"\n- {escaped(line)}" for line in listed)
    first = f"### parity: {title}\n\n{' · '.join(fact for fact in facts if fact)}" + (
        f"\n{trained}" if trained else ""
    )
    if outcome.trouble is not None:
        rest = [escaped(outcome.line)]
    else:
        rest = markdown_sections(outcome.views, outcome.accepted)
    last = f"parity {VERSION}\n"
    shown, left_out = [first], 0
    for section in rest:
        if fits("\n\n".join([*shown, section, _left_out(len(rest)), last])):
            shown.append(section)
        else:
            left_out += 1
    return "\n\n".join([*shown, *([_left_out(left_out)] if left_out else []), last])


def _left_out(sections: int) -> str:
    return (
        f"*{sections} sections are left out, because they would not fit here; the job's page and "
        "the JSON report have them.*"
    )


def fits_a_comment(text: str) -> bool:
    """Whether GitHub takes it as a comment."""
    return len(text) <= COMMENT_CHARACTERS


def write(outcome: GateOutcome, rules: GateRules, files: ReportFiles) -> list[str]:
    """Write the reports that are wanted, and GitHub's where it runs this; returns what could not be
    written.
    """
    troubles, code = [], exit_code_under(outcome, rules)[0]
    if files.json and files.json != STDOUT:
        troubles.append(_put(files.json, canonical_json(document(outcome, rules)), "w"))
    if files.junit:
        trouble = outcome.trouble or (STATED_ONLY if code and outcome.is_stated_only else None)
        troubles.append(
            _put(
                files.junit,
                render_junit(outcome.verdicts, trouble, _facts(outcome, rules), outcome.accepted),
                "w",
            )
        )
    if files.markdown:
        troubles.append(_put(files.markdown, markdown(outcome, rules, fits_a_comment), "w"))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        room = SUMMARY_BYTES - (Path(summary).stat().st_size if Path(summary).exists() else 0)
        text = markdown(outcome, rules, lambda text: len(text.encode()) < room)
        troubles.append(
            _put(summary, text, "a") if len(text.encode()) < room else f"{summary}: is full"
        )
    if output := os.environ.get("GITHUB_OUTPUT"):
        troubles.append(
            _put(
                output,
                "".join(f"{name}={value}\n" for name, value in _outputs(outcome, rules).items()),
                "a",
            )
        )
    return [trouble for trouble in troubles if trouble]


def _facts(outcome: GateOutcome, rules: GateRules) -> dict[str, str | None]:
    """What JUnit says of the whole gate: where the verdict and the baseline come from, with their
    ages, and what the rules change.
    """
    return {
        "origin": origin(outcome),
        "baseline_reused": outcome.reused,
        "revision": outcome.revision or None,
        "trained": "; ".join(outcome.trained) or None,
        "url": outcome.url,
        "note": exit_code_under(outcome, rules)[1] or None,
        "earlier_answers": "; ".join(outcome.earlier) or None,
        "numerics": "; ".join(numerics_lines(outcome)) or None,
    }


def _outputs(outcome: GateOutcome, rules: GateRules) -> dict[str, str]:
    """One line each, whatever a server or a file put into it: a line break would be another
    output.
    """
    view = deciding(outcome.views) if outcome.verdicts else None
    gap, margin = (view.recorded_gap, view.margin) if view else (None, None)
    values = {
        "verdict": outcome.result,
        "exit_code": exit_code_under(outcome, rules)[0],
        "headline": outcome.line,
        "candidate": view and view.candidate.name,
        "gap_nats": gap and gap.mean,
        "ci_low": gap and gap.lo,
        "ci_high": gap and gap.hi,
        "ci_level": view.confidence if view and gap else None,
        "margin_nats": margin and margin["nats"],
        "cached": "true" if outcome.source == "concluded" else "false",
        "accepted": "true" if outcome.is_accepted else "false",
        "job": outcome.job,
        "url": outcome.url,
    }
    return {
        name: "" if value is None else " ".join(str(value).split())
        for name, value in values.items()
    }


def _put(path: str, text: str, mode: Literal["w", "a"]) -> str | None:
    try:
        with Path(path).open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        return f"{path}: can't be written ({error.strerror})"
    return None
