"""The smallest margin at which a pair would pass, where the gap's interval decides.

The interval alone asks for a margin above its upper end, above minus its lower end under a
two-sided policy, and above the gain of a candidate that is surely better, because a gain of a whole
margin is no pass. Other rules look at the margin too (the end of the window, a growing gap), so the
pair is decided again just above that: where it does not pass there, no margin is named.
"""

import dataclasses

from parity.judging.codes import BY_CODE
from parity.judging.decide import decide
from parity.judging.decision import PASS, Decision
from parity.judging.measurements import Measurements, at_margin
from parity.judging.policy import Amount, Policy
from parity.judging.rules.margin import deciding_bounds, nominal_bounds
from parity.judging.verdict.checks import apply_checks, checks
from parity.judging.verdict.pair import JudgedPair

ABOVE = 1.0 + 1e-9  # a pass needs an interval that is below the margin, not at it


def margin_to_pass(judged: JudgedPair) -> float | None:
    """In nats, just enough; None where no margin is known, something else than the interval
    decides, or something else would keep a pass back at that margin.
    """
    measurements = judged.measurements
    code = BY_CODE[judged.decision.deciding.code]
    if (
        measurements.statistics is None
        or measurements.statistics.margin is None
        or not code.decided_by_interval
    ):
        return None
    smallest = _interval_margin(measurements, measurements.statistics.interval.mean) * ABOVE
    if not smallest > 0.0:
        return None
    if measurements.policy.is_absolute:
        margin = Amount(value=smallest, unit="nats")
    else:
        margin = Amount(value=smallest / measurements.statistics.baseline.level, unit="relative")
    policy = dataclasses.replace(measurements.policy, margin=margin, profile=None)
    return smallest if decided_at(judged, policy).state == PASS else None


def decided_at(judged: JudgedPair, policy: Policy) -> Decision:
    """What is decided of a pair under a policy that differs in its margin alone, which is no margin
    in tokens.
    """
    measured = at_margin(judged.measurements, policy)
    margin = measured.statistics.margin if measured.statistics else None
    return apply_checks(decide(measured), checks(judged.advisory, margin, policy), policy)


def _interval_margin(measurements: Measurements, gap: float) -> float:
    """What the interval asks of the margin, nats: not above 0 where any margin passes."""
    lo, hi = deciding_bounds(measurements)
    needed = [hi]
    if measurements.policy.two_sided:
        needed.append(-lo)
    if nominal_bounds(measurements)[1] < 0.0:
        needed.append(-gap)
    return max(needed)
