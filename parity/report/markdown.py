"""Verdict documents as Markdown for a pull request."""

from collections.abc import Sequence

from parity.judging.document_types import VerdictDocument
from parity.report.facts import SUMMARY, facts, reasons_and_advice, summary_row
from parity.report.headline import MARKS, answer, candidate_name
from parity.version import VERSION


def render_markdown(documents: Sequence[VerdictDocument]) -> str:
    """The answers, a table, and folded details; fit for a pull-request comment."""
    return "\n\n".join([*markdown_sections(documents), f"parity {VERSION}\n"])


def markdown_sections(documents: Sequence[VerdictDocument]) -> list[str]:
    """The parts of `render_markdown`: answers with their table, then the details of each candidate."""
    lines = []
    for document in documents:
        word, _, body = answer(document).partition(":")
        lines += [f"{MARKS[document['verdict']]} **{word}**:{escaped(body)}", ""]
    lines += ["| " + " | ".join(SUMMARY) + " |", "|" + "---|" * len(SUMMARY)]
    lines += ["| " + " | ".join(escaped(cell) for cell in summary_row(document)) + " |" for document in documents]
    return [
        "\n".join(lines),
        *(_markdown_details(document, *notes) for document, notes in zip(documents, reasons_and_advice(documents), strict=True)),
    ]


def _markdown_details(document: VerdictDocument, reasons: Sequence[tuple[str, str]], advice: Sequence[str]) -> str:
    lines = [f"<details><summary>{escaped(candidate_name(document))}: reasons and numbers</summary>", ""]
    lines += [f"- `{code}` {escaped(sentence)}" for code, sentence in reasons]
    lines += [f"- {name}: {escaped(value)}" for name, value in facts(document)]
    lines += [f"- next: {escaped(sentence)}" for sentence in advice]
    return "\n".join([*lines, "", "</details>"])


def escaped(text: str) -> str:
    """Text without what Markdown, or HTML in it, would take for its own."""
    for mark, code in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("\n", " ")):
        text = text.replace(mark, code)
    return text
