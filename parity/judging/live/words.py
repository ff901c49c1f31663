"""A look in words: what it says, on what, and what it is not."""

from collections.abc import Mapping

from parity.judging.live.rules import Look, State
from parity.wording import interval_words, percent, sentence_decimals, signed

_LEADS: Mapping[State, str] = {
    "open": "Still open",
    "on_course": "On course to pass, which is a forecast and no verdict",
    "futile": "Futile: it can hardly pass any more",
    "harmful": "Hopeless: the final gap is surely above the margin",
}
NOTHING_YET = "No forecast yet: the first one comes once both arms have trained a tenth of the planned steps."


def sentence(look: Look) -> str:
    """The state, the gap so far, the forecast of the final gap, and how likely each verdict is."""
    places = sentence_decimals(look.margin)
    forecast = interval_words(look.low, look.high, places)
    if look.share >= 1.0:
        ended = f"a gap of {signed(look.gap, places)} nats, with a margin of {look.margin:.{places}f}"
        return f"All planned steps are trained, and the verdict decides. The forecast ended at {ended}."
    return (
        f"{_LEADS[look.state]}. After step {look.step:,} ({percent(look.share)} of the plan) the gap is {signed(look.gap, places)} nats. "
        f"The final gap is forecast at {forecast} (90 %), and the margin is {look.margin:.{places}f}. "
        f"Chances: pass {_chance(look.passes)}, fail {_chance(look.fails)}, inconclusive {_chance(look.inconclusive)}."
    )


def _chance(probability: float) -> str:
    """A probability in whole percent, never 0 or 100 %."""
    return "below 1 %" if probability < 0.01 else "above 99 %" if probability > 0.99 else f"{100.0 * probability:.0f} %"
