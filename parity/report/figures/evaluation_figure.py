"""The figure of a comparison of evaluations: the gap at every point with its bands, each run's
loss, and what it needs to the target.

Runs stand in rows, one per cluster, under the row of their arm, which has the arm's mean with its
interval. PNG, SVG or PDF.
"""

import math
from collections.abc import Sequence
from typing import Any

from parity.frozen import frozen
from parity.judging.evaluations.document_types import (
    EvaluatedArmDocument,
    EvaluatedRunDocument,
    EvaluationDocument,
    IntervalDocument,
)
from parity.judging.gap.interval import t_quantile
from parity.report.evaluation_tables import point_words, share, token_unit
from parity.report.figures.figure_file import (
    BASELINE_COLOUR,
    BETTER,
    CANDIDATE_COLOUR,
    GAP,
    PAD,
    SMALL,
    TINY,
    figure_file,
    gap_band,
    margin_line,
    percent_axis,
    wrapped,
)
from parity.report.view import EvaluationView, evaluation_view
from parity.report.words import words
from parity.version import VERSION
from parity.wording import count, cut, level_percent, margin_words, minus

PAGE_WIDTH = 7.0  # inches
GAP_HEIGHT, ROW_HEIGHT, MIN_ROWS = 2.5, 0.32, 5  # inches, inches, rows
NAME_WIDTH = 26  # characters of a row's name
ROW_SPREAD = 0.30  # of a row, by which dots that lie side by side are moved up or down
DOT_LEVELS = 5
COLOURS, MARKERS = (BASELINE_COLOUR, CANDIDATE_COLOUR), ("o", "s")


@frozen
class FigureRow:
    """A row: its label, its runs, its arm (0 baseline, 1 candidate), whether it shows the whole
    arm, and whether it holds the runs' dots.

    The dots of an arm whose runs have clusters are in the clusters' rows.
    """

    name: str
    runs: Sequence[EvaluatedRunDocument]
    arm: int
    whole: bool
    has_dots: bool = True


def draw_evaluation_figure(path: str, document: EvaluationDocument) -> None:
    """Write the figure of a comparison of evaluations to `path`, whose ending chooses the format.
    Raises FigureError.
    """
    view, rows = evaluation_view(document), run_rows(document)
    said = words(view)
    title = wrapped(minus(" ".join([said.measure, said.interval])), 108)
    above = 0.60 + 0.145 * (title.count("\n") + 1)  # inches, as all that follow
    dots = ROW_HEIGHT * max(len(rows), MIN_ROWS)
    height = above + GAP_HEIGHT + 0.80 + dots + 0.70
    with figure_file(path, (PAGE_WIDTH, height), said.line) as figure:
        figure.text(
            0.03,
            1.0 - 0.13 / height,
            f"{said.chip}: {said.lead}",
            fontsize=12,
            fontweight="bold",
            va="top",
        )
        figure.text(0.03, 1.0 - 0.36 / height, title, fontsize=SMALL, va="top", linespacing=1.25)
        runs = len(document["baseline"]["runs"]) + len(document["candidate"]["runs"])
        figure.text(
            0.03,
            0.07 / height,
            f"parity {VERSION}, judge {document['engine_version']}, {runs} runs",
            fontsize=TINY,
            va="bottom",
        )
        _gap(
            figure.add_axes(
                (0.115, 1.0 - (above + GAP_HEIGHT) / height, 0.77, GAP_HEIGHT / height)
            ),
            view,
        )
        is_timed = any(_minutes_of(run) is not None for row in rows for run in row.runs)
        panels = [
            _losses,
            *([_reached] if document["target"] else []),
            *([_minutes] if is_timed else []),
        ]
        left, right, between = 0.245, 0.98, 0.03
        width = (right - left + between) / len(panels) - between
        for number, panel in enumerate(panels):
            axes = figure.add_axes(
                (left + number * (width + between), 0.70 / height, width, dots / height)
            )
            _set_rows(axes, rows, named=number == 0)
            panel(axes, view, rows)


def run_rows(document: EvaluationDocument) -> list[FigureRow]:
    """The rows from top to bottom: each arm, then its clusters in order of name where runs have
    any.
    """
    rows = []
    arms = document["baseline"], document["candidate"]
    names = _short_names(
        sorted({run["cluster"] for arm in arms for run in arm["runs"] if run["cluster"]})
    )
    for number, arm in enumerate(arms):
        clusters = sorted({run["cluster"] for run in arm["runs"] if run["cluster"]})
        rows.append(
            FigureRow(
                name=arm["name"], runs=arm["runs"], arm=number, whole=True, has_dots=not clusters
            )
        )
        for cluster in clusters:
            runs = [run for run in arm["runs"] if run["cluster"] == cluster]
            rows.append(FigureRow(name=names[cluster], runs=runs, arm=number, whole=False))
    return rows


def _gap(axes: Any, view: EvaluationView) -> None:
    """The gap at every common point with limits that hold at all points at once, zero, the margins,
    and the point compared.
    """
    document = view.document
    curve, judged = document["curve"], document["gap"]["judged"]
    scale, unit = _unit(axes, view)
    axes.set_xlabel(unit)
    if curve is None:
        axes.set(xticks=[], yticks=[], ylabel=GAP)
        axes.spines["right"].set_visible(False)
        axes.text(0.5, 0.5, "no gap measured", transform=axes.transAxes, ha="center")
        return
    at = [step * scale for step in curve["steps"]]
    gap_band(axes, at, curve["lo"], curve["gap"], curve["hi"], marker="o", markersize=3)
    margin = document["margin"]
    values = [
        0.0,
        *curve["lo"],
        *curve["hi"],
        margin["nats"] if margin else 0.0,
        *((judged["lo"], judged["hi"]) if judged else ()),
    ]
    pad = PAD * (max(values) - min(values) or 1e-6)
    low, high = min(values) - pad, max(values) + pad
    axes.set_ylim(low, high)
    axes.set_xlim(0.0, at[-1] * 1.06)
    confidence = level_percent(document["gap"]["confidence"])
    axes.set_title(
        f"band: {confidence} at all {len(at)} points at once", fontsize=TINY, loc="left", pad=3
    )
    if margin:
        for nats, words in (
            (margin["nats"], margin_words(margin["nats"], margin["rel"])),
            (-margin["nats"], BETTER),
        ):
            if low < nats < high:
                margin_line(axes, nats, words, zorder=1.5)  # under the curve
    mean = document["baseline"]["mean"]
    if isinstance(mean, float) and mean > 0.0:
        percent_axis(axes, mean)
    else:
        axes.spines["right"].set_visible(False)
    _compared(axes, view, scale)


def _compared(axes: Any, view: EvaluationView, scale: float) -> None:
    """The intervals over runs and over clusters at the point compared, side by side."""
    document = view.document
    gap, as_of, over = document["gap"], document["as_of"], document["gap"]["over_clusters"]
    if not as_of or not (gap["over_runs"] or over):
        return
    last = as_of["points"][-1] * scale
    axes.axvline(last, color="0.5", linewidth=0.6, linestyle=":")
    shown: list[tuple[IntervalDocument, str, str]] = []
    if gap["over_runs"]:
        shown.append((gap["over_runs"], "over runs (black)", "0.1"))
    if over:
        shown.append((over, f"over {over['key']}s (grey)", "0.45"))
    for (interval, _, colour), right, mark in zip(shown, (1.0, 1.022), ("D", "_"), strict=False):
        mean = interval["mean"]
        ends = [[mean - interval["lo"]], [interval["hi"] - mean]]
        axes.errorbar(
            [last * right],
            [mean],
            yerr=ends,
            fmt=mark,
            color=colour,
            markersize=4,
            capsize=3,
            linewidth=1.4,
            zorder=5,
        )
    words = (
        f"{level_percent(gap['confidence'])} CI{point_words(view, ' at ')} "
        f"{', '.join(name for _, name, _ in shown)}"
    )
    axes.annotate(
        words,
        (1.0, 1.0),
        xycoords="axes fraction",
        xytext=(0, 3),
        textcoords="offset points",
        fontsize=TINY,
        ha="right",
    )


def _unit(axes: Any, view: EvaluationView) -> tuple[float, str]:
    """What a step is multiplied by on the axis, and the axis's name; numbers of steps are written
    in full.
    """
    document = view.document
    tokens, curve = view.tokens_per_step, document["curve"]
    if tokens is None or curve is None:
        axes.xaxis.set_major_formatter("{x:,.0f}")
        return 1.0, "step"
    size, letter = token_unit(curve["steps"][-1] * tokens)
    return tokens / size, f"tokens, {letter}" if letter else "tokens"


def _set_rows(axes: Any, rows: Sequence[FigureRow], *, named: bool) -> None:
    """The names of the rows on the left, arms in their colour, and a line above each arm."""
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(
        range(len(rows)), [_row_name(row) if named else "" for row in rows], fontsize=TINY
    )
    axes.tick_params(axis="y", length=0)
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_color(COLOURS[row.arm])
        label.set_fontweight("bold" if row.whole else "normal")
    for place, row in enumerate(rows):
        if row.whole and place:
            axes.axhline(place - 0.5, color="0.8", linewidth=0.6)
    axes.spines["right"].set_visible(False)
    axes.tick_params(axis="x", labelsize=TINY)


def _row_name(row: FigureRow) -> str:
    """An arm's name with its number of runs; a cluster's name."""
    if row.whole:
        return f"{cut(row.name, NAME_WIDTH - 9)}, {count(len(row.runs), 'run')}"
    return cut(row.name, NAME_WIDTH)


def _short_names(clusters: Sequence[str]) -> dict[str, str]:
    """Each cluster's name after its last slash, where these names stay distinct."""
    ends = {name: name.rpartition("/")[2] for name in clusters}
    if all(ends.values()) and len(set(ends.values())) == len(ends):
        return ends
    return {name: name for name in clusters}


def dot_heights(number: int) -> list[float]:
    """The heights of so many dots in order of size, -ROW_SPREAD to ROW_SPREAD of a row; neighbours
    never have the same.
    """
    levels = min(DOT_LEVELS, number)
    stride = 2 if levels == DOT_LEVELS else 1
    return [
        ROW_SPREAD * (2.0 * ((stride * dot) % levels) / (levels - 1) - 1.0) if levels > 1 else 0.0
        for dot in range(number)
    ]


def _losses(axes: Any, view: EvaluationView, rows: Sequence[FigureRow]) -> None:
    """Each run's loss at the points compared, and the arms' means with their intervals over
    runs.
    """
    document = view.document
    arms = document["baseline"], document["candidate"]
    for place, row in enumerate(rows):
        values = [run["loss"] for run in row.runs if isinstance(run["loss"], float)]
        _dots(axes, place, row, [(value, False) for value in values])
        if row.whole and (ends := _mean_ends(arms[row.arm], document["gap"]["confidence"])):
            _mean_mark(axes, place, *ends)
        elif values and not row.whole:
            _mean_mark(axes, place, sum(values) / len(values), None)
    _label(axes, f"loss{point_words(view, ' at ')}", "nats")


def _dots(axes: Any, place: int, row: FigureRow, dots: Sequence[tuple[float, bool]]) -> None:
    """A dot for each (value, hollow), moved up and down in turn in order of size, so that near ones
    stay apart.
    """
    if not row.has_dots:
        return
    order = sorted(range(len(dots)), key=lambda index: dots[index][0])
    heights = dict(zip(order, dot_heights(len(dots)), strict=True))
    for hollow in (False, True):
        alike = [index for index in range(len(dots)) if dots[index][1] == hollow]
        axes.plot(
            [dots[index][0] for index in alike],
            [place + heights[index] for index in alike],
            MARKERS[row.arm],
            markersize=3,
            color=COLOURS[row.arm],
            markerfacecolor="white" if hollow else COLOURS[row.arm],
            markeredgewidth=0.7,
            alpha=0.85,
        )


def _mean_mark(axes: Any, place: int, value: float, ends: tuple[float, float] | None) -> None:
    """A mean as a bar, with its interval where there is one."""
    if ends:
        axes.errorbar(
            [value],
            [place],
            xerr=[[value - ends[0]], [ends[1] - value]],
            fmt="D",
            color="0.1",
            markersize=4,
            capsize=3,
            zorder=5,
        )
    else:
        axes.plot([value], [place], "|", color="0.1", markersize=11, markeredgewidth=1.4, zorder=5)


def _label(axes: Any, title: str, below: str) -> None:
    axes.set_title(title, fontsize=SMALL, loc="left", pad=4)
    axes.set_xlabel(below, fontsize=TINY)
    axes.locator_params(axis="x", nbins=5)


def _mean_ends(
    arm: EvaluatedArmDocument, confidence: float
) -> tuple[float, tuple[float, float]] | None:
    mean, spread, runs = arm["mean"], arm["spread"], len(arm["runs"])
    if not isinstance(mean, float) or not spread:
        return None
    half = t_quantile(confidence, runs - 1) * spread["sd"] / math.sqrt(runs)
    return mean, (mean - half, mean + half)


def _reached(axes: Any, view: EvaluationView, rows: Sequence[FigureRow]) -> None:
    """Each run's samples (or tokens) to the target; hollow where they are only a bound."""
    document = view.document
    target = document["target"]
    if target is None:
        return
    scale, unit = _unit(axes, view)
    means = target["baseline_samples"], target["candidate_samples"]
    has_bounds = False
    for place, row in enumerate(rows):
        has_bounds |= any(run["beyond"] for run in row.runs)
        reached = [(run["samples_to_target"], run["beyond"] is not None) for run in row.runs]
        _dots(
            axes,
            place,
            row,
            [(samples * scale, beyond) for samples, beyond in reached if samples is not None],
        )
        mean = means[row.arm]
        if row.whole and mean is not None:
            _mean_mark(axes, place, mean * scale, None)
    tax = target["tax"]
    title = f"{'steps' if view.tokens_per_step is None else 'tokens'} to {target['nats']:g}"
    _label(
        axes,
        f"{title}: {share(tax['estimate'])}" if tax else title,
        f"{unit}{' (hollow: a bound)' if has_bounds else ''}",
    )


def _minutes_of(run: EvaluatedRunDocument) -> float | None:
    seconds = run["times"]["seconds_to_target"] if run["times"] else None
    if not isinstance(seconds, (int, float)):
        return None
    return seconds / 60.0


def _minutes(axes: Any, view: EvaluationView, rows: Sequence[FigureRow]) -> None:
    """Each run's minutes to the target; filled where both arms ran on that hardware, the only runs
    that the net speed compares.
    """
    document = view.document
    shared = {speed["hardware"] for speed in document["speed"]}
    has_others = False
    for place, row in enumerate(rows):
        timed = [
            (minutes, run["times"]["hardware"] not in shared)
            for run in row.runs
            if run["times"] and (minutes := _minutes_of(run))
        ]
        has_others |= any(other for _, other in timed)
        _dots(axes, place, row, timed)
    target, speed = (
        document["target"],
        document["speed"][0] if len(document["speed"]) == 1 else None,
    )
    title = f"minutes to {target['nats']:g}" if target else "minutes to the target"
    if speed and speed["net"]:
        title += f": net {speed['net']['value']:.2f} x"
    below = f"minutes{' (filled: equal hardware)' if has_others else ''}"
    if speed and speed["step"]:
        below += f"\nwhere a step is {speed['step']['value']:.2f} x as fast"
    _label(axes, title, below)
