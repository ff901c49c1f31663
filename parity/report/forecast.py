"""The forecast of a verdict to come, in words."""

import math
from collections.abc import Mapping
from typing import Literal, Protocol

from parity.judging.gap.margin import stated_margins
from parity.judging.live.rules import State
from parity.judging.policy import NOISE_FLOOR, Policy
from parity.wording import interval_words, nats_decimals, short_percent, signed

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


def margin_basis(policy: Policy, margin: float) -> str:
    """What the margin of a forecast (nats) is worth, and that it moves with the loss: "1 % of
    today's loss". The policy's smallest margin decides; "stated" for one in nats.
    """
    shares = []
    for amount, _ in stated_margins(policy):
        if amount.unit == "relative":
            shares.append(amount.value)
        elif amount.unit == "nats" and math.isclose(amount.value, margin):
            return "stated"
        elif amount.slope is not None and math.isclose(amount.nats(margin), margin):
            return str(amount)
    words = [f"{short_percent(min(shares))} of today's loss"] if shares else []
    words += ["the noise floor so far"] if policy.profile == NOISE_FLOOR else []
    return " or ".join(words)


def live_interval(live: Outlook, basis: str = "") -> str:
    """The forecast's interval, the margin with what it is worth, and the gap so far."""
    places = nats_decimals(live.margin, live.low, live.high)
    ends = interval_words(live.low, live.high, places)
    so_far = f"At step {live.step:,} the gap is {signed(live.gap, places)}."
    worth = f" ({basis})" if basis else ""
    return f"90 % forecast {ends}; margin {live.margin:.{places}f}{worth}. {so_far}"


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
