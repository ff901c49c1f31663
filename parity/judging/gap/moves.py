"""Which commit moved the gap? The difference between neighbouring groups of verdicts (a commit's,
or a day's) with an interval.

D = mean gap after - mean gap before, nats
SE^2 = SE_run^2 + SE_within^2;  SE_run^2 = sum c_b^2 tau_A^2/K_A + sum tau_B^2/(K_B n^2)     D's
    interval is that of `interval`
c_b: share of the points after whose baseline has the curves b, minus that of the points before: a
    baseline that both sides use cancels
SE_within^2 = per side, mean of SE_within^2 / number of its baselines;  df: the least of the points,
    because their priors are one guess
level = 1 - (1 - C) / m for each of m compared neighbours (Bonferroni): a history in which nothing
    moved names a commit in 5 % of the cases

Verdicts on the same series count once: reruns of a deterministic trainer add nothing. Neighbours
that answer different questions (model, data, policy ...) are not compared. Only neighbours are:
means over longer stretches would find smaller moves, but not the commit. Can fail: run-to-run noise
that was assumed (`arm_noise`); a commit that was not judged, which is why a move names both of its
sides.
"""

import math
from collections.abc import Sequence
from typing import Literal

from parity.frozen import frozen
from parity.judging.curves.step_noise import StandardError
from parity.judging.document_types import VerdictDocument
from parity.judging.gap.interval import Interval, interval
from parity.judging.multiplicity import Multiplicity
from parity.judging.noise.arm_noise import RunTerm

MoveKind = Literal["worse", "better", "none", "not compared"]
CONFIDENCE = 0.95  # of all neighbours of a history together


@frozen
class Point:
    """One measured gap, nats: the variances (nats^2) of the run-to-run noise of both arms and
    within the pair, with degrees of freedom.

    `baseline` names the baseline's curves (equal names: the same curves), `series` all aligned
    losses, `question` what was compared.
    """

    gap: float
    baseline_variance: float
    candidate_variance: float
    run_df: float
    within_variance: float
    within_df: float
    baseline: str
    series: str
    question: str


@frozen
class VerdictGroup:
    """The measured gaps of one commit or day, in the order of the history; none where nothing was
    measured.
    """

    name: str
    points: Sequence[Point]


@frozen
class Move:
    """The difference between a group and the measured one before it, with its interval at
    `confidence`, nats.

    `what`: `worse` and `better` where the interval excludes zero, `none` where run-to-run noise
    explains the difference, `not compared` where the groups answer different questions. `skipped`:
    groups between them without a gap.
    """

    before: str
    after: str
    what: MoveKind
    difference: float | None
    lo: float | None
    hi: float | None
    confidence: float
    skipped: Sequence[str]


def point_of(document: VerdictDocument, baseline: str, question: str) -> Point | None:
    """The gap in a verdict as a point of a history; None where it was not measured."""
    gap, parts, noises = document["gap"], document["se_parts"], document["tau"]
    if gap is None or parts is None or noises is None:
        return None
    arms = (document["baseline"], noises["baseline"]), (document["candidate"], noises["candidate"])
    variances = [float(noise["value"]) ** 2 / max(1, arm["runs"]) for arm, noise in arms]
    run = float(parts["run"]) ** 2
    share = variances[0] / sum(variances) if sum(variances) > 0.0 else 0.5
    values = (
        float(gap["mean"]),
        run,
        float(parts["run_df"]),
        float(parts["within"]),
        float(parts["within_df"]),
    )
    if not all(map(math.isfinite, values)):
        return None
    return Point(
        gap=values[0],
        baseline_variance=share * run,
        candidate_variance=(1.0 - share) * run,
        run_df=values[2],
        within_variance=values[3] ** 2,
        within_df=values[4],
        baseline=baseline,
        series=document["inputs"]["sha256_aligned"],
        question=question,
    )


def moves(groups: Sequence[VerdictGroup]) -> list[Move]:
    """Each measured group against the measured one before it, in the order of the history."""
    pairs: list[tuple[VerdictGroup, VerdictGroup, list[str]]] = []
    last: VerdictGroup | None = None
    skipped: list[str] = []
    for group in groups:
        if not group.points:
            skipped.append(group.name)
            continue
        if last is not None:
            pairs.append((last, group, skipped))
        last, skipped = group, []
    compared = sum(_same_question(before, after) for before, after, _ in pairs)
    level = Multiplicity(candidates=max(1, compared)).confidence(CONFIDENCE)
    return [_move(before, after, between, level) for before, after, between in pairs]


def _move(before: VerdictGroup, after: VerdictGroup, skipped: Sequence[str], level: float) -> Move:
    what: MoveKind = "not compared"
    mean = lo = hi = None
    if _same_question(before, after):
        difference = _difference(_distinct(before), _distinct(after))
        mean, (lo, hi) = difference.mean, difference.bounds(level)
        what = "none"
        if lo > 0.0 or hi < 0.0:
            what = "worse" if lo > 0.0 else "better"
    return Move(
        before=before.name,
        after=after.name,
        what=what,
        difference=mean,
        lo=lo,
        hi=hi,
        confidence=level,
        skipped=tuple(skipped),
    )


def _same_question(before: VerdictGroup, after: VerdictGroup) -> bool:
    return len({point.question for point in (*before.points, *after.points)}) == 1


def _distinct(group: VerdictGroup) -> list[Point]:
    """The points of a group, each series once."""
    return [*{point.series: point for point in group.points}.values()]


def _difference(before: Sequence[Point], after: Sequence[Point]) -> Interval:
    mean = math.fsum(point.gap for point in after) / len(after) - math.fsum(
        point.gap for point in before
    ) / len(before)
    every = (*before, *after)
    # the same curves: nothing can have moved
    if {point.series for point in before} == {point.series for point in after}:
        mean = 0.0
    candidates = sum(
        math.fsum(point.candidate_variance for point in side) / len(side) ** 2
        for side in (before, after)
    )
    run = candidates + _baselines(before, after)
    within = sum(_within(side) for side in (before, after))
    return interval(
        mean,
        StandardError(value=math.sqrt(within), df=min(point.within_df for point in every)),
        RunTerm(variance=run, df=min(point.run_df for point in every), seeds=1),
    )


def _within(side: Sequence[Point]) -> float:
    mean = math.fsum(point.within_variance for point in side) / len(side)
    return mean / len({point.baseline for point in side})


def _baselines(before: Sequence[Point], after: Sequence[Point]) -> float:
    shares = _shares(after)
    for name, share in _shares(before).items():
        shares[name] = shares.get(name, 0.0) - share
    largest: dict[str, float] = {}
    for point in (*before, *after):
        largest[point.baseline] = max(point.baseline_variance, largest.get(point.baseline, 0.0))
    return math.fsum(share**2 * largest[name] for name, share in shares.items())


def _shares(side: Sequence[Point]) -> dict[str, float]:
    """The share of the points that each baseline has."""
    names = [point.baseline for point in side]
    return {name: names.count(name) / len(names) for name in names}
