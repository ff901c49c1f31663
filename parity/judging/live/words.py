"""A forecast in words: what it says, on what, and what it is not."""

from collections.abc import Mapping

from parity.judging.live.rules import Forecast, State
from parity.wording import interval_words, percent, sentence_decimals, signed

_LEADS: Mapping[State, str] = {
    "open": "Still open",
    "on_course": "On course to pass, which is a forecast and no verdict",
    "futile": "Futile: it can hardly pass any more",
    "harmful": "Hopeless: the final gap is surely above the margin",
}
NOTHING_YET = "No forecast yet: the first one comes once both arms have trained a tenth of the planned steps."


def sentence(forecast: Forecast) -> str:
    """The state, the gap so far, the forecast of the final gap, and how likely each verdict is."""
    places = sentence_decimals(forecast.margin)
    ends = interval_words(forecast.low, forecast.high, places)
    if forecast.share >= 1.0:
        ended = f"a gap of {signed(forecast.gap, places)} nats, with a margin of {forecast.margin:.{places}f}"
        return f"All planned steps are trained, and the verdict decides. The forecast ended at {ended}."
    gap = signed(forecast.gap, places)
    return (
        f"{_LEADS[forecast.state]}. After step {forecast.step:,} ({percent(forecast.share)} of the plan) the gap is {gap} nats. "
        f"The final gap is forecast at {ends} (90 %), and the margin is {forecast.margin:.{places}f}. "
        f"Chances: pass {_chance(forecast.passes)}, fail {_chance(forecast.fails)}, inconclusive {_chance(forecast.inconclusive)}."
    )


def _chance(probability: float) -> str:
    """A probability in whole percent, never 0 or 100 %."""
    if probability < 0.01:
        return "below 1 %"
    return "above 99 %" if probability > 0.99 else f"{100.0 * probability:.0f} %"
