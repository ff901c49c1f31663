"""A verdict as HTML for a notebook: the answer, the gap chart, and the reasons and numbers folded. No script, nothing from elsewhere."""

from html import escape

from parity.judging.document_types import VerdictDocument
from parity.judging.live.gap_chart import BinnedGap
from parity.report.facts import NEXT, details
from parity.report.gap_svg import STYLE, gap_svg
from parity.report.headline import MARKS, answer
from parity.report.html import details_html

_OWN_STYLE = """
.parity-verdict { max-width: 760px; font: 14px/1.5 system-ui, sans-serif; }
.parity-verdict p { margin: 4px 0; }
.parity-verdict summary { cursor: pointer; }
.parity-verdict ul { margin: 4px 0; padding-left: 20px; }
"""


def notebook_html(document: VerdictDocument, gap: BinnedGap) -> str:
    """The HTML of one verdict. Text has the notebook's own colour, so that it is readable on light and on dark paper."""
    word, _, body = answer(document).partition(":")
    (lines,) = details([document])
    first = [line for line in lines if line.name == NEXT][:1]
    step = "".join(f"<p>next: {escape(line.words)}</p>" for line in first)
    folded = details_html(line for line in lines if line not in first)
    return (
        f'<div class="parity-verdict"><style>{_OWN_STYLE}{STYLE}</style>'
        f"<p><strong>{MARKS[document['verdict']]} {escape(word)}</strong>:{escape(body)}</p>{gap_svg(document, gap)}{step}"
        f"<details><summary>Reasons and numbers</summary>{folded}</details></div>"
    )
