"""F7 to F9: run-to-run noise of a model that belongs to no family on record (`any-decoder`).

Every family that counts is left out in turn, and the others say what is assumed of it. One run per
arm unless said, no within-pair error, losses as shares of the loss (level 1): gap ~ N(true gap,
sd_A^2/K_A + sd_B^2/K_B) with the recorded sd of a group of the family left out, times a factor for
an arm that rounds stochastically. Averages over a family's groups weigh each by its runs; families
count once each.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import ndtr

from benchmarks.calibration.borrowed_noise import FACTORS, covered, pair
from benchmarks.marks import MarkedFigure, share
from parity.judging.noise.any_decoder import evidence_families
from parity.judging.noise.noise_source import NoiseSource, find_noise_source
from parity.judging.noise.noise_table import ANY_DECODER, NoiseTable
from parity.judging.noise.public_table import public_noise_table
from parity.judging.policy import STOCHASTIC_FACTOR

LARGE = "modded-nanogpt"  # the families of 124 M and 350 M parameters; the others have 17 to 36 M
STOCHASTIC = (1.0, 1.15, 1.35, 1.5, 2.0, 2.8)  # up to 1.5 is what the level assumes
MARGIN = 0.0025


def noise_sources(left_out: str | None) -> tuple[NoiseSource, NoiseSource]:
    """What an arm that rounds to nearest can borrow, and one that rounds stochastically, without
    one family.
    """
    rest = NoiseTable(tuple(row for row in public_noise_table().rows if row["family"] != left_out))
    return find_noise_source(rest, ANY_DECODER, "nearest"), find_noise_source(
        rest, ANY_DECODER, "stochastic"
    )


def half_width(left_out: str | None, *, stochastic: bool = False) -> float:
    """The half-width at 95 % of one run against one, a share of the loss."""
    nearest, other = noise_sources(left_out)
    single = np.ones(1)
    return pair(nearest, (single, single), other if stochastic else nearest)[0].half_width(0.95)


def coverage(name: str, half: float, factor: float) -> float:
    """The mean over the runs of a family of the chance that a half-width covers; the candidate's sd
    is `factor` times the group's.
    """
    groups = next(
        family.groups for family in evidence_families(public_noise_table()) if family.name == name
    )
    return sum(
        group.runs * covered(math.hypot(1.0, factor) * group.share, half) for group in groups
    ) / sum(g.runs for g in groups)


def names() -> list[str]:
    """The families that count."""
    return [family.name for family in evidence_families(public_noise_table())]


def f7(_quick: bool) -> Iterator[MarkedFigure]:
    """Leave one family out: two arms that round to nearest, and a candidate that rounds
    stochastically.
    """
    cases = [(name, half_width(name)) for name in names()]
    for label, chosen in (
        ("all families", cases),
        (">= 100 M parameters", [case for case in cases if case[0].startswith(LARGE)]),
    ):
        hits, half = (
            np.mean([coverage(name, half, 1.0) for name, half in chosen]),
            np.mean([half for _, half in chosen]),
        )
        yield MarkedFigure(
            what=f"unseen family, {label} ({len(chosen)})",
            value=f"coverage {share(float(hits))}, half-width {100 * half:.3f} % "
            f"({100 * min(h for _, h in chosen):.3f} to {100 * max(h for _, h in chosen):.3f} %)",
            mark=">= 93 %, <= 0.25 %",
            ok=bool(hits >= 0.93 and half <= 0.0025),
        )
    wide = [(name, half_width(name, stochastic=True)) for name in names()]
    for factor in STOCHASTIC:
        hits, half = (
            np.mean([coverage(name, half, factor) for name, half in wide]),
            np.mean([half for _, half in wide]),
        )
        yield MarkedFigure(
            what=f"the same, FP8 against NVFP4 with {factor:g} x tau",
            value=f"coverage {share(float(hits))}, half-width {100 * half:.3f} %",
            mark=">= 93 %, <= 0.30 %" if factor <= STOCHASTIC_FACTOR else "reported",
            ok=bool(factor > STOCHASTIC_FACTOR or (hits >= 0.93 and half <= 0.0030)),
        )


def f8(quick: bool) -> Iterator[MarkedFigure]:
    """Leave one family out with one extra run, in the baseline or in the candidate; both round to
    nearest.
    """
    count = 200 if quick else 2000
    rng = np.random.default_rng(8)
    for runs in ((2, 1), (1, 2), (2, 2)):
        hits, halves = [], []
        for family in evidence_families(public_noise_table()):
            nearest, _ = noise_sources(family.name)
            weights = np.array([group.runs for group in family.groups], dtype=float)
            for index in rng.choice(len(weights), count, p=weights / weights.sum()):
                sd = family.groups[index].share
                joined, _ = pair(
                    nearest,
                    (1.0 + sd * rng.normal(size=runs[0]), 1.0 + sd * rng.normal(size=runs[1])),
                )
                low, high = joined.bounds(0.95)
                hits.append(low <= 0.0 <= high)
                halves.append(joined.half_width(0.95))
        yield MarkedFigure(
            what=f"unseen family, {runs[0]} against {runs[1]} runs",
            value=f"coverage {share(float(np.mean(hits)))}, half-width "
            f"{100 * float(np.mean(halves)):.3f} %",
            mark=">= 93 %, <= 0.18 %" if sum(runs) == 3 else "reported",
            # the last printed digit: the draws move the mean by more
            ok=bool(
                sum(runs) != 3
                or (np.mean(hits) >= 0.93 - 0.02 * quick and np.mean(halves) <= 0.001805)
            ),
        )


def f9(_quick: bool) -> Iterator[MarkedFigure]:
    """False passes with the true gap at the margin, and passes of a gap of 0, on average and where
    the family is noisier or quieter.
    """
    cases = [(name, half_width(name)) for name in names()]
    by_name = {family.name: family for family in evidence_families(public_noise_table())}

    def mean(chance: Callable[[float, float], float]) -> float:
        chances = []
        for name, half in cases:
            groups = by_name[name].groups
            chances.append(
                sum(g.runs * chance(math.sqrt(2.0) * g.share, half) for g in groups)
                / sum(g.runs for g in groups)
            )
        return float(np.mean(chances))

    false = mean(lambda sd, half: float(ndtr(-half / sd)))
    yield MarkedFigure(
        what="unseen family, false pass at the margin",
        value=share(false),
        mark="<= 3 %",
        ok=false <= 0.03,
    )
    curve = ", ".join(
        f"{factor:g}x {share(mean(lambda sd, half, k=factor: float(ndtr(-half / (k * sd)))))}"
        for factor in FACTORS
    )
    yield MarkedFigure(
        what="the same at multiples of the family's tau", value=curve, mark="reported", ok=True
    )
    covers = ", ".join(
        f"{factor:g}x {share(mean(lambda sd, half, k=factor: covered(k * sd, half)))}"
        for factor in FACTORS
    )
    yield MarkedFigure(
        what="coverage at multiples of the family's tau", value=covers, mark="reported", ok=True
    )
    for margin in (MARGIN, 0.005, 0.01):
        passed = mean(lambda sd, half, at=margin: float(ndtr((at - half) / sd)))
        yield MarkedFigure(
            what=f"unseen family, gap 0, margin {100 * margin:g} %",
            value=f"pass {share(passed)}",
            mark="reported",
            ok=True,
        )


CHECKS: dict[str, Callable[[bool], Iterator[MarkedFigure]]] = {"F7": f7, "F8": f8, "F9": f9}
