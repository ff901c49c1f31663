"""Folders of MLPerf results, each beside the reference convergence points of its benchmark."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from parity.frozen import frozen
from parity.judging.decision import INCONCLUSIVE
from parity.judging.evaluations.convergence import (
    ConvergenceSide,
    ConvergenceVerdict,
    judge_convergence,
)
from parity.judging.evaluations.samples_to_target import Reached
from parity.readers.logs.mlperf_convergence import (
    ConvergenceRun,
    ReferencePoint,
    convergence_runs,
    missing_numbers,
)

NOTICE = (
    "Not verified by MLCommons Association: no MLPerf result, and not the check of reference "
    "convergence points that MLPerf asks for."
)
CONFIDENCE = 0.95
_Value = TypeVar("_Value")


@frozen
class ResultFolder:
    """The runs of one folder, the reference at their batch size, and the verdict. `system`,
    `precision` and `batch_size` are what all runs state, else None.
    """

    folder: str
    system: str | None
    precision: str | None
    batch_size: int | None
    runs: int
    converged: int
    reference: ReferencePoint | None
    answer: ConvergenceVerdict


def judge_folders(
    folder: Path, points: Sequence[ReferencePoint], margin: float
) -> list[ResultFolder]:
    """A verdict for each folder with runs of the points' benchmark; ReadError for a file that
    cannot be read. `margin` is a share of the reference's samples.
    """
    return [
        _judged(place, runs, points, margin)
        for place, runs in convergence_runs(folder).items()
        if any(run.benchmark in (points[0].benchmark, None) for run in runs)
    ]


def _judged(
    folder: Path, runs: Sequence[ConvergenceRun], points: Sequence[ReferencePoint], margin: float
) -> ResultFolder:
    batch_size = _common([run.batch_size for run in runs])
    reference = next((point for point in points if point.batch_size == batch_size), None)
    reason = _problem(runs, points, reference)
    if reference is None or reason is not None:
        answer = ConvergenceVerdict(verdict=INCONCLUSIVE, reason=reason or "", tax=None)
    else:
        grid = max(run.last_gap for run in runs)
        answer = judge_convergence(
            ConvergenceSide(runs=[_reached(run) for run in runs], grid=grid),
            ConvergenceSide(
                runs=[Reached(samples=samples, beyond=None) for samples in reference.samples],
                grid=_grid(reference, points) or grid,
            ),
            margin,
            CONFIDENCE,
        )
    return ResultFolder(
        folder=str(folder),
        system=_common([run.system for run in runs]),
        precision=_common([run.precision for run in runs]),
        batch_size=batch_size,
        runs=len(runs),
        converged=sum(run.status == "success" for run in runs),
        reference=reference,
        answer=answer,
    )


def _problem(
    runs: Sequence[ConvergenceRun],
    points: Sequence[ReferencePoint],
    reference: ReferencePoint | None,
) -> str | None:
    """Why these runs say nothing about how the recipe converges."""
    for run in runs:
        name = run.path.name
        if run.benchmark != points[0].benchmark:
            return f"{name} is a run of {run.benchmark or 'no benchmark that it names'}"
        if run.status is None:
            return f"{name} has no `run_stop`: is it whole?"
        if run.samples is None:
            return f"{name} has no evaluation"
        if run.missed_target is not None:
            loss, target = run.missed_target
            return f"{name} ends at {loss:.4f} nats, above its target {target:g}"
    for fact in ("batch_size", "precision", "system"):
        values = {str(getattr(run, fact)) for run in runs}
        if len(values) > 1:
            return f"runs differ in {fact.replace('_', ' ')}: {', '.join(sorted(values))}"
    if missing := missing_numbers(runs):
        return f"run {missing[0]} is missing: were runs left out?"
    seeds = Counter(run.seed for run in runs if run.seed is not None)
    if repeated := [seed for seed, times in seeds.items() if times > 1]:
        return f"seed {repeated[0]} was run twice"
    if reference is None:
        known = ", ".join(str(point.batch_size) for point in points)
        return f"no reference at batch size {runs[0].batch_size}; there is one at {known}"
    return None


def _common(values: Sequence[_Value | None]) -> _Value | None:
    return values[0] if len(set(values)) == 1 else None


def _reached(run: ConvergenceRun) -> Reached:
    return Reached(samples=run.samples or 0.0, beyond=None if run.status == "success" else "above")


def _grid(reference: ReferencePoint, points: Sequence[ReferencePoint]) -> float | None:
    """The distance of the reference's evaluations: the smallest between two of its runs, or, where
    all are equal, of other points' runs; None where all are equal.
    """
    for point in (reference, *points):
        values = sorted(set(point.samples))
        if len(values) > 1:
            return min(after - before for before, after in pairwise(values))
    return None
