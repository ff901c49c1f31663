from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import parity
from parity.judging.curves.curve import Curve
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import judge
from parity.report.formats.markdown import render_markdown

curve_from_arrays = partial(parity.curve_from_arrays, rounding="nearest")

MakeRun = Callable[..., Curve]


def timed(run: Curve, seconds: float) -> Curve:
    times = seconds * np.exp(np.random.default_rng(0).normal(0, 0.01, len(run.steps)))
    columns = {"step_seconds": times, "unix_seconds": 1.7e9 + np.cumsum(times)}
    return curve_from_arrays(
        run.steps, run.loss, columns=columns, recipe=run.recipe, context={"device_class": "h100"}
    )


def test_later_candidates_are_compared_with_earlier_ones(
    make_run: MakeRun, one_percent: Policy
) -> None:
    candidates = {
        "nvfp4": [timed(make_run(seed=2, gap=0.002), 1.1)],
        "nvfp4_no_rht": [timed(make_run(seed=3, gap=0.022), 1.0)],
        "mxfp8": [timed(make_run(seed=4, gap=0.003), 1.3)],
    }
    verdicts = judge([timed(make_run(), 1.5)], candidates, one_percent, planned_steps=2000)
    assert [[peer["name"] for peer in verdict.peers] for verdict in verdicts] == [
        [],
        ["nvfp4"],
        ["nvfp4", "nvfp4_no_rht"],
    ]
    (peer,) = verdicts[1].peers
    assert peer["gap"] == pytest.approx(0.020, abs=0.002)
    assert peer["speed"]["value"] == pytest.approx(1.1, rel=0.01)
    assert " differ: gap +0.0" in peer["sentence"]
    assert "are indistinguishable" in verdicts[2].peers[0]["sentence"]
    assert peer["sentence"] in render_markdown([verdict.document() for verdict in verdicts])


def test_candidates_of_other_data_are_not_compared(make_run: MakeRun, one_percent: Policy) -> None:
    verdicts = judge(
        [make_run()],
        {"a": [make_run(seed=2)], "b": [make_run(seed=3, batch_seed=9)]},
        one_percent,
        planned_steps=2000,
    )
    assert verdicts[1].peers[0]["gap"] is None
    assert "no common late window of one data order" in verdicts[1].peers[0]["sentence"]
