"""The binned gap of a verdict, as its charts show it: its bins and its level."""

import numpy as np

from parity.judging.case import Case
from parity.judging.curves.curve import FloatArray, IntArray
from parity.judging.document_types import VerdictDocument
from parity.judging.live.gap_chart import WHOLE, BinnedGap, StepRange, binned_gap
from parity.judging.noise.arm_noise import Prior
from parity.judging.verdict.deciding_interval import recorded_interval


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
