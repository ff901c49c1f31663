"""Comparisons of evaluations for a terminal and for a pull request; everything is made from the document."""

import io
from collections.abc import Sequence
from itertools import chain

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from parity.judging.evaluations.document_types import EvaluationDocument
from parity.report import markdown
from parity.report.evaluation_facts import Cells, answer, arm_rows, comparison_rows, details
from parity.report.headline import MARKS
from parity.report.text import detail_text
from parity.version import VERSION

WIDTH = 80


def render_text(document: EvaluationDocument, width: int = WIDTH) -> str:
    """The answer in one line, what was compared, the arms side by side, then reasons and advice; wrapped to `width` columns."""
    parts: list[RenderableType] = [Text(f"{MARKS[document['verdict']]} {answer(document)}"), Text("")]
    for rows in _tables(document):
        parts += [_table(rows), Text("")]
    reasons, notes, advice = details(document)
    parts += map(detail_text, [*notes, *reasons, *advice])
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
    tables = [markdown.markdown_table([tuple(map(markdown.escaped, row)) for row in table]) for table in _tables(document)]
    more = markdown.folded(document["candidate"]["name"], chain.from_iterable(details(document)))
    return "\n\n".join([markdown.marked(document["verdict"], answer(document)), *tables, more, f"parity {VERSION}\n"])
