"""The gap chart as SVG: well-formed in every case, within its frame, with what happened marked."""

import re

import numpy as np
import pytest

from parity.judging.evidence import Case
from parity.report.figures import verdict_gap
from parity.report.svg import NARROW, WIDE, gap_svg


@pytest.fixture
def drawn(make_run, judge_pair, one_percent):
    """A function that judges a pair and draws it."""

    def draw(base, candidate, width=WIDE, **options):
        verdict = judge_pair(base, candidate, **options)
        document = verdict.document()
        case = Case(baseline=[base], candidates={document["candidate"]["name"]: [candidate]}, criteria=one_percent, planned_steps=2000)
        return gap_svg(document, verdict_gap(document, case), width)

    return draw


def _points(svg):
    return np.array(re.findall(r"(-?\d+\.\d),(-?\d+\.\d)", svg), dtype=float)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_everything_is_within_the_frame(drawn, make_run, width):
    svg = drawn(make_run(), make_run(seed=2, gap=0.5), width)
    points = _points(svg)
    assert points.min() >= 0
    assert points[:, 0].max() <= width
    assert svg.count('class="margin"') == 2
    assert re.search(r"window judged \(shaded\): \+0\.(49|50)", svg)
    assert svg.count("<") == svg.count(">")


def test_losses_that_are_not_finite_are_marked_and_cut_the_line(drawn, make_run):
    broken = make_run(seed=2)
    loss = broken.loss.copy()
    loss[300:700] = np.nan
    svg = drawn(make_run(), type(broken)(steps=broken.steps, loss=loss, completeness=broken.completeness))
    assert svg.count('<path class="bad"') > 50
    assert "NaN or infinite" in svg


def test_numbers_that_cannot_be_drawn_do_not_reach_the_chart(drawn, make_run):
    flat = make_run()
    zero = type(flat)(steps=flat.steps, loss=np.zeros_like(flat.loss), completeness=flat.completeness)
    for pair in ((zero, zero), (flat, zero), (flat, flat)):
        svg = drawn(*pair)
        assert not [value for value in re.findall(r'="([^"]*)"', svg) if re.search(r"nan|inf\b", value)]
