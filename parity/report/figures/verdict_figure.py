"""The figure of a verdict: its first lines, and the picture of its page; PNG, SVG or PDF."""

from typing import Any

from parity.judging.bundles.evidence import Case
from parity.judging.document_types import VerdictDocument
from parity.judging.verdict.path import with_path
from parity.report.figures.figure_file import SMALL, TINY, figure_file, new_figure, wrapped
from parity.report.figures.scene_figure import QUIET, TEXT_COLOURS, draw_scene
from parity.report.picture.case_scene import case_scene
from parity.report.picture.picture import legend_words
from parity.report.view import training_view
from parity.report.words import words
from parity.version import VERSION
from parity.wording import minus

PAGE_INCHES = (9.0, 5.0)
LEFT, RIGHT, BELOW, LINE = 0.75, 0.25, 0.62, 0.16  # inches: the edges, and a line of text


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
    said = words(training_view(document))
    width, height = PAGE_INCHES
    measure = wrapped(minus(" ".join([said.measure, said.interval])), 130)
    base = scene.baseline
    if scene.has_gap:
        what, legend = f"Gap to {base}, nats per token; up is worse", legend_words(scene)
    else:
        what, legend = f"Losses of {base} and {scene.traces[0].name}, nats per token", scene.legend
    digest = document["inputs"]["sha256_aligned"][:16]
    above, colour = 0.12, TEXT_COLOURS[scene.traces[0].state]
    lines: tuple[tuple[str, dict[str, Any]], ...] = (
        (said.chip, {"fontsize": SMALL, "fontweight": "bold", "color": colour}),
        (said.lead, {"fontsize": 13, "fontweight": "bold"}),
        (measure, {"fontsize": SMALL}),
    )
    for text, look in lines:
        figure.text(LEFT / width, 1.0 - above / height, text, va="top", **look)
        above += LINE * (text.count("\n") + 1) + (0.1 if look["fontsize"] > SMALL else 0.03)
    above += 0.1
    for text, x, side in ((what, LEFT, "left"), (legend, width - RIGHT, "right")):
        top = 1.0 - above / height
        figure.text(x / width, top, text, fontsize=TINY, color=QUIET, va="top", ha=side)
    above += LINE + 0.04
    draw_scene(figure, scene, (LEFT, BELOW, width - LEFT - RIGHT, height - above - BELOW))
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
