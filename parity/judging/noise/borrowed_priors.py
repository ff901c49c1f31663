"""The priors of a pair of which an arm borrows its run-to-run noise from a family (`noise_table`).

x = sum of squares of own runs / s0^2 on their degrees of freedom: reruns of each arm, and for S > 1
seeds the spread of the S paired gaps over S (tau_A0^2/K_A + tau_B0^2/K_B), the variance that the
priors expect. Arms that borrow the same noise share one estimate: their own runs are pooled, and
both get the same prior, so that `run_term` counts it once. Sums in nats^2. Can fail: see
`noise_table`.
"""

import math

from parity.frozen import frozen
from parity.judging.noise.arm_noise import Prior
from parity.judging.noise.contradiction import RunSpread, agreement
from parity.judging.noise.family_spread import FamilyNoise
from parity.judging.noise.noise_source import BorrowedNoise, NoiseSource, between_families

NO_SOURCES = (None, None)
NoiseSources = tuple[NoiseSource | None, NoiseSource | None]


@frozen
class OwnRuns:
    """What the runs of a pair show of the run-to-run noise: squares (nats^2) and df of each arm's
    reruns, and of the gaps over seeds.

    `gap_runs` is K_A/S and K_B/S, the runs of each arm per seed.
    """

    squares: tuple[float, float]
    df: tuple[float, float]
    gap_runs: tuple[float, float]
    gap_squares: float = 0.0
    gap_df: int = 0


def borrow(
    assumed: tuple[Prior, Prior], noise_sources: NoiseSources, measured: OwnRuns, level: float
) -> tuple[Prior, Prior]:
    """The priors at a baseline loss of `level` nats: borrowed for each arm whose family has noise
    at that loss, else as assumed.
    """
    family_noise = tuple(
        noise_source.noise
        if noise_source and noise_source.noise and noise_source.noise.is_near(level)
        else None
        for noise_source in noise_sources
    )
    taus = tuple(
        noise.share * level if noise else prior.tau
        for noise, prior in zip(family_noise, assumed, strict=True)
    )
    if family_noise == (None, None) or not all(tau**2 > 0.0 for tau in taus):
        return assumed
    spreads = [
        RunSpread(squares=measured.squares[arm] / taus[arm] ** 2, df=measured.df[arm])
        for arm in (0, 1)
    ]
    if noise_sources[0] == noise_sources[1] or between_families(noise_sources[0], noise_sources[1]):
        spreads = [spreads[0] + spreads[1]] * 2
    expected = taus[0] ** 2 / measured.gap_runs[0] + taus[1] ** 2 / measured.gap_runs[1]
    gaps = RunSpread(squares=measured.gap_squares / expected, df=measured.gap_df)
    first, second = (
        _borrowed(prior, noise_source, noise, spread + gaps, level)
        if noise_source and noise
        else prior
        for prior, noise_source, noise, spread in zip(
            assumed, noise_sources, family_noise, spreads, strict=True
        )
    )
    return first, second


def _borrowed(
    assumed: Prior, noise_source: NoiseSource, noise: FamilyNoise, measured: RunSpread, level: float
) -> Prior:
    agreed = agreement(measured, noise)
    tau = noise.share * level
    wide = max(assumed.tau, tau, tau * (agreed.ratio or 0.0))
    weight = agreed.weight
    return Prior(
        tau=math.sqrt(weight * tau**2 + (1.0 - weight) * wide**2),
        df=weight * noise.df + (1.0 - weight) * assumed.df,
        basis=f"{'assumed as in' if noise.families else 'borrowed from'} {noise_source.name}: "
        f"{noise.groups} groups, {noise.runs:,} runs"
        + (f", weight {weight:.2f}" if weight < 1.0 else ""),
        borrowed=BorrowedNoise(noise_source=noise_source, noise=noise, agreement=agreed),
    )
