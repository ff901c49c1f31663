"""The lines and bands of a picture, in an SVG of 1,000 by 1,000 that is stretched."""

import math
from collections.abc import Iterator, Sequence

from parity.judging.document_types import PathPointDocument
from parity.report.picture.axes import Axes, y_ticks
from parity.report.picture.live_trace import half_of
from parity.report.picture.scene import Points, Scene, Trace
from parity.report.picture.svg_parts import short_number

POINTS_SEEN = 20  # a path of so few points shows each


def stretched_svg(inner: str) -> str:
    """An SVG that fills its place."""
    return (
        '<svg class="s" viewBox="0 0 1000 1000" preserveAspectRatio="none" '
        f'aria-hidden="true">{inner}</svg>'
    )


def lines_svg(scene: Scene, axes: Axes) -> str:
    """Grid, window, and what each arm did."""
    parts = []
    if scene.window:
        left, right = (10.0 * axes.x(step) for step in scene.window)
        parts.append(
            f'<rect class="win" x="{short_number(left)}" y="0" '
            f'width="{short_number(right - left)}" height="1000"/>'
        )
    levels = [
        short_number(10.0 * axes.far_y(value))
        for value, _ in y_ticks(axes, is_signed=True)
        if value
    ]
    parts += [f'<path class="grid" d="M0 {level}H1000"/>' for level in levels]
    if not scene.has_gap:
        return "".join([*parts, *_loss_lines(scene, axes)])
    order = [place for place in range(len(scene.traces)) if place != scene.selected]
    for place in [*order, scene.selected]:
        parts.append(_trace_lines(scene, axes, place))
    return "".join([*parts, levels_svg(scene, axes)])


def _trace_lines(scene: Scene, axes: Axes, place: int) -> str:
    trace = scene.traces[place]
    path = [point for point in trace.path if is_finite(point)]
    inside = [(step, nats) for step, nats in trace.dots if axes.low <= nats <= axes.high]
    # of many candidates the script draws what only the selected one shows, once it is selected
    is_whole = place == scene.selected or not scene.is_dense
    parts = [
        *(
            [
                _band([point for point in trace.outer if is_finite(point)], axes, "band outer"),
                _band(path, axes, "band"),
                _dots(inside, axes, "dots"),
            ]
            if is_whole
            else []
        ),
        _broken(trace, axes),
        _trend(scene, trace, axes),
        _fan(scene, trace, axes),
        _dots([(point["step"], point["mean"]) for point in path], axes, "pts")
        if len(path) <= POINTS_SEEN
        else "",
        _line([(point["step"], point["mean"]) for point in path], axes),
    ]
    chosen = " on" if place == scene.selected else ""
    look = f"cv c-{trace.state} d{trace.style}{chosen}"
    return f'<g class="{look}" data-c="{place}">{"".join(parts)}</g>'


def is_finite(point: PathPointDocument) -> bool:
    """Whether a point of a path can be drawn."""
    return all(
        isinstance(point[key], (int, float)) and math.isfinite(point[key])
        for key in ("mean", "lo", "hi")
    )


def _band(path: Sequence[PathPointDocument], axes: Axes, look: str) -> str:
    if len(path) < 2:
        return ""
    edge = [(point["step"], point["hi"]) for point in path] + [
        (point["step"], point["lo"]) for point in reversed(path)
    ]
    return f'<path class="{look}" d="M{"L".join(axes.point(*point) for point in edge)}Z"/>'


def _line(points: Points, axes: Axes, look: str = "line") -> str:
    if len(points) > 1:
        return f'<path class="{look}" d="M{"L".join(axes.point(*point) for point in points)}"/>'
    return ""


def _dots(points: Points, axes: Axes, look: str) -> str:
    drawn = "".join(f"M{axes.point(*point)}h0" for point in points)
    if not drawn:
        return ""
    return f'<path class="{look}" d="{drawn}"/>'


def _trend(scene: Scene, trace: Trace, axes: Axes) -> str:
    """The straight line through the judged steps, where the growth of the gap is a reason: the
    line of the picture is a mean over as many steps, and shows less of it.
    """
    if trace.trend is None or scene.window is None:
        return ""
    return _line(list(zip(scene.window, trace.trend, strict=True)), axes, "line trend")


def _broken(trace: Trace, axes: Axes) -> str:
    """The steps between the first and the last NaN of a candidate that has no gap, shaded."""
    if not trace.broken:
        return ""
    left, right = (10.0 * axes.x(step) for step in (trace.broken[0], trace.broken[-1]))
    return (
        f'<rect class="nan" x="{short_number(left)}" y="0" '
        f'width="{short_number(right - left)}" height="1000"/>'
    )


def _fan(scene: Scene, trace: Trace, axes: Axes) -> str:
    """The forecast from now to the end: where the gap ends with a chance of 90 % and of 50 %."""
    if scene.now is None or trace.gap is None or not trace.judged:
        return ""
    judged, start = trace.judged[0], axes.point(scene.now, trace.gap)
    parts = []
    for look, (low, high) in (("fan", (judged.lo, judged.hi)), ("fan half", half_of(judged))):
        parts.append(
            f'<path class="{look}" '
            f'd="M{start}L{axes.point(scene.end, high)}L{axes.point(scene.end, low)}Z"/>'
        )
    return "".join(
        [*parts, f'<path class="line ahead" d="M{start}L{axes.point(scene.end, judged.mean)}"/>']
    )


def _loss_lines(scene: Scene, axes: Axes) -> Iterator[str]:
    for arm in scene.losses:
        points = [(step, loss) for step, loss in arm.points if math.isfinite(loss)]
        if arm.arm is None:
            yield f'<g class="cv base on">{_line(points, axes)}</g>'
        elif arm.arm < len(scene.traces):
            chosen, trace = " on" if arm.arm == scene.selected else "", scene.traces[arm.arm]
            yield (
                f'<g class="cv c-{trace.state} d{trace.style}{chosen}" '
                f'data-c="{arm.arm}">{_broken(trace, axes)}{_line(points, axes)}</g>'
            )


def levels_svg(scene: Scene, axes: Axes) -> str:
    """Zero and the margin; the lower margin only where an interval crosses it."""
    lines = [("zero", 0.0), *(("mar", level) for level in margin_levels(scene))]
    return "".join(
        f'<path class="{look}" d="M0 {short_number(10.0 * axes.far_y(level))}H1000"/>'
        for look, level in lines
    )


def margin_levels(scene: Scene) -> list[float]:
    """The margin; with the lower one where an interval crosses it."""
    if scene.margin is None:
        return []
    is_crossed = any(
        interval.lo < -scene.margin < interval.hi
        for trace in scene.traces
        for interval in trace.judged
    )
    if is_crossed and scene.margin > 0.0:
        return [scene.margin, -scene.margin]
    return [scene.margin]
