"""Gaps on one axis: where marks stand, what is cut off, and which labels have room."""

import re

import pytest

from parity.report.picture.forest import WIDTH, DrawnGap, axis_of, head_svg, own_row_svg, row_svg


def _estimate(
    mean: float, half: float = 0.005, state: str = "pass", margin: float | None = 0.014
) -> DrawnGap:
    return DrawnGap(mean=mean, lo=mean - half, hi=mean + half, margin=margin, state=state)


def _lines(svg: str, name: str) -> list[float]:
    return [float(x) for x in re.findall(rf'class="{name}" x1="([0-9.]+)"', svg)]


def test_rows_and_head_share_zero_and_margin():
    rows = [
        _estimate(0.001),
        _estimate(0.03, state="fail"),
        _estimate(0.0139, state="inconclusive"),
    ]
    axis = axis_of(rows)
    drawn = [row_svg(row, axis) for row in rows] + [head_svg(axis)]
    assert {tuple(_lines(svg, "zero")) for svg in drawn} == {(axis.place(0.0),)}
    assert {tuple(_lines(svg, "edge")) for svg in drawn} == {
        (axis.place(0.014), axis.place(-0.014))
    }
    assert axis.low == pytest.approx(-1.4 * 0.014)
    assert axis.high == pytest.approx(1.05 * 0.035)
    assert "margin +0.0140" in drawn[-1]
    assert ("<circle" in drawn[0], "<rect" in drawn[1], 'class="hollow"' in drawn[2]) == (
        True,
        True,
        True,
    )


def test_a_divergence_ends_in_an_arrow_and_flattens_nothing():
    rows = [_estimate(0.001), _estimate(3.0, 0.1, "fail")]
    axis = axis_of(rows)
    assert axis.high == pytest.approx(6 * 0.014)
    svg = row_svg(rows[1], axis)
    assert svg.count("<path") == 1
    assert "<rect" not in svg
    assert "gap +3.0000" in svg
    assert axis.place(3.0) == WIDTH - 6


def test_an_axis_needs_a_number_and_no_margin():
    assert axis_of([]) is None
    axis = axis_of([_estimate(0.01, margin=None)])
    assert axis.high == -axis.low == pytest.approx(0.0165)
    assert "edge" not in head_svg(axis)
    forecast = row_svg(_estimate(0.01, state="forecast", margin=None), axis)
    assert 'aria-label="forecast: gap +0.0100' in forecast


def test_figures_of_their_own_margins_share_the_places_of_zero_and_margin():
    small, large = (
        own_row_svg(_estimate(0.001, 0.002, margin=0.01)),
        own_row_svg(_estimate(0.05, 0.01, margin=0.04)),
    )
    assert _lines(small, "zero") == _lines(large, "zero") == [64.0]
    assert _lines(small, "edge") == _lines(large, "edge") == [83.3, 44.7]
    assert (
        own_row_svg(None)
        == own_row_svg(_estimate(0.1, margin=None))
        == own_row_svg(_estimate(0.1, margin=0.0))
        == ""
    )


@pytest.mark.parametrize(
    ("mean", "half", "arrows", "marks"),
    [(0.001, 0.002, 0, 1), (0.02, 0.02, 1, 1), (-0.5, 0.1, 1, 0), (0.0, 0.5, 2, 1)],
)
def test_what_lies_beyond_three_margins_ends_in_an_arrow(mean, half, arrows, marks):
    svg = own_row_svg(_estimate(mean, half, margin=0.01))
    assert (svg.count("<path"), svg.count("<circle")) == (arrows, marks)
