"""Do runs reach a target with no more than a margin of further samples than a reference did? From
the samples to the target of each run of both.

    more samples   exp(mean ln N_runs - mean ln N_reference) - 1 with Welch's interval; a run that
                   never reached the target needs more than it trained (samples_to_target)
    grid           runs are evaluated every g samples: the true crossing lies between N - g and N,
                   and N - g / 2 is compared. Where the runs of a side spread by less than g / 2,
                   their mean may still be wrong by g / 2, which widens the interval; where they
                   spread by more, these errors cancel (Widrow and Kollar 2008, chapter 5)
    pass           the whole interval is below the margin, and no larger share of the runs than of
                   the reference's never reached the target: why they did not is unknown, and a
                   diverged run would not have reached it later
    fail           the interval is above the margin, or at least 3 runs, all of which trained beyond
                   the margin and never reached the target

Can fail: runs that were picked from more than are here; a reference of another set-up. All runs
count: the reference's checker leaves out the fastest and the slowest one.
"""

from collections.abc import Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.decision import FAIL, INCONCLUSIVE, PASS, State
from parity.judging.evaluations.samples_to_target import (
    MIN_REACHED,
    Reached,
    Tax,
    arm_time,
    token_tax,
)

MIN_RUNS = 3
"""Runs of either side, below which no verdict is given."""
_SAME_UNIT = 5.0
"""Beyond this ratio samples and epochs were compared."""
_LEAST = 1e-9


@frozen
class ConvergenceSide:
    """The runs of one side, and the distance between their evaluations, in samples."""

    runs: Sequence[Reached]
    grid: float


@frozen
class ConvergenceVerdict:
    """The verdict with its reason; `tax` is None where it could not be measured."""

    verdict: State
    reason: str
    tax: Tax | None


def judge_convergence(
    candidate: ConvergenceSide, reference: ConvergenceSide, margin: float, confidence: float
) -> ConvergenceVerdict:
    """The verdict on runs; `margin` is a share of the reference's samples (0.1 = 10 %)."""
    for name, side in (("runs", candidate), ("runs of the reference", reference)):
        if len(side.runs) < MIN_RUNS:
            return _open(f"{len(side.runs)} {name}; expected {MIN_RUNS} or more")
    measured_reference = arm_time(_crossings(reference))
    if measured_reference is None:
        return _open(_unmeasured(reference, "runs of the reference"))
    limit = (1.0 + margin) * max(run.samples for run in reference.runs)
    if all(run.beyond == "above" and run.samples > limit for run in candidate.runs):
        return ConvergenceVerdict(
            verdict=FAIL, reason="no run reached the target within the margin", tax=None
        )
    measured = arm_time(_crossings(candidate))
    if measured is None:
        return _open(_unmeasured(candidate, "runs"))
    tax = token_tax(measured_reference, measured, confidence)
    if not 1.0 / _SAME_UNIT < 1.0 + tax.estimate < _SAME_UNIT:
        return _open("runs and reference differ five times: are these samples and epochs?")
    lo, hi = _with_grid_error(tax, candidate, reference)
    reason = ""
    if lo <= margin and _unreached_share(candidate) > _unreached_share(reference):
        unreached = sum(run.beyond == "above" for run in candidate.runs)
        return _open(f"{unreached} of {len(candidate.runs)} runs never reached the target")
    if hi < margin:
        verdict = PASS
    elif lo > margin:
        verdict, reason = FAIL, "the interval is above the margin"
    else:
        coarse = tax.hi < margin or tax.lo > margin
        verdict = INCONCLUSIVE
        reason = "evaluations are too far apart" if coarse else "the interval crosses the margin"
    return ConvergenceVerdict(
        verdict=verdict,
        reason=reason,
        tax=Tax(estimate=tax.estimate, lo=lo, hi=hi, geometric=tax.geometric),
    )


def _open(reason: str) -> ConvergenceVerdict:
    return ConvergenceVerdict(verdict=INCONCLUSIVE, reason=reason, tax=None)


def _unmeasured(side: ConvergenceSide, name: str) -> str:
    unreached = sum(run.beyond == "above" for run in side.runs)
    if len(side.runs) - unreached < MIN_REACHED:
        return f"fewer than {MIN_REACHED} {name} reached the target"
    return f"{unreached} of {len(side.runs)} {name} never reached the target, the others at once"


def _unreached_share(side: ConvergenceSide) -> float:
    return sum(run.beyond == "above" for run in side.runs) / len(side.runs)


def _crossings(side: ConvergenceSide) -> list[Reached]:
    """The runs at the middle of where each crossed the target; one that did not trained as far."""
    return [
        run
        if run.beyond == "above"
        else Reached(
            samples=max(run.samples - side.grid / 2.0, run.samples / 2.0), beyond=run.beyond
        )
        for run in side.runs
    ]


def _with_grid_error(
    tax: Tax, candidate: ConvergenceSide, reference: ConvergenceSide
) -> tuple[float, float]:
    """The interval with what the grids of both sides leave open."""
    errors = [
        _grid_error(side) / samples
        for side, samples in zip((reference, candidate), tax.geometric, strict=True)
    ]
    return (
        (1.0 + tax.lo) * (1.0 - errors[1]) / (1.0 + errors[0]) - 1.0,
        (1.0 + tax.hi) * (1.0 + errors[1]) / max(1.0 - errors[0], _LEAST) - 1.0,
    )


def _grid_error(side: ConvergenceSide) -> float:
    """By how many samples the mean of the middles may be wrong."""
    seen = np.array([run.samples for run in side.runs if run.beyond is None])
    return side.grid / 2.0 if float(seen.std(ddof=1)) < side.grid / 2.0 else 0.0
