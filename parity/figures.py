"""The one-page figure of a verdict: losses, gap with its band and the margin, and the noises beside it; PNG, SVG or PDF.

Needs matplotlib (extra `figures`), which no other module imports. Colours are Okabe and Ito's; line style repeats what colour says.
"""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parity.criteria import Criteria
from parity.curve import Curve
from parity.gap import BinnedGap, binned_gap
from parity.report import headline
from parity.version import ENGINE_VERSION
from parity.wording import signed

BASELINE_COLOUR, CANDIDATE_COLOUR = "#0072B2", "#D55E00"
PAGE_INCHES = (7.0, 9.0)
FORMATS = (".png", ".svg", ".pdf")
LOSS_BUCKETS = 400


class FigureError(ValueError):
    """A figure that can't be drawn here; the message says what is missing or was expected."""


def draw_figure(
    path: str,
    document: Mapping[str, Any],
    baseline: Sequence[Curve],
    candidate: Sequence[Curve],
    criteria: Criteria,
    planned_steps: int | None = None,
) -> None:
    """Write the figure of one verdict document and its runs to `path`, whose ending chooses the format. Raises FigureError."""
    if Path(path).suffix.lower() not in FORMATS:
        raise FigureError(f"{path}: expected a name ending in {', '.join(FORMATS)}")
    try:
        figure_module = importlib.import_module("matplotlib.figure")
    except ImportError:
        raise FigureError(f"{path}: figures need matplotlib; install it with: pip install 'parity[figures]'") from None
    gap = binned_gap(baseline, candidate, criteria, planned_steps=planned_steps)
    figure = figure_module.Figure(figsize=PAGE_INCHES)
    figure.subplots_adjust(left=0.19, right=0.97, top=0.90, bottom=0.09, hspace=0.28)
    top, middle, bottom = figure.subplots(3, 1, height_ratios=[2.0, 3.0, 1.2])
    _losses(top, document, baseline, candidate, gap)
    _gap(middle, document, gap)
    _noises(bottom, document)
    digest = document["inputs"]["sha256_aligned"][:16]
    figure.suptitle(_wrapped(headline(document), 92), fontsize=9, x=0.02, y=0.985, ha="left", va="top")
    figure.supxlabel(f"parity {ENGINE_VERSION}, series sha256 {digest}...", fontsize=7, x=0.02, y=0.01, ha="left", va="bottom")
    try:
        figure.savefig(path, dpi=150, metadata=_fixed_metadata(path))
    except OSError as error:
        raise FigureError(f"{path}: can't be written ({error.strerror})") from None


def _losses(axes: Any, document: Mapping[str, Any], baseline: Sequence[Curve], candidate: Sequence[Curve], gap: BinnedGap) -> None:
    """Bucket means with their range, so that the overlay does not hide one arm behind the other."""
    for runs, name, colour, dashes in (
        (baseline, document["baseline"]["name"], BASELINE_COLOUR, "-"),
        (candidate, document["candidate"]["name"], CANDIDATE_COLOUR, "--"),
    ):
        steps, mean, low, high = loss_buckets(runs[0])
        axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(steps, mean, dashes, color=colour, linewidth=1.0, label=name)
    axes.axvspan(*gap.window, color="0.5", alpha=0.06, linewidth=0)
    axes.set_ylabel("loss, nats", fontsize=8)
    axes.legend(fontsize=8, frameon=False)
    axes.tick_params(labelsize=8)


def loss_buckets(run: Curve) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Middle step, mean, least and largest finite loss of up to 400 buckets of a run."""
    finite = np.isfinite(run.loss)
    steps, loss = run.steps[finite], run.loss[finite]
    if len(steps) == 0:
        empty = np.empty(0)
        return empty, empty, empty, empty
    starts = np.unique(np.linspace(0, len(steps), LOSS_BUCKETS + 1)[:-1].astype(int))
    ends = np.append(starts[1:], len(steps))
    mean = np.add.reduceat(loss, starts) / (ends - starts)
    return (steps[starts] + steps[ends - 1]) / 2, mean, np.minimum.reduceat(loss, starts), np.maximum.reduceat(loss, starts)


def _gap(axes: Any, document: Mapping[str, Any], gap: BinnedGap) -> None:
    """The gap with its interval band, zero, margins and window; NaN steps as triangles at the lower edge."""
    middle = (gap.first_step + gap.last_step) / 2
    axes.fill_between(middle, gap.lo, gap.hi, color=CANDIDATE_COLOUR, alpha=0.18, linewidth=0)
    axes.plot(middle, gap.mean, color=CANDIDATE_COLOUR, linewidth=1.0)
    axes.axhline(0.0, color="0.2", linewidth=0.8)
    axes.axvspan(*gap.window, color="0.5", alpha=0.06, linewidth=0)
    if gap.margin_nats is not None:
        for sign in (1.0, -1.0):
            axes.axhline(sign * gap.margin_nats, color="0.5", linestyle="-.", linewidth=0.8)
        where = {"xycoords": ("axes fraction", "data"), "fontsize": 7, "va": "bottom"}
        axes.annotate(f"margin {gap.margin_nats:.4f}", (0.01, gap.margin_nats), **where)
        inside = (middle >= gap.window[0]) & np.isfinite(gap.mean)
        reach = max(3.0 * gap.margin_nats, 1.5 * float(np.abs(gap.mean[inside]).max(initial=0.0)))
        axes.set_ylim(-reach, reach)
    for steps, colour in ((gap.nonfinite_baseline, BASELINE_COLOUR), (gap.nonfinite_candidate, CANDIDATE_COLOUR)):
        axes.plot(steps, np.zeros(len(steps)), "v", color=colour, markersize=5, transform=axes.get_xaxis_transform(), clip_on=False)
    if document["gap"]:
        mean, lo, hi = (document["gap"][key] for key in ("mean", "lo", "hi"))
        x = gap.window[0] + (gap.window[1] - gap.window[0]) / 2
        axes.errorbar([x], [mean], yerr=[[mean - lo], [hi - mean]], fmt="o", color="0.1", markersize=4, capsize=3)
        label = {"xytext": (0, 4), "textcoords": "offset points", "bbox": {"fc": "white", "ec": "none", "alpha": 0.85, "pad": 1.0}}
        axes.annotate(signed(mean, 4), (x, hi), fontsize=8, ha="center", va="bottom", **label)
        axes.annotate("window judged", (x, 0.02), xycoords=("data", "axes fraction"), fontsize=7, ha="center", va="bottom")
    axes.set_ylabel("gap, nats (+ = candidate worse)", fontsize=8)
    axes.set_xlabel("step", fontsize=8)
    axes.tick_params(labelsize=8)


def _noises(axes: Any, document: Mapping[str, Any]) -> None:
    """Step noise, between-run and within-pair error and the margin on one logarithmic axis."""
    if not document["gap"]:
        axes.axis("off")
        return
    parts, noise = document["se_parts"], document["noise"]
    bars = {"within-pair error": parts["within"], "between-run error": parts["run"], "step noise": noise["sigma_step"]}
    if document["margin"]:
        bars["margin"] = document["margin"]["nats"]
    shown = {name: value for name, value in bars.items() if value > 0.0}
    if not shown:
        axes.axis("off")
        return
    axes.barh(list(shown), list(shown.values()), color="0.6", height=0.6)
    axes.set_xscale("log")
    axes.set_xlabel("nats", fontsize=8)
    axes.tick_params(labelsize=8)


def _wrapped(text: str, width: int) -> str:
    lines, line = [], ""
    for word in text.split():
        if len(line) + len(word) + 1 > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


def _fixed_metadata(path: str) -> dict[str, None]:
    """Metadata without the time of drawing, so that equal verdicts give equal files."""
    return {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(Path(path).suffix.lower(), {})
