import dataclasses
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from parity.judging.case import Case
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.policy import Policy
from parity.judging.verdict.path import with_path
from parity.report.figures.figure_file import FigureError
from parity.report.figures.verdict_figure import draw_figure, verdict_figure
from parity.report.picture.axes import axes_of
from parity.report.picture.buckets import loss_buckets
from parity.report.picture.case_scene import case_scene
from parity.report.picture.picture import picture

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


def _texts(drawn: object) -> set[str]:
    """All that a figure says."""
    from matplotlib.text import Text

    found = drawn.findobj(Text)  # type: ignore[attr-defined]
    return {text.get_text() for text in found if text.get_text()}


@pytest.mark.parametrize(
    ("gap", "state"), [(0.003, "pass"), (0.08, "fail"), (0.025, "inconclusive"), (None, "no gap")]
)
def test_the_figure_is_the_picture_of_the_page(
    gap: float | None, state: str, make_run: MakeRun, one_percent: Policy
) -> None:
    """Its numbers and names are those of the page's picture, and so are the places of its line."""
    pytest.importorskip("matplotlib")
    if gap is None:
        cand = curve_from_arrays(np.arange(2000), np.full(2000, np.nan))
    else:
        cand = make_run(seed=2, gap=gap)
    policy = dataclasses.replace(one_percent, schedule="decayed")
    case = Case(
        baseline=[make_run()],
        candidates={"nvfp4": [cand]},
        policy=policy,
        planned_steps=2000,
        baseline_name="fp8",
    )
    (verdict,) = case.verdicts()
    (document,) = with_path([verdict])
    assert state in ("no gap", document["verdict"])
    figure = verdict_figure(document, case)
    scene = case_scene(case, [document])
    page = re.findall(r"<(?:text|figcaption)[^>]*>(.*?)</(?:text|figcaption)>", picture(scene))
    said = {unescape(re.sub("<[^>]+>", "", words)) for words in page}
    printed = "".join(_texts(figure))
    of_script = {"", "fp8"}  # a second, shorter name for narrow screens
    missing = {words for words in said - of_script if words not in printed}
    assert {words for words in missing if "nats per token" not in words} == set()
    area, panel = figure.axes
    shades = {patch.get_facecolor() for patch in area.patches}
    assert panel.get_facecolor() in shades, "no seam between the window and the panel"
    if gap is not None:
        axes = axes_of(scene)
        last = document["path"][-1]
        (line,) = (line for line in figure.axes[0].lines if line.get_linewidth() == 1.6)
        assert line.get_xydata()[-1].tolist() == [axes.x(last["step"]), axes.far_y(last["mean"])]


def test_a_document_without_its_path_gets_the_same_figure(
    make_run: MakeRun, one_percent: Policy, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    case = Case(
        baseline=[make_run()],
        candidates={"c": [make_run(seed=2)]},
        policy=one_percent,
        planned_steps=2000,
    )
    verdicts = case.verdicts()
    files = []
    for number, document in enumerate((verdicts[0].document(), *with_path(verdicts))):
        files.append(tmp_path / f"{number}.svg")
        draw_figure(str(files[-1]), document, case)
    assert files[0].read_bytes() == files[1].read_bytes()
