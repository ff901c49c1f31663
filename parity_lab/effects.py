"""Effects with intervals: between forks of one checkpoint, in parts, of gradients, and from a
user's own ablated runs.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parity.frozen import frozen
from parity.judging import special
from parity.judging.curves.step_noise import StandardError
from parity.judging.gap.interval import Interval, interval, t_quantile
from parity.judging.noise.run_floor import RunTerm

# A mean with its interval, from values that are independent of each other: held-out batches, or
# forks.
#
# estimate = mean of n values,  se = sd / sqrt(n),  df = n - 1,  interval = mean -+ t(df) se,  p = 2
#                               P(T > |mean| / se)
#
# Can fail: values that share noise, such as batches cut from one document, are not independent, and
# the interval is too narrow.


@frozen
class Estimate:
    """A value with its standard error and degrees of freedom; an error of 0 means that nothing
    varied.
    """

    value: float
    se: float
    df: float

    def bounds(self, confidence: float) -> tuple[float, float]:
        """The two-sided interval at `confidence` (0 to 1)."""
        half = t_quantile(confidence, self.df) * self.se
        return self.value - half, self.value + half

    def p(self) -> float:
        """The two-sided p-value of a true value of 0; 1 for a value that is 0, 0 for another one
        that never varied.
        """
        if self.se == 0.0:
            return 1.0 if self.value == 0.0 else 0.0
        return float(2.0 * special.stdtr(self.df, -abs(self.value) / self.se))


def estimate(values: ArrayLike) -> Estimate:
    """The mean of at least two independent values. Raises ValueError for fewer, and for values that
    are not finite.
    """
    x = np.asarray(values, np.float64)
    if x.ndim != 1 or len(x) < 2 or not np.isfinite(x).all():
        raise ValueError(
            f"values are {x.tolist()}, expected at least 2 finite numbers; measure more batches or "
            "forks"
        )
    return Estimate(
        value=float(x.mean()), se=float(x.std(ddof=1) / math.sqrt(len(x))), df=float(len(x) - 1)
    )


def ratio(numerators: ArrayLike, denominators: ArrayLike) -> Estimate:
    """sum(numerators) / sum(denominators) with the standard error of a jackknife over the (at least
    two) values.
    """
    top, bottom = np.asarray(numerators, np.float64), np.asarray(denominators, np.float64)
    if len(top) < 2:
        raise ValueError(f"{len(top)} value, expected at least 2; measure more batches")
    count = len(top)
    left_out = (top.sum() - top) / (bottom.sum() - bottom)
    se = math.sqrt((count - 1) / count * float(((left_out - left_out.mean()) ** 2).sum()))
    return Estimate(value=float(top.sum() / bottom.sum()), se=se, df=float(count - 1))


# How far a GEMM moves the gradient, from sums over layers and batches
# (`parity_lab.training.fixed_weights.gradients`).
#
# relative_error = sqrt(mean |g - r|^2 / |r|^2)         systematic = sqrt of the part of it that
#   does not average out over seeds
# bias           = <g, r> / <r, r> - 1                  cosine     = <g, r> / sqrt(<r, r> <g, g>)
#
# r is the gradient of the bf16 twin from the same weights and batch. Intervals are jackknives over
# batches. Can fail: stochastic rounding with few seeds leaves `systematic` noisy; its square is
# unbiased and may come out negative, which is shown as 0.

SUMS = ("reference", "dot", "own", "error", "systematic")
"""The columns of `parity_lab.training.fixed_weights.gradients`."""


@frozen
class GradientError:
    """One GEMM, or one layer under it. The squares are estimates with an interval; `cosine` and the
    roots follow from them.
    """

    squared_error: Estimate
    squared_systematic: Estimate
    bias: Estimate
    cosine: float

    @property
    def relative_error(self) -> float:
        """The root mean square of the error over the norm of the reference."""
        return math.sqrt(self.squared_error.value)

    @property
    def systematic(self) -> float:
        """The part of the relative error that does not average out over rounding seeds."""
        return math.sqrt(max(0.0, self.squared_systematic.value))


def gradient_error(sums: NDArray[np.float64]) -> GradientError:
    """The error of sums (batches, ..., SUMS), over all layers in them. Raises ValueError for one
    batch.
    """
    by_batch = sums.reshape(len(sums), -1, len(SUMS)).sum(axis=1)
    reference, dot, own, error, systematic = by_batch.T
    if not (reference > 0).all():
        raise ValueError(
            f"the reference gradient is {reference.tolist()} long, expected above 0 in every "
            "batch; measure other weights"
        )
    return GradientError(
        squared_error=ratio(error, reference),
        squared_systematic=ratio(systematic, reference),
        bias=ratio(dot - reference, reference),
        cosine=float(dot.sum() / math.sqrt(reference.sum() * own.sum())),
    )


# Effects between forks of one checkpoint, and the noise of forks.
#
# x[p, k]   the final loss of fork k of parent p: one value a fork, whatever its length, because a
#           fork's offset is one draw
#           that saturates within some 60 steps
# s^2       pooled over the A/A forks of one arm, or of several: sum over parents of (n - 1)
#           variance / sum of (n - 1)      df = that sum
# contrast  sum over arms of w * (mean over parents of the mean of its forks)
#           variance = sum over arms of w^2 s^2 / P^2 * sum over p of 1/n_p
#           df = (sum of v)^2 / sum of v^2 / df, with v the variance that one s^2 brings
#           (Satterthwaite, Biometrics Bulletin 2, 1946)
#
# The effect is that at these checkpoints of these parents: how it varies between trajectories is
# not part of the interval, and forks say nothing of a gap that built up before them. Each end of an
# analysis has a noise of its own, because a fault or stochastic rounding can double it; an arm
# between them has the larger one. Can fail: an arm between them that is noisier than both, and
# three parents of which one is noisier than the others.

Forks = Mapping[str, Sequence[float]]
"""The final losses (nats) of one arm's forks, by parent."""
MIN_FORKS, MIN_PARENTS = 4, 3


@frozen
class ForkNoise:
    """The standard deviation (nats) between A/A forks of one parent, its degrees of freedom, and
    how many parents it rests on.
    """

    sd: float
    df: float
    parents: int

    @property
    def is_enough(self) -> bool:
        """Whether it rests on 4 forks of each of 3 parents, or as many degrees of freedom."""
        return self.parents >= MIN_PARENTS and self.df >= (MIN_FORKS - 1) * MIN_PARENTS


def fork_noise(arms: Sequence[Forks]) -> ForkNoise:
    """The noise pooled over arms and parents with at least two forks each.

    Raises ValueError if none has two, and for forks that are all equal: they drew no random numbers
    of their own.
    """
    squares, df, parents = 0.0, 0, set()
    for arm in arms:
        for parent, losses in arm.items():
            if len(losses) > 1:
                squares += float(np.var(losses, ddof=1)) * (len(losses) - 1)
                df += len(losses) - 1
                parents.add(parent)
    if not df:
        raise ValueError(
            "no arm has two forks of one parent, expected at least 4 unchanged forks of 3 parents; "
            "fork more of them"
        )
    if squares == 0.0 or not math.isfinite(squares):
        raise ValueError(
            "the A/A forks are equal or not finite, expected small differences; give each a draw "
            "of its own"
        )
    return ForkNoise(sd=math.sqrt(squares / df), df=float(df), parents=len(parents))


@frozen
class Arm:
    """The forks of one arm, and their noise."""

    forks: Forks
    noise: ForkNoise


@frozen
class Ends:
    """The arms with all GEMMs on and with all off, each with the noise of its own forks."""

    on: Arm
    off: Arm

    @property
    def noise(self) -> ForkNoise:
        """The larger one."""
        return max(self.on.noise, self.off.noise, key=lambda noise: noise.sd)

    def between(self, forks: Forks) -> Arm:
        """An arm with some GEMMs on."""
        return Arm(forks=forks, noise=self.noise)


def ends(on: Forks, off: Forks) -> Ends:
    """Both ends with their noise; ValueError as for `fork_noise`."""
    return Ends(
        on=Arm(forks=on, noise=fork_noise([on])), off=Arm(forks=off, noise=fork_noise([off]))
    )


def effect(first: Arm, second: Arm) -> Estimate:
    """What the first arm's forks lose more than the second's, in nats, over the parents that both
    have; ValueError if they share none.
    """
    return contrast([(1.0, first), (-1.0, second)])


def contrast(terms: Sequence[tuple[float, Arm]]) -> Estimate:
    """A weighted sum of arms in nats, over the parents that all of them have; ValueError if they
    share none.
    """
    parents = sorted(
        set.intersection(
            *({parent for parent, losses in arm.forks.items() if losses} for _, arm in terms)
        )
    )
    if not parents:
        raise ValueError(
            "the arms have no parent in common, expected forks of the same checkpoints"
        )
    value = sum(
        weight * float(np.mean([np.mean(arm.forks[parent]) for parent in parents]))
        for weight, arm in terms
    )
    variances: dict[ForkNoise, float] = {}
    for weight, arm in terms:
        own = (weight * arm.noise.sd / len(parents)) ** 2 * sum(
            1 / len(arm.forks[parent]) for parent in parents
        )
        variances[arm.noise] = variances.get(arm.noise, 0.0) + own
    variance = sum(variances.values())
    df = variance**2 / sum(own**2 / noise.df for noise, own in variances.items())
    return Estimate(value=value, se=math.sqrt(variance), df=df)


# The parts of a gap, and what they leave unexplained: instant split, and any other split measured
# on common values.
#
# L[off], L[on]      loss per batch with quantization off everywhere, and on: whole = mean(L[on] -
#                    L[off])
# without u          L[on] - L[without u]     what switching unit u off gains
# alone u            L[alone u] - L[off]      what unit u costs by itself
# unexplained        whole - sum of the parts, per batch, so that its interval includes how the
#                    parts vary together
#
# The two parts of a GEMM differ by its interactions; opposite effects of two GEMMs cancel in one
# but not in the other. A split explains the whole only if the unexplained part is small in both.
# Can fail: parts need not add up, and then no single number is a GEMM's share.


@frozen
class Part:
    """The part of a GEMM or of a cluster of them: what switching it off gains, and what it costs
    alone, in nats.
    """

    without: Estimate
    alone: Estimate


@frozen
class Split:
    """The whole, its parts by unit, and what both kinds of parts leave unexplained."""

    whole: Estimate
    parts: Mapping[str, Part]
    unexplained_without: Estimate
    unexplained_alone: Estimate


def split(losses: Mapping[str, NDArray[np.float64]], units: Sequence[str]) -> Split:
    """The split of losses (batches,) with the keys `off`, `on`, `without UNIT` and `alone UNIT`.
    Raises ValueError for a missing one.
    """
    missing = [
        name
        for name in (
            "off",
            "on",
            *(f"{way} {unit}" for unit in units for way in ("without", "alone")),
        )
        if name not in losses
    ]
    if missing:
        raise ValueError(
            f"no losses of {missing[0]!r} ({len(missing)} missing), expected those of every GEMM; "
            "measure the rest first"
        )
    off, on = losses["off"], losses["on"]
    gained = {unit: on - losses[f"without {unit}"] for unit in units}
    cost = {unit: losses[f"alone {unit}"] - off for unit in units}
    zero = np.zeros_like(on)
    return Split(
        whole=estimate(on - off),
        parts={
            unit: Part(without=estimate(gained[unit]), alone=estimate(cost[unit])) for unit in units
        },
        unexplained_without=estimate(on - off - sum(gained.values(), zero)),
        unexplained_alone=estimate(on - off - sum(cost.values(), zero)),
    )


# The parts of a gap from a user's own runs: the full recipe, and arms that leave a part of it out.
#
# L[x, k]        mean loss of arm x in the late window, of the run with pair k (seed and replicate),
#                nats
# whole          mean over k of (L[full] - L[baseline])
# part(a)        mean over k of (L[full] - L[a]) = gap(full) - gap(a)                what leaving
#                the part out gains
# left(a)        mean over k of (L[a] - L[baseline])                                 the gap that
#                stays without it
# sum            sum of the parts
# unexplained    whole - sum = mean over k of ((1 - m) L[full] - L[baseline] + sum L[a])
#
# Each is a contrast sum w_x L[x] over the pairs that all arms have. Its variance is that of the
# judge for a gap, for several arms:
#
# SE_run^2  = sum w_x^2 tau_x^2 / n                 tau_x: the judge's run-to-run noise of arm x, n
#           pairs
# df_run    = 1 / sum over x, y of rho_xy s_x s_y / sqrt(df_x df_y)       s_x = w_x^2 tau_x^2 / n /
#           SE_run^2
# SE_within <= sqrt(sum w_x^2 within_x^2)           within_x: the judge's within-pair error of the
#   gap of x; the baseline has the smallest
#
# rho_xx = 1; rho_xy = sqrt(w_x w_y), w = prior df / df, where two floors rest on one assumed
# number, else 0: one guess used twice counts once (`parity.judging.noise.run_floor`). The interval
# is the judge's at 95 %, of each part alone.
#
# Can fail: parts need not add up, because what is left out changes what the rest does. Where no arm
# has reruns, tau is assumed.

Pair = tuple[int, int]
"""The seed and the replicate of a run."""


@frozen
class ArmNoise:
    """The run-to-run noise of an arm as the judge has it (nats), and the within-pair error of its
    gap (nats).

    `prior` names the number that the floor rests on: equal names are one guess. `reruns`: whether
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
    noise: ArmNoise


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
        return [weight if each == at else 0.0 for each in range(count)]

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


def _together(first: ArmNoise, second: ArmNoise) -> float:
    """How far two floors are wrong together, from 0 to 1."""
    if first is second:
        return 1.0
    if first.prior != second.prior:
        return 0.0
    return math.sqrt(first.prior_df / first.df * second.prior_df / second.df)
