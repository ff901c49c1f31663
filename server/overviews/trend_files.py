"""A trend as a file: its points as CSV, its chart as SVG, PNG or PDF."""

from __future__ import annotations

import csv
import dataclasses
import io
import tempfile
from pathlib import Path
from typing import Any, Literal

from parity.report.figure_file import CANDIDATE_COLOUR, TINY, figure_file
from server.documents.images import drawing
from server.overviews.trend import Trend, TrendPoint, short

Kind = Literal["csv", "svg", "png", "pdf"]
_INCHES = (9.0, 3.6)
_MARKERS = {"pass": "o", "fail": "s", "inconclusive": "D", None: "x"}


def trend_file(history: Trend, kind: Kind) -> bytes:
    """The bytes of the file. Raises FigureError where matplotlib is missing, and UnavailableError if too many wait for a drawing."""
    return _table(history).encode() if kind == "csv" else _picture(history, kind)


def _table(history: Trend) -> str:
    """A line per job, oldest first, with the columns of TrendPoint; an empty cell where there is no value."""
    text = io.StringIO()
    names = [field.name for field in dataclasses.fields(TrendPoint)]
    rows = csv.DictWriter(text, names, lineterminator="\n")
    rows.writeheader()
    rows.writerows(dataclasses.asdict(point) | {"differs": "; ".join(point.differs)} for point in history.points)
    return text.getvalue()


def _picture(history: Trend, kind: Kind) -> bytes:
    with drawing.take(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"trend.{kind}"
        with figure_file(str(path), _INCHES, f"Trend of {history.gate or history.baseline}: {history.candidate}") as figure:
            _draw(figure.subplots(), history)
            figure.tight_layout()
        return path.read_bytes()


def _draw(axes: Any, history: Trend) -> None:
    first: dict[str, int] = {}
    for place, point in enumerate(history.points):
        first.setdefault(point.group, place)
        marker, open_mark = _MARKERS[point.verdict], point.verdict == "inconclusive"
        if point.margin_nats is not None:
            axes.plot([place - 0.5, place + 0.5], [point.margin_nats] * 2, "--", color="0.4", linewidth=1)
        if point.gap_nats is None:  # at the lower edge, as on the page
            axes.plot(place, 0.03, marker, color="0.4", transform=axes.get_xaxis_transform())
            continue
        faint = 0.4 if point.differs else 1.0
        axes.plot([place] * 2, [point.ci_low, point.ci_high], color=CANDIDATE_COLOUR, alpha=faint)
        axes.plot(place, point.gap_nats, marker, color=CANDIDATE_COLOUR, alpha=faint, mfc="white" if open_mark else None, markersize=5)
    for move in history.moves:
        if move.what in ("worse", "better"):
            at = first[move.after] - 0.5
            axes.axvline(at, color="black", linewidth=1)
            axes.text(at, 1.0, f" {short(move.after)}: {move.what}", transform=axes.get_xaxis_transform(), va="top", fontsize=TINY)
    axes.axhline(0.0, color="0.6", linewidth=0.8)
    every = max(1, len(first) // 10)
    axes.set_xticks([*first.values()][::every], [short(name) for name in first][::every], fontsize=TINY)
    axes.set_xlim(-0.5, max(0.5, len(history.points) - 0.5))
    axes.set_ylabel("gap, nats")
    axes.set_xlabel(f"{history.by}s in the order of their first job; circle: pass, square: fail, hollow: inconclusive, cross: no gap")
    axes.set_title(history.answer, fontsize=TINY, loc="left", wrap=True)
