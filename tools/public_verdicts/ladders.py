"""How the gap of a recipe changes with the size of the model."""

import csv
import functools
import math
from collections.abc import Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.gap.interval import t_quantile
from parity.report.evaluation_tables import Cells
from parity.report.formats.markdown import markdown_table
from parity.wording import interval_words, minus, signed
from tools.public_verdicts.answers_in_words import parameters
from tools.public_verdicts.sets import SETS, answers


@frozen
class Ladder:
    """A recipe at several sizes: parameters, gaps in % of the loss, and the line through them with
    what one more run may show.
    """

    name: str
    sizes: Sequence[float]
    gaps: Sequence[float]
    slope: tuple[float, float]

    def predicted(self, size: float) -> tuple[float, float]:
        """The 95 % prediction interval of one more run at a size inside the ladder."""
        if not min(self.sizes) <= size <= max(self.sizes):
            raise ValueError(
                f"size is {size:g}; expected one between {min(self.sizes):g} and "
                f"{max(self.sizes):g}"
            )
        x, y = np.log10(self.sizes), np.array(self.gaps)
        slope, start = np.polyfit(x, y, 1)
        left = y - slope * x - start
        spread = math.sqrt(float(left @ left) / (len(x) - 2))
        at = math.log10(size)
        reach = spread * math.sqrt(
            1 + 1 / len(x) + (at - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum()
        )
        middle, half = slope * at + start, t_quantile(0.95, len(x) - 2) * reach
        return float(middle - half), float(middle + half)


def ladder_table() -> str:
    """The gap by size."""
    rows: list[Cells] = [
        (
            "recipe",
            "sizes",
            "gap from the smallest to the largest",
            "change for ten times the size",
            "one more run at the largest",
        )
    ]
    for shown in ladders():
        ends = f"{signed(shown.gaps[0], 2)} to {signed(shown.gaps[-1], 2)} %"
        sizes = f"{len(shown.sizes)}, {shown.sizes[0] / 1e6:.0f} to {shown.sizes[-1] / 1e6:.0f} M"
        change = f"{interval_words(*shown.slope, 2)} points"
        rows.append(
            (
                shown.name,
                sizes,
                ends,
                change,
                f"{interval_words(*shown.predicted(shown.sizes[-1]), 2)} %",
            )
        )
    return minus(markdown_table(rows))


@functools.cache
def ladders() -> tuple[Ladder, ...]:
    """Every recipe at three sizes and more of one series of runs."""
    found = []
    for question in ("int4", "fp4", "int8"):
        points = [
            (parameters(answer), 100.0 * answer.gap["mean"] / answer.level)
            for answer in answers()
            if answer.size and answer.question == question
        ]
        found.append(ladder(f"QuEST {question.upper()}", points))
    with (SETS / "rtx6000-277m" / "sizes.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["set"] == "slack4"]
    losses = {(row["params"], row["arm"]): float(row["loss"]) for row in rows}
    points = [
        (float(size), 100.0 * (losses[size, "fp8"] / loss - 1.0))
        for (size, arm), loss in losses.items()
        if arm == "bf16"
    ]
    return (*found, ladder("workstation FP8", points))


def ladder(name: str, points: Sequence[tuple[float, float]]) -> Ladder:
    """The ladder through (parameters, gap in %)."""
    sizes, gaps = zip(*sorted(points), strict=True)
    x, y = np.log10(sizes), np.array(gaps)
    slope, start = np.polyfit(x, y, 1)
    left = y - slope * x - start
    error = math.sqrt(float(left @ left) / (len(x) - 2) / float(((x - x.mean()) ** 2).sum()))
    half = t_quantile(0.95, len(x) - 2) * error
    return Ladder(
        name=name, sizes=sizes, gaps=gaps, slope=(float(slope - half), float(slope + half))
    )
