"""A gap split into parts, and what they leave unexplained: the instant split, and any other split
that is measured on common values.

L[off], L[on]      loss per batch with quantization off everywhere, and on: whole = mean(L[on] -
                   L[off])
without u          L[on] - L[without u]     what switching unit u off gains
alone u            L[alone u] - L[off]      what unit u costs by itself
unexplained        whole - sum of the parts, per batch, so that its interval includes how the
                   parts vary together

The two parts of a GEMM differ by its interactions; opposite effects of two GEMMs cancel in one
but not in the other. A split explains the whole only if the unexplained part is small in both.
Can fail: parts need not add up, and then no single number is a GEMM's share.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from parity.frozen import frozen
from parity_lab.estimates import Estimate, estimate


@frozen
class SplitPart:
    """The part of a GEMM or of a cluster of them: what switching it off gains, and what it costs
    alone, in nats.
    """

    without: Estimate
    alone: Estimate


@frozen
class Split:
    """The whole, its parts by unit, and what both kinds of parts leave unexplained."""

    whole: Estimate
    parts: Mapping[str, SplitPart]
    unexplained_without: Estimate
    unexplained_alone: Estimate


def split(losses: Mapping[str, NDArray[np.float64]], units: Sequence[str]) -> Split:
    """The split of losses (batches,) with the keys `off`, `on`, `without UNIT` and `alone UNIT`.
    Raises ValueError for a missing one.
    """
    missing = [
        name
        for name in (
            "off",
            "on",
            *(f"{way} {unit}" for unit in units for way in ("without", "alone")),
        )
        if name not in losses
    ]
    if missing:
        raise ValueError(
            f"no losses of {missing[0]!r} ({len(missing)} missing), expected those of every GEMM; "
            "measure the rest first"
        )
    off, on = losses["off"], losses["on"]
    gained = {unit: on - losses[f"without {unit}"] for unit in units}
    cost = {unit: losses[f"alone {unit}"] - off for unit in units}
    zero = np.zeros_like(on)
    return Split(
        whole=estimate(on - off),
        parts={
            unit: SplitPart(without=estimate(gained[unit]), alone=estimate(cost[unit]))
            for unit in units
        },
        unexplained_without=estimate(on - off - sum(gained.values(), zero)),
        unexplained_alone=estimate(on - off - sum(cost.values(), zero)),
    )
