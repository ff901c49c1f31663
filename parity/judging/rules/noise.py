"""Rules about the run-to-run noise: whether a margin and an interval can be known at all."""

from parity.judging.gap.token_slope import NoSlope
from parity.judging.measurements import Measurements
from parity.judging.rules.margin import within_margin
from parity.judging.rules.warnings import noise_assumed

ANOTHER_LOSS = (
    "The loss is no cross-entropy, so its run-to-run noise cannot be assumed from cross-entropies: "
    "a pass needs two runs per arm."
)


def margin_undetermined(m: Measurements) -> str | None:
    if m.statistics is None or m.statistics.margin is not None:
        return None
    if (
        m.policy.margin is not None
        and m.policy.margin.unit == "tokens"
        and isinstance(m.statistics.token_slope, NoSlope)
    ):
        return (
            f"A margin of {m.policy.margin} is no amount in nats yet: "
            f"{m.statistics.token_slope.why}."
        )
    if m.statistics.noises[0].one_apart:
        return (
            "The noise-floor margin has no yardstick: one run of the baseline ends far from the "
            "others, further than their spread explains."
        )
    return (
        "The noise-floor margin needs measured run-to-run noise of the baseline: at least 4 "
        "baseline runs or controls of one seed."
    )


def noise_unknown(m: Measurements) -> str | None:
    declared = None not in m.policy.declared_noise
    if (
        m.without_assumed_noise is None
        or m.statistics is None
        or not m.statistics.noise_is_assumed
        or declared
    ):
        return None
    return noise_unknown_sentence(m.without_assumed_noise)


def noise_unknown_sentence(record: str) -> str:
    """That nothing is assumed of the run-to-run noise of such models, by what the record says of
    them.
    """
    return (
        f"The record says {record}: nothing is assumed about how much such runs differ, and it was "
        "not measured."
    )


def single_runs_of_another_loss(m: Measurements) -> str | None:
    if (
        m.policy.loss_unit != "other"
        or min(len(m.arms.baseline.runs), len(m.arms.candidate.runs)) > 1
        or within_margin(m) is None
    ):
        return None
    return ANOTHER_LOSS


def noise_rejected(m: Measurements) -> str | None:
    if m.policy.assumed_noise != "reject":
        return None
    return noise_assumed(m)
