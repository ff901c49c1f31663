"""How much is a gap worth in tokens? S: the nats that finished runs gain per e-fold of their
tokens, at the baseline's length.

a gap of g nats costs x more tokens:  g = S ln(1 + x), x = exp(g / S) - 1
stated         the policy's own S
shorter run    a finished run of the baseline's recipe with N1 of its N tokens, late loss L1 (the
               baseline's: L2), r = N / N1, q = 0.5: S = (L1 - L2) q / (r^q - 1), for 0.25 <= N1/N
               <= 0.5. q is what the loss that is left is taken to fall by: L = E + A N^-q
constant rate  S = q A of that law, fitted to the last half of the baseline's loss: each of its
               points is a shorter run. As of the last step
error of S     from run-to-run noise: sqrt(2) tau q / (r^q - 1), r = 2 within one run, and of the
               fit; above 25 % of S nothing is said

Never within one schedule that decays: most of what its loss falls is the decay, and S would be
wrong by -39 to +206 %. Measured on a law of cosine, decay phase and constant rate S is 3 to 8 % too
small, so a margin in tokens too strict; q left out makes it 6 to 38 % too large. Can fail: a law of
another power; a shorter run whose loss is too high for another reason (1 % too high: S of 0.1
becomes 0.12 at N1 = N/2).
"""

import math
from collections.abc import Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import (
    Curve,
    FloatArray,
    IntArray,
    dot,
    usable,
)
from parity.judging.curves.learning_rates import constant_rate, not_at_end, recorded_rates
from parity.judging.curves.step_noise import (
    mean_se,
)
from parity.judging.curves.window import Window, make_window
from parity.judging.policy import Policy
from parity.wording import percent

POWER = 0.5
LEAST_SHARE, LARGEST_SHARE = 0.25, 0.5  # of the baseline's steps: what a shorter run may have
MAX_ERROR = 0.25  # of S
MIN_POINTS = 6


@frozen
class TokenSlope:
    """S in nats per e-fold of tokens with its standard error, and what it was taken from, in
    words.
    """

    nats: float
    error: float
    basis: str

    def tokens(self, gap: float) -> float:
        """The share of further tokens that a gap costs (nats): 0.05 is 5 % more, below 0 where the
        candidate saves some.
        """
        return math.expm1(min(gap / self.nats, 700.0))


@frozen
class NoSlope:
    """Why no slope is known: part of a sentence."""

    why: str


def token_slope(
    policy: Policy,
    shorter: Sequence[Curve],
    baseline: Sequence[Curve],
    window: Window,
    level: float,
    tau: float,
) -> TokenSlope | NoSlope:
    """S at the end of `window`, where the baseline's loss is `level` nats and its run-to-run noise
    `tau`.
    """
    stated = policy.margin.slope if policy.margin else None
    if stated is not None:
        return TokenSlope(nats=stated, error=0.0, basis="stated by the policy")
    if shorter:
        slope = _slope_from_shorter_runs(shorter, window, level, tau)
    else:
        slope = _slope_at_constant_rate(baseline, window, tau)
    if isinstance(slope, TokenSlope) and not slope.error <= MAX_ERROR * slope.nats:
        error = f"{slope.nats:.3g} nats per e-fold with an error of {slope.error:.2g}"
        return NoSlope(
            why=f"{slope.basis} gives {error}; expected at most {percent(MAX_ERROR)} of it"
        )
    return slope


def _slope_from_shorter_runs(
    runs: Sequence[Curve], window: Window, level: float, tau: float
) -> TokenSlope | NoSlope:
    lengths = [int(run.steps[-1]) - window.origin + 1 if len(run.steps) else 0 for run in runs]
    if min(lengths) != max(lengths):
        return NoSlope(
            why=f"the shorter baseline runs have {min(lengths):,} to {max(lengths):,} steps; "
            "expected equal lengths"
        )
    share = lengths[0] / (window.last - window.origin + 1)
    if not LEAST_SHARE <= share <= LARGEST_SHARE:
        return NoSlope(
            why=f"the shorter baseline run has {percent(share)} of the baseline's steps; expected "
            "25 to 50 %"
        )
    unfinished = _unfinished(runs)
    if unfinished is not None:
        return NoSlope(why=f"the shorter baseline run did not finish its schedule: {unfinished}")
    shorter_window = make_window(lengths[0], window.origin, window.fraction, "declared")
    late = [run.loss[shorter_window.part(run.steps)] for run in runs]
    late = [loss[usable(loss)] for loss in late]
    if min(len(loss) for loss in late) < MIN_POINTS:
        return NoSlope(
            why=f"the shorter baseline run has fewer than {MIN_POINTS} points in its late window"
        )
    fall = float(np.mean([loss.mean() for loss in late])) - level
    if fall <= 0.0:
        return NoSlope(why=f"the shorter baseline run ends {-fall:.3g} nats below the baseline")
    factor = POWER / (share**-POWER - 1.0)
    error = factor * tau * math.sqrt(1.0 + 1.0 / len(runs))
    return TokenSlope(
        nats=factor * fall,
        error=error,
        basis=f"a finished baseline run of {percent(share)} of the steps",
    )


def _unfinished(runs: Sequence[Curve]) -> str | None:
    """Why shorter runs are not known to have finished; what the policy states of the schedule is
    said of the compared runs alone.
    """
    if any(recorded_rates(run) is None for run in runs):
        return "no learning rate of it is on record that had decayed"
    return not_at_end(runs)


def _slope_at_constant_rate(
    runs: Sequence[Curve], window: Window, tau: float
) -> TokenSlope | NoSlope:
    if not constant_rate(runs):
        return NoSlope(
            why="it needs a shorter finished run of the baseline, a stated slope, or a learning "
            "rate on record that is constant"
        )
    fits = [
        _fit(run.steps - window.origin + 1, run.loss, window.last - window.origin + 1)
        for run in runs
    ]
    if any(fit is None for fit in fits):
        return NoSlope(why=f"the baseline has fewer than {MIN_POINTS} points in its last half")
    slopes, errors = np.array(fits, dtype=np.float64).T
    run_error = math.sqrt(2.0) * tau * POWER / (2.0**POWER - 1.0)
    error = math.hypot(float(np.linalg.norm(errors)) / len(runs), run_error / math.sqrt(len(runs)))
    return TokenSlope(
        nats=float(slopes.mean()),
        error=error,
        basis="the last half of the baseline, whose learning rate is constant",
    )


def _fit(steps: IntArray, loss: FloatArray, last: int) -> tuple[float, float] | None:
    """S of (n,) losses at (n,) steps counted from 1, and the standard error of the fit; None for
    too few points.
    """
    late = (steps > last // 2) & (steps <= last) & usable(loss)
    if int(late.sum()) < MIN_POINTS:
        return None
    u = (steps[late] / last) ** -POWER
    u -= u.mean()
    power = dot(u, u)
    centred = loss[late] - loss[late].mean()
    slope = dot(u, centred) / power
    score = mean_se(u * (centred - slope * u))
    return POWER * slope, POWER * score.value * len(u) / power
