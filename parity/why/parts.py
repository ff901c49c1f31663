"""The parts of a gap, and what they leave unexplained: instant split, and any other split measured on common values.

L[off], L[on]      loss per batch with quantization off everywhere, and on: whole = mean(L[on] - L[off])
without u          L[on] - L[without u]     what switching unit u off gains
alone u            L[alone u] - L[off]      what unit u costs by itself
unexplained        whole - sum of the parts, per batch, so that its interval includes how the parts vary together

The two parts of a unit differ by its interactions; opposite effects of two units cancel in one but not in the other. A split explains the
whole only if the unexplained part is small in both. Can fail: parts need not add up, and then no single number is a unit's share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.why.estimate import Estimate, estimate

Losses = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One unit's part: what switching it off gains, and what it costs alone."""

    name: str
    without: Estimate
    alone: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The whole, its parts in the order of the units, and what both kinds of parts leave unexplained."""

    whole: Estimate
    parts: tuple[Part, ...]
    unexplained_without: Estimate
    unexplained_alone: Estimate


def split(losses: Losses, units: Sequence[str]) -> Split:
    """The split of losses (batches,) with the keys `off`, `on`, `without UNIT` and `alone UNIT`. Raises ValueError for a missing one."""
    missing = [name for name in ("off", "on", *(f"{way} {unit}" for unit in units for way in ("without", "alone"))) if name not in losses]
    if missing:
        raise ValueError(f"no losses of {missing[0]!r} ({len(missing)} missing), expected those of every unit; measure the rest first")
    off, on = losses["off"], losses["on"]
    gained = {unit: on - losses[f"without {unit}"] for unit in units}
    cost = {unit: losses[f"alone {unit}"] - off for unit in units}
    zero = np.zeros_like(on)
    return Split(
        whole=estimate(on - off),
        parts=tuple(Part(name=unit, without=estimate(gained[unit]), alone=estimate(cost[unit])) for unit in units),
        unexplained_without=estimate(on - off - sum(gained.values(), zero)),
        unexplained_alone=estimate(on - off - sum(cost.values(), zero)),
    )
