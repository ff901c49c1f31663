"""A forecast in words: what it says, on what, and what it is not."""

from collections.abc import Mapping

from parity.judging.live.rules import Forecast, State
from parity.wording import interval_words, likely, nats_decimals, percent, signed

_LEADS: Mapping[State, str] = {
    "open": "Still open",
    "on_course": "On course to pass, which is a forecast and no verdict",
    "futile": "Futile: it can hardly pass any more",
    "will_fail": "Will fail: the final gap is surely above the margin",
}
NOTHING_YET = (
    "No forecast yet: the first one comes once both arms have trained a tenth of the planned steps."
)


def trend_words(forecast: Forecast) -> str:
    """How the gap moves, where it does, and what the forecast makes of that; "" for a steady gap.

    A forecast is of the gap as it is: it counts on a trend going on with a small probability alone.
    """
    change = forecast.trend
    if change is None or forecast.goes_on is None:
        return ""
    places = nats_decimals(forecast.margin, change)
    return (
        f"The gap has {'risen' if change > 0.0 else 'fallen'} by {abs(change):.{places}f} since "
        f"half of these steps; the forecast takes this to go on with a chance of "
        f"{likely(forecast.goes_on)}."
    )


def noise_words(forecast: Forecast) -> str:
    """That nobody has measured the run-to-run noise of these arms; "" where it is measured."""
    if forecast.noise_measured is not False:
        return ""
    return "Run-to-run noise is not measured here, but assumed or borrowed."


def unseen_words(forecast: Forecast) -> str:
    """What a forecast has not seen: a trend, run-to-run noise."""
    return " ".join(part for part in (trend_words(forecast), noise_words(forecast)) if part)


def sentence(forecast: Forecast) -> str:
    """The state, the gap so far, the forecast of the final gap, and how likely each verdict is."""
    places = nats_decimals(forecast.margin, forecast.low, forecast.high)
    ends = interval_words(forecast.low, forecast.high, places)
    if forecast.share >= 1.0:
        ended = (
            f"a gap of {signed(forecast.gap, places)} nats, with a margin of "
            f"{forecast.margin:.{places}f}"
        )
        return (
            "All planned steps are trained, and the verdict decides. The forecast ended at "
            f"{ended}."
        )
    gap = signed(forecast.gap, places)
    told = (
        f"{_LEADS[forecast.state]}. After step {forecast.step:,} ({percent(forecast.share)} of the "
        f"plan) the gap is {gap} nats. The final gap is forecast at {ends} (90 %), and the margin "
        f"is {forecast.margin:.{places}f}. Chances: pass {likely(forecast.passes)}, fail "
        f"{likely(forecast.fails)}, inconclusive {likely(forecast.inconclusive)}."
    )
    return " ".join(part for part in (told, unseen_words(forecast)) if part)
