"""How likely each verdict is at a true gap, from the interval that the judge would compute.

    gap_hat ~ N(true gap, V),  V = tau_A^2/K_A + tau_B^2/K_B + SE_within^2
    h    = t(df) SE from the judge's own functions at drawn spreads:
           SS_A ~ tau_A^2 chi2(K_A - 1), SS_B ~ tau_B^2 chi2(K_B - 1); gap_hat and h are independent
           SE_hat^2 ~ SE_within^2 chi2(12)/12 from 200 points in the window on; of fewer, h is that
           of 200 drawn series by the judge's own rules (`noise.mean_ses`, `capped`), in 5 groups:
           at 12 points SE_hat is about twice SE_within
    t      is that of the first look's level, which the policy's looks and the design's candidates
           share (`looks` has the further looks)
    pass = E[P(-max(margin, h) < gap_hat < margin - h)];  two_sided: h - margin < gap_hat
    fail = E[P(gap_hat > margin + h)]

E by Gauss and Laguerre over the chi-squared spreads: 10 nodes each, 40 where one arm alone has
reruns, and 3 or 5 for SE_hat where it is above 1 % of the variance. Without it, at the expected h,
chances were off by up to 2.5 points, with borrowed noise by up to 9.5: by chance the reruns
contradict the family in a fifth of all jobs, and the interval widens.

Controls add to SS_A and its degrees of freedom. N reruns per arm that stop early add (nu/N) r^2
tau^2 chi2(N) and nu (`early_stops`), with ln r ~ N(0, 0.3^2), one r for both arms: 5 nodes by
Gauss and Hermite. At each, the sum of both spreads is taken as the gamma variable of its mean and
variance. That a full run which is far off also spreads its reruns is left out.

Can fail: tau is what is assumed or borrowed; where the runs are noisier, fewer are decided and
more wrongly (docs/evidence.md). Runs are taken to finish their schedule, as `any-decoder` needs.
Only the gap is planned: runs that end early, spikes or a gap that still grows cost a verdict,
too. SE_within = pair_sd sqrt((1 + rho)/(1 - rho)/n), n logged points; pair_sd is 0.0038 nats of
3.34 (0.11 % of the loss) where nothing better is known.
"""

import itertools
import math
from collections.abc import Iterator
from functools import cache, lru_cache

import numpy as np

from parity.design.experiment import (
    BASELINE,
    CANDIDATE,
    PAIR_SD,
    Design,
)
from parity.frozen import frozen
from parity.judging import special
from parity.judging.curves.curve import FloatArray
from parity.judging.curves.early_stop_noise import RATIO_SD_LOG, EarlySpread, early_df
from parity.judging.curves.step_noise import MANY_POINTS, StandardError, mean_ses
from parity.judging.gap.interval import interval, t_quantile
from parity.judging.gap.robust_bounds import FEW_POINTS, NOMINAL, lowered
from parity.judging.gap.window_statistics import GapNoise
from parity.judging.live.run_noise import planned_noise_sources
from parity.judging.multiplicity import Multiplicity
from parity.judging.noise.arm_noise import ArmNoise, Prior, RunTerm, arm_noise, priors_for, run_term
from parity.judging.noise.borrowed_priors import NoiseSources, OwnRuns, borrow
from parity.judging.noise.noise_source import NoiseFamilies
from parity.judging.policy import Policy

WITHIN_DF = 12.0
NO_FAMILIES = NoiseFamilies(None, {})
_NODES, _NODES_ALONE, _WITHIN_NODES, _RATIO_NODES = 10, 40, 3, 5
_DRAWN, _GROUPS = 200, 5  # series of few points, and the groups of their half-widths
_NEGLIGIBLE = 0.01  # of the variance

Priors = tuple[Prior, Prior]
Noises = tuple[ArmNoise, ArmNoise]


@frozen(eq=False)
class Chances:
    """What the judge will have of a design, in the design's unit.

    `expected` is the gap's noise as it will be if the runs spread as assumed. `half_widths` (n,)
    come with the chances `weights` (n,), and `counts` (n,) is False where the policy would reject
    the run-to-run noise as assumed. `se` is the gap's true standard error.
    """

    expected: GapNoise
    noise_sources: NoiseSources
    half_width: float
    half_widths: FloatArray
    weights: FloatArray
    counts: FloatArray
    se: float
    two_sided: bool

    def passes(self, gap: float, margin: float) -> float:
        """The chance of a pass at a true gap."""
        h = self.half_widths
        low = h - margin if self.two_sided else -np.maximum(margin, h)
        return float(
            self.weights
            @ (self.counts * np.maximum(0.0, self._below(margin - h, gap) - self._below(low, gap)))
        )

    def fails(self, gap: float, margin: float) -> float:
        """The chance of a fail at a true gap."""
        return float(self.weights @ (1.0 - self._below(margin + self.half_widths, gap)))

    def smallest_margin(self, power: float) -> float | None:
        """The smallest margin at which a true gap of 0 passes with this chance; None where none
        does.
        """
        high = 2.0 * float(self.half_widths.max()) + 8.0 * self.se
        if self.passes(0.0, high) < power:
            return None
        low = 0.0
        for _ in range(50):
            middle = (low + high) / 2.0
            low, high = (low, middle) if self.passes(0.0, middle) >= power else (middle, high)
        return high

    def _below(self, limit: FloatArray, gap: float) -> FloatArray:
        if self.se == 0.0:
            return np.where(limit > gap, 1.0, 0.0)
        return special.ndtr((limit - gap) / self.se)


def chances(
    design: Design,
    policy: Policy,
    noise_families: NoiseFamilies = NO_FAMILIES,
    *,
    rough: bool = False,
) -> Chances:
    """The chances of a design whose level is set; `rough` ones, at the expected spreads alone, cost
    a hundredth and may be 3 points low.
    """
    drawn = drawing(design, policy, noise_families)
    expected = _gap_noise(drawn.noises_of(*_data_df(design)), drawn.judged)
    rows = list(_drawn(drawn, policy, rough=rough))
    return Chances(
        expected=expected,
        noise_sources=drawn.noise_sources,
        half_width=expected.interval.half_width(*first_confidence(design, policy)),
        half_widths=np.array([half for half, _, _ in rows]),
        weights=np.array([weight for _, weight, _ in rows]),
        counts=np.array([1.0 if is_known else 0.0 for _, _, is_known in rows]),
        se=drawn.se,
        two_sided=policy.two_sided,
    )


@frozen
class Drawing:
    """What a simulation of a design draws from: tau of each arm, the within-pair error, and what
    gives the judge's estimates of the run-to-run noise.

    `judged` is the error that the judge would expect of the pair: of few points more than it is.
    """

    design: Design
    assumed: Priors
    noise_sources: NoiseSources
    taus: tuple[float, float]
    within: StandardError
    judged: StandardError

    @property
    def se(self) -> float:
        """The true standard error of the gap."""
        baseline, candidate = self.taus
        return math.sqrt(
            self.within.value**2
            + baseline**2 / self.design.baseline_runs
            + candidate**2 / self.design.candidate_runs
        )

    def noises(self, squares: tuple[float, float]) -> Noises:
        """The run-to-run noise where the full runs and controls of each arm have these sums of
        squares about their mean.

        Reruns that stop early, which are not drawn, add what is expected of them.
        """
        worth = early_df(self.design.short_reruns)
        return self._noises(
            squares[0] + self.taus[0] ** 2 * worth, squares[1] + self.taus[1] ** 2 * worth
        )

    def noises_of(self, baseline: float, candidate: float) -> Noises:
        """The arms' run-to-run noise where their reruns have these sums of squares, each in units
        of its tau^2.
        """
        return self._noises(self.taus[0] ** 2 * baseline, self.taus[1] ** 2 * candidate)

    def _noises(self, baseline: float, candidate: float) -> Noises:
        design, level = self.design, _level(self.design)
        first, second = _priors(
            design, self.assumed, self.noise_sources, level, (baseline, candidate)
        )
        noise = _arm_noise(
            first, design.baseline_runs, design.controls, design.short_reruns, baseline, level
        )
        return noise, _arm_noise(
            second, design.candidate_runs, 0, design.short_reruns, candidate, level
        )


def drawing(design: Design, policy: Policy, noise_families: NoiseFamilies = NO_FAMILIES) -> Drawing:
    """What a simulation of a design whose level is set draws from."""
    noise_sources, assumed = (
        noise_sources_of(design, policy, noise_families),
        assumed_priors(design, policy),
    )
    baseline, candidate = _priors(
        design, assumed, noise_sources, _level(design), (0.0, 0.0), reruns=False
    )
    taus = baseline.tau, candidate.tau
    within = within_se(design, policy)
    judged = _judged(within, points(design, policy), design.autocorrelation)
    return Drawing(
        design=design,
        assumed=assumed,
        noise_sources=noise_sources,
        taus=taus,
        within=within,
        judged=judged,
    )


def first_confidence(design: Design, policy: Policy) -> tuple[float, float]:
    """The confidence of a look's interval, which the looks and candidates share, and that of its
    error within pairs.
    """
    return Multiplicity(looks=policy.looks, candidates=design.candidates).levels(policy.confidence)


def points(design: Design, policy: Policy) -> int:
    """Logged points in the window."""
    return max(1, round(policy.window_fraction * design.planned_steps) // design.log_every)


def within_se(design: Design, policy: Policy) -> StandardError:
    """The within-pair error that the design's steps leave."""
    spread = PAIR_SD.nats(_level(design)) if design.pair_sd is None else design.pair_sd
    rho = design.autocorrelation
    return StandardError(
        value=spread * math.sqrt((1.0 + rho) / (1.0 - rho) / points(design, policy)), df=WITHIN_DF
    )


def assumed_priors(design: Design, policy: Policy) -> Priors:
    """The priors of both arms without a family."""
    return priors_for(design.arms, policy, _level(design))


def noise_sources_of(design: Design, policy: Policy, noise_families: NoiseFamilies) -> NoiseSources:
    """The family of each arm that names one."""
    return planned_noise_sources((BASELINE, CANDIDATE), design.arms, policy, noise_families)


def _level(design: Design) -> float:
    if design.level is None:
        raise ValueError("level is None; expected the loss, or 1 where everything is a share of it")
    return design.level


def _drawn(drawn: Drawing, policy: Policy, *, rough: bool) -> Iterator[tuple[float, float, bool]]:
    """Half-widths at the nodes of the spreads, each with its chance, and whether the policy accepts
    its run-to-run noise.
    """
    design, within, judged, se = drawn.design, drawn.within, drawn.judged, drawn.se
    rejects, levels = policy.assumed_noise == "reject", first_confidence(design, policy)
    matters = not rough and se > 0.0 and (within.value / se) ** 2 > _NEGLIGIBLE
    few = _few_points(points(design, policy), design.autocorrelation) if matters else None
    errors = chi_squared(WITHIN_DF, _WITHIN_NODES) if matters else ((WITHIN_DF, 1.0),)
    nodes = _NODES if min(_data_df(design)) > 0 else _NODES_ALONE
    if rough:
        nodes = 1
    for ratio, likelihood in _ratios(1 if rough or not design.short_reruns else _RATIO_NODES):
        first_arm, second_arm = (
            _spreads(df, design.short_reruns, ratio, nodes) for df in _rerun_df(design)
        )
        for (first, chance), (second, other) in itertools.product(first_arm, second_arm):
            noises = drawn.noises_of(first, second)
            term = run_term(*noises)
            is_known = not rejects or not _gap_noise(noises, judged).noise_is_assumed
            if few is not None:
                for group in np.array_split(few.half_widths(term, within.value, levels), _GROUPS):
                    yield float(group.mean()), likelihood * chance * other / _GROUPS, is_known
                continue
            for square, third in errors:
                error = StandardError(
                    value=judged.value * math.sqrt(square / WITHIN_DF), df=judged.df
                )
                yield (
                    interval(0.0, error, term).half_width(*levels),
                    likelihood * chance * other * third,
                    is_known,
                )


@frozen(eq=False)
class _Drawn:
    """What the judge makes of series of few points whose SE_within is 1: shifts of the mean, errors
    and df (drawn, m) of each series as it is (first) and raised in several ways.
    """

    n: int
    shifts: FloatArray
    errors: FloatArray
    df: FloatArray

    def half_widths(self, run: RunTerm, within: float, levels: tuple[float, float]) -> FloatArray:
        """From the mean of each series to hi* (drawn,), with this run term and SE_within, at the
        confidences of both.
        """
        confidence, of_pairs = levels
        within_half = _halves(self, of_pairs) * within
        run_se = math.sqrt(run.variance)
        ends = self.shifts * within + np.hypot(t_quantile(confidence, run.df) * run_se, within_half)
        if self.n < FEW_POINTS:
            nominal = _halves(self, NOMINAL) * within
            ends[:, 1:][nominal[:, 1:] > t_quantile(NOMINAL, run.df) * run_se] = np.inf
        return np.sort(ends.min(axis=1))


@lru_cache(maxsize=32)  # one plan asks for thousands of run terms at the same two confidences
def _halves(drawn: _Drawn, confidence: float) -> FloatArray:
    """Half the interval of each series (drawn, m) without run-to-run noise, where SE_within
    is 1.
    """
    halves: FloatArray = special.stdtrit(drawn.df, 0.5 + confidence / 2.0) * drawn.errors
    return halves


@cache
def _few_points(n: int, rho: float) -> _Drawn | None:
    """Drawn series of n points with this lag-1 correlation; None from 200 on, whose error is a
    chi-squared variable.
    """
    if not 4 <= n < MANY_POINTS:
        return None
    series = _ar1_series(n, rho) / math.sqrt((1.0 + rho) / (1.0 - rho) / n)
    rows = np.stack([np.vstack([gap, -lowered(-gap)]) for gap in series])
    errors, df = mean_ses(rows.reshape(-1, n))
    means = rows.mean(axis=2)
    shape = means.shape
    return _Drawn(
        n=n, shifts=means - means[:, :1], errors=errors.reshape(shape), df=df.reshape(shape)
    )


def _judged(within: StandardError, n: int, rho: float) -> StandardError:
    """The error that the judge expects of the pair."""
    drawn = _few_points(n, rho)
    if drawn is None:
        return within
    return StandardError(
        value=within.value * float(np.median(drawn.errors[:, 0])),
        df=float(np.median(drawn.df[:, 0])),
    )


def _ar1_series(n: int, rho: float) -> FloatArray:
    """Stationary series (drawn, n) of variance 1 with this lag-1 correlation."""
    series: FloatArray = np.random.default_rng(0).standard_normal((_DRAWN, n))
    series[:, 1:] *= math.sqrt(1.0 - rho**2)
    for at in range(1, n):
        series[:, at] += rho * series[:, at - 1]
    return series


def _rerun_df(design: Design) -> tuple[int, int]:
    """Degrees of freedom of each arm's full runs and controls."""
    return design.baseline_runs - 1 + design.controls, design.candidate_runs - 1


def _data_df(design: Design) -> tuple[float, float]:
    """Degrees of freedom of everything that shows an arm's run-to-run noise."""
    baseline, candidate = _rerun_df(design)
    return baseline + early_df(design.short_reruns), candidate + early_df(design.short_reruns)


def _spreads(
    df: int, short_reruns: int, ratio: float, nodes: int
) -> tuple[tuple[float, float], ...]:
    """The sum of squares of an arm as a multiple of tau^2, with its weights, where reruns that stop
    early spread by `ratio`.
    """
    if not short_reruns:
        return chi_squared(df, nodes)
    worth = early_df(short_reruns) * ratio**2
    mean, variance = df + worth, 2.0 * (df + worth**2 / short_reruns)
    scale = variance / (2.0 * mean)
    return tuple((scale * value, weight) for value, weight in chi_squared(mean / scale, nodes))


@cache
def _ratios(nodes: int) -> tuple[tuple[float, float], ...]:
    """Values of r with their weights."""
    values, weights = special.roots_hermitenorm(nodes)
    return tuple(
        zip(np.exp(RATIO_SD_LOG * values).tolist(), (weights / weights.sum()).tolist(), strict=True)
    )


@cache
def chi_squared(df: float, nodes: int) -> tuple[tuple[float, float], ...]:
    """Values of a chi-squared variable with their weights, by Gauss and Laguerre; 0 alone without
    degrees of freedom.
    """
    if df == 0:
        return ((0.0, 1.0),)
    values, weights = special.roots_genlaguerre(nodes, df / 2.0 - 1.0)
    return tuple(zip((2.0 * values).tolist(), (weights / weights.sum()).tolist(), strict=True))


def _priors(
    design: Design,
    assumed: Priors,
    noise_sources: NoiseSources,
    level: float,
    squares: tuple[float, float],
    *,
    reruns: bool = True,
) -> Priors:
    """The priors where all reruns of the arms show these sums of squares; with `reruns` off, those
    before any run.
    """
    df = _data_df(design) if reruns else (0, 0)
    own_runs = OwnRuns(
        squares=squares, df=df, gap_runs=(design.baseline_runs, design.candidate_runs)
    )
    return borrow(assumed, noise_sources, own_runs, level)


# a simulation combines each sum of squares of the baseline with each of the candidate
@lru_cache(maxsize=1024)
def _arm_noise(
    prior: Prior, runs: int, controls: int, short_reruns: int, squares: float, level: float
) -> ArmNoise:
    """The judge's noise where full runs, controls and reruns that stop early have this sum of
    squares, each its share of it.
    """
    if not short_reruns:
        means = _means_with(runs + controls, squares)
        return arm_noise(prior, means[:runs], [0] * runs, means[runs:])
    own_df, worth = runs + controls - 1, early_df(short_reruns)
    variance = squares / (own_df + worth)
    early = EarlySpread(
        squares=short_reruns * variance / level**2, runs=short_reruns, stop=0.5, first=0, last=0
    )
    means = level + _means_with(runs + controls, own_df * variance)
    return arm_noise(prior, means[:runs], [0] * runs, means[runs:], early)


def _means_with(runs: int, squares: float) -> FloatArray:
    """Deviations (runs,) that have this sum of squares about their mean."""
    means = np.zeros(runs)
    means[:2] = (math.sqrt(squares / 2.0), -math.sqrt(squares / 2.0))[:runs]
    return means


def _gap_noise(noises: Noises, within: StandardError) -> GapNoise:
    """What the judge would have of a gap of 0."""
    return GapNoise(interval=interval(0.0, within, run_term(*noises)), noises=noises)
