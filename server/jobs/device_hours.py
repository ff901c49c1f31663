"""What the runs of a job on GPUs will take, in device hours: as measured on an equal run, else
modelled; and whether a run would exceed the job's limit of training time.

    seconds of a run = 6 parameters tokens / (0.4 peak devices)       the dense bf16 peak of an H100
      or a B200

The assumption that can fail: a large model reaches 40 % of that peak. An emulated or a small one
does not, and low precision is meant to be faster; so the hours are an order of magnitude, and the
sentence says that they are modelled.
"""

from collections.abc import Iterator, Sequence

from sqlalchemy.orm import Session

from parity.judging.policy import Policy
from parity.wording import count, short_percent, tokens_words
from server.jobs.outlook import equal_earlier_run
from training.spec import JobSpec

PEAKS = {"sm90": ("an H100", 0.99e15), "sm100": ("a B200", 2.25e15)}
_REACHED = 0.4
_HOUR = 3600.0


def device_hours(
    session: Session,
    spec: JobSpec,
    policy: Policy,
    kind: str,
    lengths: Sequence[float],
    max_run_seconds: float | None = None,
) -> Iterator[str]:
    """The sentences for a job for workers of a kind, one of PEAKS. `lengths`: of the runs to be
    trained, as shares of the schedule.
    """
    earlier = equal_earlier_run(session, spec, policy)
    device, peak = PEAKS[kind]
    if earlier is not None and earlier.step_seconds is not None:
        seconds, how = (
            earlier.step_seconds * spec.schedule.steps,
            f"by the steps of run {earlier.run}",
        )
    else:
        tokens = spec.schedule.steps * spec.data.tokens_per_step
        seconds = 6.0 * spec.model.parameters * tokens / (_REACHED * peak * spec.devices)
        how = (
            f"modelled: {tokens_words(tokens)} a run at {short_percent(_REACHED)} of {device}'s "
            "bf16 peak"
        )
    longest, total = seconds / _HOUR, sum(lengths) * seconds * spec.devices / _HOUR
    runs = (
        f"{count(len(lengths), 'run')} of up to {_hours_text(longest)} h on "
        f"{count(spec.devices, 'device')}"
    )
    yield f"About {_hours_text(total)} device hours: {runs} ({how})."
    if max_run_seconds is not None and seconds > max_run_seconds:
        yield (
            f"A run would be failed after {_hours_text(max_run_seconds / _HOUR)} h, the limit "
            "of its training time (max_run_seconds)."
        )


def _hours_text(hours: float) -> str:
    """Three digits, without an exponent."""
    if hours >= 100:
        return f"{hours:,.0f}"
    return f"{hours:.3g}"
