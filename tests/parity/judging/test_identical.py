"""When are two runs that are equal one for one seen as that?"""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.gap.margin import Margin
from parity.judging.identical import find_identical
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import judge

MakeRun = Callable[..., Curve]


def identical(
    make_run: MakeRun, step: float, margin: float | None, points: int = 400, size: float = 0.08
) -> bool:
    """Whether a run printed to these steps shows that another one is equal to it."""
    run = make_run(500, batch_sd=size)
    printed = curve_from_arrays(
        run.steps, np.round(run.loss / step) * step if step else run.loss, recipe="fp8"
    )
    verdict = judge(
        [printed],
        {"c": [dataclasses.replace(printed, label="c")]},
        Policy(margin="1%", schedule="decayed"),
        planned_steps=500,
        compares={"c": "revision"},
    )[0]
    m = verdict.measurements
    known = None if margin is None else Margin(nats=margin, rel=0.01, source="")
    statistics = dataclasses.replace(m.statistics, margin=known, n=points)
    return find_identical(m.arms, statistics) is not None


@pytest.mark.parametrize(
    ("step", "margin", "points", "shown"),
    [
        (1e-3, 0.01, 12, True),
        (1e-3, 0.00999, 12, False),  # ten printed steps
        (1e-4, None, 12, True),
        (1e-3, None, 12, False),  # four decimals without a margin
        (1e-3, 0.01, 11, False),  # or with eleven points
        (1e-4, 0.01, 11, True),
    ],
)
def test_equal_runs_are_identical_where_their_digits_show_it(
    step: float, margin: float | None, points: int, shown: bool, make_run: MakeRun
) -> None:
    assert identical(make_run, step, margin, points) == shown


@pytest.mark.parametrize(("size", "shown"), [(0.002, False), (0.0036, True)])
def test_equal_runs_have_batch_noise_of_four_printed_steps(
    size: float, shown: bool, make_run: MakeRun
) -> None:
    assert identical(make_run, 1e-3, 0.01, size=size) == shown
