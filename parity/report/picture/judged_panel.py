"""The panel beside the plot: what was judged, on the same axis."""

import math
from collections.abc import Sequence
from html import escape

from parity.report.picture.axes import Axes
from parity.report.picture.scene import JudgedInterval, Losses, Scene, Trace
from parity.report.picture.spread import spread
from parity.report.picture.svg_parts import NAME_CHARACTERS, percent_text, placed, shape
from parity.wording import cut

# px of the judged panel, for which verdict.css has classes
_WIDTHS, _NARROW_WIDTHS = range(128, 353, 16), range(80, 209, 16)
# px between whiskers on a narrow screen; 9 between more of them (verdict.css)
_NARROW_GAPS = {1: 20.0, 2: 16.0, 3: 14.0, 4: 14.0}


_LIVE_LABEL, _LIVE_NOTE = len("+0.00000"), len("+0.00000 to +0.00000")
_NOTED = 3  # candidates whose labels have their intervals below
_NAME_INSIDE_FROM = 95.0  # % of the width, from where on a line's name stands in the panel
_NAMES_APART = 7.0  # % of the height, in which a name has room
_ROOMY = 4  # whiskers that stand further apart


def panel_title(scene: Scene) -> str:
    """The title below the panel."""
    if not scene.has_gap:
        return ""
    if scene.now is not None:
        return "90 % forecast" if len(scene.traces) > 1 else "forecast"
    if scene.is_dense:
        return f"verdict, and all {len(scene.traces)}"
    return "verdict"


def whisker_count(scene: Scene) -> int:
    """How many whiskers stand side by side."""
    if scene.is_dense or not scene.has_gap:
        return 1
    if len(scene.traces) > 1:
        return len(scene.traces)
    return max(1, len(scene.traces[0].judged))


def panel_widths(scene: Scene) -> tuple[int, int]:
    """Width of the panel that holds every label, on a wide and on a narrow screen, px."""
    count = whisker_count(scene)
    several = not scene.is_dense and len(scene.traces) > 1
    if not scene.has_gap:
        need, narrow = (
            7.4 * max(len(cut(arm.name, NAME_CHARACTERS)) for arm in scene.losses) + 24.0,
            96.0,
        )
    else:
        number = max((len(trace.label) for trace in scene.traces), default=0)
        named = max(
            (
                len(trace.label) + 1 + len(cut(trace.name, NAME_CHARACTERS))
                for trace in scene.traces
            ),
            default=0,
        )
        notes = max((len(note) for trace in scene.traces for note in trace.notes), default=0)
        # a forecast may get a decimal more, for which the panel has room from the beginning
        if scene.now is not None:
            number, notes = max(number, _LIVE_LABEL), max(notes, _LIVE_NOTE)
        need = (
            32.0
            + (20.0 if count <= _ROOMY else 13.0) * (count - 1)
            + max(7.9 * named if several else 11.9 * number, 7.2 * notes)
            + 8.0
        )
        narrow = 23.0 + _NARROW_GAPS.get(count, 9.0) * count + 9.4 * number
        if scene.is_dense:
            need, narrow = need + 40.0, narrow + 40.0
    return _fitting(_WIDTHS, need), _fitting(_NARROW_WIDTHS, narrow)


def _fitting(widths: Sequence[int], pixels: float) -> int:
    return next((width for width in widths if width >= pixels), widths[-1])


def judged_svg(scene: Scene, axes: Axes) -> str:
    """The judged intervals with their numbers, none over another."""
    several = not scene.is_dense and len(scene.traces) > 1
    with_notes = len(scene.traces) <= _NOTED or scene.is_dense
    drawn = [place for place, trace in enumerate(scene.traces) if has_label(trace)]
    places = judged_places(scene, axes, drawn)
    parts = [_rug(scene, axes)] if scene.is_dense else []
    for place, top in zip(drawn, places, strict=True):
        trace = scene.traces[place]
        is_live = scene.now is not None
        intervals = trace.judged[:1] if several else trace.judged
        for number, interval in enumerate(intervals):
            position = place if several else number
            look = (
                "j "
                f"c-{trace.state}{' on' if place == scene.selected else ''}{' second' if number else ''}{' live' if is_live else ''}"  # noqa: E501
            )
            mark = _mark(axes, interval, trace, position, is_live=is_live)
            parts.append(
                f'<g class="{look}" data-c="{place}">{_whisker(axes, interval, position)}{mark}</g>'
            )
        if not intervals:
            mark = f'<g class="k k{place if several else 0}">{shape(trace.state)}</g>'
            chosen = " on" if place == scene.selected else ""
            parts.append(
                f'<g class="j c-{trace.state}{chosen}" data-c="{place}">{placed(top, mark)}</g>'
            )
        parts.append(_judged_label(scene, place, top, several=several, with_notes=with_notes))
    return "".join(parts)


def has_label(trace: Trace) -> bool:
    """Whether the panel says something of a candidate: its judged gap or forecast, or that its
    verdict has none.
    """
    return bool(trace.judged) or trace.state != "live"


def judged_places(scene: Scene, axes: Axes, drawn: Sequence[int]) -> list[float]:
    """Where the numbers of these candidates stand, % of the height, none over another; a fail
    without a gap stands at the top.
    """
    tops = [_height_of(scene.traces[place], axes) for place in drawn]
    if scene.is_dense or len(scene.traces) == 1:
        return [min(85.0, max(5.0, top)) for top in tops]
    if len(scene.traces) <= _NOTED:
        return spread(tops, 10.6, (5.0, 91.0))
    return spread(tops, 7.0, (5.0, 95.0))


def _height_of(trace: Trace, axes: Axes) -> float:
    if not trace.judged:
        return 0.0 if trace.state == "fail" else 50.0
    mean = trace.judged[0].mean
    return axes.y(mean) if math.isfinite(mean) else 50.0


def _whisker(axes: Axes, judged: JudgedInterval, position: int) -> str:
    if math.isnan(judged.lo) or math.isnan(judged.hi):
        return ""
    top, bottom = percent_text(axes.y(judged.hi)), percent_text(axes.y(judged.lo))
    # beyond the axis it goes on
    caps = [
        edge
        for edge, value in ((top, judged.hi), (bottom, judged.lo))
        if axes.low <= value <= axes.high
    ]
    drawn = "".join(f'<line class="cap" x1="-6" x2="6" y1="{edge}" y2="{edge}"/>' for edge in caps)
    return (
        f'<g class="k k{position}"><line class="wh" x1="0" x2="0" y1="{top}" '
        f'y2="{bottom}"/>{drawn}</g>'
    )


def _mark(axes: Axes, judged: JudgedInterval, trace: Trace, position: int, *, is_live: bool) -> str:
    if not math.isfinite(judged.mean) or not axes.low <= judged.mean <= axes.high:
        return ""
    return placed(
        axes.y(judged.mean), f'<g class="k k{position}">{shape(trace.state, hollow=is_live)}</g>'
    )


def _rug(scene: Scene, axes: Axes) -> str:
    """All candidates at the panel's edge, a column for each verdict."""
    columns = {"fail": -10, "inconclusive": -20, "pass": -30}
    parts = []
    for trace in scene.traces:
        if trace.judged and math.isfinite(trace.judged[0].mean):
            mark = (
                f'<g class="c-{trace.state}" transform="translate({columns.get(trace.state, -30)} '
                f'0)">{shape(trace.state, 3.8)}</g>'
            )
            parts.append(placed(axes.y(trace.judged[0].mean), mark, "rug", x=100.0))
    return "".join(parts)


def _judged_label(scene: Scene, place: int, top: float, *, several: bool, with_notes: bool) -> str:
    trace = scene.traces[place]
    chosen = " on" if place == scene.selected else ""
    name = (
        f'<tspan class="nm"> {escape(cut(trace.name, NAME_CHARACTERS))}</tspan>' if several else ""
    )
    size = "s" if several else "l"
    judged = ' data-judged="1"' if place == scene.selected else ""
    parts = [f'<text class="num {size}"><tspan{judged}>{escape(trace.label)}</tspan>{name}</text>']
    first, apart = (16, 15) if several else (20, 16)
    # of several forecasts the title of the panel says that they are of 90 %
    most = 1 if several and scene.now is not None else len(trace.notes)
    shown = trace.notes[:most] if with_notes else ()
    parts += [
        f'<text class="x" y="{first + apart * number}">{escape(note)}</text>'
        for number, note in enumerate(shown)
    ]
    return (
        f'<svg class="jl c-{trace.state}{chosen}" data-c="{place}" y="{percent_text(top)}"><g '
        f'class="beside">{"".join(parts)}</g></svg>'
    )


def drawn_losses(scene: Scene) -> list[Losses]:
    """The losses that the picture draws."""
    return [
        arm
        for arm in scene.losses
        if arm.points and (arm.arm is None or arm.arm < len(scene.traces))
    ]


def ends_early(arm: Losses, axes: Axes) -> bool:
    """Whether a loss ends so far from the panel that a name there would not be beside it."""
    return axes.x(arm.points[-1][0]) < _NAME_INSIDE_FROM


def name_places(arms: Sequence[Losses], axes: Axes) -> list[float]:
    """The heights of the names of losses, none over another, % of the plot."""
    return spread([axes.y(arm.points[-1][1]) for arm in arms], _NAMES_APART, (4.0, 96.0))


def loss_names_svg(scene: Scene, axes: Axes) -> str:
    """The names of the arms at the ends of their losses; one that has not come near the panel has
    its name in the plot (`labels`).
    """
    arms = [arm for arm in drawn_losses(scene) if not ends_early(arm, axes)]
    places = name_places(arms, axes)
    parts = []
    for arm, top in zip(arms, places, strict=True):
        look = "base" if arm.arm is None else f"c-{scene.traces[arm.arm].state}"
        parts.append(
            placed(
                top,
                f'<text class="num s" x="8">{escape(cut(arm.name, NAME_CHARACTERS))}</text>',
                f"jl {look} on",
            )
        )
    return "".join(parts)
