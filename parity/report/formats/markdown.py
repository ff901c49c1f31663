"""Verdicts as Markdown for a pull request."""

import re
from collections.abc import Iterable, Sequence

from parity.judging.case import AnyDocument
from parity.report.answer import answer_words
from parity.report.candidates import safest_first
from parity.report.details import Detail, details
from parity.report.evaluation_tables import evaluation_tables
from parity.report.formats.terminal import interval_bars
from parity.report.sign_off_words import NOT_A_PASS, Accepted, accepted_words
from parity.report.summary import SUMMARY, summary_row
from parity.report.view import EvaluationView, View, views_of
from parity.version import VERSION
from parity.wording import minus

# What Markdown, HTML in it, or GitHub would take for its own. As entities, which hold inside HTML
# too; GitHub looks for mentions, references and addresses after it has decoded entities, so a space
# of no width parts those.
_ENTITIES: dict[str, str | int | None] = {mark: f"&#{ord(mark)};" for mark in "|[]*~\\"}
_ENTITIES |= {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\n": " ", "\r": " ", "@": "@&#8203;"}
_PARTED = (
    (re.compile(r"(?<![^\W_])_|_(?![^\W_])"), "&#95;"),
    (re.compile(r"(?<!&)#(?=\d)"), "#&#8203;"),  # not that of an entity
    (re.compile(r"\b(GH-)(?=\d)", re.IGNORECASE), r"\1&#8203;"),
    (re.compile(r"://"), ":&#8203;//"),
    (re.compile(r"\b(www)\.", re.IGNORECASE), r"\1&#8203;."),
)


def render_markdown(documents: Sequence[AnyDocument], accepted: Accepted | None = None) -> str:
    """The answer, the intervals, the strip, and folded details; fit for a pull-request comment. A
    sign-off follows the answer.
    """
    return "\n\n".join([*markdown_sections(views_of(documents), accepted), f"parity {VERSION}\n"])


def markdown_sections(views: Sequence[View], accepted: Accepted | None = None) -> list[str]:
    """The parts of `render_markdown`: the answer with its figure and strip, then the details of
    each candidate.
    """
    ordered = safest_first(views)
    said = answer_words(views, accepted=accepted)
    sections = [f"### {said.chip}: {escaped(said.lead)}"]
    sentences = [said.measure, said.interval]
    sections.append(" ".join(escaped(minus(sentence)) for sentence in sentences if sentence))
    sign_offs = [
        accepted[view.candidate.name]
        for view in ordered
        if accepted and view.candidate.name in accepted
    ]
    sections += [f"**{NOT_A_PASS}**: {escaped(accepted_words(one))}" for one in sign_offs]
    if bars := interval_bars(ordered):
        sections.append("\n".join(["```", *(line.replace("`", "'") for line in bars), "```"]))
    if len(views) == 1:
        strip = [
            (fact.name, f"**{escaped(minus(fact.value))}**", escaped(minus(fact.why)))
            for fact in said.strip
        ]
        sections.append(markdown_table([("", "", ""), *strip]))
    else:
        rows = [tuple(escaped(minus(cell)) for cell in summary_row(view)) for view in ordered]
        sections.append(markdown_table([SUMMARY, *rows]))
    if said.next:
        sections.append(f"**Next:** {escaped(minus(said.next))}")
    if said.next_open:
        sections.append(f"**Open:** {escaped(minus(said.next_open))}")
    return ["\n\n".join(sections), *_folded_details(views)]


def _folded_details(views: Sequence[View]) -> list[str]:
    """Reasons and numbers of each candidate, folded; of evaluations below their tables."""
    folds = [
        folded(view.candidate.title, lines)
        for view, lines in zip(views, details(views), strict=True)
    ]
    return [
        "\n\n".join([*_evaluation_tables(view), fold]) if isinstance(view, EvaluationView) else fold
        for view, fold in zip(views, folds, strict=True)
    ]


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells that are Markdown as a table, the first one as its heading."""
    head, *body = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def folded(candidate: str, lines: Iterable[Detail]) -> str:
    """Reasons, facts and advice of a candidate, folded."""
    heads = (
        (f"`{name}`" if is_code else f"{name}:", sentence) for name, sentence, is_code in lines
    )
    listed = (f"- {head} {escaped(minus(sentence))}" for head, sentence in heads)
    return "\n".join(
        [
            f"<details><summary>{escaped(candidate)}: reasons and numbers</summary>",
            "",
            *listed,
            "",
            "</details>",
        ]
    )


def escaped(text: str) -> str:
    """Text without markup: it mentions nobody, refers to no issue and links nowhere."""
    text = text.translate(str.maketrans(_ENTITIES))
    for pattern, replacement in _PARTED:
        text = pattern.sub(replacement, text)
    return text


def _evaluation_tables(view: EvaluationView) -> list[str]:
    """The tables of a comparison of evaluations in Markdown."""
    return [
        markdown_table([tuple(escaped(minus(cell)) for cell in row) for row in table])
        for table in evaluation_tables(view)
    ]
