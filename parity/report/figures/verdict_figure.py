"""The one-page figure of a verdict: losses, gap with its band and the margin, and the noises beside
it; PNG, SVG or PDF.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from parity.judging.bundles.evidence import Case
from parity.judging.curves.curve import FloatArray, IntArray
from parity.judging.document_types import DecidingIntervalDocument, VerdictDocument
from parity.judging.live.gap_chart import BinnedGap
from parity.judging.verdict.deciding_interval import recorded_interval
from parity.report.figures.figure_file import (
    BASELINE_COLOUR,
    BETTER,
    CANDIDATE_COLOUR,
    LABEL_BOX,
    PAD,
    SMALL,
    TINY,
    figure_file,
    gap_band,
    margin_line,
    new_figure,
    percent_axis,
    wrapped,
)
from parity.report.picture.buckets import loss_buckets
from parity.report.verdict_gap import EARLY_SHARE, gap_limits, verdict_gap
from parity.report.view import number, spike_steps, training_view
from parity.report.words import words
from parity.version import VERSION
from parity.wording import cut, level_percent, margin_words, minus, signed

PAGE_INCHES = (7.0, 9.0)
SHORT_NAME = 12  # characters of a name at the end of a line
LEAST_DISTANCE = 0.06  # of a panel's height, between two labels
WINDOW_SHADE = {"color": "0.5", "alpha": 0.06, "linewidth": 0}
MARKER_SHARE = 0.008  # of a panel's width: nearer events become one mark with a bar


def draw_figure(path: str, document: VerdictDocument, case: Case) -> None:
    """Write the figure of one verdict document and its runs to `path`, whose ending chooses the
    format. Raises FigureError.
    """
    with figure_file(path, PAGE_INCHES) as figure:
        _draw(figure, document, case)


def verdict_figure(document: VerdictDocument, case: Case) -> Any:
    """The same figure as a matplotlib Figure. Raises FigureError where matplotlib is missing."""
    with new_figure(PAGE_INCHES, "figure()") as figure:
        _draw(figure, document, case)
    return figure


def _draw(figure: Any, document: VerdictDocument, case: Case) -> None:
    gap = verdict_gap(document, case)
    heights = [2.2, 3.0, 1.1] if document["gap"] else [2.2, 3.0]
    figure.subplots_adjust(
        left=0.18, right=0.86, top=_frame(figure, document), bottom=0.08, hspace=0.30
    )
    panels = figure.subplots(len(heights), 1, height_ratios=heights)
    _losses(panels[0], document, case, gap.window)
    _gap(panels[1], document, gap)
    panels[1].set_xlim(panels[0].get_xlim())
    if document["gap"]:
        _noises(panels[2], document)


def _frame(figure: Any, document: VerdictDocument) -> float:
    """Headline above, the way back to the evidence below; returns the height (share of the page)
    that is left for the panels.
    """
    said = words(training_view(document))
    lines = wrapped(minus(" ".join([said.measure, said.interval])), 106)
    figure.text(
        0.03,
        0.985,
        f"{said.chip}: {said.lead}",
        fontsize=12,
        fontweight="bold",
        ha="left",
        va="top",
    )
    figure.text(0.03, 0.962, lines, fontsize=SMALL, ha="left", va="top")
    digest = document["inputs"]["sha256_aligned"][:16]
    figure.text(
        0.03,
        0.01,
        f"parity {VERSION}, aligned series sha256 {digest}...",
        fontsize=TINY,
        ha="left",
        va="bottom",
    )
    return 0.945 - 0.016 * (lines.count("\n") + 1)


def _losses(axes: Any, document: VerdictDocument, case: Case, window: tuple[int, int]) -> None:
    """Bucket means of every run with the first run's range; the arms are named at the ends of their
    curves.
    """
    ends: list[tuple[str, str, float]] = []
    shown: list[tuple[FloatArray, FloatArray, FloatArray]] = []
    candidate = document["candidate"]["name"]
    for runs, name, colour, dashes in (
        (case.judged_against(candidate), document["baseline"]["name"], BASELINE_COLOUR, "-"),
        (case.candidates[candidate], candidate, CANDIDATE_COLOUR, (0, (5, 2))),
    ):
        buckets = [bucket for bucket in map(loss_buckets, runs) if len(bucket[0])]
        for place, (steps, mean, low, high) in enumerate(buckets):
            if place == 0:
                axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
                ends.append((name, colour, float(mean[-1])))
            axes.plot(
                steps, mean, linestyle=dashes, color=colour, linewidth=1.2 if place == 0 else 0.6
            )
            shown.append((steps, low, mean))
    axes.axvspan(*window, **WINDOW_SHADE)
    axes.set_ylabel("loss, nats")
    axes.spines["right"].set_visible(False)
    if not shown:
        axes.text(0.5, 0.5, "no finite loss", transform=axes.transAxes, ha="center")
        return
    bottom, top = _loss_limits(shown)
    axes.set_ylim(bottom, top)
    for (name, colour, _), y in zip(
        ends, _spread_heights([(end - bottom) / (top - bottom) for _, _, end in ends]), strict=True
    ):
        axes.text(
            1.01,
            y,
            cut(name, SHORT_NAME),
            transform=axes.transAxes,
            color=colour,
            fontsize=SMALL,
            va="center",
        )


def _loss_limits(shown: Sequence[tuple[FloatArray, FloatArray, FloatArray]]) -> tuple[float, float]:
    """Limits that hold every range after the first 3 % of the steps from below, and every mean from
    above.
    """
    last = max(float(steps[-1]) for steps, _, _ in shown)
    late = [
        (low[keep], mean[keep])
        for steps, low, mean in shown
        if (keep := steps >= EARLY_SHARE * last).any()
    ]
    bottom, top = (
        min(float(low.min()) for low, _ in late),
        max(float(mean.max()) for _, mean in late),
    )
    pad = 0.06 * (top - bottom) or 0.1 * max(abs(top), 1e-6)
    return bottom - pad, top + 2 * pad


def _spread_heights(heights: Sequence[float], least: float = 1.2 * LEAST_DISTANCE) -> list[float]:
    """Label heights (share of the panel) at least so far apart, none outside."""
    placed = [min(max(height, 0.02), 0.98) for height in heights]
    if len(placed) == 2 and abs(placed[0] - placed[1]) < least:
        middle = min(max(sum(placed) / 2, least / 2 + 0.02), 0.98 - least / 2)
        higher = 0 if heights[0] > heights[1] else 1
        placed[higher], placed[1 - higher] = middle + least / 2, middle - least / 2
    return placed


def _gap(axes: Any, document: VerdictDocument, gap: BinnedGap) -> None:
    """The gap with its interval band, zero, the margins, the window and its interval; % of the loss
    on the right.
    """
    middle = (gap.first_step + gap.last_step) / 2
    gap_band(axes, middle, gap.lo, gap.mean, gap.hi)
    axes.axvspan(*gap.window, **WINDOW_SHADE)
    axes.set_xlabel("step")
    bottom, top = gap_limits(document, gap, PAD)
    axes.set_ylim(bottom, top)
    if gap.margin_nats is not None:
        _margins(axes, gap, bottom, top)
    if gap.level:
        percent_axis(axes, gap.level)
    if recorded := document["gap"]:
        interval = recorded_interval(document, recorded)
        _window_interval(axes, recorded["mean"], interval, gap.window)
    if not len(middle):
        axes.set_yticks([])
        axes.text(
            0.5,
            0.6,
            "no step with a finite loss of both arms",
            transform=axes.transAxes,
            ha="center",
        )
    _events(axes, document, gap)


def _margins(axes: Any, gap: BinnedGap, bottom: float, top: float) -> None:
    """The margin, and its mirror image where the panel reaches it and can keep the two apart."""
    margin = gap.margin_nats or 0.0
    margin_line(axes, margin, margin_words(margin, gap.level and margin / gap.level))
    if -margin >= bottom and 2.0 * margin >= LEAST_DISTANCE * (top - bottom):
        margin_line(axes, -margin, BETTER)


def _window_interval(
    axes: Any, mean: float, interval: DecidingIntervalDocument, window: tuple[int, int]
) -> None:
    lo, hi = interval["lo"], interval["hi"]
    x = window[0] + (window[1] - window[0]) / 2
    axes.errorbar(
        [x],
        [mean],
        yerr=[[mean - lo], [hi - mean]],
        fmt="o",
        color="0.1",
        markersize=4,
        capsize=3,
        zorder=5,
    )
    beside = {
        "xytext": (-8, 0),
        "textcoords": "offset points",
        "ha": "right",
        "va": "center",
        "bbox": LABEL_BOX,
        "zorder": 6,
    }
    axes.annotate(
        f"{signed(mean, 4)}\n{level_percent(interval['level'])} CI",
        (x, mean),
        fontsize=TINY,
        **beside,
    )
    axes.annotate(
        "window judged",
        (x, 1.01),
        xycoords=("data", "axes fraction"),
        fontsize=TINY,
        ha="center",
        va="bottom",
    )


def _events(axes: Any, document: VerdictDocument, gap: BinnedGap) -> None:
    """Spikes (filled) and NaN (hollow) of the candidate on the upper edge, of the baseline on the
    lower one.
    """
    spikes = spike_steps(document)
    rows = (
        (spikes[0], gap.nonfinite_baseline, BASELINE_COLOUR, "^", 0.015),
        (spikes[1], gap.nonfinite_candidate, CANDIDATE_COLOUR, "v", 0.985),
    )
    if not any(len(row[0]) + len(row[1]) for row in rows):
        return
    width = float(np.diff(axes.get_xlim())[0])
    for at, bad, colour, marker, height in rows:
        drawn = {"color": colour, "transform": axes.get_xaxis_transform(), "clip_on": False}
        axes.plot(at, np.full(len(at), height), marker, markersize=5, zorder=6, **drawn)
        for first, last in _grouped_steps(bad, MARKER_SHARE * width):
            axes.plot([first, last], [height, height], linewidth=2.0, zorder=6, **drawn)
            axes.plot(
                [first], [height], marker, markersize=5, zorder=7, markerfacecolor="white", **drawn
            )
    key = "filled: spike, hollow: NaN or infinite; above: candidate, below: baseline"
    axes.annotate(key, (0.0, 1.01), xycoords="axes fraction", fontsize=TINY, ha="left", va="bottom")


def _grouped_steps(steps: IntArray, near: float) -> list[tuple[int, int]]:
    """First and last of each group of (n,) increasing steps that lie no further apart than
    `near`.
    """
    cuts = np.flatnonzero(np.diff(steps) > near) + 1
    return [(int(part[0]), int(part[-1])) for part in np.split(steps, cuts) if len(part)]


def _noises(axes: Any, document: VerdictDocument) -> None:
    """Gap, errors, step noise and margin on one logarithmic axis, with their values."""
    axes.spines["right"].set_visible(False)
    parts, noise = document["se_parts"], document["noise"]
    bars = (
        {"within-pair error": parts["within"], "between-run error": parts["run"]} if parts else {}
    )
    bars["size of the gap"] = abs(number(document["gap"]["mean"]) if document["gap"] else 0.0)
    if document["margin"]:
        bars["margin"] = document["margin"]["nats"]
    bars["step noise"] = noise["sigma_step"]
    shown = {name: value for name, value in bars.items() if value > 0.0}
    if not shown:
        axes.axis("off")
        return
    fills = {"size of the gap": CANDIDATE_COLOUR, "margin": "0.35"}
    axes.barh(
        list(shown),
        list(shown.values()),
        color=[fills.get(name, "0.7") for name in shown],
        height=0.6,
    )
    axes.set_xscale("log")
    axes.set_xlim(min(shown.values()) / 3.0, max(shown.values()) * 4.0)
    for row, value in enumerate(shown.values()):
        axes.annotate(
            f"{value:.2g}",
            (value, row),
            xytext=(3, 0),
            textcoords="offset points",
            fontsize=TINY,
            va="center",
        )
    axes.set_xlabel("nats")
