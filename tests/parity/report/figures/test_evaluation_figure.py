import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.judging.evaluations.document_types import EvaluationDocument
from parity.report.figures.evaluation_figure import (
    ROW_SPREAD,
    dot_heights,
    draw_evaluation_figure,
    run_rows,
)
from parity.report.figures.figure_file import FigureError
from parity.report.figures.scene_figure import BASELINE, COLOURS
from parity.report.picture.scene import scene_of
from parity.report.view import view_of
from parity.report.words import words

Compare = Callable[..., EvaluationDocument]
WHOLE = {
    "has_path": True,
    "cluster": "system",
    "target": 3.34,
    "tokens_per_step": 8192.0,
    "timed": True,
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"runs": (1, 3)},
        {"runs": (3, 3), "target": 1.0, "names": ("b" * 60, "c" * 60)},
        {"cluster": "system", "timed": True},
        {**WHOLE, "change": lambda run: dataclasses.replace(run, steps=run.steps + 1)},
    ],
)
def test_every_kind_of_evaluation_is_drawn(
    options: dict[str, object], compared: Compare, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "figure.svg"
    draw_evaluation_figure(str(path), compared(**options))
    assert len(path.read_bytes()) > 5000


def test_the_gap_is_the_picture_of_the_page(compared: Compare, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    document, path = compared(**WHOLE), tmp_path / "figure.svg"
    draw_evaluation_figure(str(path), document)
    drawn, scene = path.read_text(encoding="utf-8"), scene_of([document])
    assert "line: mean gap" in scene.legend
    said = [scene.legend, scene.note, scene.traces[0].label, *scene.traces[0].notes]
    assert [words for words in said if words not in drawn] == []
    colours = {COLOURS[trace.state] for trace in scene.traces} | {BASELINE}
    assert all(colour in drawn for colour in colours)
    assert COLOURS["fail"] not in drawn  # no colour of another verdict


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_equal_documents_give_equal_files(suffix: str, compared: Compare, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    document, path = compared(**WHOLE), tmp_path / f"figure.{suffix}"
    draw_evaluation_figure(str(path), document)
    first = path.read_bytes()
    assert len(first) > 5000
    draw_evaluation_figure(str(path), document)
    assert path.read_bytes() == first


def test_the_file_is_titled_with_the_answer(compared: Compare, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    document, path = compared(**WHOLE), tmp_path / "figure.svg"
    draw_evaluation_figure(str(path), document)
    assert words(view_of(document)).line in path.read_text(encoding="utf-8")


def test_another_ending_is_refused(compared: Compare) -> None:
    with pytest.raises(FigureError, match=r"expected a name ending in \.png"):
        draw_evaluation_figure("figure.txt", compared())


def test_each_cluster_has_a_row_below_its_arm(compared: Compare) -> None:
    document = compared(**WHOLE)
    rows = run_rows(document)
    assert [row.whole for row in rows] == [True, False, False, True, False, False, False, False]
    assert [row.arm for row in rows] == [0, 0, 0, 1, 1, 1, 1, 1]
    assert sum(len(row.runs) for row in rows if not row.whole) == 14
    # without "maker/", which all have
    assert [row.name for row in rows[:3]] == ["FP8", "fp8_current-0", "fp8_current-1"]
    assert [row.name for row in run_rows(compared())] == ["FP8", "NVFP4"]


def test_names_are_not_shortened_to_equal_ones(compared: Compare) -> None:
    apart = {"fp8_current": "x/node", "nvfp4": "y/node"}
    document = compared(
        cluster="hall",
        change=lambda run: dataclasses.replace(run, context={"hall": apart["nvfp4"]}),
    )
    for run in document["baseline"]["runs"]:
        run["cluster"] = apart["fp8_current"]
    assert [row.name for row in run_rows(document)] == ["FP8", "x/node", "NVFP4", "y/node"]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 6, 40])
def test_dots_stay_in_their_row_and_neighbours_apart(count: int) -> None:
    heights = dot_heights(count)
    assert len(heights) == count
    assert max(map(abs, heights), default=0.0) <= ROW_SPREAD
    assert all(left != right for left, right in itertools.pairwise(heights))
    assert count != 1 or heights == [0.0]
