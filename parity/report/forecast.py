"""The forecast of a verdict to come, in words."""

from collections.abc import Mapping
from typing import Literal, Protocol

from parity.judging.live.rules import State
from parity.wording import interval_words, nats_decimals, signed

PROBABLE = 0.8  # from here on a forecast says what the verdict will be

Course = Literal["pass", "fail", "futile", "inconclusive", "open"]
COURSES: Mapping[Course, str] = {
    "pass": "on course to pass",
    "fail": "on course to fail",
    "futile": "hardly able to pass",
    "inconclusive": "probably inconclusive",
    "open": "still open",
}
"""What a forecast says of a candidate, in a table and after "It was"."""
_LEADS: Mapping[Course, str] = {
    **{name: f"is {words}" for name, words in COURSES.items()},
    "futile": "can hardly pass any more",
    "inconclusive": "will probably stay inconclusive",
}


class Outlook(Protocol):
    """A forecast of a candidate's final gap (nats; `low` to `high` covers 90 %) with the chance of
    each verdict. `trend` is a change of the gap that is more than noise.
    """

    @property
    def state(self) -> State: ...
    @property
    def step(self) -> int: ...
    @property
    def passes(self) -> float: ...
    @property
    def fails(self) -> float: ...
    @property
    def inconclusive(self) -> float: ...
    @property
    def gap(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def margin(self) -> float: ...
    @property
    def trend(self) -> float | None: ...


def course_of(state: State, passes: float, fails: float) -> Course:
    """What a forecast says of the verdict to come, from the rules' state and the chances."""
    if state == "will_fail" or fails >= PROBABLE:
        return "fail"
    if passes >= PROBABLE:
        return "pass"
    if state == "futile":
        return "futile"
    if max(0.0, 1.0 - passes - fails) >= PROBABLE:
        return "inconclusive"
    return "open"


def course(live: Outlook) -> Course:
    """What a forecast says of the verdict to come."""
    return course_of(live.state, live.passes, live.fails)


def live_lead(name: str, live: Outlook) -> str:
    """What a forecast says of the verdict to come; a trend that would change it is a condition."""
    outlook, trend = course(live), live.trend or 0.0
    unless = ""
    if outlook == "pass" and trend > 0.0:
        unless = ", unless its gap goes on rising"
    elif outlook in ("fail", "futile") and trend < 0.0:
        unless = ", unless its gap goes on falling"
    return f"{name} {_LEADS[outlook]}{unless}."


def live_measure(base: str, live: Outlook) -> str:
    """Where the gap is forecast to end."""
    middle = (live.low + live.high) / 2.0
    digits = f"{abs(middle):.{nats_decimals(live.margin, live.low, live.high)}f}"
    side = "above" if middle > 0.0 else "below"
    if not float(digits):
        return "Its final gap is forecast at zero."
    return f"Its final gap is forecast at {digits} nats {side} {base}."


def live_interval(live: Outlook, planned_steps: int | None) -> str:
    """The forecast's interval, the margin, and the gap so far."""
    places = nats_decimals(live.margin, live.low, live.high)
    ends = interval_words(live.low, live.high, places)
    so_far = (
        f"After {live.step:,}{f' of {planned_steps:,}' if planned_steps else ''} steps the gap is "
        f"{signed(live.gap, places)}."
    )
    return f"90 % forecast {ends}; margin {live.margin:.{places}f}. {so_far}"


def change_words(before: Outlook, now: Outlook) -> str:
    """That a forecast says something else than the one before it, with the reason in one clause:
    what has moved the most.
    """
    places = nats_decimals(now.margin, now.low, now.high, before.low, before.high)
    widths = [(live.high - live.low) / 2.0 for live in (before, now)]
    moves = {
        "gap": abs(now.gap - before.gap),
        "width": abs(widths[1] - widths[0]),
        "margin": abs(now.margin - before.margin),
    }
    largest = max(moves, key=lambda name: moves[name])
    if largest == "gap":
        verb = "rose" if now.gap > before.gap else "fell"
        reason = f"the gap {verb} from {signed(before.gap, places)} to {signed(now.gap, places)}"
    elif largest == "width":
        verb = "narrowed" if widths[1] < widths[0] else "widened"
        reason = (
            f"the forecast {verb} from \u00b1{widths[0]:.{places}f} to \u00b1{widths[1]:.{places}f}"
        )
    else:
        verb = "rose" if now.margin > before.margin else "fell"
        reason = (
            f"the margin {verb} from {before.margin:.{places}f} to {now.margin:.{places}f}, as the "
            "loss did"
        )
    return (
        f"It was {COURSES[course(before)]} at step {before.step:,}; by step {now.step:,} {reason}."
    )
