"""Verdict documents for a terminal, and as canonical JSON.

Everything is made from the document (`Verdict.document()`), so that a verdict that came over the network reads the same.
"""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from parity.canonical_json import canonical_json
from parity.judging.document_types import VerdictDocument
from parity.report.facts import SUMMARY, Detail, details, judge_of, summary_row
from parity.report.headline import MARKS, answer, candidate_name, pair_words
from parity.report.sign_offs import NOT_A_PASS, Accepted, accepted_words

REPORT_SCHEMA = "parity.report/1"
_STYLES = {"pass": "bold green", "fail": "bold red", "inconclusive": "bold yellow"}


def render_text(documents: Sequence[VerdictDocument], console_width: int = 80, accepted: Accepted | None = None) -> RenderableType:
    """The answer in one line per candidate, then a table, then reasons, numbers and advice; for a rich console of the given width.

    A sign-off in `accepted` follows the answer of its candidate.
    """
    parts: list[RenderableType] = []
    for document in documents:
        state = document["verdict"]
        word, _, body = answer(document).partition(":")
        parts.append(Text.assemble((f"{MARKS[state]} {word}", _STYLES[state]), f":{body}"))
        if accepted and (sign_off := accepted.get(candidate_name(document))):
            parts.append(Text.assemble((NOT_A_PASS, "bold"), f": {accepted_words(sign_off)}"))
    parts += [Text(""), _summary_table(documents, console_width), Text("")]
    for document, lines in zip(documents, details(documents), strict=True):
        parts += [Text(pair_words(document), style="bold"), *map(detail_text, lines), Text("")]
    return Group(*parts)


def _summary_table(documents: Sequence[VerdictDocument], width: int) -> Table:
    table = Table(box=None, pad_edge=False, width=None, header_style="dim", padding=(0, 2, 0, 0))
    rows = [summary_row(document) for document in documents]
    for name, *cells in zip(SUMMARY, *rows, strict=True):
        whole = max(len(name), *(len(cell) for cell in cells)) if name != "candidate" and width >= 80 else None  # only a name may be folded
        left = name in ("candidate", "verdict")
        table.add_column(name, justify="left" if left else "right", overflow="fold", no_wrap=whole is not None, min_width=whole)
    for row in rows:
        table.add_row(*row)
    return table


def detail_text(line: Detail) -> Padding:
    """A reason, a fact or an advice, indented."""
    head = ((line.name, "bold"), "  ") if line.is_code else ((f"{line.name}: ", "dim"),)
    return Padding(Text.assemble(*head, line.words), (0, 0, 0, 2))


def render_json(documents: Sequence[VerdictDocument], accepted: Accepted | None = None) -> str:
    """Canonical JSON: one object {schema, engine_version, verdicts}, sorted keys, the same bytes for the same verdicts.

    With sign-offs that hold it has `sign_offs`, too.
    """
    signed = {"sign_offs": list(accepted.values())} if accepted else {}
    return canonical_json({"schema": REPORT_SCHEMA, "engine_version": judge_of(documents), "verdicts": list(documents), **signed})
