"""The table of candidates: safest first, the intervals on one axis."""

from collections.abc import Sequence
from html import escape

from parity.judging.case import AnyDocument
from parity.report.candidates import deciding, safest_first
from parity.report.number_words import mean_words
from parity.report.picture.forest import DrawnGap, GapAxis, axis_of, estimate_of
from parity.report.picture.scene import MANY
from parity.report.picture.svg_parts import shape
from parity.report.view import View, views_of
from parity.wording import minus

FIGURE_SPACE = "\u2007"  # as wide as a digit


def candidates_table(documents: Sequence[AnyDocument], selected: int = 0) -> str:
    """The table of two or more candidates, in the order of the picture; "" for one."""
    if len(documents) < 2:
        return ""
    ordered, dense = safest_first(views_of(documents)), len(documents) > MANY
    estimates = [estimate_of(view) for view in ordered]
    axis = axis_of([estimate for estimate in estimates if estimate])
    gaps = [minus(mean_words(view)) for view in ordered]
    axis_words = _axis_words(estimates, axis)
    places = max(len(gap.partition(".")[2]) for gap in gaps)
    gaps = [gap + _filler(gap, places) for gap in gaps]
    rows = []
    for place, view in enumerate(ordered):
        state, name = view.state, escape(view.candidate.title)
        is_last = dense and place + 1 < len(ordered) and ordered[place + 1].state != state
        looks = f"c-{state}{' cutrow' if is_last else ''}{' on' if place == selected else ''}"
        mark = (
            f'<svg viewBox="-7 -7 14 14" role="img" aria-label="{state}">{shape(state, 4.5)}</svg>'
        )
        word = "" if dense else f'<td class="st">{state}</td>'
        drawn = _interval(view, axis) if axis else ""
        rows.append(
            f'<tr class="{looks}" data-c="{place}" '
            f'aria-selected="{str(place == selected).lower()}"><td class="mkc">{mark}</td>'
            f'<td class="nm" title="{name}">{name}</td><td>{drawn}</td><td class="n '
            f'v-gap">{gaps[place]}</td>{word}</tr>'
        )
    title = f"{len(ordered)} candidates, safest first" if dense else "Candidate"
    verdict = "" if dense else '<th class="st">Verdict</th>'
    head = (
        f'<tr><th><span class="vh">Mark</span></th><th>{title}</th><th class="mid">{axis_words}'
        '</th><th class="n">Gap, nats</th>'
        f"{verdict}</tr>"
    )
    crowd = " crowd" if dense else ""
    table = (
        '<table role="grid" aria-label="Candidates, safest '
        f'first"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table>'
    )
    decides = escape(deciding(ordered).candidate.name)
    return (
        f'<section class="cand{crowd}" aria-label="Candidates" data-decides="{decides}">'
        f"{table}</section>"
    )


def _axis_words(estimates: Sequence[DrawnGap | None], axis: GapAxis | None) -> str:
    """What the lines of the intervals' axis are, and the arrows at its ends."""
    if axis is None:
        return ""
    lines = "line: 0" + (" · dashed: margin" if axis.margin else "")
    means = [estimate.mean for estimate in estimates if estimate]
    is_beyond = any(not axis.low <= mean <= axis.high for mean in means)
    return f"{lines} · › beyond" if is_beyond else lines


def _filler(gap: str, places: int) -> str:
    """Room for the decimals that a gap has fewer than others, so that their points stand below each
    other: digits follow one rule.
    """
    missing = places - len(gap.partition(".")[2]) if "." in gap else 0
    if not missing:
        return ""
    return f'<span aria-hidden="true">{FIGURE_SPACE * missing}</span>'


def _interval(view: View, axis: GapAxis) -> str:
    """The interval of a row on the axis of all rows."""
    lines = [("zero", 0.0), *([("mar", axis.margin)] if axis.margin else [])]
    drawn = [
        f'<line class="{look}" x1="{at}" x2="{at}" y1="0" y2="100%"/>'
        for look, at in ((look, _place(axis, nats)) for look, nats in lines)
    ]
    if estimate := estimate_of(view):
        drawn.append(
            f'<line class="wh" x1="{_place(axis, estimate.lo)}" x2="{_place(axis, estimate.hi)}" '
            'y1="50%" y2="50%"/>'
        )
        if axis.low <= estimate.mean <= axis.high:
            drawn.append(
                f'<svg x="{_place(axis, estimate.mean)}" y="50%">{shape(view.state, 4.5)}</svg>'
            )
        else:
            edge, turn = ("100%", 1) if estimate.mean > axis.high else ("0", -1)
            arrow = f"M{-8 * turn}-4L{-2 * turn} 0L{-8 * turn} 4"
            drawn.append(f'<svg x="{edge}" y="50%"><path class="beyond" d="{arrow}"/></svg>')
    return f'<svg class="fx" aria-hidden="true">{"".join(drawn)}</svg>'


def _place(axis: GapAxis, nats: float) -> str:
    return f"{100.0 * axis.place(nats) / axis.width:.2f}%"
