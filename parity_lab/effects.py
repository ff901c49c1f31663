"""Effects between forks of one checkpoint, and the noise of forks.

x[p, k]   the final loss of fork k of parent p: one value a fork, whatever its length, because a
          fork's offset is one draw
          that saturates within some 60 steps
s^2       pooled over the A/A forks of one arm, or of several: sum over parents of (n - 1)
          variance / sum of (n - 1)      df = that sum
contrast  sum over arms of w * (mean over parents of the mean of its forks)
          variance = sum over arms of w^2 s^2 / P^2 * sum over p of 1/n_p
          df = (sum of v)^2 / sum of v^2 / df, with v the variance that one s^2 brings
          (Satterthwaite, Biometrics Bulletin 2, 1946)

The effect is that at these checkpoints of these parents: how it varies between trajectories is
not part of the interval, and forks say nothing of a gap that built up before them. Each end of an
analysis has a noise of its own, because a fault or stochastic rounding can double it; an arm
between them has the larger one. Can fail: an arm between them that is noisier than both, and
three parents of which one is noisier than the others.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from parity.frozen import frozen
from parity_lab.estimates import Estimate

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
class ForkArm:
    """The forks of one arm, and their noise."""

    forks: Forks
    noise: ForkNoise


@frozen
class Ends:
    """The arms with all GEMMs on and with all off, each with the noise of its own forks."""

    on: ForkArm
    off: ForkArm

    @property
    def noise(self) -> ForkNoise:
        """The larger one."""
        return max(self.on.noise, self.off.noise, key=lambda noise: noise.sd)

    def between(self, forks: Forks) -> ForkArm:
        """An arm with some GEMMs on."""
        return ForkArm(forks=forks, noise=self.noise)


def ends(on: Forks, off: Forks) -> Ends:
    """Both ends with their noise; ValueError as for `fork_noise`."""
    return Ends(
        on=ForkArm(forks=on, noise=fork_noise([on])),
        off=ForkArm(forks=off, noise=fork_noise([off])),
    )


def effect(first: ForkArm, second: ForkArm) -> Estimate:
    """What the first arm's forks lose more than the second's, in nats, over the parents that both
    have; ValueError if they share none.
    """
    return contrast([(1.0, first), (-1.0, second)])


def contrast(terms: Sequence[tuple[float, ForkArm]]) -> Estimate:
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
        term = (weight * arm.noise.sd / len(parents)) ** 2 * sum(
            1 / len(arm.forks[parent]) for parent in parents
        )
        variances[arm.noise] = variances.get(arm.noise, 0.0) + term
    variance = sum(variances.values())
    df = variance**2 / sum(term**2 / noise.df for noise, term in variances.items())
    return Estimate(value=value, se=math.sqrt(variance), df=df)
