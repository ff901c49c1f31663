"""M1 to M3: how often something passes that is exactly at the margin, with looks and candidates.

A job compares m candidates with one baseline. Every candidate's true gap is the margin, so that
each pass is false. tau is drawn as the judge assumes it: tau^2 = nu0 tau0^2 / chi2(nu0), one factor
for both arms, which rest on one guess. A run's late mean is its arm's level plus N(0, tau), no
within-pair error; losses as shares of the loss. After each look that leaves a candidate open, a
rule adds runs, up to the looks that are registered. The judge's own run-to-run noise and intervals
give the verdicts.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.marks import MarkedFigure, share
from parity.frozen import frozen
from parity.judging.curves.curve import FloatArray
from parity.judging.curves.step_noise import StandardError
from parity.judging.gap.interval import interval
from parity.judging.multiplicity import Multiplicity
from parity.judging.noise.arm_noise import Prior, arm_noise, run_term
from parity.judging.policy import FINISHED_NOISE, STOCHASTIC_FACTOR

MARGIN, NOMINAL, DF = 0.01, 0.95, 4.0
DETERMINISTIC, STOCHASTIC = FINISHED_NOISE, FINISHED_NOISE * STOCHASTIC_FACTOR
NO_WITHIN = StandardError(value=0.0, df=12.0)
JOBS = 20_000
MARK = 0.028

Rule = Callable[[int, int], tuple[int, int]]
"""Runs of baseline and candidate at a look, from the look's number (from 1) and the runs of the
first look.
"""

# doubling ten times is no job that anybody trains
FIRST_RULE, DOUBLING, FEW_LOOKS = "one more an arm", "twice as many", 5
RULES: dict[str, Rule] = {
    FIRST_RULE: lambda look, first: (first + look - 1, first + look - 1),
    "one more of the candidate": lambda look, first: (first, first + look - 1),
    DOUBLING: lambda look, first: (first * 2 ** (look - 1), first * 2 ** (look - 1)),
}


@frozen
class SimulatedJob:
    """A simulated job: how many candidates and looks, which looks the judge is told of, the
    candidates' run-to-run noise, and the rule.
    """

    candidates: int
    looks: int
    registered: bool
    noise: float
    rule: str
    gap: float = MARGIN


@frozen
class LookShares:
    """Shares of jobs in which some candidate passes and in which some fails, and the mean number of
    looks that a job takes.
    """

    passes: float
    fails: float
    looks: float


def verdict(base: FloatArray, cand: FloatArray, noise: float, confidence: float) -> str:
    """The judge's side of the margin from late means (K,) of both arms, as shares of the loss."""
    priors = tuple(
        Prior(tau=tau, df=DF, basis="assumed", assumed=True) for tau in (DETERMINISTIC, noise)
    )
    noises = [
        arm_noise(prior, runs, [0] * len(runs))
        for prior, runs in zip(priors, (base, cand), strict=True)
    ]
    gap = interval(float(cand.mean() - base.mean()), NO_WITHIN, run_term(noises[0], noises[1]))
    lo, hi = gap.bounds(NOMINAL)[0], gap.bounds(confidence)[1]
    return "pass" if hi < MARGIN else "fail" if lo > MARGIN else "open"


def simulated(case: SimulatedJob, jobs: int, seed: int) -> LookShares:
    """What becomes of `jobs` jobs whose candidates all have the case's gap."""
    rng = np.random.default_rng(seed)
    passed = failed = taken = 0
    most = max(RULES[case.rule](case.looks, 1))
    for _ in range(jobs):
        factor = math.sqrt(DF / rng.chisquare(DF))
        taus = DETERMINISTIC * factor, case.noise * factor
        base = taus[0] * rng.normal(size=most)
        open_candidates = [
            case.gap + taus[1] * rng.normal(size=most) for _ in range(case.candidates)
        ]
        outcomes: set[str] = set()
        for look in range(1, case.looks + 1):
            shared = Multiplicity(look=look, looks=case.looks, candidates=case.candidates)
            confidence = shared.confidence(NOMINAL) if case.registered else NOMINAL
            left, right = RULES[case.rule](look, 1)
            judged = [
                (runs, verdict(base[:left], runs[:right], case.noise, confidence))
                for runs in open_candidates
            ]
            outcomes |= {word for _, word in judged}
            open_candidates = [runs for runs, word in judged if word == "open"]
            taken += 1
            if not open_candidates:
                break
        passed += "pass" in outcomes
        failed += "fail" in outcomes
    return LookShares(passes=passed / jobs, fails=failed / jobs, looks=taken / jobs)


def _jobs(case: SimulatedJob, quick: bool) -> int:
    return (1000 if quick else JOBS) // max(1, case.candidates // 3)


def m1(quick: bool) -> Iterator[MarkedFigure]:
    """Any false pass with registered looks and candidates, by rule, looks and candidates."""
    for noise, arm in ((DETERMINISTIC, "fp8"), (STOCHASTIC, "nvfp4")):
        for looks, candidates in (
            (1, 1),
            (1, 3),
            (1, 10),
            (2, 1),
            (3, 1),
            (2, 3),
            (3, 10),
            (5, 1),
            (10, 1),
        ):
            rules = (
                [rule for rule in RULES if rule != DOUBLING or looks <= FEW_LOOKS]
                if looks > 1 and candidates == 1
                else [FIRST_RULE]
            )
            worst, taken = 0.0, 0.0
            for number, rule in enumerate(rules):
                case = SimulatedJob(
                    candidates=candidates, looks=looks, registered=True, noise=noise, rule=rule
                )
                outcome = simulated(case, _jobs(case, quick), 7000 + number)
                worst, taken = max(worst, outcome.passes), max(taken, outcome.looks)
            sampling = math.sqrt(MARK * (1.0 - MARK) / _jobs(case, quick))
            limit = MARK + (2 * sampling if quick else 0.0)
            what, value = (
                f"{arm}, {looks} looks, {candidates} candidates: false passes",
                f"{share(worst)} ({taken:.1f} looks)",
            )
            yield MarkedFigure(what=what, value=value, mark="<= 2.8 %", ok=worst <= limit)


def m2(quick: bool) -> Iterator[MarkedFigure]:
    """The same where nobody counts: each look and candidate at the policy's own confidence. Shown,
    not marked.
    """
    for looks, candidates in ((3, 1), (8, 1), (1, 3), (1, 10), (3, 10)):
        case = SimulatedJob(
            candidates=candidates,
            looks=looks,
            registered=False,
            noise=DETERMINISTIC,
            rule="one more an arm",
        )
        outcome = simulated(case, _jobs(case, quick), 8000)
        what = f"not counted: {looks} looks, {candidates} candidates"
        yield MarkedFigure(
            what=what,
            value=f"false passes {share(outcome.passes)}, false fails {share(outcome.fails)}",
            mark="shown",
            ok=True,
        )


def m3(quick: bool) -> Iterator[MarkedFigure]:
    """What registering costs: how often a candidate without a gap, or with half the margin, is
    decided.
    """
    for gap, words in (
        (0.0, "no gap"),
        (0.5 * MARGIN, "half the margin"),
        (2.0 * MARGIN, "twice the margin"),
    ):
        for looks, candidates in ((1, 1), (2, 1), (3, 1), (1, 3), (1, 10), (3, 10)):
            case = SimulatedJob(
                candidates=candidates,
                looks=looks,
                registered=True,
                noise=STOCHASTIC,
                rule="one more an arm",
                gap=gap,
            )
            outcome = simulated(case, _jobs(case, quick) // 4, 9000)
            value = (
                f"some pass {share(outcome.passes)}, some fail {share(outcome.fails)}, "
                f"{outcome.looks:.2f} looks"
            )
            yield MarkedFigure(
                what=f"nvfp4, {words}: {looks} looks, {candidates} candidates",
                value=value,
                mark="shown",
                ok=True,
            )


CHECKS: dict[str, Callable[[bool], Iterator[MarkedFigure]]] = {"M1": m1, "M2": m2, "M3": m3}
