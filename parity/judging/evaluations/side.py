"""On which side of the margin a gap between held-out losses lies."""

import dataclasses

from parity.judging.codes import (
    BETTER_THAN_BASELINE,
    CI_STRADDLES_MARGIN,
    GAP_EXCEEDS_MARGIN,
    WITHIN_MARGIN,
    ReasonCode,
)
from parity.judging.curves.step_noise import StandardError
from parity.judging.evaluations.clusters import ClusteredGap
from parity.judging.evaluations.measured import MeasuredEvaluations
from parity.judging.evaluations.question import EvaluationQuestion
from parity.judging.gap.interval import Interval, interval
from parity.judging.noise.arm_noise import RunTerm


def judged(measurements: MeasuredEvaluations, question: EvaluationQuestion) -> Interval | None:
    """The gap that decides: over clusters where they were asked for, else over runs."""
    if question.cluster:
        if not measurements.over_clusters:
            return None
        return clustered(measurements, measurements.over_clusters)
    return measurements.over_runs


def clustered(measurements: MeasuredEvaluations, over: ClusteredGap) -> Interval:
    """The gap over clusters as an interval, with the rounding of the losses."""
    spread = RunTerm(variance=over.estimate.se**2, df=over.estimate.df, seeds=1)
    gap = interval(over.estimate.mean, StandardError(value=0.0, df=over.estimate.df), spread)
    return dataclasses.replace(gap, rounding=measurements.rounding)


def side(gap: Interval, margin: float, question: EvaluationQuestion) -> ReasonCode:
    """The code that an interval alone gives against a margin in nats."""
    lo, hi = gap.bounds(question.confidence)
    # of a fail and a veto: further looks and candidates must not make them harder
    nominal = gap.bounds(question.policy.confidence)
    if nominal[0] > margin:
        return GAP_EXCEEDS_MARGIN
    if nominal[1] < -margin:
        return BETTER_THAN_BASELINE
    if hi < margin and (lo > -margin or not question.policy.two_sided):
        return WITHIN_MARGIN
    return CI_STRADDLES_MARGIN
