"""The picture of a verdict as HTML, drawn without a script: the gap on its way, and beside it on
the same axis what was judged.

Lines and bands are one SVG that is stretched over the plot; text and marks lie above it in a second
SVG, placed in percent, so that they keep their size at any width. Nothing has a style attribute:
the policy of the server's pages would drop it.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from parity.frozen import frozen
from parity.judging.document_types import PathPointDocument
from parity.report.evaluation_tables import token_unit
from parity.report.scene import Judged, Losses, Marks, Points, Scene, Trace, half_of
from parity.wording import cut, minus, nats_decimals, signed

_EARLY = 0.15  # of the path, which may lie outside the picture
_PAD = 0.09  # of the height, above and below
_STEADY = 4.0  # parts of an axis that stays while values come
_FAR = 20_000.0  # of a height of 1,000: as far outside as a line is drawn
_HUGE = 1e12  # nats; what is larger has no place on an axis
_TOGETHER = 4.0  # % of the width, 6 px and more of any plot: nearer marks become one
_TOLD = 0.05  # % of the width: marks nearer than that stay one however far the script zooms in
_NAME = 20  # characters of a name in the picture
# px of the judged panel, for which verdict.css has classes
_WIDTHS, _NARROW_WIDTHS = range(128, 353, 16), range(80, 209, 16)
# px between whiskers on a narrow screen; 9 between more of them (verdict.css)
_NARROW_GAPS = {1: 20.0, 2: 16.0, 3: 14.0, 4: 14.0}
_POINTS_SEEN = 20  # a path of so few points shows each
# % of the height: above and below, a line's label and those at the edges would meet
_HIGH, _LOW = 18.0, 86.0
_SHORT_NAME = 12  # characters of the baseline's name on a narrow screen
_NEAR_EDGE = 8.0  # % of the width, where a label in the middle would stand out
# % of the width, which the numbers at the ends of the axis need
_X_ROOM, _X_ROOM_OF_TOKENS = 13.0, 22.0
_PLAIN_POWERS = 4  # of ten: numbers of an axis beyond are written with an exponent
_TICK_ROOM = 1.0  # % of the height, so near to an edge as a number may stand
_LIVE_LABEL, _LIVE_NOTE = len("+0.00000"), len("+0.00000 to +0.00000")
_NOTED = 3  # candidates whose labels have their intervals below
_ROOMY = 4  # whiskers that stand further apart


@frozen
class _Axes:
    """Ends of both axes: steps and nats; and decimals of a path's points, of 1,000."""

    first: float
    last: float
    low: float
    high: float
    places: int = 1

    def x(self, step: float) -> float:
        """A step's place, % of the width."""
        return 100.0 * min(1.0, max(0.0, (step - self.first) / (self.last - self.first)))

    def y(self, nats: float) -> float:
        """A value's place, % of the height from the top, kept inside."""
        return min(100.0, max(0.0, self.far_y(nats)))

    def far_y(self, nats: float) -> float:
        """A value's place, which may lie far outside."""
        return min(_FAR, max(-_FAR, 100.0 * ((self.high - nats) / (self.high - self.low))))

    def point(self, step: float, nats: float) -> str:
        """A point of a path."""
        return (
            f"{_short(10.0 * self.x(step), self.places)} "
            f"{_short(10.0 * self.far_y(nats), self.places)}"
        )


def picture(scene: Scene, *, with_points: bool = True) -> str:
    """The figure. `with_points` adds the numbers that the script's cursor reads."""
    axes = _axes_of(scene)
    is_gap = scene.has_gap
    judged = _judged_panel(scene, axes) if is_gap else _loss_names(scene, axes)
    widest = max((len(words) for _, words in _y_ticks(axes, is_signed=is_gap)), default=0)
    wide, narrow = _panel_widths(scene)
    looks = [
        "pic",
        f"y{next(size for size in (5, 7, 9, 99) if widest <= size)}",
        f"w{wide}",
        f"m{narrow}",
        f"n{_whiskers(scene)}",
    ]
    looks += ["many"] if len(scene.traces) > 1 else []
    looks += ["crowd"] if scene.is_dense else []
    if with_points and is_gap:
        keys = " Arrow keys move the cursor, plus and minus zoom, 0 shows the whole run."
    else:
        keys = ""
    if _has_lines(scene):
        note = f'<p class="note says">{escape(scene.traces[scene.selected].line or scene.note)}</p>'
    else:
        note = ""
    note = note or (f'<p class="note">{escape(scene.note)}</p>' if scene.note and is_gap else "")
    return (
        f'<figure class="{" ".join(looks)}">{_caption(scene)}'
        f'<div class="plot" tabindex="0" role="group" aria-label="{escape(_spoken(scene))}{keys}">'
        f'<svg class="yax" aria-hidden="true">{_y_axis(axes, is_signed=is_gap)}</svg>'
        f'<div class="area">{_stretched(_lines(scene, axes))}<svg class="o" '
        f'aria-hidden="true">{"".join(_labels(scene, axes))}</svg></div>'
        f'<div class="jud">{_stretched(_levels(scene, axes) if is_gap else "")}<svg class="o" '
        f'aria-hidden="true">{judged}</svg></div>'
        f'<div></div><svg class="xax" aria-hidden="true">{_x_axis(scene, axes)}</svg><div '
        f'class="jx">{_panel_title(scene)}</div></div>'
        f"{note}{_points(scene, axes) if with_points and is_gap else ''}</figure>"
    )


def _has_lines(scene: Scene) -> bool:
    return len(scene.traces) > 1 and any(trace.line for trace in scene.traces)


def _spoken(scene: Scene) -> str:
    """The picture in words, for who cannot see it."""
    names = [trace.name for trace in scene.traces]
    what = "Gap" if scene.has_gap else "Losses"
    of = names[0] if len(names) == 1 else f"{len(names)} candidates"
    said = f"{what} of {of} {'to' if scene.has_gap else 'and of'} {scene.baseline} over training."
    return f"{said} {scene.traces[scene.selected].line}"


def _caption(scene: Scene) -> str:
    selected, base = scene.traces[scene.selected], escape(cut(scene.baseline, _NAME))
    if not scene.has_gap:
        names = (
            f'<b class="base">{base}</b> and <b class="c-{selected.state} '
            f'tinted">{escape(cut(selected.name, _NAME))}</b>'
        )
        what = f'<span class="what">Losses of {names}, nats per token</span>'
        return f'<figcaption>{what}<span class="r">{escape(scene.legend)}</span></figcaption>'
    name = escape(cut(selected.name, _NAME))
    if len(scene.traces) > 1:
        named = f'<b class="c-{selected.state} tinted name">{name}</b>: gap'
    else:
        named = "<b>Gap</b>"
    marks = [trace.marks for trace in scene.traces]
    keys = [" · ▲ spike"] if any(any(each.spikes) for each in marks) else []
    keys += [" · △ NaN"] if any(any(each.nonfinite) for each in marks) else []
    what = f'<span class="what">{named} to {base}, nats per token; up is worse</span>'
    return (
        f"<figcaption>{what}<span "
        f'class="r">{escape(scene.legend)}{"".join(keys)}</span></figcaption>'
    )


# The axes.


def _axes_of(scene: Scene) -> _Axes:
    steps = [step for trace in scene.traces for step, _ in trace.dots] + [
        point["step"] for trace in scene.traces for point in trace.path
    ]
    steps += (
        [step for arm in scene.losses for step, _ in arm.points[:1]] if not scene.has_gap else []
    )
    first = min(steps, default=0)
    last = float(max(scene.end, 1))
    # a run that goes on from a checkpoint
    first = first if first > 0.2 * last and first < last else 0
    low, high = scene.limits or (
        limits_of(scene, first) if scene.has_gap else _loss_limits(scene.losses)
    )
    return _Axes(
        first=float(first), last=last, low=low, high=high, places=0 if scene.is_dense else 1
    )


def limits_of(scene: Scene, first: float = 0.0) -> tuple[float, float]:
    """The ends of the axis, nats: judged intervals, zero and the margin; of the path the last 85 %,
    as far as it does not dwarf them.
    """
    core = [0.0, *([scene.margin] if scene.margin is not None else [])]
    core += [
        end
        for trace in scene.traces
        for each in trace.judged
        for end in (each.mean, each.lo, each.hi)
    ]
    core = [value for value in core if abs(value) < _HUGE]
    low, high = min(core), max(core)
    late = list[float]()
    for trace in scene.traces:
        for path in (trace.path, trace.outer):
            last = path[-1]["step"] if path else 0
            kept = [point for point in path if point["step"] >= first + _EARLY * (last - first)]
            late += [point["mean"] for point in kept]
            late += (
                []
                if scene.is_dense
                else [end for point in kept for end in (point["lo"], point["hi"])]
            )
    late = [value for value in late if abs(value) < _HUGE]
    if low == high and late:
        low, high = min(low, *late), max(high, *late)
    reach = high - low or 0.01
    low, high = max(min(low, *late, low), low - reach), min(max(high, *late, high), high + reach)
    return low - _PAD * (high - low or reach), high + _PAD * (high - low or reach)


def steady_limits(values: Iterable[float]) -> tuple[float, float]:
    """The ends of an axis that holds zero and all these values, nats, at round numbers: with more
    values it grows in steps, if at all.
    """
    near = [0.0, *(value for value in values if abs(value) < _HUGE)]
    low, high = min(near), max(near)
    room = _PAD * (high - low) or 0.01
    stride = ticks(low - room, high + room, _STEADY)[1]
    return stride * math.floor((low - room) / stride), stride * math.ceil((high + room) / stride)


def _loss_limits(losses: Sequence[Losses]) -> tuple[float, float]:
    last = max((arm.points[-1][0] for arm in losses if arm.points), default=0.0)
    late = [
        loss
        for arm in losses
        for step, loss in arm.points
        if step >= _EARLY * last and abs(loss) < _HUGE
    ]
    low, high = min(late, default=0.0), max(late, default=1.0)
    room = _PAD * (high - low) or max(abs(high), 1e-6) * 0.1
    return low - room, high + room


def ticks(low: float, high: float, about: float = 6.0) -> tuple[list[float], float]:
    """Round values between two ends, about so many, and their stride."""
    rough = (high - low) / about
    decade = 10.0 ** math.floor(math.log10(rough))
    stride = next(factor * decade for factor in (1.0, 2.0, 5.0, 10.0) if factor * decade >= rough)
    return [
        stride * place for place in range(math.ceil(low / stride), math.floor(high / stride) + 1)
    ], stride


def _y_ticks(axes: _Axes, *, is_signed: bool) -> list[tuple[float, str]]:
    values, stride = ticks(axes.low, axes.high)
    power = math.floor(math.log10(stride) + 1e-9)
    sign = "+" if is_signed else ""

    def words(value: float) -> str:
        if abs(value) < 1e-6 * stride:
            return "0"
        if -_PLAIN_POWERS <= power <= _PLAIN_POWERS:
            return f"{value:{sign},.{max(0, -power)}f}"
        digits, _, exponent = f"{value:{sign}.1e}".partition("e")
        return f"{digits.removesuffix('.0')}e{int(exponent)}"

    inside = [value for value in values if _TICK_ROOM <= axes.far_y(value) <= 100.0 - _TICK_ROOM]
    return [(value, words(value).replace("-", "\u2212")) for value in inside]


def _y_axis(axes: _Axes, *, is_signed: bool) -> str:
    shown = ((axes.far_y(value), words) for value, words in _y_ticks(axes, is_signed=is_signed))
    return "".join(f'<text x="100%" dx="-8" y="{_percent(y)}">{words}</text>' for y, words in shown)


def _x_axis(scene: Scene, axes: _Axes) -> str:
    """First and last step in full, round ones between them where these leave room."""
    scale, unit = 1.0, ""
    if scene.tokens_per_step and math.isfinite(scene.tokens_per_step):
        size, unit = token_unit(axes.last * scene.tokens_per_step)
        scale = scene.tokens_per_step / size
    values, stride = ticks(axes.first * scale, axes.last * scale)
    places = max(0, -math.floor(math.log10(stride) + 1e-9)) if scene.tokens_per_step else 0
    ends = (
        f"{axes.first * scale:,.{places}f}",
        f"{axes.last * scale:,.{max(places, 2) if unit else places}f}",
    )
    first = ends[0] if scene.tokens_per_step else f"step {ends[0]}"
    last = f"{ends[1]} {unit}".rstrip() + " tokens" if scene.tokens_per_step else ends[1]
    parts = [
        f'<text class="start" x="0" y="15">{first}</text>',
        f'<text class="end" x="100%" y="15">{last}</text>',
    ]
    between = [(axes.x(value / scale), value) for value in values]
    between = [
        (x, value)
        for x, value in between
        if _X_ROOM < x < 100.0 - (_X_ROOM_OF_TOKENS if scene.tokens_per_step else _X_ROOM)
    ]
    # the one that a narrow screen shows
    middle = min((abs(x - 50.0) for x, _ in between), default=0.0)
    for x, value in between:
        look = "" if abs(x - 50.0) == middle else ' class="minor"'
        parts.append(f'<text{look} x="{_percent(x)}" y="15">{value:,.{places}f}</text>')
    return "".join(parts)


# Lines and bands, in an SVG of 1,000 by 1,000 that is stretched.


def _stretched(inner: str) -> str:
    return (
        '<svg class="s" viewBox="0 0 1000 1000" preserveAspectRatio="none" '
        f'aria-hidden="true">{inner}</svg>'
    )


def _lines(scene: Scene, axes: _Axes) -> str:
    parts = []
    if scene.window:
        left, right = (10.0 * axes.x(step) for step in scene.window)
        parts.append(
            f'<rect class="win" x="{_short(left)}" y="0" width="{_short(right - left)}" '
            'height="1000"/>'
        )
    levels = [
        _short(10.0 * axes.far_y(value)) for value, _ in _y_ticks(axes, is_signed=True) if value
    ]
    parts += [f'<path class="grid" d="M0 {level}H1000"/>' for level in levels]
    if not scene.has_gap:
        return "".join([*parts, *_loss_lines(scene, axes)])
    order = [place for place in range(len(scene.traces)) if place != scene.selected]
    for place in [*order, scene.selected]:
        parts.append(_trace_lines(scene, axes, place))
    return "".join([*parts, _levels(scene, axes)])


def _trace_lines(scene: Scene, axes: _Axes, place: int) -> str:
    trace = scene.traces[place]
    own = [point for point in trace.path if _is_finite(point)]
    inside = [(step, nats) for step, nats in trace.dots if axes.low <= nats <= axes.high]
    parts = [
        _band([point for point in trace.outer if _is_finite(point)], axes, "band outer"),
        _band(own, axes, "band"),
        _dots(inside, axes, "dots"),
        _fan(scene, trace, axes),
        _dots([(point["step"], point["mean"]) for point in own], axes, "pts")
        if len(own) <= _POINTS_SEEN
        else "",
        _line([(point["step"], point["mean"]) for point in own], axes),
    ]
    chosen = " on" if place == scene.selected else ""
    return f'<g class="cv c-{trace.state}{chosen}" data-c="{place}">{"".join(parts)}</g>'


def _is_finite(point: PathPointDocument) -> bool:
    return all(
        isinstance(point[key], (int, float)) and math.isfinite(point[key])
        for key in ("mean", "lo", "hi")
    )


def _band(path: Sequence[PathPointDocument], axes: _Axes, look: str) -> str:
    if len(path) < 2:
        return ""
    edge = [(point["step"], point["hi"]) for point in path] + [
        (point["step"], point["lo"]) for point in reversed(path)
    ]
    return f'<path class="{look}" d="M{"L".join(axes.point(*point) for point in edge)}Z"/>'


def _line(points: Points, axes: _Axes, look: str = "line") -> str:
    if len(points) > 1:
        return f'<path class="{look}" d="M{"L".join(axes.point(*point) for point in points)}"/>'
    return ""


def _dots(points: Points, axes: _Axes, look: str) -> str:
    drawn = "".join(f"M{axes.point(*point)}h0" for point in points)
    if not drawn:
        return ""
    return f'<path class="{look}" d="{drawn}"/>'


def _fan(scene: Scene, trace: Trace, axes: _Axes) -> str:
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


def _loss_lines(scene: Scene, axes: _Axes) -> Iterator[str]:
    for arm in scene.losses:
        points = [(step, loss) for step, loss in arm.points if math.isfinite(loss)]
        if arm.arm is None:
            yield f'<g class="cv base on">{_line(points, axes)}</g>'
        elif arm.arm < len(scene.traces):
            chosen = " on" if arm.arm == scene.selected else ""
            yield (
                f'<g class="cv c-{scene.traces[arm.arm].state}{chosen}" '
                f'data-c="{arm.arm}">{_line(points, axes)}</g>'
            )


def _levels(scene: Scene, axes: _Axes) -> str:
    """Zero and the margin; the lower margin only where an interval crosses it."""
    lines = [("zero", 0.0), *(("mar", level) for level in _margins(scene))]
    return "".join(
        f'<path class="{look}" d="M0 {_short(10.0 * axes.far_y(level))}H1000"/>'
        for look, level in lines
    )


def _margins(scene: Scene) -> list[float]:
    if scene.margin is None:
        return []
    is_crossed = any(
        each.lo < -scene.margin < each.hi for trace in scene.traces for each in trace.judged
    )
    if is_crossed and scene.margin > 0.0:
        return [scene.margin, -scene.margin]
    return [scene.margin]


# Text and marks in percent.


def _at(y: float, inner: str, look: str = "", x: float | None = None) -> str:
    """Something of its own size at a place in percent."""
    named = f' class="{look}"' if look else ""
    across = f' x="{_percent(x)}"' if x is not None else ""
    return f'<svg{named}{across} y="{_percent(y)}">{inner}</svg>'


def _labels(scene: Scene, axes: _Axes) -> Iterator[str]:
    has_marks = False
    for place, trace in enumerate(scene.traces):
        drawn = "".join(_marks(trace.marks, axes))
        has_marks |= bool(drawn)
        chosen = " on" if place == scene.selected else ""
        yield (
            f'<g class="marks c-{trace.state}{chosen}" data-c="{place}">{drawn}</g>'
            if drawn
            else ""
        )
    if scene.has_gap:
        yield from _level_labels(scene, axes)
    if scene.window:
        yield _window_label(scene, axes, 34 if has_marks else 16)
    if scene.now is not None:
        x, y = axes.x(scene.now), '"100%" dy="-6"' if axes.y(0.0) < _LOW else '"33"'
        anchor = next(
            (
                look
                for look, most in (("start", _NEAR_EDGE), ("middle", 100.0 - _NEAR_EDGE))
                if x < most
            ),
            "end",
        )
        yield (
            f'<line class="cross now moves" x1="{_percent(x)}" x2="{_percent(x)}" y1="0" '
            'y2="100%"/>'
        )
        yield f'<text class="lab strong moves {anchor}" x="{_percent(x)}" y={y}>now</text>'
    if not any(trace.path or trace.dots for trace in scene.traces) and not any(
        arm.points for arm in scene.losses
    ):
        if any(trace.state == "live" for trace in scene.traces):
            words = "no step yet"
        else:
            words = "no path of the gap is known"
        yield f'<text class="lab middle" x="50%" y="50%" dy="-24">{words}</text>'
    yield '<line class="cross cursor" x1="0" x2="0" y1="0" y2="100%"/>'


def _level_labels(scene: Scene, axes: _Axes) -> Iterator[str]:
    for level in _margins(scene):
        words = minus(f"margin {signed(level, max(scene.decimals, nats_decimals(level)))}")
        if level >= 0.0:
            if scene.margin_note:
                note = f'<tspan class="minor"> ({escape(scene.margin_note)})</tspan>'
            else:
                note = ""
            yield (
                f'<text class="lab strong" x="6" y="{_percent(axes.y(level))}" '
                f'dy="-5">{words}{note}</text>'
            )
        elif axes.y(level) - axes.y(0.0) > 12.0:
            yield (
                f'<text class="lab strong" x="6" y="{_percent(axes.y(level))}" '
                f'dy="14">{words}</text>'
            )
    name = escape(cut(scene.baseline, _NAME))
    if len(scene.baseline) > _SHORT_NAME:
        name = (
            f'<tspan class="minor">{name}</tspan><tspan '
            f'class="short">{escape(cut(scene.baseline, _SHORT_NAME))}</tspan>'
        )
    yield f'<text class="lab z" x="6" y="{_percent(axes.y(0.0))}" dy="14">{name} = 0</text>'


def _window_label(scene: Scene, axes: _Axes, y: int) -> str:
    """At the window's beginning; a narrow window's label runs on into the panel, which continues
    the shade.
    """
    first, last = scene.window or (0, 0)
    if any(trace.judged for trace in scene.traces) and scene.now is None:
        what = "judged"
    else:
        what = "to be judged"
    steps = f" {first:,} to {last:,}" if last > first else f" {last:,}"
    steps = "" if scene.tokens_per_step else f'<tspan class="minor">{steps}</tspan>'
    margin = axes.far_y(scene.margin) if scene.margin is not None and scene.has_gap else 100.0
    # below the margin's own label
    top = f'y="{_percent(margin)}" dy="{y}"' if 0.0 < margin < _HIGH else f'y="{y}"'
    return (
        f'<text class="lab moves stays" x="{_percent(axes.x(first))}" dx="6" {top}><tspan '
        f'class="strong">{what}</tspan>{steps}</text>'
    )


def _marks(marks: Marks, axes: _Axes) -> Iterator[str]:
    """Triangles at the edges, the candidate's above, the baseline's below: spikes filled, NaN
    hollow, near ones as one with a count.
    """
    for row, (look, word, words, kinds) in enumerate(_kinds(marks)):
        for side, steps in zip(("base", "own"), kinds, strict=True):
            for group in _groups(steps, axes):
                x, more = axes.x(group[0]), len(group)
                if side == "own":
                    tip, foot = (1 + 10 * row, 9 + 10 * row)
                else:
                    tip, foot = (-1 - 10 * row, -9 - 10 * row)
                if more == 1:
                    title = f"{word} at step {group[0]:,}"
                else:
                    title = f"{more:,} {words} from step {group[0]:,} to {group[-1]:,}"
                if more > 1:
                    counted = f'<text class="count" x="7" y="{max(tip, foot)}">{more:,}</text>'
                else:
                    counted = ""
                shape = (
                    f'<path class="tri {look} {side}" d="M0 {tip}L-5 '
                    f'{foot}H5Z"><title>{title}</title></path>{counted}'
                )
                yield _at(0.0 if side == "own" else 100.0, shape, x=x)


def _kinds(marks: Marks) -> tuple[tuple[str, str, str, tuple[Sequence[int], Sequence[int]]], ...]:
    """Each kind of mark: its look, its word for one and for several, and the steps of the baseline
    and of the candidate.
    """
    return ("spike", "spike", "spikes", marks.spikes), ("bad", "NaN", "NaN", marks.nonfinite)


def _groups(steps: Iterable[int], axes: _Axes, together: float = _TOGETHER) -> list[list[int]]:
    """Steps that are nearer to the one before than a share of the width, %."""
    groups = list[list[int]]()
    for step in sorted(steps):
        if groups and axes.x(step) - axes.x(groups[-1][-1]) < together:
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


# The judged panel.


def _panel_title(scene: Scene) -> str:
    if not scene.has_gap:
        return ""
    if scene.now is not None:
        return "forecast"
    if scene.is_dense:
        return f"verdict, and all {len(scene.traces)}"
    return "verdict"


def _whiskers(scene: Scene) -> int:
    """How many whiskers stand side by side."""
    if scene.is_dense or not scene.has_gap:
        return 1
    if len(scene.traces) > 1:
        return len(scene.traces)
    return max(1, len(scene.traces[0].judged))


def _panel_widths(scene: Scene) -> tuple[int, int]:
    """Width of the panel that holds every label, on a wide and on a narrow screen, px."""
    count = _whiskers(scene)
    several = not scene.is_dense and len(scene.traces) > 1
    if not scene.has_gap:
        need, narrow = 7.4 * max(len(cut(arm.name, _NAME)) for arm in scene.losses) + 24.0, 96.0
    else:
        number = max((len(trace.label) for trace in scene.traces), default=0)
        named = max(
            (len(trace.label) + 1 + len(cut(trace.name, _NAME)) for trace in scene.traces),
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


def _judged_panel(scene: Scene, axes: _Axes) -> str:
    several = not scene.is_dense and len(scene.traces) > 1
    with_notes = len(scene.traces) <= _NOTED or scene.is_dense
    drawn = [place for place, trace in enumerate(scene.traces) if trace.judged]
    tops = [
        axes.y(scene.traces[place].judged[0].mean)
        if math.isfinite(scene.traces[place].judged[0].mean)
        else 50.0
        for place in drawn
    ]
    if several:
        places = spread(tops, 10.6 if with_notes else 7.0, (5.0, 91.0 if with_notes else 95.0))
    else:
        places = [min(85.0, max(5.0, top)) for top in tops]
    parts = [_rug(scene, axes)] if scene.is_dense else []
    for place, top in zip(drawn, places, strict=True):
        trace = scene.traces[place]
        is_live = scene.now is not None
        intervals = trace.judged[:1] if several else trace.judged
        for number, each in enumerate(intervals):
            position = place if several else number
            look = (
                "j "
                f"c-{trace.state}{' on' if place == scene.selected else ''}{' second' if number else ''}{' live' if is_live else ''}"  # noqa: E501
            )
            mark = _mark(axes, each, trace, position, is_live=is_live)
            parts.append(
                f'<g class="{look}" data-c="{place}">{_whisker(axes, each, position)}{mark}</g>'
            )
        parts.append(_judged_label(scene, place, top, several=several, with_notes=with_notes))
    return "".join(parts)


def spread(places: Sequence[float], least: float, within: tuple[float, float]) -> list[float]:
    """Places at least so far apart and inside, each as near to its own as that allows; in the order
    given.
    """
    low, high = within
    least = min(least, (high - low) / max(1, len(places) - 1))
    order = sorted(range(len(places)), key=lambda index: places[index])
    groups = list[tuple[float, list[int]]]()  # where a group begins, and who is in it
    for index in order:
        begin, own = places[index], [index]
        while True:
            begin = min(max(begin, low), high - least * (len(own) - 1))
            if not groups or groups[-1][0] + least * len(groups[-1][1]) <= begin:
                break
            own = groups.pop()[1] + own
            begin = sum(places[each] - least * number for number, each in enumerate(own)) / len(own)
        groups.append((begin, own))
    placed = [0.0] * len(places)
    for begin, own in groups:
        for number, index in enumerate(own):
            placed[index] = min(high, begin + least * number)
    return placed


def _whisker(axes: _Axes, judged: Judged, position: int) -> str:
    if math.isnan(judged.lo) or math.isnan(judged.hi):
        return ""
    top, bottom = _percent(axes.y(judged.hi)), _percent(axes.y(judged.lo))
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


def _mark(axes: _Axes, judged: Judged, trace: Trace, position: int, *, is_live: bool) -> str:
    if not math.isfinite(judged.mean) or not axes.low <= judged.mean <= axes.high:
        return ""
    return _at(
        axes.y(judged.mean), f'<g class="k k{position}">{shape(trace.state, hollow=is_live)}</g>'
    )


def shape(state: str, size: float = 6.5, *, hollow: bool = False) -> str:
    """The mark of a verdict around 0, 0: circle, square, hollow diamond; a hollow circle in
    training.
    """
    look = "mk hollow" if hollow or state in ("inconclusive", "live") else "mk"
    edge = _short(size)
    if state == "fail":
        return (
            f'<rect class="{look}" x="-{edge}" y="-{edge}" width="{_short(2 * size)}" '
            f'height="{_short(2 * size)}"/>'
        )
    if state == "inconclusive":
        tip = _short(1.15 * size)
        return f'<path class="{look}" d="M0 -{tip}L{tip} 0L0 {tip}L-{tip} 0Z"/>'
    return f'<circle class="{look}" r="{edge}"/>'


def _rug(scene: Scene, axes: _Axes) -> str:
    """All candidates at the panel's edge, a column for each verdict."""
    columns = {"fail": -10, "inconclusive": -20, "pass": -30}
    parts = []
    for trace in scene.traces:
        if trace.judged and math.isfinite(trace.judged[0].mean):
            own = (
                f'<g class="c-{trace.state}" transform="translate({columns.get(trace.state, -30)} '
                f'0)">{shape(trace.state, 3.8)}</g>'
            )
            parts.append(_at(axes.y(trace.judged[0].mean), own, "rug", x=100.0))
    return "".join(parts)


def _judged_label(scene: Scene, place: int, top: float, *, several: bool, with_notes: bool) -> str:
    trace = scene.traces[place]
    chosen = " on" if place == scene.selected else ""
    name = f'<tspan class="nm"> {escape(cut(trace.name, _NAME))}</tspan>' if several else ""
    size = "s" if several else "l"
    judged = ' data-judged="1"' if place == scene.selected else ""
    parts = [f'<text class="num {size}"><tspan{judged}>{escape(trace.label)}</tspan>{name}</text>']
    first, apart = (16, 15) if several else (20, 16)
    shown = trace.notes if with_notes else ()
    parts += [
        f'<text class="x" y="{first + apart * number}">{escape(note)}</text>'
        for number, note in enumerate(shown)
    ]
    return (
        f'<svg class="jl c-{trace.state}{chosen}" data-c="{place}" y="{_percent(top)}"><g '
        f'class="beside">{"".join(parts)}</g></svg>'
    )


def _loss_names(scene: Scene, axes: _Axes) -> str:
    """The names of the arms at the ends of their losses."""
    arms = [
        arm
        for arm in scene.losses
        if arm.points and (arm.arm is None or arm.arm < len(scene.traces))
    ]
    places = spread([axes.y(arm.points[-1][1]) for arm in arms], 7.0, (4.0, 96.0))
    parts = []
    for arm, top in zip(arms, places, strict=True):
        look = "base" if arm.arm is None else f"c-{scene.traces[arm.arm].state}"
        parts.append(
            _at(top, f'<text class="num s">{escape(cut(arm.name, _NAME))}</text>', f"jl {look} on")
        )
    return "".join(parts)


# The numbers that the script reads: for the cursor whole numbers in the last decimal that is shown;
# for zooming axes and marks.


def _points(scene: Scene, axes: _Axes) -> str:

    def whole(value: float, decimals: int) -> int:
        """As it is printed with so many decimals, without its point."""
        return int(f"{value:.{decimals}f}".replace(".", ""))

    facts = list(dict.fromkeys(fact for trace in scene.traces for fact in trace.facts))
    candidates = [
        {
            "name": cut(trace.name, _NAME),
            **({"full": trace.name} if cut(trace.name, _NAME) != trace.name else {}),
            "state": trace.state,
            "line": trace.line,
            "decimals": trace.decimals,
            "facts": [facts.index(fact) for fact in trace.facts],
            "marks": {
                f"{look}.{side}": [
                    [group[0], group[-1], len(group)] for group in _groups(steps, axes, _TOLD)
                ]
                for look, _, _, kinds in _kinds(trace.marks)
                for side, steps in zip(("base", "own"), kinds, strict=True)
                if steps
            },
            "path": [
                [
                    point["step"],
                    *(whole(point[key], trace.decimals) for key in ("mean", "lo", "hi")),
                ]
                for point in (trace.outer or trace.path)
                if _is_finite(point)
            ],
        }
        for trace in scene.traces
    ]
    size, letter = (
        token_unit(axes.last * scene.tokens_per_step) if scene.tokens_per_step else (1.0, "")
    )
    told = {
        "x": [axes.first, axes.last],
        "y": [axes.low, axes.high],
        "scale": (scene.tokens_per_step or 1.0) / size,
        "unit": f"{letter} tokens" if scene.tokens_per_step else "step",
        "candidates": candidates,
        "facts": [[minus(fact.value), minus(fact.why)] for fact in facts],
    }
    text = json.dumps(told, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return f'<script type="application/json" class="points">{text}</script>'


def _percent(value: float) -> str:
    return f"{_short(value, 2)}%"


def _short(value: float, places: int = 1) -> str:
    """A number without zeros at its end."""
    text = f"{value:.{places}f}"
    if "." in text:
        return text.rstrip("0").rstrip(".")
    return text
