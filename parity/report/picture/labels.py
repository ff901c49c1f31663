"""The text and the marks of a picture's plot, placed in percent."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from parity.report.picture.axes import Axes
from parity.report.picture.judged_panel import drawn_losses, ends_early, name_places
from parity.report.picture.lines import margin_levels
from parity.report.picture.scene import Marks, Scene
from parity.report.picture.svg_parts import NAME_CHARACTERS, SHORT_NAME, percent_text, placed
from parity.wording import cut, minus, nats_decimals, signed

_MARK_DISTANCE = 4.0  # % of the width, 6 px and more of any plot: nearer marks become one


# % of the height: above and below, a line's label and those at the edges would meet
_HIGH, _LOW = 18.0, 86.0
_LABEL_ROOM = 7.0  # % of the height that a line's label below it takes
_LABEL_WIDTH = 30.0  # % of the width that a margin's label takes
_LINE_POINTS = 20  # that stand for a straight line where a label looks for room
# % of the width at which a margin's label begins, the one that is preferred first
_MARGIN_SIDES = {
    'class="lab strong" x="6"': 0.0,
    'class="lab strong middle" x="50%"': 50.0 - 0.5 * _LABEL_WIDTH,
    'class="lab strong end" x="100%" dx="-6"': 100.0 - _LABEL_WIDTH,
}
LEFT_HALF = 50.0  # % of the width: a label there stands on the right of its line
_NEAR_EDGE = 8.0  # % of the width, where a label in the middle would stand out


def labels_svg(scene: Scene, axes: Axes) -> Iterator[str]:
    """Marks, names of lines, the window, and now."""
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
    else:
        yield from _loss_names(scene, axes)
    yield from _broken_labels(scene, axes)
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
            f'<line class="cross now moves" x1="{percent_text(x)}" x2="{percent_text(x)}" y1="0" '
            'y2="100%"/>'
        )
        yield f'<text class="lab strong moves {anchor}" x="{percent_text(x)}" y={y}>now</text>'
    if not any(trace.path or trace.dots for trace in scene.traces) and not any(
        arm.points for arm in scene.losses
    ):
        if any(trace.state == "live" for trace in scene.traces):
            words = scene.nothing
        else:
            words = "no path of the gap is known"
        yield f'<text class="lab middle" x="50%" y="50%" dy="-24">{words}</text>'
    yield '<line class="cross cursor" x1="0" x2="0" y1="0" y2="100%"/>'


def _loss_names(scene: Scene, axes: Axes) -> Iterator[str]:
    """The names of losses that end in the plot, at their ends."""
    arms = [arm for arm in drawn_losses(scene) if ends_early(arm, axes)]
    places = name_places(arms, axes)
    for arm, top in zip(arms, places, strict=True):
        step, _ = arm.points[-1]
        look = "base" if arm.arm is None else f"c-{scene.traces[arm.arm].state}"
        yield placed(
            top,
            f'<text class="num s lab" x="8">{escape(cut(arm.name, NAME_CHARACTERS))}</text>',
            f"jl {look} on",
            x=axes.x(step),
        )


def level_words(scene: Scene, level: float) -> str:
    """A margin's name, with its nats."""
    return minus(f"margin {signed(level, max(scene.decimals, nats_decimals(level)))}")


def window_words(scene: Scene) -> tuple[str, str]:
    """Whether the window was judged or will be, and its steps; "" for those of an axis of
    tokens.
    """
    first, last = scene.window or (0, 0)
    if all(trace.state != "live" for trace in scene.traces) and scene.now is None:
        what = "judged"
    else:
        what = "to be judged"
    steps = f" {first:,} to {last:,}" if last > first else f" {last:,}"
    return what, "" if scene.tokens_per_step else steps


def _level_labels(scene: Scene, axes: Axes) -> Iterator[str]:
    for level in margin_levels(scene):
        words = level_words(scene, level)
        if level >= 0.0:
            if scene.margin_note:
                note = f'<tspan class="minor"> ({escape(scene.margin_note)})</tspan>'
            else:
                note = ""
            side = _margin_side(scene, axes, level)
            yield f'<text {side} y="{percent_text(axes.y(level))}" dy="-5">{words}{note}</text>'
        else:
            yield _lower_margin_label(axes, level, words)
    name = escape(cut(scene.baseline, NAME_CHARACTERS))
    if len(scene.baseline) > SHORT_NAME:
        name = (
            f'<tspan class="minor">{name}</tspan><tspan '
            f'class="short">{escape(cut(scene.baseline, SHORT_NAME))}</tspan>'
        )
    yield f'<text class="lab z" x="6" y="{percent_text(axes.y(0.0))}" dy="14">{name} = 0</text>'


def _margin_side(scene: Scene, axes: Axes, level: float) -> str:
    """Where the margin's label stands on its line: at the left end, in the middle or at the right
    end, where it covers least of the selected candidate; a point of a line counts as three dots.
    """
    trace = scene.traces[scene.selected]
    lines = [(float(point["step"]), point["mean"]) for point in trace.path]
    if trace.trend and scene.window:
        (first, last), (start, end) = scene.window, trace.trend
        parts = [index / _LINE_POINTS for index in range(_LINE_POINTS + 1)]
        lines += [(first + part * (last - first), start + part * (end - start)) for part in parts]
    bottom = axes.far_y(level)
    shares = [
        axes.x(step)
        for step, nats in (*trace.dots, *lines, *lines, *lines)
        if bottom - _LABEL_ROOM < axes.far_y(nats) < bottom
    ]
    covered = {
        side: sum(begin <= share <= begin + _LABEL_WIDTH for share in shares)
        for side, begin in _MARGIN_SIDES.items()
    }
    return min(covered, key=lambda side: covered[side])


def _lower_margin_label(axes: Axes, level: float, words: str) -> str:
    """Below its line, above it at the edge; at the right end where zero's label is too near."""
    y = axes.y(level)
    below = y < 100.0 - _LABEL_ROOM
    is_free = y - axes.y(0.0) > (_LABEL_ROOM if below else 2.0 * _LABEL_ROOM)
    side = 'class="lab strong" x="6"' if is_free else 'class="lab strong end" x="100%" dx="-6"'
    return f'<text {side} y="{percent_text(y)}" dy="{14 if below else -5}">{words}</text>'


def _broken_labels(scene: Scene, axes: Axes) -> Iterator[str]:
    """Where the losses of a candidate that has no gap are NaN, or its baseline's."""
    for place, trace in enumerate(scene.traces):
        if not trace.broken:
            continue
        share = axes.x(trace.broken[0])
        x, chosen = percent_text(share), " on" if place == scene.selected else ""
        side = 'stays" dx="6"' if share < LEFT_HALF else 'stays end" dx="-6"'
        words, more = broken_words(trace.broken)
        yield (
            f'<g class="broken c-{trace.state}{chosen}" data-c="{place}"><line class="cross moves" '
            f'x1="{x}" x2="{x}" y1="0" y2="100%"/><text class="lab strong moves {side} x="{x}" '
            f'y="22%">{words}<tspan class="minor">{more}</tspan></text></g>'
        )


def broken_words(steps: Sequence[int]) -> tuple[str, str]:
    """At which steps losses are NaN: "NaN from step 1,460", and " to 1,499", for which a narrow
    screen has no room.
    """
    first, last = steps[0], steps[-1]
    if first == last:
        return f"NaN at step {first:,}", ""
    return f"NaN from step {first:,}", f" to {last:,}"


def _window_label(scene: Scene, axes: Axes, y: int) -> str:
    """At the window's beginning; a narrow window's label runs on into the panel, which continues
    the shade.
    """
    first, _ = scene.window or (0, 0)
    what, words = window_words(scene)
    steps = f'<tspan class="minor">{words}</tspan>' if words else ""
    margin = axes.far_y(scene.margin) if scene.margin is not None and scene.has_gap else 100.0
    # below the margin's own label
    top = f'y="{percent_text(margin)}" dy="{y}"' if 0.0 < margin < _HIGH else f'y="{y}"'
    return (
        f'<text class="lab moves stays" x="{percent_text(axes.x(first))}" dx="6" {top}><tspan '
        f'class="strong">{what}</tspan>{steps}</text>'
    )


def _marks(marks: Marks, axes: Axes) -> Iterator[str]:
    """Triangles at the edges, the candidate's above, the baseline's below: spikes filled, NaN
    hollow, near ones as one with a count.
    """
    for row, (look, word, words, kinds) in enumerate(mark_kinds(marks)):
        for side, steps in zip(("base", "own"), kinds, strict=True):
            for group in near_steps(steps, axes):
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
                yield placed(0.0 if side == "own" else 100.0, shape, x=x)


def mark_kinds(
    marks: Marks,
) -> tuple[tuple[str, str, str, tuple[Sequence[int], Sequence[int]]], ...]:
    """Each kind of mark: its look, its word for one and for several, and the steps of the baseline
    and of the candidate.
    """
    return ("spike", "spike", "spikes", marks.spikes), ("bad", "NaN", "NaN", marks.nonfinite)


def near_steps(
    steps: Iterable[int], axes: Axes, distance: float = _MARK_DISTANCE
) -> list[list[int]]:
    """Steps that are nearer to the one before than a share of the width, %."""
    groups = list[list[int]]()
    for step in sorted(steps):
        if groups and axes.x(step) - axes.x(groups[-1][-1]) < distance:
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups
