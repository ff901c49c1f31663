"""The forecast of a verdict to come, in words."""

from typing import Protocol

from parity.wording import interval_words, nats_decimals, signed

PROBABLE = 0.8  # from here on a forecast says what the verdict will be


class Outlook(Protocol):
    """A forecast of a candidate's final gap (nats; `low` to `high` covers 90 %) with the chance of
    each verdict.
    """

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


def live_lead(name: str, live: Outlook) -> str:
    """What a forecast says of the verdict to come."""
    if live.passes >= PROBABLE:
        return f"{name} is on course to pass."
    if live.fails >= PROBABLE:
        return f"{name} is on course to fail."
    if live.inconclusive >= PROBABLE:
        return f"{name} will probably stay undecided."
    return f"{name} is still open."


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
