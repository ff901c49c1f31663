"""The parts of a gap from a user's own runs: the full recipe, and arms that leave a part of it out.

L[x, k]        mean loss of arm x in the late window, of the run with pair k (seed and replicate),
               nats
whole          mean over k of (L[full] - L[baseline])
part(a)        mean over k of (L[full] - L[a]) = gap(full) - gap(a)                what leaving
               the part out gains
left(a)        mean over k of (L[a] - L[baseline])                                 the gap that
               stays without it
sum            sum of the parts
unexplained    whole - sum = mean over k of ((1 - m) L[full] - L[baseline] + sum L[a])

Each is a contrast sum w_x L[x] over the pairs that all arms have. Its variance is that of the
judge for a gap, for several arms:

SE_run^2  = sum w_x^2 tau_x^2 / n                 tau_x: the judge's run-to-run noise of arm x, n
          pairs
df_run    = 1 / sum over x, y of rho_xy s_x s_y / sqrt(df_x df_y)       s_x = w_x^2 tau_x^2 / n /
          SE_run^2
SE_within <= sqrt(sum w_x^2 within_x^2)           within_x: the judge's within-pair error of the
  gap of x; the baseline has the smallest

rho_xx = 1; rho_xy = sqrt(w_x w_y), w = prior df / df, where the noise of both rests on one assumed
number, else 0: one guess used twice counts once (`parity.judging.noise.arm_noise`). The interval
is the judge's at 95 %, of each part alone.

Can fail: parts need not add up, because what is left out changes what the rest does. Where no arm
has reruns, tau is assumed.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.step_noise import StandardError
from parity.judging.gap.interval import Interval, interval
from parity.judging.noise.arm_noise import RunTerm

Pair = tuple[int, int]
"""The seed and the replicate of a run."""


@frozen
class ArmErrors:
    """The run-to-run noise of an arm as the judge has it (nats), and the within-pair error of its
    gap (nats).

    `prior` names the number that the noise rests on: equal names are one guess. `reruns`: whether
    runs of the arm measured any of it.
    """

    tau: float
    df: float
    prior: str
    prior_df: float
    within: float
    within_df: float
    reruns: bool


@frozen
class AblationArm:
    """An arm: its name, the late losses (nats) of its runs by pair, and its noise."""

    name: str
    losses: Mapping[Pair, float]
    noise: ArmErrors


@frozen
class AblationPart:
    """What leaving a part out gains, and the gap that stays without it."""

    name: str
    part: Interval
    left: Interval


@frozen
class Ablations:
    """The parts of a gap with their sum, over these pairs; `assumed` names the arms without
    reruns.
    """

    whole: Interval
    parts: tuple[AblationPart, ...]
    total: Interval
    unexplained: Interval
    pairs: tuple[Pair, ...]
    assumed: tuple[str, ...]


def ablate(baseline: AblationArm, full: AblationArm, ablations: Sequence[AblationArm]) -> Ablations:
    """The parts of the gap between two arms. Raises ValueError without an ablation, and for arms
    that share no pair.
    """
    if not ablations:
        raise ValueError(
            "there is no ablation, expected at least one arm that leaves a part of the full recipe "
            "out"
        )
    arms = (baseline, full, *ablations)
    pairs = tuple(sorted(set.intersection(*(set(arm.losses) for arm in arms))))
    if not pairs:
        raise ValueError(
            f"the arms {', '.join(arm.name for arm in arms)} share no seed and replicate; train "
            "the same ones in each"
        )
    count = len(ablations)

    def of(*weights: float) -> Interval:
        return _contrast(arms, weights, pairs)

    def only(at: int, weight: float) -> list[float]:
        return [weight if position == at else 0.0 for position in range(count)]

    return Ablations(
        whole=of(-1.0, 1.0, *[0.0] * count),
        parts=tuple(
            AblationPart(
                name=arm.name,
                part=of(0.0, 1.0, *only(at, -1.0)),
                left=of(-1.0, 0.0, *only(at, 1.0)),
            )
            for at, arm in enumerate(ablations)
        ),
        total=of(0.0, float(count), *[-1.0] * count),
        unexplained=of(-1.0, 1.0 - count, *[1.0] * count),
        pairs=pairs,
        assumed=tuple(arm.name for arm in arms if not arm.noise.reruns),
    )


def _contrast(
    arms: Sequence[AblationArm], weights: Sequence[float], pairs: Sequence[Pair]
) -> Interval:
    """The weighted sum of the arms' losses with its interval."""
    used = [(arm, weight) for arm, weight in zip(arms, weights, strict=True) if weight]
    value = float(
        np.mean([sum(weight * arm.losses[pair] for arm, weight in used) for pair in pairs])
    )
    within = StandardError(
        value=math.sqrt(sum((weight * arm.noise.within) ** 2 for arm, weight in used)),
        df=min(arm.noise.within_df for arm, _ in used),
    )
    return interval(value, within, _run_term(used, len(pairs)))


def _run_term(used: Sequence[tuple[AblationArm, float]], pairs: int) -> RunTerm:
    variances = [(weight * arm.noise.tau) ** 2 / pairs for arm, weight in used]
    whole = sum(variances)
    if whole == 0.0:
        return RunTerm(variance=0.0, df=min(arm.noise.df for arm, _ in used), seeds=1)
    shares = [variance / whole for variance in variances]
    noises = [arm.noise for arm, _ in used]
    spread = sum(
        _together(first, second) * one * other / math.sqrt(first.df * second.df)
        for first, one in zip(noises, shares, strict=True)
        for second, other in zip(noises, shares, strict=True)
    )
    return RunTerm(variance=whole, df=1.0 / spread, seeds=1)


def _together(first: ArmErrors, second: ArmErrors) -> float:
    """How far the noise of two arms is wrong together, from 0 to 1."""
    if first is second:
        return 1.0
    if first.prior != second.prior:
        return 0.0
    return math.sqrt(first.prior_df / first.df * second.prior_df / second.df)
