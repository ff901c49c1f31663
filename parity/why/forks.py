"""Effects between forks of one checkpoint, and the noise of forks.

x[p, k]   the final loss of fork k of parent p: one value a fork, whatever its length, because a fork's offset is one draw
          that saturates within some 60 steps
s^2       pooled over A/A forks: sum over (arm, parent) of (n - 1) variance / sum of (n - 1)           df = that sum
effect    mean over parents of (mean of one arm's forks - mean of the other's),  variance = s^2 / P^2 * sum over p of (1/n_p + 1/m_p)

The effect is that at these checkpoints of these parents: how it varies between trajectories is not part of the interval, and forks say
nothing of a gap that built up before them. Can fail: an arm with stochastic rounding has noisier forks than one without, and one s^2 for
both is then too small for one of them; at least 4 A/A forks of 3 parents, in the noisier arm, keep it on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parity.why.estimate import Estimate

Forks = Mapping[str, Sequence[float]]
"""The final losses (nats) of one arm's forks, by parent."""
MIN_FORKS, MIN_PARENTS = 4, 3
FAR_APART = 10.0  # a fork this many times the noise away has left the others: it diverged, or it is another run


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkNoise:
    """The standard deviation (nats) between A/A forks of one parent, its degrees of freedom, and how many parents it rests on."""

    sd: float
    df: float
    parents: int

    @property
    def is_enough(self) -> bool:
        """Whether it rests on 4 forks of each of 3 parents, or as many degrees of freedom."""
        return self.parents >= MIN_PARENTS and self.df >= (MIN_FORKS - 1) * MIN_PARENTS


def fork_noise(arms: Sequence[Forks]) -> ForkNoise:
    """The noise pooled over arms and parents with at least two forks each.

    Raises ValueError if none has two, and for forks that are all equal: they drew no random numbers of their own.
    """
    squares, df, parents = 0.0, 0, set()
    for arm in arms:
        for parent, losses in arm.items():
            if len(losses) > 1:
                squares += float(np.var(losses, ddof=1)) * (len(losses) - 1)
                df += len(losses) - 1
                parents.add(parent)
    if not df:
        raise ValueError("no arm has two forks of one parent, expected at least 4 unchanged forks of 3 parents; fork more of them")
    if squares == 0.0 or not math.isfinite(squares):
        raise ValueError("the A/A forks are equal or not finite, expected small differences; give each a draw of its own")
    return ForkNoise(sd=math.sqrt(squares / df), df=float(df), parents=len(parents))


def effect(first: Forks, second: Forks, noise: ForkNoise) -> Estimate:
    """What the first arm's forks lose more than the second's, in nats, over the parents that both have; ValueError if they share none."""
    parents = sorted(first.keys() & second.keys())
    pairs = [(first[parent], second[parent]) for parent in parents if first[parent] and second[parent]]
    if not pairs:
        raise ValueError("the two arms have no parent in common, expected forks of the same checkpoints")
    value = float(np.mean([np.mean(a) - np.mean(b) for a, b in pairs]))
    spread = math.sqrt(sum(1 / len(a) + 1 / len(b) for a, b in pairs)) / len(pairs)
    return Estimate(value=value, se=noise.sd * spread, df=noise.df)
