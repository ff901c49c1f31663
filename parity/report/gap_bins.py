"""The binned gap of a verdict, as its charts show it."""

from collections.abc import Sequence

import numpy as np

from parity.judging.criteria import Criteria
from parity.judging.curve import Curve, FloatArray, IntArray
from parity.judging.document_types import VerdictDocument
from parity.judging.live.gap_chart import BinnedGap, binned_gap
from parity.judging.run_floor import Prior


def verdict_gap(
    document: VerdictDocument,
    baseline: Sequence[Curve],
    candidate: Sequence[Curve],
    criteria: Criteria,
    planned_steps: int | None = None,
    *,
    bins: int = 200,
    edges: IntArray | None = None,
) -> BinnedGap:
    """The gap of the runs that were judged, in up to `bins` ranges of steps (or from `edges`), with bands of the verdict's level."""
    return binned_gap(
        baseline,
        candidate,
        criteria,
        bins=bins,
        planned_steps=planned_steps,
        priors=verdict_priors(document),
        confidence=interval_level(document),
        edges=edges,
    )


def on_edges(gap: BinnedGap, edges: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Mean and half width (nats) and common steps of a gap in ranges that begin at `edges` (b,): NaN, NaN and 0 where it has none."""
    at = np.maximum(np.searchsorted(edges, gap.first_step, side="right") - 1, 0)
    mean, half_width, n = np.full(len(edges), np.nan), np.full(len(edges), np.nan), np.zeros(len(edges), np.int64)
    mean[at], half_width[at], n[at] = gap.mean, gap.hi - gap.mean, gap.n
    return mean, half_width, n


def interval_level(document: VerdictDocument) -> float | None:
    """The level of the verdict's interval, which looks and candidates share; None for a verdict without one."""
    shared, gap = document.get("multiplicity"), document["gap"]
    return gap["confidence"] if gap else shared["confidence"] if shared else None


def verdict_priors(document: VerdictDocument) -> tuple[Prior, Prior] | None:
    """The priors of a verdict's run floors, so that the chart's bands and the verdict's interval agree; None where it has no floors."""
    floors = document["tau"]
    if floors is None:
        return None
    first, second = (
        Prior(tau=floor["prior"], df=floor["prior_df"], basis=floor["prior_basis"]) for floor in (floors["baseline"], floors["candidate"])
    )
    return first, second
