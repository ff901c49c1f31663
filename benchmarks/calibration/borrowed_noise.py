"""F1 to F5: run-to-run noise that is borrowed from a family of public reruns.

One run per arm, no within-pair error, losses as shares of the loss (level 1): gap ~ N(true gap, 2
sd_g^2) with the recorded sd of a group that the family did not see. Averages over groups weigh each
by its runs.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy.special import ndtr

from benchmarks.marks import MarkedFigure, share
from parity.judging.curves.curve import FloatArray
from parity.judging.curves.step_noise import StandardError
from parity.judging.gap.interval import Interval, interval
from parity.judging.noise.arm_noise import Prior, arm_noise, own_spread, run_term
from parity.judging.noise.borrowed_priors import OwnRuns, borrow
from parity.judging.noise.family_spread import FamilyNoise, fit_family
from parity.judging.noise.noise_source import NoiseSource
from parity.judging.noise.noise_table import RerunGroup
from parity.judging.noise.public_table import public_noise_table

TRACK3, RECORDS = "modded-nanogpt-124M/track3", "modded-nanogpt-124M/records"
ASSUMED = Prior(tau=0.0008, df=4.0, basis="assumed")
MARGIN = 0.0025
NO_WITHIN = StandardError(value=0.0, df=12.0)
FACTORS = (0.5, 1.0, 2.0, 3.0, 5.0)


def groups_of(family: str) -> tuple[RerunGroup, ...]:
    """The groups of a public family."""
    return public_noise_table().families[family].groups


def pair(
    noise_source: NoiseSource,
    runs: tuple[FloatArray, FloatArray],
    candidate_curve: NoiseSource | None = None,
) -> tuple[Interval, bool]:
    """The judge's interval of two arms' run means, and whether they contradict the family, which
    is that of both or of the baseline.
    """
    spreads = [own_spread(arm, [0] * len(arm)) for arm in runs]
    own_runs = OwnRuns(
        squares=(spreads[0][0], spreads[1][0]),
        df=(spreads[0][1], spreads[1][1]),
        gap_squares=0.0,
        gap_df=0,
        gap_runs=(len(runs[0]), len(runs[1])),
    )
    priors = borrow(
        (ASSUMED, ASSUMED), (noise_source, candidate_curve or noise_source), own_runs, 1.0
    )
    noise_table = [
        arm_noise(prior, arm, [0] * len(arm)) for prior, arm in zip(priors, runs, strict=True)
    ]
    joined = interval(
        float(runs[1].mean() - runs[0].mean()), NO_WITHIN, run_term(noise_table[0], noise_table[1])
    )
    return joined, priors[0].borrowed is not None and priors[0].borrowed.agreement.contradicted


def source_at_1(noise: FamilyNoise) -> NoiseSource:
    """A family whose losses are 1."""
    return NoiseSource(family="family", noise=dataclasses.replace(noise, levels=(1.0, 1.0)))


def half_width(noise: FamilyNoise) -> float:
    """The half-width at 95 % of one run against one, a share of the loss."""
    single = np.ones(1)
    return pair(source_at_1(noise), (single, single))[0].half_width(0.95)


def left_out(family: str) -> Iterator[tuple[RerunGroup, float]]:
    """Each group, with the half-width that the other groups of its family give."""
    groups = groups_of(family)
    for number, group in enumerate(groups):
        yield group, half_width(fit_family(groups[:number] + groups[number + 1 :]))


def over_runs(
    cases: Sequence[tuple[RerunGroup, float]], chance: Callable[[float, float], float]
) -> float:
    """The mean over runs of a chance that depends on the sd of the group's gap and on the
    half-width.
    """
    total = sum(group.runs for group, _ in cases)
    return (
        sum(group.runs * chance(math.sqrt(2.0) * group.share, half) for group, half in cases)
        / total
    )


def covered(sd: float, half: float) -> float:
    """The chance that the interval covers the true gap."""
    return float(2.0 * ndtr(half / sd) - 1.0)


def families() -> Iterator[tuple[str, list[tuple[RerunGroup, float]]]]:
    """The leave-one-group-out cases of each public family, and of both."""
    both = []
    for name in (TRACK3, RECORDS):
        cases = list(left_out(name))
        both += cases
        yield name.partition("/")[2], cases
    yield "both", both


def f1(_quick: bool) -> Iterator[MarkedFigure]:
    """Leave one group out: coverage and half-width of one run against one."""
    for name, cases in families():
        hits, half = over_runs(cases, covered), float(np.mean([half for _, half in cases]))
        yield MarkedFigure(
            what=f"leave one group out, {name}",
            value=f"coverage {share(hits)}, half-width {100 * half:.3f} %",
            mark="93 to 97.5 %, <= 0.13 %",
            ok=0.93 <= hits <= 0.975 and half <= 0.0013,
        )


def f2(_quick: bool) -> Iterator[MarkedFigure]:
    """Groups in the order of time: each is predicted from groups of earlier days. Only the names of
    track3 have a date.
    """
    dated = [group for group in groups_of(TRACK3) if group.group[:8].isdigit()]
    cases = []
    for group in dated:
        earlier = [other for other in dated if other.group[:8] < group.group[:8]]
        try:
            cases.append((group, half_width(fit_family(earlier))))
        except ValueError:  # too few groups yet
            continue
    hits, half = over_runs(cases, covered), float(np.mean([half for _, half in cases]))
    yield MarkedFigure(
        what=f"earlier groups only, {len(cases)} of {len(dated)} groups",
        value=f"coverage {share(hits)}, half-width {100 * half:.3f} % (first "
        f"{100 * cases[0][1]:.3f}, last {100 * cases[-1][1]:.3f} %)",
        mark=">= 93 %, <= 0.16 %",
        ok=hits >= 0.93 and half <= 0.0016,
    )


def f3(_quick: bool) -> Iterator[MarkedFigure]:
    """One run against one at a margin of 0.25 % and a gap of 0: chance of a pass, and of a fail."""
    for name, cases in families():
        passed = over_runs(cases, lambda sd, half: float(ndtr((MARGIN - half) / sd)))
        failed = over_runs(cases, lambda sd, half: float(ndtr(-(MARGIN + half) / sd)))
        yield MarkedFigure(
            what=f"margin 0.25 %, gap 0, {name}",
            value=f"pass {share(passed)}, fail {100 * failed:.2g} %",
            mark="pass >= 90 %, fail <= 1 %",
            ok=passed >= 0.90 and failed <= 0.01,
        )


def f4(quick: bool) -> Iterator[MarkedFigure]:
    """A pair whose run-to-run noise is a multiple of the family's; at 5 times and with 5 runs the
    conflict is named.
    """
    count = 500 if quick else 4000
    slack = 0.02 if quick else 0.0
    for family in (TRACK3, RECORDS):
        noise = fit_family(groups_of(family))
        noise_source, tau = source_at_1(noise), noise.share
        rng = np.random.default_rng(4)
        for runs in ((1, 1), (2, 2), (5, 5), (5, 1), (1, 5)):
            for factor in FACTORS:
                hits = named = 0
                for _ in range(count):
                    joined, contradicted = pair(
                        noise_source,
                        tuple(1.0 + factor * tau * rng.normal(size=size) for size in runs),
                    )
                    low, high = joined.bounds(0.95)
                    hits += low <= 0.0 <= high
                    named += contradicted
                marked = factor == 5.0 and max(runs) == 5
                ok = not marked or (hits / count >= 0.90 - slack and named / count >= 0.90 - slack)
                yield MarkedFigure(
                    what=f"{family.partition('/')[2]}, {runs[0]} against {runs[1]} runs, "
                    f"{factor:g} x tau",
                    value=f"coverage {share(hits / count)}, conflict named {share(named / count)}",
                    mark="both >= 90 %" if marked else "reported",
                    ok=ok,
                )


def f5(_quick: bool) -> Iterator[MarkedFigure]:
    """False passes of one run against one with the true gap at the margin: averaged over the
    family, and by how noisy the pair is.
    """
    for name, cases in families():
        false = over_runs(cases, lambda sd, half: float(ndtr(-half / sd)))
        yield MarkedFigure(
            what=f"false pass at the margin, {name}",
            value=share(false),
            mark="<= 3 %",
            ok=false <= 0.03,
        )
        scaled = [
            [(dataclasses.replace(group, sd=factor * group.sd), half) for group, half in cases]
            for factor in FACTORS
        ]
        chances = [over_runs(some, lambda sd, half: float(ndtr(-half / sd))) for some in scaled]
        curve = ", ".join(
            f"{factor:g}x {share(chance)}" for factor, chance in zip(FACTORS, chances, strict=True)
        )
        yield MarkedFigure(
            what=f"the same at multiples of tau, {name}", value=curve, mark="reported", ok=True
        )


CHECKS: dict[str, Callable[[bool], Iterator[MarkedFigure]]] = {
    "F1": f1,
    "F2": f2,
    "F3": f3,
    "F4": f4,
    "F5": f5,
}
