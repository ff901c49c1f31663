"""A check as JSON, and from that as text for a terminal, as Markdown, and as JUnit: the JSON may
come from a server.
"""

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from typing import Any

from parity.golden.answers import FINE, OPEN
from parity.golden.check import Check
from parity.golden.golden_document import GoldenCheckDocument, GoldenMeasuredDocument
from parity.golden.golden_file import Golden
from parity.inert import inert
from parity.wording import count, minus

SCHEMA = "parity.golden/1"


def head_words(check: Check) -> str:
    """What was compared: files, steps, how many the run has before and behind them, and what is on
    record of container and hardware.
    """
    golden = check.goldens[0]
    parts = [golden.curve.label, f"{check.measured.rows:,} steps"]
    if len(check.goldens) > 1:
        parts[0] += f" and {len(check.goldens) - 1} more"
    if before := check.measured.first_row:
        parts.append(f"{count(before, 'step')} before the resume not judged")
    if check.measured.unjudged_steps:
        parts.append(
            f"{count(check.measured.unjudged_steps, 'step')} behind the golden's last not judged"
        )
    for name in ("container", "hardware"):
        before, now = getattr(golden, name), getattr(check.facts, name)
        if now is not None:
            parts.append(f"{name} {before or 'not recorded'} -> {now}")
    return ", ".join(parts)


def headline(check: Check) -> str:
    """The answer and the line that decided, in one line."""
    return f"{check.words.chip}  {check.words.lead}"


def document(check: Check) -> GoldenCheckDocument:
    """The check as JSON-able values."""
    measured = check.measured
    values = GoldenMeasuredDocument()
    if check.words.rows:
        level, spike = measured.levels[0], measured.spike
        values = {
            "first_loss_nats": measured.first_nats,
            "first_loss_limit_nats": measured.first_limit,
            "batch_q": measured.agreement.q,
            "batch_r": measured.agreement.r,
            "gap_pct": measured.gap_pct,
            "gap_limit_pct": measured.gap_limit,
            "gap_rows": level.rows,
            "gap_first_step": level.first_step,
            "largest_pct": spike.pct,
            "largest_limit_pct": spike.limit_pct,
            "largest_step": spike.step,
            "norm_ratios": {ratio.name: ratio.typical for ratio in measured.norms},
        }
    return {
        "schema": SCHEMA,
        "answer": check.answer,
        "headline": headline(check),
        "line": check.words.line,
        "sentence": check.words.lead,
        "next": check.words.next,
        "scope": check.words.scope,
        "exit_code": check.exit_code,
        "recipe": check.recipe,
        "goldens": [golden.curve.label for golden in check.goldens],
        "run": check.run.label,
        "compared": f"{head_words(check)}, run {check.run.label}",
        "rows": [
            {"name": row.name, "value": row.value, "limit": row.limit} for row in check.words.rows
        ],
        "changed": measured.stated.changed,
        "first_step": measured.first_step,
        "steps": measured.rows,
        "unjudged_steps": measured.unjudged_steps,
        "measured": values,
    }


def text_lines(checked: Mapping[str, Any]) -> Iterator[str]:
    """The lines for a terminal, of a check's document: the answer, what was compared, one line per
    measurement, what the answer does not say, and the next step.
    """
    yield minus(checked["headline"])
    yield checked["compared"]
    rows = checked["rows"]
    name, value = (max((len(row[part]) for row in rows), default=0) for part in ("name", "value"))
    for row in rows:
        yield minus(f"{row['name']:<{name}}  {row['value']:<{value}}  ({row['limit']})")
    yield checked["scope"]
    yield f"Next: {checked['next']}"


def markdown(checked: Mapping[str, Any]) -> str:
    """A check's document for a comment or a step's summary."""
    from parity.report.formats.markdown import escaped, markdown_table  # noqa: PLC0415

    rows = [
        (row["name"], escaped(minus(row["value"])), escaped(row["limit"]))
        for row in checked["rows"]
    ]
    sections = [
        f"### {escaped(minus(checked['headline']))}",
        escaped(checked["compared"]),
        *([markdown_table([("", "", ""), *rows])] if rows else []),
        escaped(checked["scope"]),
        f"**Next:** {escaped(minus(checked['next']))}",
    ]
    return "\n\n".join(sections) + "\n"


def junit(checked: Mapping[str, Any]) -> str:
    """A check's document as JUnit XML: one case, which fails by its answer; what is open is an
    error.
    """
    answer = checked["answer"]
    outcome = "" if answer in FINE else "failure"
    if answer == OPEN:
        outcome = "error"
    root = ElementTree.Element("testsuites", name="parity golden", tests="1")
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=inert(checked["goldens"][0]),
        tests="1",
        failures=str(int(outcome == "failure")),
        errors=str(int(outcome == "error")),
        skipped="0",
    )
    properties = ElementTree.SubElement(suite, "properties")
    facts: Mapping[str, object] = {
        **{name: checked[name] for name in ("answer", "line", "recipe", "next")},
        **checked["measured"],
    }
    for name, value in facts.items():
        ElementTree.SubElement(properties, "property", name=name, value=inert(str(value)))
    case = ElementTree.SubElement(
        suite, "testcase", name=inert(checked["run"]), classname="parity.golden"
    )
    said = inert(checked["headline"])
    if outcome:
        ElementTree.SubElement(case, outcome, message=said)
    else:
        ElementTree.SubElement(case, "system-out").text = said
    ElementTree.indent(root)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + ElementTree.tostring(root, encoding="unicode")
        + "\n"
    )


def history_lines(golden: Golden) -> Iterator[str]:
    """A golden in lines: what it is of, and its history, oldest first."""
    curve = golden.curve
    yield (
        f"{curve.label}: {golden.recipe}, {len(curve.steps):,} steps, {curve.steps[0]:,} to "
        f"{curve.steps[-1]:,}, loss {curve.loss[0]:.4f} to {curve.loss[-1]:.4f}"
    )
    for name in ("container", "hardware", "data"):
        if (value := getattr(golden, name)) is not None:
            yield f"  {name}: {value}"
    if golden.random:
        yield f"  random: {', '.join(golden.random)}"
    for name, value in golden.facts.items():
        yield f"  {name}: {value}"
    for update in golden.updates:
        answer = "written" if update.answer is None else f"{update.answer}, {update.gap_pct:+.2f} %"
        commit = f" ({update.commit})" if update.commit else ""
        accepted = ", accepted" if update.accepted else ""
        yield minus(f"  {update.date} {answer}{accepted}: {update.reason}{commit}")
