"""Forks: runs that go on from a checkpoint of another run, with some GEMMs changed from that step on.

What it answers: may this run start from that checkpoint, so that it equals bit for bit the run trained from step 0?

    fork      the parent's state after `step` steps, then the fork's own specification
    draw 0    the parent's random numbers: trained from step 0, the fork's specification gives the same bits
    draw d    rounding drawn from a hash of (seed, replicate, step, d), and weights moved at `step` by about one part in a million:
              A/A forks, whose spread is the noise of forks

What differs stands in the fork's specification, mostly as overrides with `from_step`. Forks of one checkpoint differ several times less at
the end than reruns from step 0 do. So they rank causes of a gap; they are no replicates, and the judge never counts them.

The assumption that can fail: what a switch does late in a run is what it does all along. A gap that built up earlier stays in the weights.
Standard library only, like `training.spec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from training.rules import SpecError, check_at_least
from training.segments import Segment, gemm_key
from training.spec import RunSpec

# A fork may differ in these, as long as the steps before it have the same arithmetic.
_MAY_DIFFER = ("recipe", "switches", "overrides", "bf16_from_step", "bf16_scope")
_OTHER_TRAINERS = {
    "maxtext": "MaxText has checkpoints of its own, which this service does not read",
    "external": "the trainer and its checkpoints are yours",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """Where a run starts: the specification of its parent, the number of steps that the parent did, and which random numbers follow."""

    parent: RunSpec
    step: int
    draw: int = 0

    def __post_init__(self) -> None:
        check_at_least("fork.draw", self.draw, 0)
        check_fork_step(self.parent, self.step)

    def check(self, spec: RunSpec) -> None:
        """Raises SpecError unless a run of this specification has the parent's bits before the fork."""
        ours, theirs = spec.document(), self.parent.document()
        for name in sorted(ours.keys() | theirs.keys()):
            if name not in _MAY_DIFFER and ours.get(name) != theirs.get(name):
                raise SpecError(f"fork.{name}", ours.get(name), f"{theirs.get(name)}, as in the parent", "a fork changes GEMMs only")
        starts = {part.first_step for parts in (spec.segments, self.parent.segments) for part in parts if part.first_step < self.step}
        for start in sorted(starts):
            own, before = _arithmetic_at(spec.segments, start), _arithmetic_at(self.parent.segments, start)
            place = next((place for place, key in own.items() if before[place] != key), None)
            if place is not None:
                block, projection, gemm = place
                raise SpecError(
                    "fork.overrides",
                    f"another {gemm} of {projection} in block {block} from step {start} on",
                    f"the parent's arithmetic before step {self.step}",
                    f"set from_step: {self.step} or later",
                )


def check_fork_step(parent: RunSpec, step: int) -> None:
    """Raises SpecError if no fork of this run can start after `step` steps."""
    if parent.engine in _OTHER_TRAINERS:
        remedy = f"{_OTHER_TRAINERS[parent.engine]}; train each ablation as an arm of a job"
        raise SpecError("fork.step", step, f"no fork under engine {parent.engine}", remedy)
    if not 0 < step < parent.schedule.steps:
        raise SpecError("fork.step", step, f"a step after the first and before schedule.steps = {parent.schedule.steps}")


def _arithmetic_at(parts: tuple[Segment, ...], step: int) -> Mapping[tuple[int, str, str], object]:
    """What every GEMM does at a step, by block, projection and GEMM."""
    part = max((each for each in parts if each.first_step <= step), key=lambda each: each.first_step)
    ends = {span.first: span.last for span in part.spans}
    return {
        (block, projection, gemm): gemm_key(gemm, arithmetic)
        for first, projection, gemm, arithmetic in part.cells()
        for block in range(first, ends[first] + 1)
    }
