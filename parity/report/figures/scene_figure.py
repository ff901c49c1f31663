"""The picture of a verdict for print: the page's scene on the page's axes, drawn with matplotlib.

All places are those of the page, in percent of the plot; colours are those of its light theme
(`static/verdict.css`).
"""

from collections.abc import Sequence
from typing import Any

from parity.report.figures.figure_file import LABEL_BOX, SMALL, TINY, wrapped
from parity.report.picture.axes import Axes, axes_of, x_ticks, y_ticks
from parity.report.picture.judged_panel import (
    has_label,
    judged_places,
    panel_title,
    panel_widths,
)
from parity.report.picture.labels import (
    LEFT_HALF,
    broken_words,
    level_words,
    mark_kinds,
    near_steps,
    window_words,
)
from parity.report.picture.lines import POINTS_SEEN, is_finite, margin_levels
from parity.report.picture.picture import legend_words
from parity.report.picture.scene import Marks, Points, Scene, Trace, TraceState
from parity.report.picture.spread import spread
from parity.report.picture.svg_parts import NAME_CHARACTERS
from parity.report.words import Words
from parity.wording import cut, minus

INK, QUIET, GRID, PANEL, BASELINE = "#16191d", "#5c646e", "#dfe3e8", "#f2f3f3", "#0072b2"
COLOURS: dict[TraceState, str] = {
    "pass": "#009e73",
    "fail": "#d55e00",
    "inconclusive": "#cc79a7",
    "live": QUIET,
}
TEXT_COLOURS: dict[TraceState, str] = {
    "pass": "#00704f",
    "fail": "#b04200",
    "inconclusive": "#96437a",
    "live": QUIET,
}
SHAPES: dict[TraceState, str] = {"pass": "o", "fail": "s", "inconclusive": "D", "live": "o"}
PANEL_BOX = LABEL_BOX | {"fc": PANEL, "alpha": 1.0}  # no line runs through a number
MARGIN_DASHES = (0, (7, 3, 1.5, 3))
PIXELS = 96.0  # an inch of the page, by which the panel's width is known
WHISKER, APART = 0.15, 0.21  # inches: the first whisker from the panel's edge, and each next one
LABEL = 0.13  # inches from the last whisker to the numbers
LINE = 9.5  # points between the lines of a label
LEFT, RIGHT, HEAD_LINE = 0.75, 0.25, 0.16  # inches: the edges, and a line of the heading


def draw_heading(figure: Any, said: Words, scene: Scene) -> float:
    """Write the answer, and what the picture below it is; returns the inches that this takes from
    the figure's top.
    """
    width, height = figure.get_size_inches()
    measure = wrapped(minus(" ".join([said.measure, said.interval])), 130)
    base = scene.baseline
    if scene.has_gap:
        what, legend = f"Gap to {base}, nats per token; up is worse", legend_words(scene)
    else:
        what, legend = f"Losses of {base} and {scene.traces[0].name}, nats per token", scene.legend
    above, colour = 0.12, TEXT_COLOURS[scene.traces[0].state]
    lines: tuple[tuple[str, dict[str, Any]], ...] = (
        (said.chip, {"fontsize": SMALL, "fontweight": "bold", "color": colour}),
        (said.lead, {"fontsize": 13, "fontweight": "bold"}),
        (measure, {"fontsize": SMALL}),
    )
    for text, look in lines:
        figure.text(LEFT / width, 1.0 - above / height, text, va="top", **look)
        above += HEAD_LINE * (text.count("\n") + 1) + (0.1 if look["fontsize"] > SMALL else 0.03)
    above += 0.1
    for text, x, side in ((what, LEFT, "left"), (legend, width - RIGHT, "right")):
        top = 1.0 - above / height
        figure.text(x / width, top, text, fontsize=TINY, color=QUIET, va="top", ha=side)
    return above + HEAD_LINE + 0.04


def draw_scene(figure: Any, scene: Scene, inches: tuple[float, float, float, float]) -> None:
    """Draw a scene into the rectangle `inches` (left, bottom, width, height) of a figure, with the
    panel of what was judged on its right.
    """
    axes = axes_of(scene)
    left, bottom, width, height = inches
    panel = min(panel_widths(scene)[0] / PIXELS, 0.4 * width)
    page_width, page_height = figure.get_size_inches()
    area, judged = (
        figure.add_axes(
            (start / page_width, bottom / page_height, across / page_width, height / page_height)
        )
        for start, across in ((left, width - panel), (left + width - panel, panel))
    )
    for place, limits in ((area, (0.0, 100.0)), (judged, (0.0, panel))):
        place.set(xlim=limits, ylim=(100.0, 0.0), xticks=[], yticks=[])
        for spine in place.spines.values():
            spine.set_visible(False)
    judged.set_facecolor(PANEL)
    _axes(area, scene, axes)
    if scene.has_gap:
        for place in (area, judged):
            _levels(place, scene, axes)
        selected = scene.traces[scene.selected]
        for trace in (*(trace for trace in scene.traces if trace is not selected), selected):
            _trace(area, trace, axes, is_selected=trace is selected)
        _marks(area, selected.marks, selected.state, axes)
        _judged(judged, scene, axes)
        if scene.window and selected.trend:
            ends = list(zip(scene.window, selected.trend, strict=True))
            _plot(area, ends, axes, "--", color=INK, linewidth=1.2, zorder=3.5)
    else:
        _losses(area, judged, scene, axes)
    _broken(area, scene.traces[scene.selected], axes)
    judged.text(
        WHISKER, 102.0, panel_title(scene), color=QUIET, fontsize=TINY, va="top", clip_on=False
    )


def _axes(area: Any, scene: Scene, axes: Axes) -> None:
    """The window, the grid, and the numbers along both axes."""
    if scene.window:
        first, last = (axes.x(step) for step in scene.window)
        area.axvspan(first, last, color=PANEL, linewidth=0, zorder=0.2)
        what, steps = window_words(scene)
        area.text(first + 0.8, 1.5, f"{what}{steps}", color=INK, fontsize=TINY, va="top")
    for value, words in y_ticks(axes, is_signed=scene.has_gap):
        level = axes.far_y(value)
        area.axhline(level, color=GRID, linewidth=0.6, zorder=0.5)
        area.text(-1.0, level, words, color=QUIET, fontsize=TINY, ha="right", va="center")
    for tick in x_ticks(scene, axes):
        area.text(tick.x, 102.0, tick.words, color=QUIET, fontsize=TINY, ha=tick.anchor, va="top")


def _levels(place: Any, scene: Scene, axes: Axes) -> None:
    """Zero, which is the baseline, and the margin; named in the plot."""
    place.axhline(axes.far_y(0.0), color=BASELINE, linewidth=1.2, zorder=2.0)
    is_plot = place.get_xlim() == (0.0, 100.0)
    for level in margin_levels(scene):
        place.axhline(axes.far_y(level), color=INK, linewidth=0.9, linestyle=MARGIN_DASHES)
        if is_plot and 0.0 <= axes.far_y(level) <= 100.0:
            note = f" ({scene.margin_note})" if scene.margin_note and level > 0.0 else ""
            words = f"{level_words(scene, level)}{note}"
            _name(place, words, axes.far_y(level), INK, above=level > 0.0)
    if is_plot:
        _name(place, f"{cut(scene.baseline, NAME_CHARACTERS)} = 0", axes.far_y(0.0), BASELINE)


def _name(place: Any, words: str, level: float, colour: str, *, above: bool = False) -> None:
    place.annotate(
        words,
        (0.8, level),
        xytext=(0, 3 if above else -3),
        textcoords="offset points",
        color=colour,
        fontsize=TINY,
        va="bottom" if above else "top",
        bbox=LABEL_BOX,
        zorder=4.0,
    )


def _trace(area: Any, trace: Trace, axes: Axes, *, is_selected: bool) -> None:
    """A candidate's gap on its way: band, dots and line; the line alone of one that is not
    selected.
    """
    colour = COLOURS[trace.state]
    path = [point for point in trace.path if is_finite(point)]
    if is_selected:
        outer = [point for point in trace.outer if is_finite(point)]
        for band, alpha in ((outer, 0.1), (path, 0.17)):
            area.fill_between(
                [axes.x(point["step"]) for point in band],
                [axes.far_y(point["lo"]) for point in band],
                [axes.far_y(point["hi"]) for point in band],
                color=colour,
                alpha=alpha,
                linewidth=0,
            )
        inside = [(step, gap) for step, gap in trace.dots if axes.low <= gap <= axes.high]
        _plot(area, inside, axes, ".", color=colour, markersize=2.5, alpha=0.34, linewidth=0)
    points = [(point["step"], point["mean"]) for point in path]
    look = "o-" if is_selected and len(points) <= POINTS_SEEN else "-"
    width = 1.6 if is_selected else 1.0
    _plot(area, points, axes, look, color=colour, linewidth=width, markersize=3.5, zorder=3.0)


def _plot(area: Any, points: Points, axes: Axes, look: str, **line: Any) -> None:
    at = [axes.x(step) for step, _ in points], [axes.far_y(value) for _, value in points]
    area.plot(*at, look, **line)


def _marks(area: Any, marks: Marks, state: TraceState, axes: Axes) -> None:
    """Triangles at the edges, the candidate's above, the baseline's below: spikes filled, NaN
    hollow.
    """
    for row, (look, _, _, (base, own)) in enumerate(mark_kinds(marks)):
        for steps, edge, shape, colour in (
            (base, 98.0 - 3.0 * row, "^", BASELINE),
            (own, 2.0 + 3.0 * row, "v", COLOURS[state]),
        ):
            places = [axes.x(group[0]) for group in near_steps(steps, axes)]
            area.plot(
                places,
                [edge] * len(places),
                shape,
                color=colour,
                markerfacecolor="white" if look == "bad" else colour,
                markersize=4,
                clip_on=False,
            )


def _broken(area: Any, trace: Trace, axes: Axes) -> None:
    """The steps at which a candidate without a gap, or its baseline, has NaN."""
    if not trace.broken:
        return
    first, last = axes.x(trace.broken[0]), axes.x(trace.broken[-1])
    area.axvspan(first, last, color=COLOURS[trace.state], alpha=0.22, linewidth=0)
    area.axvline(first, color=COLOURS[trace.state], linewidth=1.4, zorder=3.0)
    on_right = first < LEFT_HALF
    area.annotate(
        "".join(broken_words(trace.broken)),
        (first, 50.0),
        xytext=(5 if on_right else -5, 0),
        textcoords="offset points",
        color=TEXT_COLOURS[trace.state],
        fontsize=TINY,
        fontweight="bold",
        ha="left" if on_right else "right",
        va="center",
        bbox=LABEL_BOX,
        zorder=4.0,
    )


def _judged(panel: Any, scene: Scene, axes: Axes) -> None:
    """The intervals that were judged, with their numbers beside them."""
    drawn = [(place, trace) for place, trace in enumerate(scene.traces) if has_label(trace)]
    if scene.is_dense:
        drawn = [(place, trace) for place, trace in drawn if place == scene.selected]
    several = len(drawn) > 1
    whiskers = max(len(trace.judged) for _, trace in drawn) if drawn and not several else len(drawn)
    beside = WHISKER + APART * (max(1, whiskers) - 1) + LABEL
    tops = judged_places(scene, axes, [place for place, _ in drawn])
    for number, ((place, trace), top) in enumerate(zip(drawn, tops, strict=True)):
        if not trace.judged:
            x = WHISKER + APART * (number if several else 0)
            panel.plot([x], [top], SHAPES[trace.state], color=COLOURS[trace.state], markersize=6)
        for at, interval in enumerate(trace.judged[:1] if several else trace.judged):
            x = WHISKER + APART * (number if several else at)
            ends = axes.y(interval.hi), axes.y(interval.lo)
            colour = COLOURS[trace.state]
            panel.plot([x, x], ends, color=colour, linewidth=1.8, alpha=0.55 if at else 1.0)
            hollow = trace.state in ("inconclusive", "live")
            panel.plot(
                [x],
                [axes.y(interval.mean)],
                SHAPES[trace.state],
                color=colour,
                markerfacecolor="white" if hollow else colour,
                markersize=6,
                zorder=5.0,
            )
        _numbers(panel, trace, (beside, top), several=several, bold=place == scene.selected)


def _numbers(
    panel: Any, trace: Trace, place: tuple[float, float], *, several: bool, bold: bool
) -> None:
    name = f" {cut(trace.name, NAME_CHARACTERS)}" if several else ""
    panel.annotate(
        f"{trace.label}{name}",
        place,
        color=TEXT_COLOURS[trace.state],
        fontsize=SMALL if several else 12,
        fontweight="bold" if bold else "normal",
        va="center",
        bbox=PANEL_BOX,
        zorder=4.0,
        annotation_clip=False,
    )
    for number, note in enumerate(trace.notes, 1):
        panel.annotate(
            note,
            place,
            xytext=(0, -LINE * number - (0 if several else 3)),
            textcoords="offset points",
            color=QUIET,
            fontsize=TINY,
            va="center",
            bbox=PANEL_BOX,
            zorder=4.0,
            annotation_clip=False,
        )


def _losses(area: Any, panel: Any, scene: Scene, axes: Axes) -> None:
    """The arms' losses, where no gap was judged, named at their ends."""
    arms: Sequence[Any] = [arm for arm in scene.losses if arm.points]
    tops = spread([axes.y(arm.points[-1][1]) for arm in arms], 7.0, (4.0, 96.0))
    for arm, top in zip(arms, tops, strict=True):
        state = None if arm.arm is None else scene.traces[arm.arm].state
        colour = BASELINE if state is None else COLOURS[state]
        _plot(area, arm.points, axes, "-", color=colour, linewidth=1.4)
        panel.text(
            WHISKER,
            top,
            cut(arm.name, NAME_CHARACTERS),
            color=BASELINE if state is None else TEXT_COLOURS[state],
            fontsize=SMALL,
            va="center",
        )
