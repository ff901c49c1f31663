"""Curves for the tests of goldens: a falling loss with the noise of its batches, and an honest
rerun.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from parity.judging.curves.curve import Curve, curve_from_arrays

ROWS = 100
BATCH, ROUNDING = 0.003, 0.00002  # shares of the loss


def trend(rows: int) -> np.ndarray:
    """A falling loss without noise (rows,), nats."""
    return 7.8 + 3.0 * np.exp(-np.arange(rows) / 60.0)


def losses(rows: int = ROWS, seed: int = 0) -> np.ndarray:
    """Losses (rows,) in nats, from 10.8 to about 8."""
    noise = np.random.default_rng(seed).normal(0.0, BATCH, rows)
    return trend(rows) * np.exp(noise)


def rerun_of(loss: np.ndarray, seed: int = 100) -> np.ndarray:
    """The losses of an honest rerun: equal but for rounding, which grows."""
    rows = len(loss)
    noise = np.random.default_rng(seed).normal(0.0, ROUNDING, rows)
    return loss * (1.0 + noise * np.minimum(1.0, np.arange(rows) / 10.0))


def curve(
    loss,
    first_step: int = 1,
    columns: Mapping[str, np.ndarray] | None = None,
    missing: Sequence[int] = (),
    **more: object,
) -> Curve:
    """The curve of losses at successive steps but the missing ones, printed with 5 decimals."""
    steps = np.arange(first_step, first_step + len(loss))
    kept = ~np.isin(steps, missing)
    return curve_from_arrays(
        steps[kept],
        np.round(loss, 5)[kept],
        columns={name: values[kept] for name, values in (columns or {}).items()},
        **more,
    )


TREND, GOLDEN, HONEST = trend(ROWS), losses(), rerun_of(losses())
