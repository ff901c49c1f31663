"""A verdict as HTML for a notebook: the answer, the picture, and the reasons and numbers folded.

No script, nothing from elsewhere.
"""

from html import escape

from parity.judging.case import AnyDocument
from parity.report.details import details
from parity.report.html.assets import verdict_style
from parity.report.html.code_words import with_code
from parity.report.html.page_details import details_html
from parity.report.picture.picture import picture
from parity.report.picture.scene import Scene
from parity.report.view import view_of
from parity.report.words import words
from parity.wording import minus

_NOTEBOOK_STYLE = """
.parity-verdict { max-width: 860px; padding: 8px; }
.parity-verdict p { margin: 4px 0; }
.parity-verdict .pic { --h: 280px; }
.parity-verdict summary { cursor: pointer; }
.parity-verdict ul { margin: 4px 0; padding-left: 20px; }
"""


def notebook_html(document: AnyDocument, scene: Scene) -> str:
    """The HTML of one verdict, with light or dark paper of its own."""
    view = view_of(document)
    said = words(view)
    (lines,) = details([view])
    sentences = minus(" ".join(part for part in (said.lead, said.measure, said.interval) if part))
    step = f"<p>Next: {with_code(minus(said.next))}</p>" if said.next else ""
    return (
        f'<div class="v parity-verdict"><style>{verdict_style()}{_NOTEBOOK_STYLE}</style>'
        f'<p><strong class="c-{said.verdict} tinted">{said.chip}</strong> '
        f"{escape(sentences)}</p>{picture(scene, with_points=False)}{step}"
        f"<details><summary>Reasons and numbers</summary>{details_html(lines)}</details></div>"
    )
