"""Rules about the run-to-run noise: whether a margin and an interval can be known at all."""

from parity.judging.gap.token_slope import NoSlope
from parity.judging.measurements import Measurements
from parity.judging.rules.margin import within_margin
from parity.judging.rules.warnings import noise_assumed

ANOTHER_LOSS = (
    "The loss is no cross-entropy, so its run-to-run noise cannot be assumed from cross-entropies: "
    "a pass needs two runs per arm."
)


def margin_undetermined(measurements: Measurements) -> str | None:
    if measurements.statistics is None or measurements.statistics.margin is not None:
        return None
    if (
        measurements.policy.margin is not None
        and measurements.policy.margin.unit == "tokens"
        and isinstance(measurements.statistics.token_slope, NoSlope)
    ):
        return (
            f"A margin of {measurements.policy.margin} is no amount in nats yet: "
            f"{measurements.statistics.token_slope.why}."
        )
    if measurements.statistics.noises[0].one_apart:
        return (
            "The noise-floor margin has no yardstick: one run of the baseline ends far from the "
            "others, further than their spread explains."
        )
    return (
        "The noise-floor margin needs measured run-to-run noise of the baseline: at least 4 "
        "baseline runs or controls of one seed."
    )


def noise_unknown(measurements: Measurements) -> str | None:
    declared = None not in measurements.policy.declared_noise
    if (
        measurements.without_assumed_noise is None
        or measurements.statistics is None
        or not measurements.statistics.noise_is_assumed
        or declared
    ):
        return None
    return noise_unknown_sentence(measurements.without_assumed_noise)


def noise_unknown_sentence(record: str) -> str:
    """That nothing is assumed of the run-to-run noise of such models, by what the record says of
    them.
    """
    return (
        f"The runs are of {record}: nothing is assumed about how much such runs differ, and it was "
        "not measured."
    )


def single_runs_of_another_loss(measurements: Measurements) -> str | None:
    if (
        measurements.policy.loss_unit != "other"
        or min(len(measurements.arms.baseline.runs), len(measurements.arms.candidate.runs)) > 1
        or within_margin(measurements) is None
    ):
        return None
    return ANOTHER_LOSS


def noise_rejected(measurements: Measurements) -> str | None:
    if measurements.policy.assumed_noise != "reject":
        return None
    return noise_assumed(measurements)
