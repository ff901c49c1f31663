"""What further looks add: after each look that leaves the verdict open, one more run per arm, up to
the looks that the policy registers.

Jobs are simulated (1,000, from fixed numbers): late means N(0, tau) of each run, SE_within of the
pair, and the judge's own noise and interval at each look's level from the runs so far. A job
ends with the first look that decides. Expected run-steps are those of the looks that are taken;
the baseline's further runs are shared by all candidates, each of which is taken to go on as long
as this one.

The first look's chances are those of `chances`, so that a plan has one number for it: the drawn
jobs only say what becomes of the open ones (`anchored`).

Can fail: as `chances`, by run-to-run noise that is not what was assumed. Reruns that stop early
are taken to show what is expected of them.
"""

import dataclasses

import numpy as np

from parity.design.chances import Drawing, drawing
from parity.design.experiment import (
    Design,
    gpu_hours,
    run_steps,
)
from parity.frozen import frozen
from parity.judging.curves.curve import FloatArray
from parity.judging.gap.interval import interval
from parity.judging.multiplicity import Multiplicity
from parity.judging.noise.arm_noise import run_term
from parity.judging.noise.noise_source import NoiseFamilies
from parity.judging.policy import Policy

DRAWN = 1000


@frozen
class LookAhead:
    """What is decided up to a look, over all jobs: passes at a gap of 0, fails at twice the margin;
    and what was spent until then.

    `confidence` is that of the look's interval. `run_steps` and `gpu_hours` (None without a step
    time) are what a job at a gap of 0 has spent on average when this look has been taken or is no
    longer needed.
    """

    look: int
    confidence: float
    design: Design
    passed: float
    failed: float
    run_steps: float
    gpu_hours: float | None


def looks_ahead(
    design: Design, policy: Policy, noise_families: NoiseFamilies, margin: float
) -> tuple[LookAhead, ...]:
    """The registered looks of a design whose level is set, in their order; none where there is only
    one.
    """
    if policy.looks == 1:
        return ()
    designs = [
        dataclasses.replace(
            design,
            baseline_runs=design.baseline_runs + more,
            candidate_runs=design.candidate_runs + more,
        )
        for more in range(policy.looks)
    ]
    drawings = [drawing(one, policy, noise_families) for one in designs]
    rng = np.random.default_rng(0)
    most = designs[-1]
    left = drawings[0].taus[0] * rng.standard_normal((DRAWN, most.baseline_runs))
    right = drawings[0].taus[1] * rng.standard_normal((DRAWN, most.candidate_runs))
    within = drawings[0].within.value * rng.standard_normal(DRAWN)
    open_at = {0.0: np.ones(DRAWN, bool), 2.0 * margin: np.ones(DRAWN, bool)}
    decided = dict.fromkeys(open_at, 0)
    spent, before = 0.0, 0
    ahead = []
    for number, (one, drawn) in enumerate(zip(designs, drawings, strict=True), 1):
        levels = Multiplicity(look=number, looks=policy.looks, candidates=design.candidates).levels(
            policy.confidence
        )
        base, cand = left[:, : one.baseline_runs], right[:, : one.candidate_runs]
        halves, nominal = (
            _half_widths(drawn, base, cand, confidences)
            for confidences in (levels, (policy.confidence, policy.confidence))
        )
        estimate = cand.mean(axis=1) - base.mean(axis=1) + within
        spent += (run_steps(one) - before) * float(open_at[0.0].mean())
        before = run_steps(one)
        for gap, still in open_at.items():
            low, high = estimate + gap - nominal, estimate + gap + halves
            passes, fails = high < margin, low > margin
            decided[gap] += int(np.sum(still & (passes if gap == 0.0 else fails)))
            open_at[gap] = still & ~passes & ~fails
        hours = gpu_hours(one)
        ahead.append(
            LookAhead(
                look=number,
                confidence=levels[0],
                design=one,
                passed=decided[0.0] / DRAWN,
                failed=decided[2.0 * margin] / DRAWN,
                run_steps=spent,
                gpu_hours=None if hours is None else hours * spent / run_steps(one),
            )
        )
    return tuple(ahead)


def anchored(ahead: tuple[LookAhead, ...], passed: float, failed: float) -> tuple[LookAhead, ...]:
    """The looks with these exact chances of the first one, of a pass at a gap of 0 and a fail at
    twice the margin; the simulated jobs say what becomes of those that it leaves open.
    """
    if not ahead:
        return ahead
    first = ahead[0]
    of_passed, of_failed = (
        (1.0 - exact) / (1.0 - drawn) if drawn < 1.0 else 0.0
        for exact, drawn in ((passed, first.passed), (failed, first.failed))
    )
    return tuple(
        dataclasses.replace(
            look,
            passed=passed + of_passed * (look.passed - first.passed),
            failed=failed + of_failed * (look.failed - first.failed),
            run_steps=first.run_steps + of_passed * (look.run_steps - first.run_steps),
            gpu_hours=None
            if look.gpu_hours is None or first.gpu_hours is None
            else first.gpu_hours + of_passed * (look.gpu_hours - first.gpu_hours),
        )
        for look in ahead
    )


def _half_widths(
    drawn: Drawing, base: FloatArray, cand: FloatArray, levels: tuple[float, float]
) -> FloatArray:
    """Half the interval of each job (n,) from its runs' late means (n, K)."""
    squares = [((arm - arm.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) for arm in (base, cand)]
    halves = np.empty(len(base))
    for job, (first, second) in enumerate(zip(*squares, strict=True)):
        noises = drawn.noises((float(first), float(second)))
        halves[job] = interval(0.0, drawn.judged, run_term(*noises)).half_width(*levels)
    return halves


def decisive(ahead: tuple[LookAhead, ...]) -> float:
    """The smaller of the chances to pass at a gap of 0 and to fail at twice the margin by the last
    look; 0 where there is only one look.
    """
    if not ahead:
        return 0.0
    return min(ahead[-1].passed, ahead[-1].failed)
