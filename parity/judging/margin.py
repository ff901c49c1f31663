"""Which margin decides: the smallest in nats of those the policy states, at the baseline's level in the window.

noise-floor: 3 sqrt(2) tau of the baseline, from reruns with at least 3 degrees of freedom; an assumed tau can't be a yardstick, nor one
that a single run sets which lies apart from the others (`run_floor.one_apart`): a broken baseline must not widen the margin.
"""

import math
from dataclasses import dataclass

from parity.judging.criteria import NOISE_FLOOR, NOISE_FLOOR_DF, PROFILES, Criteria
from parity.judging.run_floor import RunFloor

NOISE_FLOOR_MULTIPLE = 3.0 * math.sqrt(2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """The largest acceptable gap: nats, share of the baseline's loss, and what set it."""

    nats: float
    rel: float
    source: str


def determine_margin(criteria: Criteria, level: float, baseline_floor: RunFloor) -> Margin | None:
    """The deciding margin where the baseline's loss is `level` nats; None where a noise floor is asked for and not measured."""
    if level == 0.0:
        return None
    stated = stated_margins(criteria, level)
    if criteria.profile == NOISE_FLOOR:
        if baseline_floor.measured is None or baseline_floor.measured_df < NOISE_FLOOR_DF or baseline_floor.one_apart:
            return None
        stated.append((NOISE_FLOOR_MULTIPLE * baseline_floor.measured, f"profile {NOISE_FLOOR}: 3 sqrt(2) x the baseline's run floor"))
    nats, source = min(stated)
    return Margin(nats=nats, rel=nats / level, source=source)


def stated_margins(criteria: Criteria, level: float) -> list[tuple[float, str]]:
    """The margins that the policy states as amounts (nats, source) at a baseline loss of `level` nats; a noise floor is not one of them."""
    stated = [] if criteria.margin is None else [(criteria.margin.nats(level), str(criteria.margin))]
    amount = PROFILES[criteria.profile] if criteria.profile is not None else None
    return stated if amount is None else [*stated, (amount.nats(level), f"profile {criteria.profile}: {amount}")]
