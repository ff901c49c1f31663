"""Comparisons of evaluations for a terminal and for a pull request; everything is made from the document."""

import io
from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from parity.judging.evaluations.document_types import EvaluationDocument
from parity.report.evaluation_facts import Cells, answer, arm_rows, comparison_rows, notes, reasons_and_advice
from parity.report.headline import MARKS
from parity.report.markdown import escaped
from parity.version import VERSION

WIDTH = 80


def render_text(document: EvaluationDocument, width: int = WIDTH) -> str:
    """The answer in one line, what was compared, the arms side by side, then reasons and advice; wrapped to `width` columns."""
    parts: list[RenderableType] = [Text(f"{MARKS[document['verdict']]} {answer(document)}"), Text("")]
    for table in _tables(document):
        parts += [_table(table), Text("")]
    reasons, advice = reasons_and_advice(document)
    lines = [f"{name}: {value}" for name, value in notes(document)]
    lines += [f"{code}  {sentence}" for code, sentence in reasons]
    lines += [f"next: {sentence}" for sentence in advice]
    parts += [Padding(Text(line), (0, 0, 0, 2)) for line in lines]
    page = io.StringIO()
    console = Console(file=page, width=width, color_system=None, highlight=False)
    for part in parts:
        console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines())


def _tables(document: EvaluationDocument) -> list[Sequence[Cells]]:
    """The tables that have a row."""
    return [rows for rows in (comparison_rows(document), arm_rows(document)) if len(rows) > 1]


def _table(rows: Sequence[Cells]) -> Table:
    """Names on the left, a last column of words on the left too where there are four, everything else on the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, heading in enumerate(rows[0]):
        left = number in (0, 3)
        table.add_column(Text(heading), justify="left" if left else "right", overflow="fold", no_wrap=number in (1, 2) and len(rows[0]) > 3)
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    return table


def render_markdown(document: EvaluationDocument) -> str:
    """The answer, two tables, then reasons, numbers and advice folded; fit for a pull-request comment."""
    word, _, body = answer(document).partition(":")
    reasons, advice = reasons_and_advice(document)
    lines = [f"- `{code}` {escaped(sentence)}" for code, sentence in reasons]
    lines += [f"- {name}: {escaped(value)}" for name, value in notes(document)]
    lines += [f"- next: {escaped(sentence)}" for sentence in advice]
    parts = [
        f"{MARKS[document['verdict']]} **{word}**:{escaped(body)}",
        *(markdown_table([tuple(map(escaped, row)) for row in table]) for table in _tables(document)),
        "\n".join([f"<details><summary>{escaped(document['candidate']['name'])}: reasons and numbers</summary>", "", *lines]),
        "</details>",
        f"parity {VERSION}\n",
    ]
    return "\n\n".join(parts)


def markdown_table(rows: Sequence[Cells]) -> str:
    """Rows of cells that are Markdown as a table, the first one as its heading."""
    head, *body = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])
