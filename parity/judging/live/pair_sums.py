"""What is remembered of a pair of runs while it trains: sums of the gap and of the baseline's loss
in 80 equal parts of the plan.

block of step s = floor(80 (s - origin)/planned steps), origin 0 or 1 as the steps are numbered; its
mean gap is sum/count

Feed each common step once, in order, in pieces of any size. Sums are added one step after the
other, so a state that was written to JSON and read again continues bit for bit as if it had never
stopped. It holds at most 80 x 3 numbers (under 6 kB), however long the run is. Steps with a
non-finite loss in either arm are left out. Can fail: a block with few logged steps is one noisy
number.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import FloatArray, IntArray, usable

BLOCKS = 80
_KEYS = ("planned_steps", "origin", "last_step", "counts", "gaps", "baselines")


@frozen
class PairProgress:
    """A pair of runs as far as it was fed: the last step, and by block the steps, the sum of gaps
    and the sum of baseline losses (nats).

    The lists end with the last block that has a step; `origin` and `last_step` are None before the
    first step.
    """

    planned_steps: int
    origin: int | None = None
    last_step: int | None = None
    counts: tuple[int, ...] = ()
    gaps: tuple[float, ...] = ()
    baselines: tuple[float, ...] = ()

    @property
    def share(self) -> float:
        """Share of the plan that the pair has reached, 0 to 1."""
        if self.origin is None or self.last_step is None:
            return 0.0
        return min(1.0, (self.last_step - self.origin + 1) / self.planned_steps)

    def blocks_done(self, *, ended: bool = False) -> int:
        """Blocks that are complete; of a pair that has ended all that have a step."""
        if ended:
            return len(self.counts)
        return min(math.floor(self.share * BLOCKS + 1e-9), len(self.counts))

    def means(self, blocks: slice) -> tuple[FloatArray, FloatArray]:
        """Mean gap and mean baseline loss (n,) of the blocks of a range that have a step, nats."""
        counts = np.array(self.counts[blocks], dtype=np.float64)
        kept = counts > 0
        gaps, baselines = (
            np.array(sums[blocks], dtype=np.float64)[kept] / counts[kept]
            for sums in (self.gaps, self.baselines)
        )
        return gaps, baselines

    def until(self, blocks: int) -> "PairProgress":
        """The pair as it was after its first `blocks` blocks."""
        if blocks >= len(self.counts):
            return self
        last = self.last_step_of(blocks)
        while blocks and not self.counts[blocks - 1]:
            blocks -= 1
        return dataclasses.replace(
            self,
            last_step=last,
            counts=self.counts[:blocks],
            gaps=self.gaps[:blocks],
            baselines=self.baselines[:blocks],
        )

    def last_step_of(self, blocks: int) -> int:
        """The last step of the first `blocks` blocks."""
        return (
            (1 if self.origin is None else self.origin)
            - 1
            + -(-self.planned_steps * blocks // BLOCKS)
        )

    def document(self) -> dict[str, Any]:
        """The state as JSON-able values for `progress_from_mapping`."""
        return {
            key: list(value) if isinstance(value := getattr(self, key), tuple) else value
            for key in _KEYS
        }


def begin(planned_steps: int) -> PairProgress:
    """The state of a pair of which nothing is known; `planned_steps` is the registered length of a
    run, at least 1.
    """
    if planned_steps < 1:
        raise ValueError(f"planned_steps is {planned_steps}; expected at least 1")
    return PairProgress(planned_steps=planned_steps)


def progress_from_mapping(mapping: Mapping[str, Any]) -> PairProgress:
    """The state that `PairProgress.document` wrote; ValueError where it is another document."""
    if set(mapping) != set(_KEYS):
        raise ValueError(
            f"the state of a pair has the keys {', '.join(sorted(map(str, mapping)))}; expected "
            f"{', '.join(_KEYS)}"
        )
    sums = {key: tuple(mapping[key]) for key in ("counts", "gaps", "baselines")}
    return PairProgress(**{**mapping, **sums})


def observe(
    state: PairProgress, steps: IntArray, baseline: FloatArray, candidate: FloatArray
) -> PairProgress:
    """The state after further common steps (n,), ascending and after those that it has, with the
    losses of both runs (n,) in nats.

    Steps before or after the plan are left out. ValueError where the steps do not follow those that
    were fed.
    """
    if len(steps) == 0:
        return state
    if np.any(np.diff(steps) <= 0) or (state.last_step is not None and steps[0] <= state.last_step):
        raise ValueError(
            f"steps from {steps[0]} on were fed after step {state.last_step}; expected ascending "
            "steps, each once"
        )
    origin = min(1, int(steps[0])) if state.origin is None else state.origin
    inside = (steps >= origin) & (steps < origin + state.planned_steps)
    finite = inside & usable(baseline) & usable(candidate)
    if not inside.any():
        return state
    block = ((steps[finite].astype(np.int64) - origin) * BLOCKS) // state.planned_steps
    filled = max(len(state.counts), int(block[-1]) + 1 if len(block) else 0)
    counts = _added(state.counts, filled, block, np.ones(len(block)))
    gaps = _added(state.gaps, filled, block, candidate[finite] - baseline[finite])
    baselines = _added(state.baselines, filled, block, baseline[finite])
    return dataclasses.replace(
        state,
        origin=origin,
        last_step=int(steps[inside][-1]),
        counts=tuple(int(count) for count in counts),
        gaps=tuple(gaps.tolist()),
        baselines=tuple(baselines.tolist()),
    )


def _added(sums: Sequence[float], filled: int, block: IntArray, values: FloatArray) -> FloatArray:
    """The sums of the first `filled` blocks with further values added, one after the other."""
    total = np.zeros(filled)
    total[: len(sums)] = sums
    np.add.at(total, block, values)
    return total
