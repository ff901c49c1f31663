"""What will the gap be at the end? The predictive distribution of the registered window's mean gap,
from pairs that still train.

now     G = sum c_j g_j over the pairs (`offsets`); g_j: mean gap of the last 20 % of the blocks
        that a pair has, at least 5
stays   final gap ~ N(G, s V E + noise + (0.25 (1 - f) G)^2); V: run-noise variance of one pair, s =
        nu/chi2(nu), because tau is estimated
drifts  with prior probability 0.05 the change c since half of the way is a drift of the recipe's
        gap, c ~ N(0, margin^2), not run noise alone, sd_c^2 = C V + noise. It goes on as a share U
        of its straight line to the end; mean of U 3/4, sd 1/2
noise   step noise of what is not trained yet: 1.5 sd^2 (1/blocks + 1/final blocks) (1 - overlap),
        sd of the block means

The weight of `drifts` follows from c by Bayes' rule. The mixture over s takes 40 Gauss and Laguerre
nodes; the verdict's half-width is the judge's own. The allowance of 25 % of the gap is for the
decay of the learning rate: one report has a gap of 1 % before it and 1.5 % after it (arXiv
2509.25149), 8 B runs held +0.0254 to +0.0301 nats over 13 evaluations, and early gaps of +0.019
nats have vanished. A constant added to both arms changes nothing where margin and noise are in
nats; in percent they follow the baseline's loss as it is expected at the end (`level`).

Can fail: a gap that comes or goes late. A recipe that loses more than these 25 % in the decay
phase, or switches precision near the end, is not expected here; nor is run-to-run noise that the
family, the policy or the assumption understates.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from parity.frozen import frozen
from parity.judging import special
from parity.judging.curves.curve import FloatArray, median
from parity.judging.curves.step_noise import StandardError
from parity.judging.gap.interval import interval
from parity.judging.live.baseline_end import level_at_end
from parity.judging.live.offsets import change_variance, combine
from parity.judging.live.pair_sums import BLOCKS, PairProgress
from parity.judging.live.run_noise import LiveArm, run_noise
from parity.judging.noise.borrowed_priors import NO_SOURCES, NoiseSources
from parity.judging.policy import Policy

MIN_BLOCKS, MIN_FILLED = 5, 3
BLOCK_NOISE = 1.5  # what correlation between blocks adds to a variance
LATE_CHANGE = 0.25  # of the gap, for what is still to come
DRIFT_PRIOR = 0.05
GOES_ON, GOES_ON_SD = 0.75, 0.5  # U: how much of a drift's straight line to the end it still goes
# robust sds from the median of a trailing window: such a block is left out, as the judge masks
# spikes
SPIKED = 8.0
_NODES, _STEPS, _FAR = 40, 60, 38.0  # standard deviations beyond which a double has no probability
_WITHIN_DF = 12.0


@frozen(eq=False)
class Scenario:
    """Normal mixture of the final gap (nats) around `mean`: `variances` and `weights` (n,)."""

    mean: float
    variances: FloatArray
    weights: FloatArray

    def below(self, gap: float) -> float:
        """Probability that the final gap is below `gap` nats."""
        return float(self.all_below(np.array([gap]))[0])

    def all_below(self, gaps: FloatArray) -> FloatArray:
        """Probability (n,) that the final gap is below each of `gaps` (n,) nats."""
        sds = np.maximum(np.sqrt(self.variances), 1e-300)
        return np.clip(special.ndtr((gaps[:, None] - self.mean) / sds) @ self.weights, 0.0, 1.0)


@frozen(eq=False)
class Prediction:
    """The distribution of the final gap (nats) at a share of the plan, `gap` so far, and `level`,
    margin and half-width at the end.

    `gap_half_width` is that of the interval of the gap so far: with the run-to-run noise of the
    end, and the steps of its own window. `change` is what the gap has changed since half of the
    way, with the standard deviation of its step noise; None without one. `noise_measured`: the
    run-to-run noise is that of runs of both arms.
    """

    share: float
    step: int
    gap: float
    gap_half_width: float
    level: float
    margin: float
    half_width: float
    two_sided: bool
    stays: Scenario
    drifts: Scenario
    drift_weight: float
    change: float | None = None
    change_sd: float | None = None
    noise_measured: bool = False

    def below(self, gap: float) -> float:
        """Probability that the final gap is below `gap` nats."""
        return (1.0 - self.drift_weight) * self.stays.below(
            gap
        ) + self.drift_weight * self.drifts.below(gap)

    def quantiles(self, probabilities: Sequence[float]) -> FloatArray:
        """The final gaps (n,) in nats that are not exceeded with these probabilities (n,).

        Newton's method on the mixture's distribution, by halves where a step would leave the
        interval that holds the quantile.
        """
        wanted = np.array(probabilities)
        parts = ((1.0 - self.drift_weight, self.stays), (self.drift_weight, self.drifts))
        weights = np.concatenate([weight * part.weights for weight, part in parts])
        means = np.concatenate([np.full(len(part.weights), part.mean) for _, part in parts])
        sds = np.maximum(np.sqrt(np.concatenate([part.variances for _, part in parts])), 1e-300)
        reach = 60.0 * math.sqrt(float(self.drifts.variances.max()))
        low = np.full(len(wanted), min(self.gap, self.drifts.mean) - reach)
        high = np.full(len(wanted), max(self.gap, self.drifts.mean) + reach)
        at = 0.5 * (low + high)
        for _ in range(_STEPS):
            z = np.clip((at[:, None] - means) / sds, -_FAR, _FAR)
            excess = special.ndtr(z) @ weights - wanted
            low, high = np.where(excess < 0.0, at, low), np.where(excess < 0.0, high, at)
            density = np.exp(-0.5 * z * z) @ (weights / sds) / math.sqrt(2.0 * math.pi)
            moved = at - np.divide(
                excess,
                density,
                out=np.full(len(at), np.inf),
                where=density * (high - low) > np.abs(excess),
            )
            after = np.where((low <= moved) & (moved <= high), moved, 0.5 * (low + high))
            if np.abs(after - at).max() <= 1e-13 * reach:
                break
            at = after
        quantiles: FloatArray = at
        return quantiles

    @property
    def passes(self) -> float:
        """Probability that the judge will pass the candidate by its gap."""
        return (1.0 - self.drift_weight) * self.passes_if(
            self.stays
        ) + self.drift_weight * self.passes_if(self.drifts)

    @property
    def fails(self) -> float:
        """Probability that the judge will fail the candidate by its gap."""
        return 1.0 - self.below(self.margin + self.half_width)

    def passes_if(self, scenario: Scenario) -> float:
        """Probability of a pass in one scenario."""
        low = (
            self.half_width - self.margin if self.two_sided else -max(self.margin, self.half_width)
        )
        return max(0.0, scenario.below(self.margin - self.half_width) - scenario.below(low))


@frozen
class _Seen:
    """One pair so far: share of the plan, trailing gap with its step-noise variance, change since
    half of the way with its noise.

    `level` is the baseline's loss as it is expected at the end; `left_variance` the part of
    `gap_variance` that the final window will not have.
    """

    share: float
    gap: float
    level: float
    block_variance: float
    gap_variance: float
    left_variance: float
    change: float
    change_noise: float


def predict(
    pairs: Sequence[tuple[PairProgress, bool]],
    planned_pairs: int,
    arms: tuple[LiveArm, LiveArm],
    policy: Policy,
    noise_sources: NoiseSources = NO_SOURCES,
    seeds: int = 1,
    confidence: float | None = None,
) -> Prediction | None:
    """The prediction from pairs (and whether each has ended) of which `planned_pairs` will reach
    the end; None before any can be seen.

    `confidence` is that of the verdict's interval, by default the policy's; looks and candidates
    that share its error have a higher one. None also where the policy has no margin yet (a noise
    floor that is not measured), or the loss is not above 0.
    """
    seen = [
        pair
        for state, ended in pairs
        if (pair := _seen(state, policy.window_fraction, ended=ended)) is not None
    ]
    if not seen:
        return None
    level = float(np.mean([pair.level for pair in seen]))
    if level <= 0.0:
        return None
    noise = run_noise(arms, policy, level, noise_sources, seeds)
    if noise.margin is None:
        return None
    planned = max(planned_pairs, len(seen))
    combined = combine([pair.share for pair in seen], planned)
    weights = combined.weights
    gap = sum(c * pair.gap for c, pair in zip(weights, seen, strict=True))
    share = sum(pair.share for pair in seen) / planned
    run = noise.pair_variance * combined.error
    final_blocks = max(1.0, policy.window_fraction * BLOCKS)
    block = float(np.mean([pair.block_variance for pair in seen]))
    steps = sum(c**2 * pair.left_variance for c, pair in zip(weights, seen, strict=True))
    ahead = sum(_ahead(pair.share, policy.window_fraction) for pair in seen) + (planned - len(seen))
    steps += BLOCK_NOISE * block / final_blocks * ahead / planned**2
    steps += (LATE_CHANGE * (1.0 - share) * gap) ** 2
    drift = _drift(seen, weights, noise.pair_variance, noise.margin.nats)
    scales, chances = _scales(noise.df)
    within = StandardError(
        value=math.sqrt(BLOCK_NOISE * block / final_blocks / planned), df=_WITHIN_DF
    )
    so_far = StandardError(
        value=math.sqrt(
            sum(c**2 * pair.gap_variance for c, pair in zip(weights, seen, strict=True))
        ),
        df=_WITHIN_DF,
    )
    half_width, gap_half_width = (
        interval(gap, error, noise.end).half_width(confidence or policy.confidence)
        for error in (within, so_far)
    )
    spread = run * scales + steps
    changed = [
        (c, pair) for c, pair in zip(weights, seen, strict=True) if math.isfinite(pair.change_noise)
    ]
    return Prediction(
        share=share,
        step=max(state.last_step or 0 for state, _ in pairs),
        gap=gap,
        gap_half_width=gap_half_width,
        level=level,
        margin=noise.margin.nats,
        half_width=half_width,
        two_sided=policy.two_sided,
        stays=Scenario(mean=gap, variances=spread, weights=chances),
        drifts=Scenario(mean=gap + drift.mean, variances=spread + drift.variance, weights=chances),
        drift_weight=drift.weight,
        change=sum(c * pair.change for c, pair in changed) if changed else None,
        change_sd=math.sqrt(sum(c**2 * pair.change_noise for c, pair in changed))
        if changed
        else None,
        noise_measured=noise.is_measured,
    )


def trailing(done: int, fraction: float) -> slice:
    """The last blocks of the first `done`: the policy's share of them, at least 5."""
    return slice(max(0, done - max(MIN_BLOCKS, round(fraction * done))), done)


def _seen(state: PairProgress, fraction: float, *, ended: bool) -> _Seen | None:
    done = state.blocks_done(ended=ended)
    late, levels = state.means(trailing(done, fraction))
    counts = np.array(state.counts[:done]) > 0
    shares = (np.arange(len(counts)) + 0.5)[counts] / BLOCKS
    if len(late) < MIN_FILLED:
        return None
    gap, variance = _robust(late)
    share = done / BLOCKS
    early, _ = state.means(
        slice(round(0.4 * done), max(round(0.6 * done), round(0.4 * done) + MIN_FILLED))
    )
    overlap = 1.0 - _ahead(share, fraction)
    change, noise = 0.0, math.inf
    if len(early) and share < 1.0:
        before, early_variance = _robust(early)
        change, noise = (
            gap - before,
            BLOCK_NOISE * (variance / len(late) + max(early_variance, variance) / len(early)),
        )
    return _Seen(
        share=share,
        gap=gap,
        level=level_at_end(
            float(levels.mean()), shares, state.means(slice(0, done))[1], len(levels), fraction
        ),
        block_variance=variance,
        gap_variance=BLOCK_NOISE * variance / len(late),
        left_variance=BLOCK_NOISE * variance / len(late) * (1.0 - overlap),
        change=change,
        change_noise=noise,
    )


def _ahead(share: float, fraction: float) -> float:
    """The part of the final window that is not trained at this share of the plan."""
    return min(1.0, max(0.0, (1.0 - share) / fraction))


def _robust(means: FloatArray) -> tuple[float, float]:
    """Mean and variance of block means (n,) without those that a spike moved."""
    if len(means) >= MIN_BLOCKS:
        centre = median(means)
        scale = 1.4826 * median(np.abs(means - centre))
        means = means[np.abs(means - centre) <= SPIKED * scale] if scale > 0.0 else means
    return float(means.mean()), float(means.var(ddof=1)) if len(means) > 1 else 0.0


@frozen
class _Drift:
    """How probable it is that the gap drifts, and the mean and variance of what such a drift still
    adds (nats).
    """

    weight: float
    mean: float
    variance: float


def _drift(
    seen: Sequence[_Seen], weights: Sequence[float], pair_variance: float, margin: float
) -> _Drift:
    change = noise = prior = 0.0
    for c, run in zip(weights, seen, strict=True):
        if run.share >= 1.0 or not math.isfinite(run.change_noise):
            continue
        # from the centres of both windows to that of the last one
        reach = c * 0.9 * (1.0 - run.share) / (0.4 * run.share)
        change += reach * run.change
        noise += reach**2 * (change_variance(run.share) * pair_variance + run.change_noise)
        prior += (reach * margin) ** 2
    if noise + prior <= 0.0:
        return _Drift(weight=0.0, mean=0.0, variance=0.0)
    ratio = prior / noise if noise > 0.0 else math.inf
    if not math.isfinite(ratio):
        weight, kept = (1.0 if change else 0.0), 1.0
    else:
        z2, kept = change**2 / noise, ratio / (1.0 + ratio)
        odds = (
            DRIFT_PRIOR
            / (1.0 - DRIFT_PRIOR)
            / math.sqrt(1.0 + ratio)
            * math.exp(min(0.5 * z2 * kept, 500.0))
        )
        weight = odds / (1.0 + odds)
    mean = kept * change
    return _Drift(
        weight=weight,
        mean=GOES_ON * mean,
        variance=(GOES_ON**2 + GOES_ON_SD**2) * kept * noise + (GOES_ON_SD * mean) ** 2,
    )


@cache
def _scales(df: float) -> tuple[FloatArray, FloatArray]:
    """Nodes of nu/chi2(nu) (n,) and their weights (n,), which add up to 1."""
    if df > 1e3:
        return np.ones(1), np.ones(1)
    nodes, weights = special.roots_genlaguerre(_NODES, 0.5 * df - 1.0)
    return 0.5 * df / nodes, weights / weights.sum()
