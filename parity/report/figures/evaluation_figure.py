"""The figure of a comparison of evaluations: the picture of its page, each run's loss, and what it
needs to the target.

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
)
from parity.judging.gap.interval import t_quantile
from parity.report.evaluation_tables import point_words, share, token_unit
from parity.report.figures.figure_file import SMALL, TINY, figure_file
from parity.report.figures.scene_figure import (
    BASELINE,
    COLOURS,
    LEFT,
    QUIET,
    RIGHT,
    TEXT_COLOURS,
    draw_heading,
    draw_scene,
)
from parity.report.picture.scene import scene_of
from parity.report.view import EvaluationView, evaluation_view
from parity.report.words import words
from parity.version import VERSION
from parity.wording import count, cut

PAGE_WIDTH = 9.0  # inches, as all that follow but rows
HEAD_HEIGHT, SCENE_HEIGHT, BETWEEN, BELOW = 1.1, 3.2, 0.9, 0.7
ROW_HEIGHT, MIN_ROWS = 0.32, 5
NAME_WIDTH = 26  # characters of a row's name
ROW_SPREAD = 0.30  # of a row, by which dots that lie side by side are moved up or down
DOT_LEVELS = 5
MARKERS = "o", "s"


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
    """Write the figure of a comparison of evaluations, which has its path, to `path`, whose ending
    chooses the format. Raises FigureError.
    """
    view, rows = evaluation_view(document), run_rows(document)
    scene, said = scene_of([document]), words(view)
    dots = ROW_HEIGHT * max(len(rows), MIN_ROWS)
    height = HEAD_HEIGHT + SCENE_HEIGHT + dots + BETWEEN + BELOW
    with figure_file(path, (PAGE_WIDTH, height), said.line) as figure:
        above = draw_heading(figure, said, scene)
        bottom = BELOW + dots + BETWEEN
        box = (LEFT, bottom, PAGE_WIDTH - LEFT - RIGHT, height - above - bottom)
        draw_scene(figure, scene, box)
        runs = len(document["baseline"]["runs"]) + len(document["candidate"]["runs"])
        foot = f"parity {VERSION}, judge {document['engine_version']}, {runs} runs"
        for text, level in ((scene.note, bottom - 0.46), (foot, 0.07)):
            place = LEFT / PAGE_WIDTH, level / height
            figure.text(*place, text, fontsize=TINY, color=QUIET, va="bottom")
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
                (left + number * (width + between), BELOW / height, width, dots / height)
            )
            _set_rows(axes, view, rows, named=number == 0)
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


def _set_rows(axes: Any, view: EvaluationView, rows: Sequence[FigureRow], *, named: bool) -> None:
    """The names of the rows on the left, arms in their colour, and a line above each arm."""
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(
        range(len(rows)), [_row_name(row) if named else "" for row in rows], fontsize=TINY
    )
    axes.tick_params(axis="y", length=0)
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_color(TEXT_COLOURS[view.state] if row.arm else BASELINE)
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
        _dots(axes, view, place, row, [(value, False) for value in values])
        if row.whole and (ends := _mean_ends(arms[row.arm], document["gap"]["confidence"])):
            _mean_mark(axes, place, *ends)
        elif values and not row.whole:
            _mean_mark(axes, place, sum(values) / len(values), None)
    _label(axes, f"loss{point_words(view, ' at ')}", "nats")


def _dots(
    axes: Any,
    view: EvaluationView,
    place: int,
    row: FigureRow,
    dots: Sequence[tuple[float, bool]],
) -> None:
    """A dot for each (value, hollow), moved up and down in turn in order of size, so that near ones
    stay apart.
    """
    if not row.has_dots:
        return
    colour = COLOURS[view.state] if row.arm else BASELINE
    order = sorted(range(len(dots)), key=lambda index: dots[index][0])
    heights = dict(zip(order, dot_heights(len(dots)), strict=True))
    for hollow in (False, True):
        alike = [index for index in range(len(dots)) if dots[index][1] == hollow]
        axes.plot(
            [dots[index][0] for index in alike],
            [place + heights[index] for index in alike],
            MARKERS[row.arm],
            markersize=3,
            color=colour,
            markerfacecolor="white" if hollow else colour,
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
            view,
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
        _dots(axes, view, place, row, timed)
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
