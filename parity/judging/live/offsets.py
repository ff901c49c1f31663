"""How a run's offset moves: how far the gap of a pair in training is from its final gap, by
run-to-run noise alone.

o(f)  offset of a pair at the share f of the plan: sd q(f), final sd 1, correlation r(f) with the
      final offset
D(f)  Var(o(1) - o(f)) = 1 + q^2 - 2 r q: what run-to-run noise still adds, as a share of one
      pair's final variance
C(f)  Var(o(f) - o(f/2)): how much the gap changes by run-to-run noise alone between two trailing
      windows

P pairs are planned, some have come to f_j, and m have not begun. The recipes' gap has a flat prior.
With a_j = 1/q_j^2, b_j = r_j/q_j:

final gap  sum_j c_j g_j, c_j = a_j/sum a (1 - sum b/P) + b_j/P: best linear prediction; of one
           pair its own gap, not shrunk
E          sum_j (c_j^2 q_j^2 - 2 c_j r_j q_j/P + 1/P^2) + m/P^2; of one pair D(f)

r: 123 groups of reruns of a 124 M GPT (1,416 runs) show 0.40, 0.66, 0.94, 0.99 at 25, 50, 75, 90 %
    of the steps; 96 emulated runs of 0.3 to 1 M (FP8 and NVFP4, with step noise) 0.3, 0.7, 0.8,
    0.94; seven other reruns 0.6, 0.95, 0.96, 0.99. Declared is what lies between.
q: the spread of reruns in a window that ends there, over that of the last 20 %, is 1.2 to 1.7
    before half and 1.1 to 1.2 after it.
C: 2 in the emulated runs, with step noise; 0.2 to 1 in the seven.
Can fail: an offset that is decided late (a switch of precision near the end) moves more than this,
    and forecasts are too narrow.
"""

from collections.abc import Sequence

import numpy as np

from parity.frozen import frozen

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
    return _interpolated(share, CORRELATION)


def spread(share: float) -> float:
    """q: the spread of offsets at this share of the plan over that at the end."""
    return _interpolated(share, SPREAD)


def change_variance(share: float) -> float:
    """C: variance of the change of a pair's offset between its trailing windows at half of this
    share of the plan and at it.
    """
    return _interpolated(share, CHANGE)


def combine(shares: Sequence[float], planned: int) -> Weights:
    """The prediction from pairs at these shares (at least one) of the plan, where `planned` pairs
    (at least as many) will end it.
    """
    rs, qs = [correlation(share) for share in shares], [spread(share) for share in shares]
    precisions = [1.0 / q**2 for q in qs]
    slopes = [r / q for r, q in zip(rs, qs, strict=True)]
    rest = 1.0 - sum(slopes) / planned
    weights = tuple(
        a / sum(precisions) * rest + b / planned for a, b in zip(precisions, slopes, strict=True)
    )
    error = (planned - len(shares)) / planned**2
    for c, r, q in zip(weights, rs, qs, strict=True):
        error += (c * q) ** 2 - 2.0 * c * r * q / planned + 1.0 / planned**2
    return Weights(weights=weights, error=max(error, 0.0))


def _interpolated(share: float, curve: Curve) -> float:
    """A declared curve at a share of the plan, linear between its points."""
    return float(np.interp(share, [at for at, _ in curve], [value for _, value in curve]))
