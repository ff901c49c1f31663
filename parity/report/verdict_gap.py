"""The binned gap of a verdict, as its charts show it: its bins, its limits, its level."""

import math

import numpy as np

from parity.judging.bundles.evidence import Case
from parity.judging.curves.curve import FloatArray, IntArray
from parity.judging.document_types import VerdictDocument
from parity.judging.live.gap_chart import WHOLE, BinnedGap, StepRange, binned_gap
from parity.judging.noise.arm_noise import Prior
from parity.judging.verdict.deciding_interval import recorded_interval

EARLY_SHARE = 0.03  # of the steps: the fall of the first ones would flatten all that follows


def verdict_gap(document: VerdictDocument, case: Case, steps: StepRange = WHOLE) -> BinnedGap:
    """The gap of the runs that were judged in ranges of steps, with bands of the verdict's
    level.
    """
    return binned_gap(
        case.judged_against(document["candidate"]["name"]),
        case.candidates[document["candidate"]["name"]],
        case.policy,
        steps,
        planned_steps=case.planned_steps,
        priors=verdict_priors(document),
        confidence=interval_level(document),
    )


def gap_in_ranges(gap: BinnedGap, edges: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Mean and half width (nats) and common steps of a gap in ranges that begin at `edges` (b,):
    NaN, NaN and 0 where it has none.
    """
    at = np.maximum(np.searchsorted(edges, gap.first_step, side="right") - 1, 0)
    mean, half_width, n = (
        np.full(len(edges), np.nan),
        np.full(len(edges), np.nan),
        np.zeros(len(edges), np.int64),
    )
    mean[at], half_width[at], n[at] = gap.mean, gap.hi - gap.mean, gap.n
    return mean, half_width, n


def interval_level(document: VerdictDocument) -> float | None:
    """The level of the interval that decided a verdict; without a gap, the one that looks and
    candidates share; None for a verdict without either.
    """
    if gap := document["gap"]:
        return recorded_interval(document, gap)["level"]
    shared = document.get("multiplicity")
    return shared["confidence"] if shared else None


def gap_limits(document: VerdictDocument, gap: BinnedGap, pad: float) -> tuple[float, float]:
    """Limits that hold zero, the margin, the interval and the window's band, and the early gap as
    far as it does not dwarf them.

    `pad` is the room left at both ends, as a share of the height.
    """
    middle = (gap.first_step + gap.last_step) / 2
    inside = middle >= gap.window[0]
    if not inside.any():
        inside[:] = True
    values = [0.0, gap.margin_nats or 0.0, *gap.lo[inside].tolist(), *gap.hi[inside].tolist()]
    if recorded := document["gap"]:
        interval = recorded_interval(document, recorded)
        values += [interval["lo"], interval["hi"]]
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite), max(finite)
    reach = high - low or 1e-6
    early = gap.mean[(middle >= EARLY_SHARE * middle[-1:]) & np.isfinite(gap.mean)]
    if len(early):
        low, high = (
            max(min(low, float(early.min())), low - reach),
            min(max(high, float(early.max())), high + reach),
        )
    room = pad * (high - low or 1e-6)
    return low - room, high + room


def verdict_priors(document: VerdictDocument) -> tuple[Prior, Prior] | None:
    """The priors of a verdict's run-to-run noise, so that the chart's bands and the verdict's
    interval agree; None where it has no noises.
    """
    noises = document["tau"]
    if noises is None:
        return None
    first, second = (
        Prior(tau=noise["prior"], df=noise["prior_df"], basis=noise["prior_basis"])
        for noise in (noises["baseline"], noises["candidate"])
    )
    return first, second
