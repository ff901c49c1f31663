"""Which margin decides: the smallest in nats of those the policy states, at the baseline's level in
the window.

tokens: S ln(1 + x), with the slope S that the policy states or that `token_slope` found
noise-floor: 3 sqrt(2) tau of the baseline, from reruns with at least 3 degrees of freedom; an
assumed tau can't be a yardstick, nor one that a single run sets which lies apart from the others
(`arm_noise.one_apart`): a broken baseline must not widen the margin.
"""

import dataclasses
import math

from parity.frozen import frozen
from parity.judging.gap.token_slope import TokenSlope
from parity.judging.noise.arm_noise import ArmNoise
from parity.judging.policy import NOISE_FLOOR, NOISE_FLOOR_DF, PROFILES, Amount, Policy

NOISE_FLOOR_MULTIPLE = 3.0 * math.sqrt(2.0)


@frozen
class Margin:
    """The largest acceptable gap: nats, share of the baseline's loss, what set it, and the share of
    further tokens that it is worth.

    `tokens` is None where no slope is known.
    """

    nats: float
    rel: float
    source: str
    tokens: float | None = None


def determine_margin(
    policy: Policy, level: float, baseline_noise: ArmNoise, slope: TokenSlope | None = None
) -> Margin | None:
    """The deciding margin where the baseline's loss is `level` nats; None for an unmeasured noise
    floor, or tokens without slope.
    """
    if level == 0.0:
        return None
    stated = [(_nats(amount, level, slope), source) for amount, source in stated_margins(policy)]
    if any(math.isnan(nats) for nats, _ in stated):
        return None
    if policy.profile == NOISE_FLOOR:
        if (
            baseline_noise.measured is None
            or baseline_noise.measured_df < NOISE_FLOOR_DF
            or baseline_noise.one_apart
        ):
            return None
        stated.append(
            (
                NOISE_FLOOR_MULTIPLE * baseline_noise.measured,
                f"profile {NOISE_FLOOR}: 3 sqrt(2) x the baseline's run-to-run noise",
            )
        )
    nats, source = min(stated)
    return Margin(
        nats=nats,
        rel=nats / level,
        source=source,
        tokens=None if slope is None else slope.tokens(nats),
    )


def stated_margins(policy: Policy) -> list[tuple[Amount, str]]:
    """The margins that the policy states as amounts, each with its source; a noise floor is not one
    of them.
    """
    stated = [] if policy.margin is None else [(policy.margin, str(policy.margin))]
    amount = PROFILES[policy.profile] if policy.profile is not None else None
    if amount is None:
        return stated
    return [*stated, (amount, f"profile {policy.profile}: {amount}")]


def _nats(amount: Amount, level: float, slope: TokenSlope | None) -> float:
    """The amount in nats at a loss of `level` nats; NaN for tokens whose slope is neither stated
    nor known.
    """
    if amount.unit == "tokens" and amount.slope is None:
        amount = dataclasses.replace(amount, slope=math.nan if slope is None else slope.nats)
    return amount.nats(level)
