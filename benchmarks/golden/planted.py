"""Faults that are planted into a run's losses (n,), nats: a fault of known size in real noise."""

from collections.abc import Callable, Mapping

import numpy as np

from parity.judging.curves.curve import FloatArray

Fault = Callable[[FloatArray, np.random.Generator], FloatArray]


def drift(share: float) -> Fault:
    """A drift that rises from 0 to a share of the loss at the end."""

    def plant(loss: FloatArray, _: np.random.Generator) -> FloatArray:
        return loss * (1.0 + share * np.linspace(0.0, 1.0, len(loss)))

    return plant


def step_up(nats: float) -> Fault:
    """A shift of some nats from the middle on."""

    def plant(loss: FloatArray, _: np.random.Generator) -> FloatArray:
        return loss + nats * (np.arange(len(loss)) >= len(loss) // 2)

    return plant


def slower(share: float) -> Fault:
    """A run whose progress is slowed: it is where it was a share of the steps before. The noise
    stays that of its own steps.
    """

    def plant(loss: FloatArray, _: np.random.Generator) -> FloatArray:
        at = np.arange(len(loss), dtype=np.float64)
        trend = _trend(loss)
        slowed: FloatArray = loss - trend + np.interp(at / (1.0 + share), at, trend)
        return slowed

    return plant


def spike(share: float, half_life: float) -> Fault:
    """A spike of a share of the loss, anywhere from a tenth to nine tenths of the run, that halves
    every `half_life` rows; 0 for one row.
    """

    def plant(loss: FloatArray, draw: np.random.Generator) -> FloatArray:
        n = len(loss)
        since = np.arange(n) - int(draw.integers(n // 10, n - n // 10))
        if half_life == 0.0:
            shape = (since == 0).astype(np.float64)
        else:
            shape = np.where(since >= 0, 0.5 ** (np.maximum(since, 0) / half_life), 0.0)
        spiked: FloatArray = loss * (1.0 + share * shape)
        return spiked

    return plant


def hump(share: float) -> Fault:
    """A fifth of the rows in the middle that lie a share of the loss higher."""

    def plant(loss: FloatArray, _: np.random.Generator) -> FloatArray:
        n = len(loss)
        at = np.arange(n)
        return loss * (1.0 + share * ((at >= 2 * n // 5) & (at < 3 * n // 5)))

    return plant


def other_batches_from_the_middle(loss: FloatArray, draw: np.random.Generator) -> FloatArray:
    """The noise of the second half in another order, as other batches have it."""
    trend, half = _trend(loss), len(loss) // 2
    noise = loss - trend
    noise[half:] = draw.permutation(noise[half:])
    changed: FloatArray = trend + noise
    return changed


def late_by_one(loss: FloatArray, _: np.random.Generator) -> FloatArray:
    """The batches of the row before."""
    trend = _trend(loss)
    late: FloatArray = trend + np.roll(loss - trend, 1)
    return late


def _trend(loss: FloatArray) -> FloatArray:
    """A smooth curve through the losses: a polynomial of degree 5 of their logarithms."""
    at = np.linspace(-1.0, 1.0, len(loss))
    fitted = np.polynomial.Polynomial.fit(at, np.log(loss), 5)
    trend: FloatArray = np.exp(fitted(at))
    return trend


FAULTS: Mapping[str, Fault] = {
    **{f"drift to {share:g} %": drift(share / 100) for share in (0.5, 1, 2, 3, 5)},
    **{f"+{nats} nats from the middle": step_up(nats) for nats in (0.02, 0.05)},
    **{f"progress slowed {share} %": slower(share / 100) for share in (5, 10, 30, 50)},
    **{f"spike of {share} %, one row": spike(share / 100, 0.0) for share in (3, 5, 8, 12)},
    **{f"spike of {share} %, halves in 3 rows": spike(share / 100, 3.0) for share in (3, 5, 8, 12)},
    **{f"hump of {share} % over a fifth": hump(share / 100) for share in (1, 2)},
    "other batches from the middle": other_batches_from_the_middle,
    "batches late by one": late_by_one,
}
