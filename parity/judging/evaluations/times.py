"""How long a run took: per step, and until it reached the target loss."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """The times of one run, named by its arm and its label; None for what is not known.

    `step_seconds` is the time per unit of the curve's step axis (an optimizer step or a sample), `seconds_to_target` the time until the run
    reached the target loss, and `hardware` what it ran on.
    """

    arm: str
    run: str
    hardware: str | None
    step_seconds: float | None
    seconds_to_target: float | None
