"""Pairs of golden curves from the history of Megatron-LM's tests (tests/data/golden), in two parts.

A pair's part is by the checksum of its family: `end` where the first byte of the family's sha256 is
odd, else `tuning`. Limits were chosen on `tuning`, and `end` was read once, after that.
"""

import csv
import hashlib
from pathlib import Path

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import Curve, curve_from_arrays

PAIRS = Path(__file__).parents[2] / "tests" / "data" / "golden" / "pairs.csv"
UNIT = 1e-5  # nats: the last printed digit of these files
TUNING, END = "tuning", "end"
GROUPS = {
    "container": "container",
    **dict.fromkeys(("code", "bugfix", "numeric-option", "config", "cluster"), "code, fix, option"),
    **dict.fromkeys(("refresh", "release-to-release"), "several changes"),
    "hardware": "hardware",
    "stack": "stack",
    "data": "data replaced",
}
"""Groups of labels; pairs of files of different dates (unsynced) are of none."""
RECIPES = {"bf16": "bf16", "fp8": "fp8", "fp16": "bf16"}  # fp16 has no word; it is as wide
KNOWN_MOVES = "t5/"  # families whose level moves from one accepted golden to the next


@frozen(eq=False)
class Pair:
    """A golden and the next one of its test: both curves, the group of its label, its part, whether
    dropout was on, and its recipe.
    """

    golden: Curve
    run: Curve
    test: str
    family: str
    group: str
    part: str
    random: bool
    recipe: str


def public_pairs(path: Path = PAIRS) -> list[Pair]:
    """All pairs with a group, in the order of the file."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_pair(row) for row in csv.DictReader(file) if row["label"] in GROUPS]


def part_of(family: str) -> str:
    """The part of a family."""
    return END if hashlib.sha256(family.encode()).digest()[0] % 2 else TUNING


def _pair(row: dict[str, str]) -> Pair:
    steps = np.array(row["steps"].split(), dtype=np.int64)
    old = np.array(row["loss_old"].split(), dtype=np.float64)
    new = np.round(old + UNIT * np.array(row["diff_1e5"].split(), dtype=np.float64), 5)
    return Pair(
        golden=curve_from_arrays(steps, old),
        run=curve_from_arrays(steps, new),
        test=row["test"],
        family=row["family"],
        group=GROUPS[row["label"]],
        part=part_of(row["family"]),
        random=row["dropout"] == "1",
        recipe=RECIPES[row["precision"]],
    )
