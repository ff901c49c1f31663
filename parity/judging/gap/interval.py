"""How large is the gap, and how sure are we? The interval of the window's mean gap.

gap = mean over the window of d_t = L_candidate(t) - L_baseline(t), nats, positive = candidate worse
half-width = hypot(t(df_run) SE_run, t(df_within) SE_within)
lo* = max over lowered series of their lo, hi* = min over raised series of their hi
    (`robust_bounds`)
P(true gap < m) = (1 + sign(m - gap) c) / 2, c solved from |m - gap| = half-width(c): of one look,
    where every gap is equally likely
beforehand; above 0.975 exactly where the 95 % interval ends below m

Satterthwaite's joint degrees of freedom would be narrower by a few percent, but below 4 of them
their quantile falls faster than SE grows, so that more noise within the pair narrows the interval.
A 95 % two-sided interval is two one-sided tests at 2.5 % each. Can fail: everything that makes
SE_run wrong (`arm_noise`); an interval without that term is not a test of a recipe. Source:
Schuirmann 1987.
"""

import dataclasses
import math
from dataclasses import field
from functools import lru_cache

import numpy as np

from parity.frozen import frozen
from parity.judging import special
from parity.judging.curves.curve import (
    FloatArray,
)
from parity.judging.curves.step_noise import (
    StandardError,
)
from parity.judging.noise.arm_noise import RunTerm

MOST_CERTAIN, HALVINGS = 0.9998, 30  # a chance nearer to 0 or 1 rests on tails that nobody measured


@frozen(eq=False)
class Side:
    """What one end of an interval may rest on: the series as it is (first), and lowered (or
    raised) in several ways.

    `means`, `errors` and `dfs` (m,) are those of the changed gap series, `shifts` and `run_terms`
    (r,) those of changed runs; nats.
    """

    means: FloatArray
    errors: FloatArray
    dfs: FloatArray
    shifts: tuple[float, ...]
    run_terms: tuple[RunTerm, ...]

    def ends(self, confidence: float, within_confidence: float, sign: float) -> FloatArray:
        """The end of the interval (r * m,) with each change of runs and of the series: the lower
        one for sign -1, else the upper.
        """
        within = t_quantiles(within_confidence, self.dfs) * self.errors
        run = [
            t_quantile(confidence, term.df) * math.sqrt(term.variance) for term in self.run_terms
        ]
        return np.concatenate(
            [
                self.means + shift + sign * np.hypot(half, within)
                for shift, half in zip(self.shifts, run, strict=True)
            ]
        )


@frozen
class Interval:
    """A mean gap in nats with its standard error, joint degrees of freedom and the two parts of the
    error; `sides` are of lo*, hi*.

    `rounding` is by how much printed digits can move the gap, where a few values decide.
    """

    mean: float
    se: float
    df: float
    within: StandardError
    run: RunTerm
    sides: tuple[Side | None, Side | None] = field(default=(None, None), compare=False, repr=False)
    rounding: float = 0.0

    def half_width(self, confidence: float, within_confidence: float | None = None) -> float:
        """Half the two-sided interval at `confidence` (0 to 1) of the series as it is, nats; the
        error within pairs may have another.
        """
        run, within = math.sqrt(self.run.variance), self.within.value
        other = confidence if within_confidence is None else within_confidence
        return (
            math.hypot(
                t_quantile(confidence, self.run.df) * run,
                t_quantile(other, self.within.df) * within,
            )
            + self.rounding
        )

    def chance_below(self, gap: float) -> float:
        """Probability that the true gap is below `gap` nats, 0.0001 to 0.9999, where every gap is
        equally likely beforehand.
        """
        distance = abs(gap - self.mean)
        low, high = 0.0, MOST_CERTAIN
        for _ in range(HALVINGS if self.half_width(high) > distance else 0):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.half_width(middle) <= distance else (low, middle)
        return 0.5 * (1.0 + math.copysign(high, gap - self.mean))

    def bounds(
        self, confidence: float, within_confidence: float | None = None
    ) -> tuple[float, float]:
        """Lower and upper end of the two-sided interval, nats; its error within pairs may have
        another confidence.
        """
        half = self.half_width(confidence, within_confidence)
        other = confidence if within_confidence is None else within_confidence
        better, worse = self.sides
        if better is None:
            lo = self.mean - half
        else:
            lo = float(better.ends(confidence, other, -1.0).max()) - self.rounding
        if worse is None:
            hi = self.mean + half
        else:
            hi = float(worse.ends(confidence, other, 1.0).min()) + self.rounding
        return lo, hi


@lru_cache(maxsize=4096)
def t_quantile(confidence: float, df: float) -> float:
    """The t value that a two-sided interval at `confidence` reaches to."""
    return float(special.stdtrit(df, 0.5 + confidence / 2.0))


def t_quantiles(confidence: float, df: FloatArray) -> FloatArray:
    """`t_quantile` of each of (m,) degrees of freedom."""
    return np.array([t_quantile(confidence, float(value)) for value in df])


def interval(
    mean: float,
    within: StandardError,
    run: RunTerm,
    sides: tuple[Side | None, Side | None] = (None, None),
) -> Interval:
    """Combine the within-pair error and the between-run term into one interval."""
    v_within, v_run = within.value**2, run.variance
    total = v_within + v_run
    if total == 0.0:
        return Interval(mean=mean, se=0.0, df=run.df, within=within, run=run, sides=sides)
    # As shares of the total, whose squares can't underflow.
    df = 1.0 / ((v_run / total) ** 2 / run.df + (v_within / total) ** 2 / within.df)
    return Interval(mean=mean, se=math.sqrt(total), df=df, within=within, run=run, sides=sides)


def exact_interval(rounding: float, run: RunTerm) -> Interval:
    """The gap of runs that are equal one for one: zero, within what rounding hides (nats); no
    run-to-run noise counts, for none was drawn.
    """
    return Interval(
        mean=0.0,
        se=0.0,
        df=run.df,
        within=StandardError(value=0.0, df=run.df),
        run=dataclasses.replace(run, variance=0.0),
        rounding=rounding,
    )
