"""The figure of a verdict: its first lines, and the picture of its page; PNG, SVG or PDF."""

from typing import Any

from parity.judging.case import Case
from parity.judging.document_types import VerdictDocument
from parity.judging.verdict.path import with_path
from parity.report.figures.figure_file import TINY, figure_file, new_figure
from parity.report.figures.scene_figure import LEFT, QUIET, RIGHT, draw_heading, draw_scene
from parity.report.picture.case_scene import case_scene
from parity.report.view import training_view
from parity.report.words import words
from parity.version import VERSION

PAGE_INCHES = (9.0, 5.0)
BELOW = 0.62  # inches: the room for the axis and the two lines below it


def draw_figure(path: str, document: VerdictDocument, case: Case) -> None:
    """Write the figure of one verdict document and its runs to `path`, whose ending chooses the
    format. Raises FigureError.
    """
    with figure_file(path, PAGE_INCHES, words(training_view(document)).line) as figure:
        _draw(figure, document, case)


def verdict_figure(document: VerdictDocument, case: Case) -> Any:
    """The same figure as a matplotlib Figure. Raises FigureError where matplotlib is missing."""
    with new_figure(PAGE_INCHES, "figure()") as figure:
        _draw(figure, document, case)
    return figure


def _draw(figure: Any, document: VerdictDocument, case: Case) -> None:
    scene = case_scene(case, [_with_path(document, case)])
    width, height = PAGE_INCHES
    above = draw_heading(figure, words(training_view(document)), scene)
    draw_scene(figure, scene, (LEFT, BELOW, width - LEFT - RIGHT, height - above - BELOW))
    digest = document["inputs"]["sha256_aligned"][:16]
    foot = f"parity {VERSION}, aligned series sha256 {digest}..."
    for text, level in ((scene.note, 0.26), (foot, 0.1)):
        figure.text(LEFT / width, level / height, text, fontsize=TINY, color=QUIET, va="bottom")


def _with_path(document: VerdictDocument, case: Case) -> VerdictDocument:
    """The document with its path, as the page shows it."""
    if document.get("path") is not None:
        return document
    name = document["candidate"]["name"]
    judged = [verdict for verdict in case.verdicts() if verdict.candidate == name]
    return {**document, "path": with_path(judged)[0]["path"]}
