"""What an analysis takes apart: the arithmetic of a candidate at a kept checkpoint, and what takes its place where a unit is off.

Raises SpecError with the way out for what cannot be analysed. Standard library and numpy only, so that a server can refuse before anything
is queued.
"""

from __future__ import annotations

from collections.abc import Mapping

from training.forks import check_fork_step
from training.rules import SpecError
from training.segments import Arithmetic, Segment
from training.spec import RunSpec
from training.why.units import Choice, Measured, measured, menu_of

_AS_ARMS = "train each ablation as an arm of a job, with overrides"


def subject(candidate: RunSpec, baseline: RunSpec | None, step: int, steps: int) -> Measured:
    """What forks of the candidate can toggle in `steps` steps after step `step`, against the baseline's arithmetic (None: bf16)."""
    check_fork_step(candidate, step)
    if candidate.engine != "emulated":
        raise SpecError("why.engine", candidate.engine, "emulated, whose GEMMs can be chosen while the program runs", _AS_ARMS)
    if candidate.devices != 1:
        raise SpecError("why.devices", candidate.devices, "1: an analysis trains its forks on one device", _AS_ARMS)
    until = step + steps
    if steps < 1 or until > candidate.schedule.steps:
        most = candidate.schedule.steps - step
        raise SpecError("why.fork_steps", steps, f"1 to {most}: the run ends at step {candidate.schedule.steps}", "plan shorter forks")
    own = _segment(candidate, step, until, "candidate")
    off = None if baseline is None else _segment(baseline, step, until, "baseline")
    if any(each.recipe == "fp8_delayed" for *_, each in own.cells()):
        raise SpecError("why.candidate", candidate.label, "a recipe without delayed scaling", f"its nearest is fp8_current; or {_AS_ARMS}")
    if off is not None and any(each.recipe == "fp8_delayed" for *_, each in off.cells()):
        raise SpecError("why.against", "baseline", "a baseline without delayed scaling", "use against: bf16")
    try:
        return measured(own, candidate.model.n_layers, off)
    except ValueError as error:
        raise SpecError("why.candidate", candidate.label, "an arithmetic that differs", str(error)) from error


def policies(runs: Mapping[str, RunSpec], step: int, steps: int) -> tuple[tuple[Arithmetic, ...], Mapping[str, Choice]]:
    """The menu and the choices of forks that take the arithmetic of these runs for `steps` steps after step `step`.

    Raises SpecError for a run whose arithmetic a fork cannot take.
    """
    first = next(iter(runs.values()))
    check_fork_step(first, step)
    if first.engine != "emulated":
        raise SpecError("search.engine", first.engine, "emulated, whose GEMMs can be chosen while the program runs", _AS_ARMS)
    if first.devices != 1:
        raise SpecError("search.devices", first.devices, "1: a search trains its forks on one device", _AS_ARMS)
    if not 1 <= steps <= first.schedule.steps - step:
        raise SpecError("search.fork_steps", steps, f"1 to {first.schedule.steps - step}: the run ends at step {first.schedule.steps}")
    try:
        return menu_of({name: _segment(run, step, step + steps, f"policy {name}") for name, run in runs.items()}, first.model.n_layers)
    except ValueError as error:
        raise SpecError("search.switches", ", ".join(runs), "policies that one program can compute", str(error)) from error


def arithmetic(spec: RunSpec, step: int, steps: int, whose: str) -> Segment:
    """The arithmetic of a run in the `steps` steps after step `step`. Raises SpecError if it changes within them."""
    return _segment(spec, step, step + steps, whose)


def _segment(spec: RunSpec, step: int, until: int, whose: str) -> Segment:
    """The arithmetic of these steps; SpecError if it changes within them."""
    change = next((each.first_step for each in spec.segments if step < each.first_step < until), None)
    if change is not None:
        remedy = f"plan forks of at most {change - step} steps, or another checkpoint"
        raise SpecError(
            "why.fork_steps", until - step, f"steps in which the {whose}'s arithmetic does not change (it does at {change})", remedy
        )
    return max((each for each in spec.segments if each.first_step <= step), key=lambda each: each.first_step)
