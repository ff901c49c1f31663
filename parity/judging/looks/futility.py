"""May an unfinished pair be stopped as hopeless? Never an early pass, and advice unless the policy says otherwise.

Every 10 paired steps from 10 % of the plan on, over the trailing 20 block means of the gap:
  lower = mean - 1.5 t(1 - 0.01/looks) SE - 3 sqrt(tau_A0^2 + tau_B0^2);   hopeless where lower > 3 x margin
t has 19 degrees of freedom and is split over all planned looks (Bonferroni); 1.5 allows for what blocks of 10 leave correlated.

Use: `state = early_stop(planned)` before the first step; at every paired step `state = observe(state, baseline, candidate)`, then
`seen = look(state, criteria, ...)`, which is None where no look is due; keep `state.document()` (under 2 kB) and go on from it with
`early_stop_from_mapping`. Feed each pair of losses once and in order; `planned` counts them, so a pair logged every 10th step has a tenth.

State is 20 block means of gap and baseline and two running sums, so a call costs the same at step 100 and at step 1,000,000.
Can fail: early transients shrink (real NVFP4 gaps of +0.019 nats early drifted to 0), hence 3 margins; tested with constant gaps only.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.judging import special
from parity.judging.criteria import Criteria
from parity.judging.curve import MAX_LOSS, Rounding
from parity.judging.margin import stated_margins
from parity.judging.run_floor import prior_for

BLOCK_STEPS, BLOCKS = 10, 20
START_SHARE, ALPHA, SE_FACTOR, RUN_FACTOR, MARGIN_FACTOR = 0.10, 0.01, 1.5, 3.0, 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStop:
    """What is remembered between steps: the plan, the open block's sums, and the last 20 (gap, baseline) block means in nats."""

    planned_steps: int
    steps: int = 0
    open_gap: float = 0.0
    open_baseline: float = 0.0
    open_steps: int = 0
    blocks: tuple[tuple[float, float], ...] = ()

    def document(self) -> dict[str, Any]:
        """The state as JSON-able values for `early_stop_from_mapping`."""
        return {
            "planned_steps": self.planned_steps,
            "steps": self.steps,
            "open_gap": self.open_gap,
            "open_baseline": self.open_baseline,
            "open_steps": self.open_steps,
            "blocks": [list(block) for block in self.blocks],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look: hopeless or not, the gap's lower bound and the limit that it is held against, nats."""

    hopeless: bool
    step: int
    mean: float
    lower: float
    limit: float

    @property
    def sentence(self) -> str:
        """The look in words."""
        word = "hopeless" if self.hopeless else "open"
        return f"{word} after {self.step:,} paired steps: gap {self.mean:+.4f} nats, lower bound {self.lower:+.4f}, limit {self.limit:.4f}"


def early_stop(planned_steps: int) -> EarlyStop:
    """A fresh state for a pair that is planned to give `planned_steps` (at least 1) pairs of losses."""
    if planned_steps < 1:
        raise ValueError(f"planned_steps is {planned_steps}; expected at least 1")
    return EarlyStop(planned_steps=planned_steps)


def early_stop_from_mapping(mapping: Mapping[str, Any]) -> EarlyStop:
    """The state that `EarlyStop.document` wrote."""
    return EarlyStop(**{**mapping, "blocks": tuple((float(gap), float(base)) for gap, base in mapping["blocks"])})


def observe(state: EarlyStop, baseline: float, candidate: float) -> EarlyStop:
    """The state after one more paired step (losses in nats); a step with a non-finite loss in either arm is left out."""
    if not (abs(baseline) <= MAX_LOSS and abs(candidate) <= MAX_LOSS):
        return state
    gap, base, count = state.open_gap + candidate - baseline, state.open_baseline + baseline, state.open_steps + 1
    blocks = state.blocks
    if count == BLOCK_STEPS:
        blocks = (*blocks[-BLOCKS + 1 :], (gap / count, base / count))
        gap = base = 0.0
        count = 0
    return EarlyStop(
        planned_steps=state.planned_steps, steps=state.steps + 1, open_gap=gap, open_baseline=base, open_steps=count, blocks=blocks
    )


def look(
    state: EarlyStop,
    criteria: Criteria,
    *,
    baseline_recipe: str | None = None,
    candidate_recipe: str | None = None,
    baseline_rounding: Rounding | None = None,
    candidate_rounding: Rounding | None = None,
) -> Look | None:
    """Whether the pair is hopeless now; None between looks, before 10 % of the plan, and before 20 blocks are full."""
    due = state.open_steps == 0 and state.steps >= START_SHARE * state.planned_steps and len(state.blocks) == BLOCKS
    if not due:
        return None
    gap, base = np.array(state.blocks).T
    level = float(base.mean())
    margin = min((nats for nats, _ in stated_margins(criteria, level)), default=None)
    if margin is None or level <= 0.0:
        return None
    looks = max(1, math.ceil((1.0 - START_SHARE) * state.planned_steps / BLOCK_STEPS))
    t = float(special.stdtrit(BLOCKS - 1, 1.0 - ALPHA / looks))
    baseline_prior = prior_for(baseline_recipe, criteria.baseline_run_floor, criteria, level, baseline_rounding)
    candidate_prior = prior_for(candidate_recipe, criteria.candidate_run_floor, criteria, level, candidate_rounding)
    run = RUN_FACTOR * math.hypot(baseline_prior.tau, candidate_prior.tau)
    mean = float(gap.mean())
    lower = mean - SE_FACTOR * t * float(gap.std(ddof=1)) / math.sqrt(BLOCKS) - run
    return Look(hopeless=lower > MARGIN_FACTOR * margin, step=state.steps, mean=mean, lower=lower, limit=MARGIN_FACTOR * margin)
