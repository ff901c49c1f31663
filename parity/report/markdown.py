"""Verdict documents as Markdown for a pull request."""

import re
from collections.abc import Sequence

from parity.judging.document_types import VerdictDocument
from parity.report.facts import SUMMARY, facts, reasons_and_advice, summary_row
from parity.report.headline import MARKS, answer, candidate_name
from parity.report.sign_offs import NOT_A_PASS, Accepted, accepted_words
from parity.version import VERSION


def render_markdown(documents: Sequence[VerdictDocument], accepted: Accepted | None = None) -> str:
    """The answers, a table, and folded details; fit for a pull-request comment. A sign-off in `accepted` follows its answer."""
    return "\n\n".join([*markdown_sections(documents, accepted), f"parity {VERSION}\n"])


def markdown_sections(documents: Sequence[VerdictDocument], accepted: Accepted | None = None) -> list[str]:
    """The parts of `render_markdown`: answers with their table, then the details of each candidate."""
    lines = []
    for document in documents:
        word, _, body = answer(document).partition(":")
        lines += [f"{MARKS[document['verdict']]} **{word}**:{escaped(body)}", ""]
        if accepted and (sign_off := accepted.get(candidate_name(document))):
            lines += [f"**{NOT_A_PASS}**: {escaped(accepted_words(sign_off))}", ""]
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


# What Markdown, HTML in it, or GitHub would take for its own. As entities, which hold inside HTML too; GitHub looks for mentions,
# references and addresses after it has decoded entities, so a space of no width parts those.
_ENTITIES: dict[str, str | int | None] = {mark: f"&#{ord(mark)};" for mark in "|[]*~\\"}
_ENTITIES |= {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\n": " ", "\r": " ", "@": "@&#8203;"}
_PARTED = (
    (re.compile(r"(?<![^\W_])_|_(?![^\W_])"), "&#95;"),
    (re.compile(r"(?<!&)#(?=\d)"), "#&#8203;"),  # not that of an entity
    (re.compile(r"\b(GH-)(?=\d)", re.IGNORECASE), r"\1&#8203;"),
    (re.compile(r"://"), ":&#8203;//"),
    (re.compile(r"\b(www)\.", re.IGNORECASE), r"\1&#8203;."),
)


def escaped(text: str) -> str:
    """Text without markup: it mentions nobody, refers to no issue and links nowhere."""
    text = text.translate(str.maketrans(_ENTITIES))
    for pattern, replacement in _PARTED:
        text = pattern.sub(replacement, text)
    return text
