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
from parity.readers.errors import ReadError
from parity.readers.logs.mlperf_convergence import (
    ConvergenceRun,
    ReferencePoint,
    convergence_runs,
)
from parity.readers.logs.mlperf_targets import TARGETS
from parity.readers.logs.result_numbers import numbering_problem

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


@frozen
class JudgedFolders:
    """The folders with runs of the reference's benchmark, and those that have runs of others."""

    results: list[ResultFolder]
    left_out: list[str]


def judge_folders(
    folders: Sequence[Path], points: Sequence[ReferencePoint], margin: float
) -> JudgedFolders:
    """A verdict for each folder in these with runs of the points' benchmark; ReadError for a file
    that cannot be read, and for one of `folders` that has no such run. `margin` is a share of the
    reference's samples.
    """
    results: list[ResultFolder] = []
    left_out: list[str] = []
    for folder in folders:
        found = convergence_runs(folder)
        here = [place for place, runs in found.items() if _has_benchmark(runs, points)]
        if not here:
            names = sorted({run.benchmark or "none" for runs in found.values() for run in runs})
            raise ReadError(
                f"{folder}: runs of {', '.join(names)}; expected runs of {points[0].benchmark}, "
                "the benchmark of the reference convergence points; leave the folder out"
            )
        results += [_judged(place, found[place], points, margin) for place in here]
        left_out += [str(place) for place in found if place not in here]
    return JudgedFolders(results=results, left_out=left_out)


def _has_benchmark(runs: Sequence[ConvergenceRun], points: Sequence[ReferencePoint]) -> bool:
    """Whether a run may be of the benchmark: one that names none, or writes it in another way."""
    names = {"" if run.benchmark is None else _letters(run.benchmark) for run in runs}
    return not names.isdisjoint({"", _letters(points[0].benchmark)})


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


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
        if run.goes_on:
            return f"{name} has more than one run"
    for fact in ("batch_size", "precision", "system"):
        values = {str(getattr(run, fact)) for run in runs}
        if len(values) > 1:
            return f"runs differ in {fact.replace('_', ' ')}: {', '.join(sorted(values))}"
    problem = (
        numbering_problem([run.path for run in runs])
        or _repetition(runs)
        or _missed_target(points[0].benchmark, runs)
    )
    if problem is not None:
        return problem
    at_this_size = [point.name for point in points if point.batch_size == runs[0].batch_size]
    if len(at_this_size) > 1:
        return f"the reference has {len(at_this_size)} points at this batch size: " + ", ".join(
            at_this_size
        )
    if reference is None:
        known = ", ".join(str(point.batch_size) for point in points)
        return f"no reference at batch size {runs[0].batch_size}; there is one at {known}"
    return None


def _repetition(runs: Sequence[ConvergenceRun]) -> str | None:
    """A seed of two runs, or evaluations of two runs that agree in all digits."""
    seeds = Counter(run.seed for run in runs if run.seed is not None)
    if repeated := [seed for seed, times in seeds.items() if times > 1]:
        return f"seed {repeated[0]} was run twice"
    files: dict[str, str] = {}
    for run in runs:
        first = files.setdefault(repr(run.evaluations), run.path.name)
        if first != run.path.name:
            return f"{run.path.name} has the evaluations of {first}: is it a copy?"
    return None


def _missed_target(benchmark: str, runs: Sequence[ConvergenceRun]) -> str | None:
    """Why a success of these runs is none: another target than the benchmark's, or a last
    evaluation that does not reach it.
    """
    target = TARGETS.get(benchmark)
    if target is None:
        return f"the target of {benchmark} is not known; known are those of {', '.join(TARGETS)}"
    for run in runs:
        if run.target is not None and not target.is_stated(run.target):
            return (
                f"{run.path.name} has the target {run.target:g}; {benchmark} has {target.value:g}"
            )
        if run.status == "success" and not target.is_reached(run.evaluations[-1][1]):
            return (
                f"{run.path.name} ends at {run.evaluations[-1][1]:.5g}, which does not reach the "
                f"target {target.value:g}"
            )
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
