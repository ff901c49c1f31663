from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity import Criteria, Curve, curve_from_arrays, judge
from parity.figures import FigureError, draw_figure, loss_buckets

MakeRun = Callable[..., Curve]


def test_buckets_hold_mean_and_range(make_run: MakeRun) -> None:
    run = make_run(1000)
    steps, mean, low, high = loss_buckets(run)
    assert len(steps) == 400
    assert ((low <= mean) & (mean <= high)).all()
    assert low.min() == run.loss.min()
    assert high.max() == run.loss.max()
    assert len(loss_buckets(curve_from_arrays([1], [float("nan")]))[0]) == 0


def test_what_cannot_be_drawn_is_said(make_run: MakeRun, one_percent: Criteria, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    runs = [make_run()]
    document = judge(runs, {"c": runs}, one_percent, planned_steps=2000)[0].document()
    with pytest.raises(FigureError, match=r"expected a name ending in \.png"):
        draw_figure("out.txt", document, runs, runs, one_percent)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(FigureError, match="figures need matplotlib"):
        draw_figure("out.png", document, runs, runs, one_percent)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_figures_of_every_kind_of_verdict(suffix: str, make_run: MakeRun, one_percent: Criteria, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    nan = make_run(seed=2).loss.copy()
    nan[1500:] = np.nan
    for name, cand in {
        "good": make_run(seed=2),
        "nan": curve_from_arrays(np.arange(2000), nan),
        "empty": curve_from_arrays([], []),
    }.items():
        path = tmp_path / f"{name}.{suffix}"
        document = judge([make_run()], {name: [cand]}, one_percent, planned_steps=2000)[0].document()
        draw_figure(str(path), document, [make_run()], [cand], one_percent, 2000)
        first = path.read_bytes()
        assert len(first) > 5000
        draw_figure(str(path), document, [make_run()], [cand], one_percent, 2000)
        assert suffix == "svg" or path.read_bytes() == first
