from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.judging.bundles.evidence import Case
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.live.gap_chart import binned_gap
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import judge
from parity.report.figures.figure_file import PAD, FigureError
from parity.report.figures.verdict_figure import _grouped_steps, _spread_heights, draw_figure
from parity.report.picture.buckets import loss_buckets
from parity.report.verdict_gap import gap_limits

MakeRun = Callable[..., Curve]


def test_buckets_hold_mean_and_range(make_run: MakeRun) -> None:
    run = make_run(1000)
    steps, mean, low, high = loss_buckets(run)
    assert len(steps) == 120
    assert ((low <= mean) & (mean <= high)).all()
    assert low.min() == run.loss.min()
    assert high.max() == run.loss.max()
    assert len(loss_buckets(curve_from_arrays([1], [float("nan")]))[0]) == 0


def test_what_cannot_be_drawn_is_said(
    make_run: MakeRun, one_percent: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    runs = [make_run()]
    case = Case(baseline=runs, candidates={"c": runs}, policy=one_percent, planned_steps=2000)
    (document,) = case.documents()
    with pytest.raises(FigureError, match=r"expected a name ending in \.png"):
        draw_figure("out.txt", document, case)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(FigureError, match="figures need matplotlib"):
        draw_figure("out.png", document, case)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_figures_of_every_kind_of_verdict(
    suffix: str, make_run: MakeRun, one_percent: Policy, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    nan = make_run(seed=2).loss.copy()
    nan[1500:] = np.nan
    for name, cand in {
        "good": make_run(seed=2),
        "nan": curve_from_arrays(np.arange(2000), nan),
        "empty": curve_from_arrays([], []),
    }.items():
        path = tmp_path / f"{name}.{suffix}"
        case = Case(
            baseline=[make_run()], candidates={name: [cand]}, policy=one_percent, planned_steps=2000
        )
        (document,) = case.documents()
        draw_figure(str(path), document, case)
        first = path.read_bytes()
        assert len(first) > 5000
        if name == "good":  # equal documents give equal files
            draw_figure(str(path), document, case)
            assert path.read_bytes() == first


@pytest.mark.parametrize("gap", [0.08, 0.0, -0.1])
def test_the_gap_panel_holds_what_matters_and_little_more(
    gap: float, make_run: MakeRun, one_percent: Policy
) -> None:
    base, cand = [make_run()], [make_run(seed=2, gap=gap)]
    document = judge(base, {"c": cand}, one_percent, planned_steps=2000)[0].document()
    bins = binned_gap(base, cand, one_percent, planned_steps=2000)
    bottom, top = gap_limits(document, bins, PAD)
    needed = [0.0, document["margin"]["nats"], document["gap"]["lo"], document["gap"]["hi"]]
    assert bottom < min(needed)
    assert max(needed) < top
    assert top - bottom < 1.5 * (max(needed) - min(needed))


def test_an_early_transient_does_not_dwarf_the_window(
    make_run: MakeRun, one_percent: Policy
) -> None:
    cand = make_run(seed=2)
    early = curve_from_arrays(cand.steps, cand.loss + np.where(cand.steps < 300, 3.0, 0.0))
    document = judge([make_run()], {"c": [early]}, one_percent, planned_steps=2000)[0].document()
    bins = binned_gap([make_run()], [early], one_percent, planned_steps=2000)
    assert gap_limits(document, bins, PAD)[1] < 0.2


def test_labels_keep_apart_and_near_events_become_one() -> None:
    high, low = _spread_heights([0.51, 0.50])
    assert high - low == pytest.approx(0.072)
    assert _spread_heights([0.2, 0.9]) == [0.2, 0.9]
    assert _spread_heights([1.4, -3.0]) == [0.98, 0.02]
    assert _grouped_steps(np.array([3, 4, 5, 40, 90, 91]), 2.0) == [(3, 5), (40, 40), (90, 91)]
    assert _grouped_steps(np.empty(0, np.int64), 2.0) == []
