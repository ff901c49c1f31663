"""What one run says about its speed: seconds a step, seconds to the target, and the hardware that
it ran on.
"""

from parity.frozen import frozen


@frozen
class RunTimes:
    """One run's times; `arm` and `run` are the names of its arm and the label of its curve. None
    where a time is not on record.

    A step is whatever the table counts in: an optimizer step, a sample, a sequence. All runs of a
    comparison count in the same.
    """

    arm: str
    run: str
    hardware: str | None
    step_seconds: float | None
    seconds_to_target: float | None
