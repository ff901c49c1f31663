"""What is measured in addition to the loss: gradient norms, validation loss, downstream tasks,
token tax, throughput, net speed-up, spikes.

All of it advises; `checks` says which of it the policy lets decide.
"""

from parity.frozen import frozen
from parity.judging.curves.learning_rates import constant_rate
from parity.judging.curves.spikes import spikes_over_run
from parity.judging.document_types import (
    EstimateDocument,
    GradNormDocument,
    RunSpikesDocument,
    TaskDocument,
    ThroughputDocument,
)
from parity.judging.gap.token_slope import TokenSlope
from parity.judging.measurements import Measurements
from parity.judging.secondary.conditions import NotComparable
from parity.judging.secondary.gradients import gradient_parity
from parity.judging.secondary.speed import net_speedup, throughput
from parity.judging.secondary.token_tax import TokenTax, fit_law, tax_of_slope, token_tax
from parity.judging.secondary.validation import ValidationGap, validation_gap


@frozen
class Advisory:
    """Measures that advise; None where the columns they need were not given.

    `speed_reason` says why step times that were recorded give no speed ratio: part of a sentence.
    """

    grad_norm: GradNormDocument | None = None
    token_tax: TokenTax | None = None
    throughput: ThroughputDocument | None = None
    speed_reason: str | None = None
    net_speedup: EstimateDocument | None = None
    validation: ValidationGap | None = None
    run_spikes: RunSpikesDocument | None = None
    downstream: tuple[TaskDocument, ...] = ()


def measure_advisory(
    measurements: Measurements, downstream: tuple[TaskDocument, ...] = ()
) -> Advisory:
    """Everything that the runs' columns allow, with the downstream tasks that were compared
    already.
    """
    measured = throughput(*measurements.arms.both_runs, measurements.policy.confidence)
    speed, reason = (
        (None, measured.reason) if isinstance(measured, NotComparable) else (measured, None)
    )
    statistics = measurements.statistics
    if statistics is None:
        return Advisory(throughput=speed, speed_reason=reason, downstream=downstream)
    window = measurements.aligned.steps[measurements.window.part(measurements.aligned.steps)]
    curves = measurements.aligned.arm_means()
    gap = statistics.interval.mean, *statistics.interval.bounds(*measurements.levels)
    tax = None
    if isinstance(statistics.token_slope, TokenSlope):
        tax = tax_of_slope(statistics.token_slope, *gap)
    elif (law := fit_law(measurements.aligned.steps, curves[0])) is not None:
        tax = token_tax(
            law,
            window,
            int(measurements.aligned.steps[0]),
            *gap,
            constant_rate=constant_rate(measurements.arms.runs),
        )
    return Advisory(
        grad_norm=gradient_parity(
            *measurements.arms.both_runs, window, measurements.policy.confidence
        ),
        token_tax=tax,
        throughput=speed,
        speed_reason=reason,
        net_speedup=net_speedup(speed["ratio"], tax)
        if speed is not None and tax is not None
        else None,
        validation=validation_gap(
            *measurements.arms.both_runs,
            measurements.window,
            statistics.interval.run,
            measurements.policy.confidence,
        ),
        run_spikes=spikes_over_run(
            curves[1] - curves[0],
            measurements.aligned.steps,
            statistics.baseline.level,
            measurements.resolution.rounding_step,
        ),
        downstream=downstream,
    )
