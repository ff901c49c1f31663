"""The pairs that attacks are made on: seven public reruns, and synthetic runs with the same
spread.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from parity.judging.curves.curve import Curve, curve_from_arrays
from tests.parity.attacks.case import Runs

# shares of the loss as in run-to-run noise of the 124 M family
RUN_SD, PAIR_SD, LEVEL, BATCH_SD = 0.0004, 0.0011, 3.28, 0.08


def groups(reruns: Sequence[Curve]) -> list[Runs]:
    """Orders of the seven public reruns in which every unordered pair comes first once, and of
    seven synthetic runs.
    """
    real = [curve_from_arrays(run.steps, run.loss, rounding="nearest") for run in reruns]
    orders = []
    for number, (i, j) in enumerate(itertools.combinations(range(len(real)), 2)):
        first = (i, j) if number % 2 else (j, i)
        orders.append(
            [*(real[k] for k in first), *(run for k, run in enumerate(real) if k not in first)]
        )
    return [*orders, synthetic(7), synthetic(8)]


def synthetic(seed: int) -> Runs:
    """Seven synthetic reruns with the run-to-run spread of the 124 M family."""
    rng = np.random.default_rng(seed)
    steps = np.arange(1, 1751)
    law = LEVEL - 0.19 + 8.0 / np.sqrt(steps) + rng.normal(0.0, BATCH_SD, len(steps))
    offsets = LEVEL * RUN_SD * np.linspace(-1.5, 1.5, 7)[rng.permutation(7)]
    growth = np.minimum(1.0, steps / 300.0)
    return [
        curve_from_arrays(
            steps,
            law + offset * growth + rng.normal(0.0, LEVEL * PAIR_SD, len(steps)),
            rounding="nearest",
        )
        for offset in offsets
    ]
