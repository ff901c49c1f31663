"""A file that ends in half a line leaves open how its run ended, where the other arm goes on."""

import dataclasses

import numpy as np
import pytest

from parity.judging.curves.curve import LAST_LINE_CUT, Curve, curve_from_arrays
from parity.judging.curves.reading import cut_last_line


def run(steps: int, *, is_cut: bool = False) -> Curve:
    curve = curve_from_arrays(np.arange(steps), np.full(steps, 2.5))
    return dataclasses.replace(curve, context={LAST_LINE_CUT: "yes"} if is_cut else {})


@pytest.mark.parametrize(
    ("baseline", "candidate", "name"),
    [
        (run(100), run(99, is_cut=True), "fp8"),
        (run(99, is_cut=True), run(100), "bf16"),
        (run(99, is_cut=True), run(99, is_cut=True), "bf16"),
    ],
)
def test_a_cut_last_line_blocks_where_the_other_arm_may_go_on(
    baseline: Curve, candidate: Curve, name: str
) -> None:
    said = cut_last_line([("bf16", [baseline]), ("fp8", [candidate])])
    assert said is not None
    assert said.startswith(f"The file of {name} ends in half a line")


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        (run(100), run(100, is_cut=True)),
        (run(120, is_cut=True), run(100)),
        (run(100), run(99)),
    ],
)
def test_behind_the_end_of_the_other_arm_it_says_nothing(baseline: Curve, candidate: Curve) -> None:
    assert cut_last_line([("bf16", [baseline]), ("fp8", [candidate])]) is None
