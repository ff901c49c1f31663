"""The axes of a picture: their ends, and the numbers along them."""

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from parity.frozen import frozen
from parity.report.evaluation_tables import token_unit
from parity.report.picture.scene import Losses, Scene
from parity.report.picture.svg_parts import percent_text, short_number

_EARLY = 0.15  # of the path, which may lie outside the picture
_PAD = 0.09  # of the height, above and below
_STEADY = 4.0  # parts of an axis that stays while values come
_FAR = 20_000.0  # of a height of 1,000: as far outside as a line is drawn
_HUGE = 1e12  # nats; what is larger has no place on an axis


# % of the width, which the numbers at the ends of the axis need
_X_ROOM, _X_ROOM_OF_TOKENS = 13.0, 22.0
_NARROW_PLOT, _LETTER = 190.0, 6.6  # px: a plot on a telephone, and a letter of its axis
_PLAIN_POWERS = 4  # of ten: numbers of an axis beyond are written with an exponent
_TICK_ROOM = 1.0  # % of the height, so near to an edge as a number may stand


@frozen
class Axes:
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
            f"{short_number(10.0 * self.x(step), self.places)} "
            f"{short_number(10.0 * self.far_y(nats), self.places)}"
        )


@frozen
class XTick:
    """A number along the horizontal axis: its place, % of the width, which side of it stands there,
    and whether a narrow screen leaves it out.
    """

    x: float
    words: str
    anchor: Literal["left", "center", "right"]
    is_minor: bool = False


def axes_of(scene: Scene) -> Axes:
    """The axes of a scene."""
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
    return Axes(
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
        for interval in trace.judged
        for end in (interval.mean, interval.lo, interval.hi)
    ]
    core = [value for value in core if abs(value) < _HUGE]
    low, high = min(core), max(core)
    late = list[float]()
    for trace in scene.traces:
        for path in (trace.path, trace.outer):
            last = path[-1]["step"] if path else 0
            late_points = [
                point for point in path if point["step"] >= first + _EARLY * (last - first)
            ]
            late += [point["mean"] for point in late_points]
            late += (
                []
                if scene.is_dense
                else [end for point in late_points for end in (point["lo"], point["hi"])]
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


def y_ticks(axes: Axes, *, is_signed: bool) -> list[tuple[float, str]]:
    """The numbers of the vertical axis with their places, nats."""
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


def y_axis(axes: Axes, *, is_signed: bool) -> str:
    """The numbers along the vertical axis."""
    shown = ((axes.far_y(value), words) for value, words in y_ticks(axes, is_signed=is_signed))
    return "".join(
        f'<text x="100%" dx="-8" y="{percent_text(y)}">{words}</text>' for y, words in shown
    )


def x_axis(scene: Scene, axes: Axes) -> str:
    """The numbers along the horizontal axis."""
    parts = []
    for tick in x_ticks(scene, axes):
        look = {"left": ' class="start"', "right": ' class="end"'}.get(
            tick.anchor, ' class="minor"' if tick.is_minor else ""
        )
        parts.append(f'<text{look} x="{_across(tick.x)}" y="15">{tick.words}</text>')
    return "".join(parts)


def _across(x: float) -> str:
    return "0" if x == 0.0 else percent_text(x)


def x_ticks(scene: Scene, axes: Axes) -> list[XTick]:
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
    shown = [
        XTick(x=0.0, words=first, anchor="left"),
        XTick(x=100.0, words=last, anchor="right"),
    ]
    between = [(axes.x(value / scale), value) for value in values]
    between = [
        (x, value)
        for x, value in between
        if _X_ROOM < x < 100.0 - (_X_ROOM_OF_TOKENS if scene.tokens_per_step else _X_ROOM)
    ]
    texts = [(x, f"{value:,.{places}f}") for x, value in between]
    kept = min(
        (x for x, words in texts if _has_narrow_room(x, words, first, last)),
        key=lambda x: abs(x - 50.0),
        default=None,
    )
    shown += [XTick(x=x, words=words, anchor="center", is_minor=x != kept) for x, words in texts]
    return shown


def _has_narrow_room(x: float, words: str, first: str, last: str) -> bool:
    """Whether a number at `x` % meets neither end of the axis on a narrow screen."""
    middle, half = x / 100.0 * _NARROW_PLOT, _LETTER * len(words) / 2.0
    return middle - half > _LETTER * (len(first) + 1) and middle + half < _NARROW_PLOT - _LETTER * (
        len(last) + 1
    )
