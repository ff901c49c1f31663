"""What the charts of a page draw: the gap in bins and the losses in buckets, in the forms of the server's `gap` and `overlay`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from parity.judging.curve import Curve, FloatArray, IntArray, usable
from parity.judging.document_types import VerdictDocument
from parity.judging.evidence import Case
from parity.judging.live.gap_chart import step_edges
from parity.report.gap_bins import interval_level, on_edges, reduced, spike_steps, verdict_gap

BINS = {"whole": 150, "part": 1500}  # of the gap: for the whole run, and for a part that is zoomed into
RAW_STEPS, BUCKETS = 5000, 2500  # up to so many steps each is drawn, else so many buckets
_DIGITS = 8
_LISTED = 1000
SPACINGS = {"linear": False, "log": True}


def gaps_data(case: Case, documents: Sequence[VerdictDocument]) -> dict[str, Any]:
    """The gaps of all candidates on the same bins, linear and logarithmic in the step, for the whole run and finer for a part of it."""
    ends = _common_ends(case)
    bins = {}
    for name, log in SPACINGS.items():
        for extent, count in BINS.items():
            edges = step_edges(*ends, count, log=log) if ends else np.zeros(0, np.int64)
            bins[f"{name} {extent}"] = _on_bins(case, documents, edges, ends[1] if ends else 0)
    return {
        "baseline": documents[0]["baseline"]["name"],
        "planned_steps": last_step(case),
        "bins": bins,
        "candidates": [_facts(case, document) for document in documents],
    }


def _common_ends(case: Case) -> tuple[int, int] | None:
    """First and last step that the baseline and any candidate have; None without a common step."""
    sides = [case.baseline, [run for runs in case.candidates.values() for run in runs]]
    logged = [[(int(run.steps[0]), int(run.steps[-1])) for run in runs if len(run.steps)] for runs in sides]
    if not all(logged):
        return None
    first, last = max(min(first for first, _ in side) for side in logged), min(max(last for _, last in side) for side in logged)
    return (first, last) if first <= last else None


def _facts(case: Case, document: VerdictDocument) -> dict[str, Any]:
    """What a candidate's gap has that bins do not change."""
    gap = verdict_gap(document, case, bins=1)
    spikes = spike_steps(document)
    return {
        "candidate": document["candidate"]["name"],
        "nonfinite_baseline": gap.nonfinite_baseline[:_LISTED].tolist(),
        "nonfinite_candidate": gap.nonfinite_candidate[:_LISTED].tolist(),
        "nonfinite_count": len(gap.nonfinite_baseline) + len(gap.nonfinite_candidate),
        "spikes_baseline": spikes[0],
        "spikes_candidate": spikes[1],
        "margin_nats": gap.margin_nats,
        "level_nats": gap.level,
        "window": list(gap.window),
        "confidence": interval_level(document) or case.criteria.confidence,
    }


def _on_bins(case: Case, documents: Sequence[VerdictDocument], edges: IntArray, last: int) -> dict[str, Any]:
    """The bins that any candidate has: their ends, and mean, half width (nats) and common steps of each candidate."""
    made = [on_edges(verdict_gap(document, case, edges=edges), edges) for document in documents]
    held = np.any([n > 0 for _, _, n in made], axis=0)
    return {
        "first_step": edges[held].tolist(),
        "last_step": np.append(edges[1:] - 1, last)[: len(edges)][held].tolist(),
        "candidates": [
            {"mean": _numbers(mean[held]), "half_width": _numbers(half_width[held]), "n": n[held].tolist()} for mean, half_width, n in made
        ],
    }


def last_step(case: Case) -> int:
    """The end of the charts: the plan's, or the last step that was logged."""
    logged = [int(run.steps[-1]) for _, _, runs in case.arms() for run in runs if len(run.steps)]
    return max([case.planned_steps or 1, *logged])


def loss_data(case: Case) -> dict[str, Any]:
    """The losses of the first run of each arm on common steps or buckets, linear and logarithmic in the step."""
    arms = [(case.baseline_name or "baseline", case.baseline[0]), *((name, runs[0]) for name, runs in case.candidates.items())]
    grid = np.unique(np.concatenate([run.steps for _, run in arms])) if arms else np.zeros(0, np.int64)
    is_raw = len(grid) <= RAW_STEPS
    return {
        "aggregation": "none" if is_raw else "minmaxmean",
        **{name: _on_edges(arms, grid, grid if is_raw else _edges(grid, log=log), is_raw=is_raw) for name, log in SPACINGS.items()},
    }


def _edges(grid: IntArray, *, log: bool) -> IntArray:
    """First steps of the buckets, each with a step of the grid in it."""
    at = np.searchsorted(grid, step_edges(int(grid[0]), int(grid[-1]), BUCKETS, log=log))
    return grid[np.unique(at[at < len(grid)])]


def _on_edges(arms: Sequence[tuple[str, Curve]], grid: IntArray, first: IntArray, *, is_raw: bool) -> dict[str, Any]:
    starts = np.searchsorted(grid, first)
    ends = np.append(starts, len(grid))[1:]
    return {
        "first_step": first.tolist(),
        "last_step": grid[ends - 1].tolist(),
        "n": (ends - starts).tolist(),
        "arms": [{"arm": name, "line": _line(run, first, is_raw=is_raw)} for name, run in arms],
    }


def _line(run: Curve, first: IntArray, *, is_raw: bool) -> dict[str, Any]:
    finite = usable(run.loss)
    steps, loss = run.steps[finite], run.loss[finite]
    bad = [{"step": int(step), "kind": _kind(value)} for step, value in zip(run.steps[~finite], run.loss[~finite], strict=True)]
    mean, low, high = (np.full(len(first), np.nan) for _ in range(3))
    if len(steps):
        bucket = np.searchsorted(first, steps, side="right") - 1
        starts = np.unique(bucket, return_index=True)[1]
        there = bucket[starts]
        mean[there], low[there], high[there] = reduced(loss, starts)
    return {
        "mean": _numbers(mean),
        "minimum": None if is_raw else _numbers(low),
        "maximum": None if is_raw else _numbers(high),
        "nonfinite": bad[:_LISTED],
    }


def _kind(value: float) -> str:
    if np.isnan(value):
        return "nan"
    return "+inf" if value > 0 else "-inf"


def _numbers(values: FloatArray) -> list[float | None]:
    """Values with eight digits, None where one is not finite."""
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in values.tolist()]
