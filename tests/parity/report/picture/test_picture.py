"""The picture of a verdict: what its percents say is what the document says, and nothing odd breaks
it.
"""

import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parity.judging.case import Case
from parity.judging.curves.curve import curve_from_arrays
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.path import evaluation_path_of, with_path
from parity.report.candidates import safest_first
from parity.report.number_words import ends_words, mean_words
from parity.report.picture.axes import Axes, steady_limits, ticks, x_ticks
from parity.report.picture.case_scene import case_scene
from parity.report.picture.live_trace import live_trace
from parity.report.picture.picture import legend_words, picture
from parity.report.picture.scene import JudgedInterval, Losses, Marks, Scene, Trace, scene_of
from parity.report.picture.spread import spread
from parity.report.view import views_of
from parity.wording import cut, level_percent, minus
from tests.parity.conftest import synthetic
from tests.parity.report.conftest import evaluated

STEPS = 400
GAPS = {"mxfp8": 0.0, "nvfp4-wgrad16": 0.024, "nvfp4": 0.06}
ONE_PERCENT = policy_from_mapping({"schedule": "decayed", "margin": "1.0%"})


def case_of(gaps: dict[str, float], **changes: object) -> Case:
    runs = {
        name: [synthetic(STEPS, seed=10 + place, gap=gap)]
        for place, (name, gap) in enumerate(gaps.items())
    }
    given = {
        "baseline": [synthetic(STEPS)],
        "candidates": runs,
        "policy": ONE_PERCENT,
        "baseline_name": "fp8",
        "planned_steps": STEPS,
    }
    return Case(**(given | changes))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def three() -> tuple[list, Scene]:
    case = case_of(GAPS)
    documents = with_path(case.verdicts())
    return documents, case_scene(case, documents)


class Drawn:
    """A picture read back: its elements, and nats from heights in percent through the numbers of
    the axis.
    """

    def __init__(self, html: str) -> None:
        self.root = ElementTree.fromstring(html)  # noqa: S314
        texts = [
            (percent(text.get("y")), number(text.text))
            for text in self.all("svg[@class='yax']/text")
        ]
        (self.top, first), (bottom, last) = texts[0], texts[-1]
        self.first, self.slope = first, (last - first) / (bottom - self.top)

    def all(self, path: str) -> list[ElementTree.Element]:
        return self.root.findall(f".//{path}")

    def of(self, look: str, tag: str = "*") -> list[ElementTree.Element]:
        return [
            each
            for each in self.root.iter()
            if look in (each.get("class") or "").split() and tag in ("*", each.tag)
        ]

    def nats(self, height: float) -> float:
        return self.first + (height - self.top) * self.slope

    def label(self, look: str) -> str:
        return "".join(self.of(look)[0].itertext())


def percent(text: str | None) -> float:
    return float((text or "nan").removesuffix("%"))


def number(text: str | None) -> float:
    return float((text or "").replace("\N{MINUS SIGN}", "-"))


def points(path: ElementTree.Element) -> list[tuple[float, float]]:
    pairs = re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.get("d") or "")
    return [(float(x), float(y)) for x, y in pairs]


def test_marks_whiskers_and_the_ends_of_band_and_line_are_the_verdict(three):
    documents, scene = three
    drawn = Drawn(picture(scene, with_points=False))
    near = 0.0011 * abs(drawn.slope) * 100.0
    for place, view in enumerate(safest_first(views_of(documents))):
        recorded = view.document["gap"]
        gap = {"mean": recorded["mean"], **recorded["deciding"]}
        group = next(each for each in drawn.of("j") if each.get("data-c") == str(place))
        whisker = next(each for each in group.iter("line") if each.get("class") == "wh")
        assert drawn.nats(percent(whisker.get("y1"))) == pytest.approx(gap["hi"], abs=near)
        assert drawn.nats(percent(whisker.get("y2"))) == pytest.approx(gap["lo"], abs=near)
        assert drawn.nats(percent(group.find("svg").get("y"))) == pytest.approx(
            gap["mean"], abs=near
        )
        curve = next(each for each in drawn.of("cv") if each.get("data-c") == str(place))
        band, line = (
            next(each for each in curve if each.get("class") == look) for look in ("band", "line")
        )
        last = max(x for x, _ in points(band))
        ends = sorted(drawn.nats(y / 10.0) for x, y in points(band) if x == last)
        assert ends == pytest.approx([gap["lo"], gap["hi"]], abs=near)
        assert points(line)[-1] == pytest.approx((last, points(line)[-1][1]))
        assert drawn.nats(points(line)[-1][1] / 10.0) == pytest.approx(gap["mean"], abs=near)
        assert len(points(line)) == len(view.document["path"])


def test_zero_the_margin_and_the_window_are_where_the_document_has_them(three):
    documents, scene = three
    drawn = Drawn(picture(scene, with_points=False))
    levels = [
        (look, float(re.findall(r"M0 (-?[\d.]+)H", each.get("d"))[0]))
        for look in ("zero", "mar")
        for each in drawn.of(look)
    ]
    values = {look: drawn.nats(height / 10.0) for look, height in levels}
    assert values["zero"] == pytest.approx(0.0, abs=1e-4)
    assert values["mar"] == pytest.approx(documents[0]["margin"]["nats"], abs=1e-4)
    (shade,) = drawn.of("win")
    assert float(shade.get("x")) == pytest.approx(
        1000.0 * documents[0]["window"]["first"] / (STEPS - 1), abs=0.1
    )
    assert drawn.label("z") == "fp8 = 0"
    assert any("".join(each.itertext()).startswith("margin +0.0") for each in drawn.of("lab"))


def test_labels_are_the_numbers_of_the_sentences(three):
    documents, scene = three
    labels = [
        each.find("g/text/tspan").text for each in Drawn(picture(scene, with_points=False)).of("jl")
    ]
    assert labels == [minus(mean_words(view)) for view in safest_first(views_of(documents))]


def test_only_the_selected_one_is_marked_and_drawn_last(three):
    _, scene = three
    drawn = Drawn(picture(replace(scene, selected=1), with_points=False))
    curves = drawn.of("cv")
    assert [each.get("data-c") for each in curves] == ["0", "2", "1"]
    assert [each.get("data-c") for each in drawn.of("on") if "cv" in each.get("class").split()] == [
        "1"
    ]
    assert len([each for each in drawn.root.iter("tspan") if each.get("data-judged")]) == 1


@pytest.mark.parametrize(("low", "lines"), [(-0.02, 1), (-0.05, 2)])
def test_the_lower_margin_is_drawn_only_where_an_interval_crosses_it(low, lines):
    trace = bare("a", [JudgedInterval(mean=0.0, lo=low, hi=0.02)])
    drawn = Drawn(picture(scene_with([trace], margin=0.03), with_points=False))
    assert len(drawn.all("div[@class='jud']//path[@class='mar']")) == lines


@pytest.mark.parametrize(("low", "side"), [(-0.05, None), (-0.2, "end")])
def test_the_lower_margin_has_its_name_wherever_it_is_drawn(low, side):
    """On the right where zero's own label is near."""
    trace = bare("a", [JudgedInterval(mean=0.0, lo=low, hi=0.02 - 2.0 * low)])
    drawn = Drawn(picture(scene_with([trace], margin=0.03), with_points=False))
    (label,) = [
        each for each in drawn.of("strong", "text") if (each.text or "").startswith("margin −0.03")
    ]
    assert ("end" in label.get("class").split()) == (side == "end")


@pytest.mark.parametrize(
    ("first", "last", "side"),
    [
        (0, 300, "end"),
        (0, 130, "middle"),
        (300, 399, None),
        (0, 399, None),
    ],
)
def test_the_margins_label_covers_no_first_points_where_its_other_end_is_free(first, last, side):
    judged = JudgedInterval(mean=0.03, lo=0.02, hi=0.04)
    dots = [(float(step), 0.0305) for step in range(first, last, 10)]
    trace = replace(bare("a", [judged]), dots=dots)
    drawn = Drawn(picture(scene_with([trace], margin=0.03, end=399), with_points=False))
    (label,) = [
        each for each in drawn.of("strong", "text") if (each.text or "").startswith("margin +0.03")
    ]
    assert {"middle", "end"} & set(label.get("class").split()) == {side} - {None}


def test_the_legend_names_the_marks_of_the_baseline_apart():
    def legend(**marks):
        judged = [JudgedInterval(mean=0.0, lo=-0.1, hi=0.1)]
        return legend_words(scene_with([bare("a", judged, marks=Marks(**marks))]))

    assert "spike" not in legend()
    assert legend(spikes=((), (5,))).endswith("▲ spike")
    assert legend(spikes=((5,), ())).endswith("▼ spike of fp8")
    assert legend(spikes=((5,), (7,)), nonfinite=((9,), ())).endswith(
        "▲ spike · ▼ spike of fp8 · ▽ NaN of fp8"
    )


def test_the_trend_is_drawn_through_the_judged_steps_where_the_gap_grows():
    path = [{"step": step, "mean": 0.02, "lo": 0.01, "hi": 0.03} for step in range(20, 400, 20)]
    judged = [JudgedInterval(mean=0.02, lo=0.01, hi=0.03)]
    flat = bare("a", judged, path=path)
    scene = scene_with([replace(flat, trend=(0.015, 0.025))], margin=0.03, window=(320, 399))
    drawn = Drawn(picture(scene, with_points=False))
    (line,) = drawn.of("trend")
    (left, first), (right, last) = points(line)
    assert (left, right) == pytest.approx((1000.0 * 320 / 399, 1000.0), abs=0.1)
    assert [drawn.nats(y / 10.0) for y in (first, last)] == pytest.approx([0.015, 0.025], abs=1e-4)
    assert "dashed: trend" in drawn.of("r")[0].text
    still = Drawn(picture(scene_with([flat], margin=0.03, window=(320, 399)), with_points=False))
    assert still.of("trend") == []
    assert still.of("r")[0].text is None


def test_only_a_gap_whose_growth_decides_has_a_trend(three):
    documents, _ = three
    grows: Any = {**documents[0], "codes": ["GAP_GROWING"], "drift": {"change": 0.01}}
    mean = documents[0]["gap"]["mean"]
    assert scene_of([grows]).traces[0].trend == pytest.approx((mean - 0.005, mean + 0.005))
    secondary: Any = {**grows, "codes": ["CI_STRADDLES_MARGIN", "GAP_GROWING"]}
    assert scene_of([secondary]).traces[0].trend is None


def test_of_many_candidates_one_whisker_and_all_at_the_edge():
    case = case_of({f"policy-{place}": 0.004 * place for place in range(12)})
    scene = case_scene(case, with_path(case.verdicts()))
    drawn = Drawn(picture(scene, with_points=False))
    assert "crowd" in drawn.root.get("class").split()
    assert len(drawn.of("rug")) == 12
    assert len([each for each in drawn.of("j") if "on" in each.get("class").split()]) == 1
    assert all(each.get("class").startswith("k k0") for each in drawn.of("k"))


def test_comparisons_of_evaluations_have_two_bands_and_two_whiskers():
    arms = [
        [evaluated(name, place, gap, many) for place in range(6)]
        for name, gap, many in (("fp8_current", 0.0, 2), ("nvfp4", 0.03, 3))
    ]
    case = EvaluationCase(
        baseline=arms[0],
        candidates={"NVFP4": arms[1]},
        policy=ONE_PERCENT,
        baseline_name="FP8",
        cluster="system",
        tokens_per_step=8192.0,
    )
    document: Any = {**case.documents()[0], "path": evaluation_path_of(case, "NVFP4")}
    drawn = Drawn(picture(scene_of([document]), with_points=False))
    assert len(drawn.of("band")) == 2
    judged, other = (each for each in drawn.root.iter("line") if each.get("class") == "wh")
    clusters, runs = document["gap"]["over_clusters"], document["gap"]["over_runs"]
    for whisker, interval in ((judged, clusters), (other, runs)):
        assert drawn.nats(percent(whisker.get("y1"))) == pytest.approx(interval["hi"], abs=1e-4)
    assert [each.text.partition(":")[0] for each in drawn.of("x", "text")] == [
        "5 systems",
        "12 runs",
    ]
    assert drawn.all("svg[@class='xax']/text[@class='end']")[0].text == "1.31 B tokens"


def test_without_a_gap_both_losses_are_drawn():
    t = np.arange(STEPS)
    base = 2.0 + np.exp(-t / 50.0)
    case = case_of(
        {},
        baseline=[curve_from_arrays(t, base)],
        candidates={"nvfp4": [curve_from_arrays(t, np.where(t > 300, np.nan, base))]},
    )
    documents = with_path(case.verdicts())
    scene = case_scene(case, documents)
    assert not scene.has_gap
    drawn = Drawn(picture(scene, with_points=False))
    assert len(drawn.of("line")) == 2
    assert {each.find("text").text for each in drawn.of("jl")} == {"fp8", "nvfp4"}
    assert drawn.of("zero") == []
    assert len(drawn.of("tri")) == 1
    assert "NaN" in drawn.of("r")[0].text
    (shade,) = drawn.of("nan")
    assert float(shade.get("x")) == pytest.approx(1000.0 * 301 / 399, abs=0.1)
    (label,) = drawn.of("broken")
    assert "".join(label.itertext()) == "NaN from step 301 to 399"
    assert "end" in label.find("text").get("class").split()


def test_of_several_candidates_one_with_nan_has_its_verdict_in_the_panel():
    broken = synthetic(STEPS, seed=11)
    loss = np.where(broken.steps > 350, np.nan, broken.loss)
    case = case_of(
        {}, candidates={"a": [synthetic(STEPS, seed=10)], "b": [replace(broken, loss=loss)]}
    )
    scene = case_scene(case, with_path(case.verdicts()))
    drawn = Drawn(picture(scene, with_points=False))
    labels = ["".join(each.itertext()) for each in drawn.of("num", "text")]
    assert [label for label in labels if label.endswith(" b")] == ["NaN b"]
    (mark,) = [each for each in drawn.of("j") if each.get("data-c") == "1"]
    assert mark.find(".//rect") is not None, "the square of a fail"
    (shade,) = drawn.of("nan")
    assert float(shade.get("x")) == pytest.approx(1000.0 * 351 / 399, abs=0.1)


def test_a_pass_with_one_nan_in_its_middle_is_not_shaded():
    once = synthetic(STEPS, seed=10)
    loss = np.where(once.steps == 100, np.nan, once.loss)
    case = case_of({}, candidates={"a": [replace(once, loss=loss)]})
    drawn = Drawn(picture(case_scene(case, with_path(case.verdicts())), with_points=False))
    assert drawn.of("nan") == drawn.of("broken") == []
    assert len(drawn.of("tri")) == 1


def test_of_several_runs_the_one_with_nan_is_drawn():
    fine, broken = synthetic(STEPS, seed=10), synthetic(STEPS, seed=11)
    loss = np.where(broken.steps > 200, np.nan, broken.loss)
    case = case_of(
        {},
        baseline=[synthetic(STEPS), replace(synthetic(STEPS, seed=1), seed=1)],
        candidates={"a": [fine, replace(broken, loss=loss, seed=1)]},
    )
    scene = case_scene(case, with_path(case.verdicts()))
    drawn = {arm.name: arm.points for arm in scene.losses}
    assert drawn["a"][-1][0] <= 200 < drawn["fp8"][-1][0]


def test_without_a_window_the_panel_has_no_shade():
    trace = live_trace("nvfp4", None)
    shaded = [
        "unjudged" in Drawn(picture(scene_with([trace], window=window))).root.get("class").split()
        for window in (None, (320, 399))
    ]
    assert shaded == [True, False]


class Forecast:
    state, trend = "open", None
    step, passes, fails, inconclusive, gap, low, high, margin = (
        100,
        0.0,
        0.04,
        0.96,
        0.02,
        0.005,
        0.035,
        0.017,
    )


def test_a_live_job_has_a_fan_and_a_hollow_mark_on_the_axes_of_the_plan():
    path = [{"step": step, "mean": 0.02, "lo": 0.01, "hi": 0.03} for step in range(20, 101, 10)]
    trace = live_trace("nvfp4", Forecast(), path)
    scene = scene_with([trace], margin=0.017, end=399, now=100, window=(320, 399))
    drawn = Drawn(picture(scene, with_points=False))
    assert trace.state == "inconclusive"
    outer, half = (
        sorted({drawn.nats(y / 10.0) for x, y in points(each) if x == 1000.0})
        for each in drawn.of("fan")
    )
    assert outer == pytest.approx([0.005, 0.035], abs=1e-4)
    assert half[1] - half[0] == pytest.approx(0.41 * 0.03, abs=1e-4)
    assert drawn.of("now")[0].get("x1") == "25.06%"
    assert "hollow" in drawn.of("mk")[0].get("class")
    empty = scene_with([live_trace("nvfp4", None)], end=399, now=0, window=(320, 399))
    assert "no step yet" in picture(empty)


def test_near_marks_become_one_with_a_count():
    marks = Marks(spikes=((50,), (200, 201, 203, 300)), nonfinite=((), (10,)))
    drawn = Drawn(
        picture(
            scene_with([bare("a", [JudgedInterval(mean=0.0, lo=-0.1, hi=0.1)], marks=marks)]),
            with_points=False,
        )
    )
    assert [each.text for each in drawn.of("count")] == ["3"]
    titles = [each.find("title").text for each in drawn.of("tri")]
    assert titles == [
        "spike at step 50",
        "3 spikes from step 200 to 203",
        "spike at step 300",
        "NaN at step 10",
    ]


@given(st.lists(st.floats(-20.0, 120.0), min_size=1, max_size=8), st.floats(1.0, 20.0))
def test_labels_keep_apart_and_inside(places, least):
    placed = spread(places, least, (5.0, 95.0))
    room = min(least, 90.0 / max(1, len(places) - 1))
    ordered = sorted(placed)
    assert all(after - before >= room - 1e-6 for before, after in pairwise(ordered))
    assert all(5.0 - 1e-6 <= place <= 95.0 + 1e-6 for place in placed)
    if len(places) == 1:
        assert placed == [min(95.0, max(5.0, places[0]))]


def test_a_long_name_is_cut_in_the_middle():
    assert cut("nvfp4", 20) == "nvfp4"
    assert cut("policy-one-first16-last8", 20) == "policy-on…st16-last8"
    assert len(cut("x" * 100, 20)) == 20


@given(st.floats(-1e6, 1e6), st.floats(1e-9, 1e6))
def test_there_are_some_ticks_on_every_axis(low, height):
    values, stride = ticks(low, low + height)
    assert 2 <= len(values) <= 12
    assert all(low - 1e-6 * stride <= value <= low + height + 1e-6 * stride for value in values)


@pytest.mark.parametrize(
    ("last", "kept"), [(1499, ["500"]), (399, ["200"]), (159_744, []), (20, ["10"])]
)
def test_on_a_narrow_screen_one_number_stands_between_the_ends_where_it_has_room(last, kept):
    ticks_of = x_ticks(scene_with([]), Axes(first=0.0, last=float(last), low=0.0, high=1.0))
    between = [tick.words for tick in ticks_of if tick.anchor == "center" and not tick.is_minor]
    assert between == kept


def bare(name: str, judged: list[JudgedInterval], **changes: object) -> Trace:
    given = {
        "name": name,
        "state": "fail",
        "judged": judged,
        "label": "+0.1",
        "notes": ["-0.1 to +0.1"],
        "line": f"{name}: FAIL",
    }
    return Trace(**(given | changes))  # type: ignore[arg-type]


def scene_with(traces: list[Trace], **changes: object) -> Scene:
    given: dict = {"baseline": "fp8", "traces": traces, "decimals": 4, "end": 399}
    return Scene(**(given | changes))


ODD = st.one_of(
    st.floats(-60.0, 60.0),
    st.floats(-1e-6, 1e-6),
    st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e300, -1e300]),
)
POINT = st.tuples(st.integers(0, 399), ODD, ODD, ODD)
NAMES = st.one_of(
    st.just("</script><script>alert(1)</script>"),
    st.just("x" * 100),
    st.text("a<>&\"'`=é", max_size=30),
)
TRACE = st.tuples(
    NAMES,
    st.sampled_from(["pass", "fail", "inconclusive", "live"]),
    st.lists(st.tuples(ODD, ODD, ODD), max_size=2),
)
MARGIN = st.one_of(st.none(), st.floats(1e-6, 50.0))


@given(
    st.lists(st.tuples(TRACE, st.lists(POINT, max_size=5)), min_size=1, max_size=11),
    MARGIN,
    st.booleans(),
    st.none() | st.integers(0, 399),
)
@example([(("a", "pass", [(1e-9, -1e-9, 2e-9)]), [])], 1e-6, False, None)
@example([(("a", "fail", [(49.0, 48.0, 50.0)]), [(399, 49.0, 48.0, 50.0)])], 50.0, False, None)
def test_nothing_odd_breaks_the_picture(rows, margin, has_losses, now):
    traces = []
    for (name, state, judged), path in rows:
        ordered = [
            {"step": step, "mean": mean, "lo": lo, "hi": hi}
            for step, mean, lo, hi in sorted(path, key=lambda each: each[0])
        ]
        judged_list = [JudgedInterval(mean=mean, lo=lo, hi=hi) for mean, lo, hi in judged]
        marks = Marks(nonfinite=((3,), (399,)))
        traces.append(
            bare(
                name,
                judged_list,
                state=state,
                path=ordered,
                dots=[(1.0, 0.1)],
                marks=marks,
                gap=0.1,
                broken=None if judged_list else (3, 399),
            )
        )
    losses = [Losses(name="fp8", arm=None, points=[(0.0, 3.0), (399.0, 2.0)])] if has_losses else []
    html = picture(scene_with(traces, margin=margin, losses=losses, now=now, window=(320, 399)))
    script = html.index("<script") if "<script" in html else len(html)
    assert html[script:].count("</script>") <= 1
    assert " style=" not in html
    assert not re.search(r'(?:x|y|x1|x2|y1|y2|d|width)="[^"]*(?:nan|inf)', html)
    root = ElementTree.fromstring(html[:script] + ("</figure>" if script < len(html) else ""))  # noqa: S314
    for element in root.iter():
        for key in ("y", "y1", "y2", "x1", "x2", "x"):
            value = element.get(key) or ""
            if value.endswith("%"):
                assert 0.0 <= percent(value) <= 100.0


def test_the_cursor_reads_the_numbers_as_they_are_printed(three):
    documents, scene = three
    told = json.loads(re.search(r'class="points">(.*?)</script>', picture(scene))[1])
    for own, view in zip(told["candidates"], safest_first(views_of(documents)), strict=True):
        _, mean, lo, hi = own["path"][-1]
        printed = [
            f"{value / 10 ** own['decimals']:+.{own['decimals']}f}" for value in (mean, lo, hi)
        ]
        assert printed == [
            mean_words(view),
            *ends_words(view, view.gap).split(" to "),
        ]


def test_equal_runs_are_drawn_on_the_zero_line() -> None:
    base = synthetic(STEPS)
    case = case_of(
        {},
        candidates={"head": [curve_from_arrays(base.steps, base.loss)]},
        compares={"head": "revision"},
        baseline=[base],
    )
    documents = with_path(case.verdicts())
    assert documents[0]["codes"][0] == "IDENTICAL"
    scene = case_scene(case, documents)
    assert scene.traces[0].judged == [JudgedInterval(mean=0.0, lo=0.0, hi=0.0)]
    assert {nats for _, nats in scene.traces[0].dots} == {0.0}
    drawn = Drawn(picture(scene))
    assert drawn.label("z") == "fp8 = 0"
    assert drawn.nats(percent(drawn.of("jl")[0].get("y"))) == pytest.approx(0.0, abs=0.005)


def test_candidates_with_baselines_of_their_own_say_whose() -> None:
    case = case_of({"head": 0.0, "head-nvfp4": 0.06}, against={"head-nvfp4": "head"})
    documents = with_path(case.verdicts())
    scene = case_scene(case, documents)
    drawn = Drawn(picture(scene))
    assert drawn.label("z") == "own baseline = 0"
    assert "for head" in scene.margin_note
    assert [trace.notes[0].partition(":")[0] for trace in scene.traces] == ["to fp8", "to head"]
    for trace, view in zip(scene.traces, safest_first(views_of(documents)), strict=True):
        late = [nats for step, nats in trace.dots if step > 0.8 * STEPS]
        assert np.mean(late) == pytest.approx(view.gap.mean, abs=0.003)
    plain = case_of({"head": 0.0, "head-nvfp4": 0.06})
    assert Drawn(picture(case_scene(plain, with_path(plain.verdicts())))).label("z") == "fp8 = 0"


def test_the_axis_of_a_live_job_grows_in_steps_and_never_shrinks():
    first = [-0.01, 0.042, 0.017]
    low, high = steady_limits(first)
    assert low < -0.01
    assert high > 0.042
    assert steady_limits([*first, 0.0, 0.03, 0.016]) == (low, high)
    assert steady_limits([*first, 0.09])[1] >= 0.09
    assert steady_limits([])[0] < 0.0 < steady_limits([math.nan, math.inf])[1]


def test_the_loss_of_an_arm_that_trains_alone_has_its_name_at_its_end():
    losses = [Losses(name="fp8", arm=None, points=[(0.0, 2.0), (50.0, 1.5), (100.0, 1.4)])]
    scene = scene_with([live_trace("nvfp4", None)], end=399, losses=losses)
    drawn = Drawn(picture(scene, with_points=False))
    [name] = drawn.of("jl")
    assert name.find("text").text == "fp8"
    assert float(name.get("x").rstrip("%")) == pytest.approx(100.0 * 100 / 399, abs=0.1)
    [what] = drawn.of("what")
    assert "".join(what.itertext()) == "Loss of fp8, nats per token"


def test_several_forecasts_say_once_that_they_are_of_90_percent():
    traces = [live_trace(name, Forecast()) for name in ("a", "b")]
    html = picture(scene_with(traces, margin=0.017, end=399, now=100), with_points=False)
    assert html.count("90 % forecast") == 1
    alone = picture(scene_with(traces[:1], margin=0.017, end=399, now=100), with_points=False)
    assert alone.count("90 % forecast") == 1


def test_the_legend_has_a_level_only_where_all_intervals_have_it(three):
    documents, scene = three
    assert "band: its interval" in scene.legend
    for document in documents:
        level = level_percent(document["gap"]["deciding"]["level"])
        assert f"band: {level} interval" in scene_of([document]).legend


@pytest.mark.parametrize("cluster", [None, "system"])
def test_the_legend_of_one_evaluation_names_no_line(compared, cluster):
    def first(run):
        return replace(run, steps=run.steps[:1], loss=run.loss[:1])

    several = scene_of([compared(has_path=True, cluster=cluster)])
    one = scene_of([compared(has_path=True, cluster=cluster, change=first)])
    assert "line" in several.legend
    assert several.note
    assert max(len(trace.path) for trace in one.traces) <= 1
    assert "line" not in one.legend
    assert "band" not in one.legend
    assert "whisker" in one.legend
    assert one.note == ""


@pytest.mark.parametrize("last", [100.0, 399.0])
def test_names_of_equal_losses_stand_apart(last):
    losses = [
        Losses(name=name, arm=arm, points=[(0.0, 2.0), (last, 1.4 + off)])
        for name, arm, off in (("fp8", None, 0.0), ("nvfp4", 0, 0.001))
    ]
    scene = scene_with([live_trace("nvfp4", None)], end=399, losses=losses)
    names = Drawn(picture(scene, with_points=False)).of("jl")
    heights = sorted(float(name.get("y").rstrip("%")) for name in names)
    assert sorted(name.find("text").text for name in names) == ["fp8", "nvfp4"]
    assert heights[1] - heights[0] >= 6.9
    assert all(0.0 <= height <= 100.0 for height in heights)
