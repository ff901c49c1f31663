"""Forks: a checkpoint of a run, trained on with some GEMMs changed from that step on.

What it answers: where can one start, and which random numbers follow?

    draw 0    the parent's random numbers: trained from step 0 with the same changes, the parent's
              specification gives the same bits
    draw d    rounding drawn from a hash of (seed, replicate, step, d), and weights moved at
              `step` by about one part in a million:
              A/A forks, whose spread is the noise of forks

Forks of one checkpoint differ several times less at the end than reruns from step 0 do. So they
rank causes of a gap; they are no replicates, and the judge never counts them.

The assumption that can fail: what a switch does late in a run is what it does all along. A gap
that built up earlier stays in the weights. Standard library only, like `training.spec`.
"""

from training import rules
from training.frozen import frozen
from training.rules import SpecError
from training.spec import RunSpec

_OTHER_TRAINERS = {
    "maxtext": "MaxText has checkpoints of its own, which this service does not read",
    "command": "the trainer and its checkpoints are the launcher's",
    "external": "the trainer and its checkpoints are yours",
}


@frozen
class Fork:
    """Where a run starts: the specification of its parent, the number of steps that the parent did,
    and which random numbers follow.
    """

    parent: RunSpec
    step: int
    draw: int = 0

    def __post_init__(self) -> None:
        rules.check_at_least("fork.draw", self.draw, 0)
        check_fork_step(self.parent, self.step)


def check_fork_step(parent: RunSpec, step: int) -> None:
    """Raises SpecError if no fork of this run can start after `step` steps."""
    if parent.engine in _OTHER_TRAINERS:
        remedy = f"{_OTHER_TRAINERS[parent.engine]}; train each ablation as an arm of a job"
        raise SpecError("fork.step", step, f"no fork under engine {parent.engine}", remedy)
    if not 0 < step < parent.schedule.steps:
        raise SpecError(
            "fork.step",
            step,
            f"a step after the first and before schedule.steps = {parent.schedule.steps}",
        )
