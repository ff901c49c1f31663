"""Verdict documents as Markdown for a pull request."""

import re
from collections.abc import Iterable, Sequence

from parity.judging.document_types import VerdictDocument
from parity.report.facts import SUMMARY, Detail, details, summary_row
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
        lines += [marked(document["verdict"], answer(document)), ""]
        if accepted and (sign_off := accepted.get(candidate_name(document))):
            lines += [f"**{NOT_A_PASS}**: {escaped(accepted_words(sign_off))}", ""]
    lines.append(markdown_table([SUMMARY, *(tuple(map(escaped, summary_row(document))) for document in documents)]))
    return ["\n".join(lines), *map(folded, map(candidate_name, documents), details(documents))]


def marked(verdict: str, line: str) -> str:
    """A verdict in one line with its mark, the word in bold."""
    word, _, body = line.partition(":")
    return f"{MARKS[verdict]} **{word}**:{escaped(body)}"


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells that are Markdown as a table, the first one as its heading."""
    head, *body = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def folded(candidate: str, lines: Iterable[Detail]) -> str:
    """Reasons, facts and advice of a candidate, folded."""
    heads = ((f"`{name}`" if is_code else f"{name}:", words) for name, words, is_code in lines)
    listed = (f"- {head} {escaped(words)}" for head, words in heads)
    return "\n".join([f"<details><summary>{escaped(candidate)}: reasons and numbers</summary>", "", *listed, "", "</details>"])


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
