"""Is a comparison that still trains worth its steps? Harm, futility and forecast, from the
predicted final gap (`prediction`).

harm       P(the judge fails it) > 99 % its whole interval at the planned end would be above the
           margin
futility   P(the judge passes it) < 1 % by its gap, with the registered runs; and P(gap <
           min(margin, 2 h)) < 1 % h: the verdict's half-width; run-to-run noise alone explains no
           such gap
both       P(the judge passes it | drifts) < 1.5 % even if the gap goes on as it has changed so far
on course  P(the judge passes it) > 90 % a forecast, never a pass
applied    every 2.5 % of the plan from 10 % on

Error over the whole path: P(pass) is a martingale under the model. Of the candidates that are
stopped when it first falls below 1 %, less than 1 % would have passed, however often the rules are
applied. calibration/live.py simulates it, also with offsets that move in other ways. After a stop
the final gap is only forecast, because its window was never trained. Can fail: see `prediction`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Literal

from parity.frozen import frozen
from parity.judging.live.pair_sums import BLOCKS
from parity.judging.live.prediction import Prediction

State = Literal["open", "on_course", "futile", "will_fail"]

HARM_ERROR, FUTILITY_ERROR, DRIFT_ERROR, ON_COURSE = 0.01, 0.01, 0.015, 0.90
FIRST_FORECAST, FORECAST_EVERY = BLOCKS // 10, BLOCKS // 40  # blocks
FORECAST = 0.90
SEEN_CHANGE, LEAST_CHANGE = 3.0, 0.1  # standard deviations, and margins: from here on it is a trend
ENDED_BY: tuple[State, ...] = ("futile", "will_fail")


@frozen
class Forecast:
    """State, gap so far with its interval's half-width, the 90 and 50 % forecast of the final gap
    (nats), probability of each verdict.

    What the forecast has not seen: `change` is what the gap has changed since half of the way, with
    the standard deviation of its step noise (nats), `goes_on` the probability that it counts on
    that going on; `noise_measured` is whether runs of both arms measure the run-to-run noise. None
    in a forecast that was stored before these were.
    """

    state: State
    share: float
    step: int
    gap: float
    gap_half_width: float | None = None
    """None in a forecast that was stored before intervals were."""
    low: float
    high: float
    low_half: float
    high_half: float
    margin: float
    half_width: float
    passes: float
    fails: float
    change: float | None = None
    change_sd: float | None = None
    goes_on: float | None = None
    noise_measured: bool | None = None

    @property
    def trend(self) -> float | None:
        """The change of the gap since half of the way, nats, where it is more than step noise and
        matters against the margin; else None.
        """
        if self.change is None or self.change_sd is None:
            return None
        is_seen = abs(self.change) > SEEN_CHANGE * self.change_sd
        return self.change if is_seen and abs(self.change) > LEAST_CHANGE * self.margin else None

    @property
    def inconclusive(self) -> float:
        """Probability that the runs will not decide."""
        return max(0.0, 1.0 - self.passes - self.fails)

    def document(self) -> dict[str, Any]:
        """The forecast as JSON-able values."""
        return asdict(self)


def due_forecasts(
    looked: Sequence[int], done: Sequence[int], planned_pairs: int, *, ended: bool = False
) -> Iterator[tuple[int, ...]]:
    """The blocks of each pair at each forecast that is due, where `looked` of its blocks have had
    theirs and `done` are complete.

    Looks come every 2.5 % of all planned pairs' blocks; pairs are taken to train in step. Where
    nothing follows (`ended`), the last blocks have a forecast of their own.
    """
    blocks, every = list(looked), FORECAST_EVERY * planned_pairs
    while behind := [pair for pair, block in enumerate(blocks) if block < done[pair]]:
        blocks[min(behind, key=lambda pair: blocks[pair])] += 1
        total = sum(blocks)
        if total >= FIRST_FORECAST * planned_pairs and (
            total % every == 0 or (ended and blocks == list(done))
        ):
            yield tuple(blocks)


def forecast_at(prediction: Prediction, looks_left: int = 0) -> Forecast:
    """The forecast of a prediction; `looks_left` are the registered looks at the question after
    this job's, with further runs.
    """
    tail = 0.5 * (1.0 - FORECAST)
    low, low_half, high_half, high = prediction.quantiles([tail, 0.25, 0.75, 1.0 - tail]).tolist()
    return Forecast(
        state=state_of(prediction, looks_left),
        share=prediction.share,
        step=prediction.step,
        gap=prediction.gap,
        gap_half_width=prediction.gap_half_width,
        margin=prediction.margin,
        half_width=prediction.half_width,
        passes=prediction.passes,
        fails=prediction.fails,
        low=low,
        high=high,
        low_half=low_half,
        high_half=high_half,
        change=prediction.change,
        change_sd=prediction.change_sd,
        goes_on=prediction.drift_weight,
        noise_measured=prediction.noise_measured,
    )


def state_of(prediction: Prediction, looks_left: int = 0) -> State:
    """What the rules say of a prediction. While looks are left, no candidate is futile: further
    runs may still decide.
    """
    passes = prediction.passes
    if passes < FUTILITY_ERROR and prediction.passes_if(prediction.drifts) < DRIFT_ERROR:
        if prediction.fails > 1.0 - HARM_ERROR:
            return "will_fail"
        if (
            not looks_left
            and prediction.below(min(prediction.margin, 2.0 * prediction.half_width))
            < FUTILITY_ERROR
        ):
            return "futile"
    if passes > ON_COURSE:
        return "on_course"
    return "open"
