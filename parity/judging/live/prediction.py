"""What will the gap be at the end? A predictive distribution of the registered window's mean gap,
from a pair of runs that still trains.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from parity.judging import special
from parity.judging.curves.curve import FloatArray, IntArray, Rounding, dot, median, usable
from parity.judging.curves.step_noise import StandardError
from parity.judging.gap.interval import Margin, determine_margin, interval
from parity.judging.measurements import lender_for
from parity.judging.noise.lending import Lenders
from parity.judging.noise.run_floor import (
    NO_LENDERS,
    Lending,
    OwnRuns,
    RunFloor,
    RunTerm,
    assume_stochastic,
    borrow,
    own_spread,
    priors_for,
    run_floor,
    run_term,
)
from parity.judging.policy import Policy
from parity.structure import frozen

# Run-to-run noise of a comparison in training, by the judge's own rules: assumed, declared or
# borrowed, and measured on runs that have ended.
#
# Runs in training count for the plan (K) but measure nothing yet; nor do controls and early-stopped
# reruns. The verdict's floor may differ. There are two degrees of freedom: those of tau today, and
# those that the judge's interval will have at the end.


@frozen
class LiveArm:
    """An arm: recipe, rounding (None: not on record), planned runs, and the window's mean loss
    (nats) and seed of ended runs.
    """

    recipe: str | None = None
    rounding: Rounding | None = None
    runs: int = 1
    means: tuple[float, ...] = ()
    seeds: tuple[int, ...] = ()


@frozen
class RunNoise:
    """Run-to-run noise of the final gap: variance of one pair (nats^2), its df today, the judge's
    term at the end, and the margin.
    """

    pair_variance: float
    df: float
    end: RunTerm
    margin: Margin | None


def planned_lending(
    names: tuple[str, str], arms: tuple[LiveArm, LiveArm], policy: Policy, lenders: Lenders
) -> Lending:
    """What two arms (baseline, candidate) of these names may borrow before their runs say how they
    round.
    """
    baseline, candidate = (
        lender_for(
            name,
            "stochastic" if assume_stochastic(arm.recipe, arm.rounding) else "nearest",
            declared,
            lenders,
        )
        for name, arm, declared in zip(names, arms, policy.run_floors, strict=True)
    )
    return baseline, candidate


def run_noise(
    arms: tuple[LiveArm, LiveArm],
    policy: Policy,
    level: float,
    lending: Lending = NO_LENDERS,
    seeds: int = 1,
) -> RunNoise:
    """The noise of a pair of arms (baseline, candidate) whose baseline has a loss of `level` nats;
    `seeds` are those that both have.
    """
    priors = priors_for(arms, policy, level)
    if lending != NO_LENDERS:
        spreads = [own_spread(np.array(arm.means), arm.seeds) for arm in arms]
        own = OwnRuns(
            squares=(spreads[0][0], spreads[1][0]),
            df=(spreads[0][1], spreads[1][1]),
            gap_runs=(max(arms[0].runs / seeds, 1.0), max(arms[1].runs / seeds, 1.0)),
        )
        priors = borrow(priors, lending, own, level)
    today = [
        run_floor(prior, np.array(arm.means), arm.seeds)
        for prior, arm in zip(priors, arms, strict=True)
    ]
    planned = [_at_end(floor, arm, seeds) for floor, arm in zip(today, arms, strict=True)]
    end = run_term(planned[0], planned[1])
    if seeds > 1:
        df = min(prior.df for prior in priors) + seeds - 1
        end = RunTerm(variance=end.variance, df=df, seeds=seeds)
    known = run_term(
        *(dataclasses.replace(floor, runs=arm.runs) for floor, arm in zip(today, arms, strict=True))
    )
    return RunNoise(
        pair_variance=max(today[0].tau ** 2 + today[1].tau ** 2, arms[1].runs * end.variance),
        df=known.df,
        end=end,
        margin=determine_margin(policy, level, today[0]),
    )


def _at_end(floor: RunFloor, arm: LiveArm, seeds: int) -> RunFloor:
    """The floor once all planned runs have ended, where they spread as it expects."""
    added = max(0, arm.runs - seeds - floor.measured_df)
    return dataclasses.replace(
        floor, runs=arm.runs, df=floor.df + added, measured_df=floor.measured_df + added
    )


# What is remembered of a pair of runs while it trains: sums of the gap and of the baseline's loss
# in 80 equal parts of the plan.
#
# block of step s = floor(80 (s - origin)/planned steps), origin 0 or 1 as the steps are numbered;
# its mean gap is sum/count
#
# Feed each common step once, in order, in pieces of any size. Sums are added one step after the
# other, so a state that was written to JSON and read again continues bit for bit as if it had never
# stopped. It holds at most 80 x 3 numbers (under 6 kB), however long the run is. Steps with a
# non-finite loss in either arm are left out. Can fail: a block with few logged steps is one noisy
# number.

BLOCKS = 80
_KEYS = ("planned_steps", "origin", "last_step", "counts", "gaps", "baselines")


@frozen
class Progress:
    """A pair of runs as far as it was fed: the last step, and by block the steps, the sum of gaps
    and the sum of baseline losses (nats).

    The lists end with the last block that has a step; `origin` and `last_step` are None before the
    first step.
    """

    planned_steps: int
    origin: int | None = None
    last_step: int | None = None
    counts: tuple[int, ...] = ()
    gaps: tuple[float, ...] = ()
    baselines: tuple[float, ...] = ()

    @property
    def share(self) -> float:
        """Share of the plan that the pair has reached, 0 to 1."""
        if self.origin is None or self.last_step is None:
            return 0.0
        return min(1.0, (self.last_step - self.origin + 1) / self.planned_steps)

    def blocks_done(self, *, ended: bool = False) -> int:
        """Blocks that are complete; of a pair that has ended all that have a step."""
        if ended:
            return len(self.counts)
        return min(math.floor(self.share * BLOCKS + 1e-9), len(self.counts))

    def means(self, blocks: slice) -> tuple[FloatArray, FloatArray]:
        """Mean gap and mean baseline loss (n,) of the blocks of a range that have a step, nats."""
        counts = np.array(self.counts[blocks], dtype=np.float64)
        kept = counts > 0
        gaps, baselines = (
            np.array(sums[blocks], dtype=np.float64)[kept] / counts[kept]
            for sums in (self.gaps, self.baselines)
        )
        return gaps, baselines

    def until(self, blocks: int) -> "Progress":
        """The pair as it was after its first `blocks` blocks."""
        if blocks >= len(self.counts):
            return self
        last = self.last_step_of(blocks)
        while blocks and not self.counts[blocks - 1]:
            blocks -= 1
        return dataclasses.replace(
            self,
            last_step=last,
            counts=self.counts[:blocks],
            gaps=self.gaps[:blocks],
            baselines=self.baselines[:blocks],
        )

    def last_step_of(self, blocks: int) -> int:
        """The last step of the first `blocks` blocks."""
        return (
            (1 if self.origin is None else self.origin)
            - 1
            + -(-self.planned_steps * blocks // BLOCKS)
        )

    def document(self) -> dict[str, Any]:
        """The state as JSON-able values for `progress_from_mapping`."""
        return {
            key: list(value) if isinstance(value := getattr(self, key), tuple) else value
            for key in _KEYS
        }


def begin(planned_steps: int) -> Progress:
    """The state of a pair of which nothing is known; `planned_steps` is the registered length of a
    run, at least 1.
    """
    if planned_steps < 1:
        raise ValueError(f"planned_steps is {planned_steps}; expected at least 1")
    return Progress(planned_steps=planned_steps)


def progress_from_mapping(mapping: Mapping[str, Any]) -> Progress:
    """The state that `Progress.document` wrote; ValueError where it is another document."""
    if set(mapping) != set(_KEYS):
        raise ValueError(
            f"the state of a pair has the keys {', '.join(sorted(map(str, mapping)))}; expected "
            f"{', '.join(_KEYS)}"
        )
    sums = {key: tuple(mapping[key]) for key in ("counts", "gaps", "baselines")}
    return Progress(**{**mapping, **sums})


def observe(
    state: Progress, steps: IntArray, baseline: FloatArray, candidate: FloatArray
) -> Progress:
    """The state after further common steps (n,), ascending and after those that it has, with the
    losses of both runs (n,) in nats.

    Steps before or after the plan are left out. ValueError where the steps do not follow those that
    were fed.
    """
    if len(steps) == 0:
        return state
    if np.any(np.diff(steps) <= 0) or (state.last_step is not None and steps[0] <= state.last_step):
        raise ValueError(
            f"steps from {steps[0]} on were fed after step {state.last_step}; expected ascending "
            "steps, each once"
        )
    origin = min(1, int(steps[0])) if state.origin is None else state.origin
    inside = (steps >= origin) & (steps < origin + state.planned_steps)
    finite = inside & usable(baseline) & usable(candidate)
    if not inside.any():
        return state
    block = ((steps[finite].astype(np.int64) - origin) * BLOCKS) // state.planned_steps
    filled = max(len(state.counts), int(block[-1]) + 1 if len(block) else 0)
    counts = _added(state.counts, filled, block, np.ones(len(block)))
    gaps = _added(state.gaps, filled, block, candidate[finite] - baseline[finite])
    baselines = _added(state.baselines, filled, block, baseline[finite])
    return dataclasses.replace(
        state,
        origin=origin,
        last_step=int(steps[inside][-1]),
        counts=tuple(int(count) for count in counts),
        gaps=tuple(gaps.tolist()),
        baselines=tuple(baselines.tolist()),
    )


def _added(sums: Sequence[float], filled: int, block: IntArray, values: FloatArray) -> FloatArray:
    """The sums of the first `filled` blocks with further values added, one after the other."""
    total = np.zeros(filled)
    total[: len(sums)] = sums
    np.add.at(total, block, values)
    return total


# How a run's offset moves: how far the gap of a pair in training is from its final gap, by
# run-to-run noise alone.
#
# o(f) offset of a pair at the share f of the plan: sd q(f), final sd 1, correlation r(f) with the
# final offset D(f) = Var(o(1) - o(f)) = 1 + q^2 - 2 r q what run-to-run noise still adds, as a
# share of one pair's final variance C(f) = Var(o(f) - o(f/2)) how much the gap changes by
# run-to-run noise alone between two trailing windows
#
# P pairs are planned, some have come to f_j, and m have not begun. The recipes' gap has a flat
# prior. With a_j = 1/q_j^2, b_j = r_j/q_j: final gap = sum_j c_j g_j, c_j = a_j/sum a (1 - sum b/P)
# + b_j/P best linear prediction; one pair: its own gap, not shrunk E = sum_j (c_j^2 q_j^2 - 2 c_j
# r_j q_j/P + 1/P^2) + m/P^2 one pair: D(f)
#
# r: 123 groups of reruns of a 124 M GPT (1,416 runs) show 0.40, 0.66, 0.94, 0.99 at 25, 50, 75, 90
# % of the steps; 96 emulated runs of
#   0.3
#    to 1 M (FP8 and NVFP4, with step noise) 0.3, 0.7, 0.8, 0.94; seven other reruns 0.6, 0.95,
#    0.96, 0.99. Declared is what lies between.
# q: the spread of reruns in a window that ends there, over that of the last 20 %, is 1.2 to 1.7
# before half and 1.1 to 1.2 after it.
# C: 2 in the emulated runs, with step noise; 0.2 to 1 in the seven.
# Can fail: an offset that is decided late (a switch of precision near the end) moves more than
# this, and forecasts are too narrow.

Curve = tuple[tuple[float, float], ...]  # (share of the plan, value)
CORRELATION: Curve = (
    (0.0, 0.0),
    (0.25, 0.40),
    (0.50, 0.70),
    (0.75, 0.90),
    (0.90, 0.97),
    (1.0, 1.0),
)
SPREAD: Curve = ((0.0, 1.3), (0.30, 1.3), (0.50, 1.25), (0.75, 1.12), (0.90, 1.03), (1.0, 1.0))
CHANGE: Curve = ((0.0, 1.5), (0.70, 1.5), (1.0, 0.5))


@frozen
class Weights:
    """The prediction from pairs: `weights` c_j of their gaps, and `error` E, the variance that
    run-to-run noise adds, as a share of one pair's.
    """

    weights: tuple[float, ...]
    error: float


def correlation(share: float) -> float:
    """r: how a run's offset at this share of the plan correlates with its final one."""
    return _at(share, CORRELATION)


def spread(share: float) -> float:
    """q: the spread of offsets at this share of the plan over that at the end."""
    return _at(share, SPREAD)


def change_variance(share: float) -> float:
    """C: variance of the change of a pair's offset between its trailing windows at half of this
    share of the plan and at it.
    """
    return _at(share, CHANGE)


def combine(shares: Sequence[float], planned: int) -> Weights:
    """The prediction from pairs at these shares (at least one) of the plan, where `planned` pairs
    (at least as many) will end it.
    """
    rs, qs = [correlation(share) for share in shares], [spread(share) for share in shares]
    own = [1.0 / q**2 for q in qs]
    slopes = [r / q for r, q in zip(rs, qs, strict=True)]
    rest = 1.0 - sum(slopes) / planned
    weights = tuple(a / sum(own) * rest + b / planned for a, b in zip(own, slopes, strict=True))
    error = (planned - len(shares)) / planned**2
    for c, r, q in zip(weights, rs, qs, strict=True):
        error += (c * q) ** 2 - 2.0 * c * r * q / planned + 1.0 / planned**2
    return Weights(weights=weights, error=max(error, 0.0))


def _at(share: float, curve: Curve) -> float:
    """A declared curve at a share of the plan, linear between its points."""
    return float(np.interp(share, [at for at, _ in curve], [value for _, value in curve]))


# What will the baseline's loss be at the planned end? Margins and run-to-run noise in percent
# follow it, and today's loss still falls.
#
# so far   mean loss of the trailing window
# at end   so far + s (ln(1 - w/2) - mean of ln(share) over the trailing window), s the
#          least-squares slope of the loss on ln(share of the
#          plan) over the last half of what is trained, w the policy's window; never above "so far",
#          and at most 25 % below it
#
# Measured from 25 % of the plan on: 3 emulated runs with a cosine 1 to 3 % off (so far: 1 to 35 %
# too high), 7 runs of 124 M with a late decay -2 to +4 % (2 to 16), 3 of 15 B -5 to 0 % (0 to 13),
# at 25 % of the plan -9 %. Can fail: a schedule whose decay comes late falls more.

# of the loss so far: at 10 % of the plan the line through the last half is up to 40 % too steep
MOST_FALL = 0.25


def level_at_end(
    so_far: float, shares: FloatArray, losses: FloatArray, trailing: int, fraction: float
) -> float:
    """The mean loss (nats) of the last `fraction` of the plan, from (n,) losses at ascending shares
    of it (0 to 1).

    `so_far` is the mean of the last `trailing` of them.
    """
    late = shares >= 0.5 * shares[-1]
    x = np.log(shares[late])
    ahead = math.log(1.0 - 0.5 * fraction) - float(np.log(shares[-trailing:]).mean())
    x -= x.mean()
    power = dot(x, x)
    if ahead <= 0.0 or power == 0.0:
        return so_far
    slope = dot(x, losses[late] - losses[late].mean()) / power
    return so_far - min(max(-slope * ahead, 0.0), MOST_FALL * abs(so_far))


# What will the gap be at the end? The predictive distribution of the registered window's mean gap,
# from pairs that still train.
#
# now      G = sum c_j g_j over the pairs (`offsets`); g_j: mean gap of the last 20 % of the blocks
#          that a pair has, at least 5
# stays    final gap ~ N(G, s V E + noise + (0.25 (1 - f) G)^2); V: run-noise variance of one pair,
#          s = nu/chi2(nu), because tau is
#   estimated
# drifts   with prior probability 0.05 the change c since half of the way is a drift of the recipe's
#          gap, c ~ N(0, margin^2), not run
#   noise
#          alone, sd_c^2 = C V + noise. It goes on as a share U of its straight line to the end;
#          mean of U 3/4, sd 1/2
# noise    step noise of what is not trained yet: 1.5 sd^2 (1/blocks + 1/final blocks) (1 -
#          overlap), sd of the block means
#
# The weight of `drifts` follows from c by Bayes' rule. The mixture over s takes 40 Gauss and
# Laguerre nodes; the verdict's half-width is the judge's own. The allowance of 25 % of the gap is
# for the decay of the learning rate: one report has a gap of 1 % before it and 1.5 % after it
# (arXiv 2509.25149), 8 B runs held +0.0254 to +0.0301 nats over 13 evaluations, and early gaps of
# +0.019 nats have vanished. A constant added to both arms changes nothing where margin and floors
# are in nats; in percent they follow the baseline's loss as it is expected at the end (`level`).
#
# Can fail: a gap that comes or goes late. A recipe that loses more than these 25 % in the decay
# phase, or switches precision near the end, is not expected here; nor is run-to-run noise that the
# family, the policy or the assumption understates.

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
    end, and the steps of its own window.
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
    pairs: Sequence[tuple[Progress, bool]],
    planned_pairs: int,
    arms: tuple[LiveArm, LiveArm],
    policy: Policy,
    lending: Lending = NO_LENDERS,
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
        each
        for state, ended in pairs
        if (each := _seen(state, policy.window_fraction, ended=ended)) is not None
    ]
    if not seen:
        return None
    level = float(np.mean([each.level for each in seen]))
    if level <= 0.0:
        return None
    noise = run_noise(arms, policy, level, lending, seeds)
    if noise.margin is None:
        return None
    planned = max(planned_pairs, len(seen))
    combined = combine([each.share for each in seen], planned)
    weights = combined.weights
    gap = sum(c * each.gap for c, each in zip(weights, seen, strict=True))
    share = sum(each.share for each in seen) / planned
    run = noise.pair_variance * combined.error
    final_blocks = max(1.0, policy.window_fraction * BLOCKS)
    block = float(np.mean([each.block_variance for each in seen]))
    steps = sum(c**2 * each.left_variance for c, each in zip(weights, seen, strict=True))
    ahead = sum(_ahead(each.share, policy.window_fraction) for each in seen) + (planned - len(seen))
    steps += BLOCK_NOISE * block / final_blocks * ahead / planned**2
    steps += (LATE_CHANGE * (1.0 - share) * gap) ** 2
    drift = _drift(seen, weights, noise.pair_variance, noise.margin.nats)
    scales, chances = _scales(noise.df)
    within = StandardError(
        value=math.sqrt(BLOCK_NOISE * block / final_blocks / planned), df=_WITHIN_DF
    )
    so_far = StandardError(
        value=math.sqrt(
            sum(c**2 * each.gap_variance for c, each in zip(weights, seen, strict=True))
        ),
        df=_WITHIN_DF,
    )
    half_width, gap_half_width = (
        interval(gap, error, noise.end).half_width(confidence or policy.confidence)
        for error in (within, so_far)
    )
    spread = run * scales + steps
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
    )


def trailing(done: int, fraction: float) -> slice:
    """The last blocks of the first `done`: the policy's share of them, at least 5."""
    return slice(max(0, done - max(MIN_BLOCKS, round(fraction * done))), done)


def _seen(state: Progress, fraction: float, *, ended: bool) -> _Seen | None:
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
    for c, each in zip(weights, seen, strict=True):
        if each.share >= 1.0 or not math.isfinite(each.change_noise):
            continue
        # from the centres of both windows to that of the last one
        reach = c * 0.9 * (1.0 - each.share) / (0.4 * each.share)
        change += reach * each.change
        noise += reach**2 * (change_variance(each.share) * pair_variance + each.change_noise)
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
