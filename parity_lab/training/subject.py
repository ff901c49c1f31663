"""What an analysis takes apart: the arithmetic of a candidate at a kept checkpoint, and what takes
its place where a GEMM is off.

Raises SpecError with the way out for what cannot be analysed.
"""

from collections.abc import Mapping

from parity_lab.training.menu import Choice, Measured, measured, menu_of
from training.forks import check_fork_step
from training.rules import SpecError
from training.segments import Arithmetic, Segment
from training.spec import RunSpec

_TRAIN_AS_ARMS = "train each ablation as an arm of a job, with overrides"


def subject(candidate: RunSpec, baseline: RunSpec | None, step: int, steps: int) -> Measured:
    """What forks of the candidate can toggle in `steps` steps after step `step`, against the
    baseline's arithmetic (None: bf16).
    """
    _check_forks(candidate, step, "why", "an analysis")
    most = candidate.schedule.steps - step
    if not 1 <= steps <= most:
        raise SpecError(
            "why.fork_steps",
            steps,
            f"1 to {most}: the run ends at step {candidate.schedule.steps}",
            "plan shorter forks",
        )
    arithmetics = arithmetic(candidate, step, steps, "candidate")
    off = None if baseline is None else arithmetic(baseline, step, steps, "baseline")
    if any(arithmetic.recipe == "fp8_delayed" for *_, arithmetic in arithmetics.cells()):
        raise SpecError(
            "why.candidate",
            candidate.label,
            "a recipe without delayed scaling",
            f"its nearest is fp8_current; or {_TRAIN_AS_ARMS}",
        )
    if off is not None and any(
        arithmetic.recipe == "fp8_delayed" for *_, arithmetic in off.cells()
    ):
        raise SpecError(
            "why.against", "baseline", "a baseline without delayed scaling", "use against: bf16"
        )
    try:
        return measured(arithmetics, candidate.model.n_layers, off)
    except ValueError as error:
        raise SpecError(
            "why.candidate", candidate.label, "an arithmetic that differs", str(error)
        ) from error


def forked_arms(
    arms: Mapping[str, RunSpec], step: int, steps: int
) -> tuple[tuple[Arithmetic, ...], Mapping[str, Choice]]:
    """The menu and the choices of forks that take the arithmetic of these runs for `steps` steps
    after step `step`.

    Raises SpecError for a run whose arithmetic a fork cannot take.
    """
    first = next(iter(arms.values()))
    _check_forks(first, step, "forks", "a job of forks")
    if not 1 <= steps <= first.schedule.steps - step:
        raise SpecError(
            "forks.fork_steps",
            steps,
            f"1 to {first.schedule.steps - step}: the run ends at step {first.schedule.steps}",
        )
    try:
        return menu_of(
            {name: arithmetic(run, step, steps, f"arm {name}") for name, run in arms.items()},
            first.model.n_layers,
        )
    except ValueError as error:
        raise SpecError(
            "forks.arms", ", ".join(arms), "arms that one program can compute", str(error)
        ) from error


def arithmetic(spec: RunSpec, step: int, steps: int, whose: str) -> Segment:
    """The arithmetic of a run in the `steps` steps after step `step`. Raises SpecError if it
    changes within them.
    """
    change = next(
        (
            segment.first_step
            for segment in spec.segments
            if step < segment.first_step < step + steps
        ),
        None,
    )
    if change is not None:
        remedy = f"plan forks of at most {change - step} steps, or another checkpoint"
        raise SpecError(
            "why.fork_steps",
            steps,
            f"steps in which the {whose}'s arithmetic does not change (it does at {change})",
            remedy,
        )
    return max(
        (segment for segment in spec.segments if segment.first_step <= step),
        key=lambda segment: segment.first_step,
    )


def _check_forks(run: RunSpec, step: int, key: str, what: str) -> None:
    """Raises SpecError about `key` for a run whose GEMMs cannot be chosen in forks after step
    `step` on one device, as `what` does.
    """
    check_fork_step(run, step)
    if run.engine != "emulated":
        raise SpecError(
            f"{key}.engine",
            run.engine,
            "emulated, whose GEMMs can be chosen while the program runs",
            _TRAIN_AS_ARMS,
        )
    if run.devices != 1:
        raise SpecError(
            f"{key}.devices",
            run.devices,
            f"1: {what} trains its forks on one device",
            _TRAIN_AS_ARMS,
        )
