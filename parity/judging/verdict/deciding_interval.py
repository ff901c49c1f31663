"""Which interval decided a verdict: its level, its ends, and whether one end alone counted."""

from parity.judging.decision import FAIL, State
from parity.judging.document_types import (
    DecidingIntervalDocument,
    VerdictDocument,
    VerdictGapDocument,
)
from parity.judging.gap.interval import Interval
from parity.judging.measurements import Measurements


def deciding_levels(measurements: Measurements, state: State) -> tuple[float, float]:
    """The levels of the run-to-run noise and of the error within pairs: a fail keeps the policy's
    confidence, which further looks and candidates do not make harder; anything else shares it.
    """
    if state == FAIL:
        return measurements.policy.confidence, measurements.policy.confidence
    return measurements.levels


def deciding_interval(
    measurements: Measurements, interval: Interval, state: State
) -> DecidingIntervalDocument:
    """The interval of the window's gap, nats, that decided a verdict of this state."""
    levels = deciding_levels(measurements, state)
    lo, hi = interval.bounds(*levels)
    return DecidingIntervalDocument(
        level=levels[0], lo=lo, hi=hi, one_sided=state == FAIL or not measurements.policy.two_sided
    )


def recorded_interval(
    document: VerdictDocument, gap: VerdictGapDocument
) -> DecidingIntervalDocument:
    """The interval that decided a recorded verdict, `gap` being the document's, nats.

    Judges before 0.8.0 did not record it: of a fail it is the one at the policy's confidence, where
    the document has that one.
    """
    if interval := gap.get("deciding"):
        return interval
    policy, is_fail = document["params"]["policy"], document["verdict"] == FAIL
    level, ends = gap["confidence"], [gap["lo"], gap["hi"]]
    others = {0.95: gap["ci95"], 0.9: gap["ci90"]}
    if is_fail and policy["confidence"] in others:
        level, ends = policy["confidence"], others[policy["confidence"]]
    return DecidingIntervalDocument(
        level=level,
        lo=ends[0],
        hi=ends[1],
        one_sided=is_fail or not policy.get("two_sided"),
    )
