"""What the live rules save: how much of a candidate is trained where the policy stops those that
will fail or are futile (`early_stop: stop`).

Jobs are simulated (40, from fixed numbers) with a constant gap of 0, 1 and 2 margins: block means
of each pair are the gap, the arms' offsets as `live.offsets` declares them, and step noise; the
live rules look at them every 5 % of the plan. All pairs train at once.

Can fail: a gap that is not constant, and offsets that move otherwise, as `live.offsets` says.
"""

import numpy as np

from parity.design.chances import drawing
from parity.design.experiment import (
    Design,
    hours_of,
)
from parity.frozen import frozen
from parity.judging.curves.curve import FloatArray
from parity.judging.live.offsets import correlation, spread
from parity.judging.live.pair_sums import BLOCKS, PairProgress
from parity.judging.live.prediction import predict
from parity.judging.live.rules import ENDED_BY, FIRST_FORECAST, state_of
from parity.judging.noise.noise_source import NoiseFamilies
from parity.judging.policy import Policy

DRAWN_PATHS, EVERY = 40, BLOCKS // 20
GAPS_IN_MARGINS = (0.0, 1.0, 2.0)
_BLOCK_MIDDLES = (np.arange(BLOCKS) + 0.5) / BLOCKS
_MEMORY = 0.15  # of the plan: how long the part of an offset lasts that is not its final one


@frozen
class Stop:
    """At a true gap (in margins): how often the candidate is stopped, the mean share of its steps
    that is trained, and what is saved.

    `saved_run_steps` are steps of the candidate's runs, `saved_gpu_hours` their device hours (None
    without a step time).
    """

    gap_in_margins: float
    stopped: float
    trained: float
    saved_run_steps: float
    saved_gpu_hours: float | None


def stops(
    design: Design, policy: Policy, noise_families: NoiseFamilies, margin: float, confidence: float
) -> tuple[Stop, ...]:
    """What is saved at each gap for a design whose level is set; nothing where the policy only
    advises.
    """
    if policy.early_stop != "stop":
        return ()
    drawn = drawing(design, policy, noise_families)
    rng = np.random.default_rng(0)
    pairs = design.candidate_runs
    block_sd = drawn.within.value * np.sqrt(BLOCKS * policy.window_fraction)
    offsets = drawn.taus[1] * _offsets(rng, DRAWN_PATHS * pairs) - drawn.taus[0] * _offsets(
        rng, DRAWN_PATHS * pairs
    )
    noise = (offsets + block_sd * rng.standard_normal(offsets.shape)).reshape(
        DRAWN_PATHS, pairs, BLOCKS
    )
    level = design.level or 1.0

    def trained(path: FloatArray) -> float:
        """The share of the plan at which the rules stop a job with these block means (pairs, 80); 1
        where they do not.
        """
        whole = [_progress(gaps, level) for gaps in path]
        for block in range(FIRST_FORECAST, BLOCKS, EVERY):
            seen = [(pair.until(block), False) for pair in whole]
            made = predict(
                seen, pairs, design.arms, policy, drawn.noise_sources, confidence=confidence
            )
            if made is not None and state_of(made) in ENDED_BY:
                return block / BLOCKS
        return 1.0

    rows = []
    for factor in GAPS_IN_MARGINS:
        shares = np.array([trained(path + factor * margin) for path in noise])
        saved = float((1.0 - shares).mean()) * design.candidate_runs * design.planned_steps
        if design.step_seconds is None:
            hours = None
        else:
            hours = hours_of(saved, design.step_seconds, design.devices)
        stopped = float((shares < 1.0).mean())
        rows.append(
            Stop(
                gap_in_margins=factor,
                stopped=stopped,
                trained=float(shares.mean()),
                saved_run_steps=saved,
                saved_gpu_hours=hours,
            )
        )
    return tuple(rows)


def _offsets(rng: np.random.Generator, count: int) -> FloatArray:
    """Unit offsets (count, 80) with the declared correlation to their end and spread; what is left
    of them moves in its own time.
    """
    # 0.9: a window's centre
    r, q = (
        np.array([curve(min(1.0, share / 0.9)) for share in _BLOCK_MIDDLES])
        for curve in (correlation, spread)
    )
    keep = np.exp(-1.0 / BLOCKS / _MEMORY)
    other = np.empty((count, BLOCKS))
    other[:, 0] = rng.standard_normal(count)
    for block in range(1, BLOCKS):
        other[:, block] = keep * other[:, block - 1] + np.sqrt(1.0 - keep**2) * rng.standard_normal(
            count
        )
    return q * (r * rng.standard_normal((count, 1)) + np.sqrt(1.0 - r**2) * other)


def _progress(path: FloatArray, level: float) -> PairProgress:
    """A pair's state at the planned end from its block means (80,), one step a block."""
    return PairProgress(
        planned_steps=BLOCKS,
        origin=0,
        last_step=BLOCKS - 1,
        counts=(1,) * BLOCKS,
        gaps=tuple(path.tolist()),
        baselines=(level,) * BLOCKS,
    )
