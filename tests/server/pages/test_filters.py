"""Numbers as people read them."""

import pytest

from server.pages import filters

GAP = "\u00a0"


@pytest.mark.parametrize(
    ("value", "shown"), [(0.02621, "+0.0262"), (-0.004, "−0.0040"), (None, "–"), ("nan", "NaN"), ("-inf", "−∞"), (0.0, "+0.0000")]
)
def test_gaps_carry_their_sign(value, shown):
    assert filters.nats(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, f"0{GAP}s"),
        (59.4, f"59{GAP}s"),
        (59.6, f"1{GAP}min 00{GAP}s"),
        (7500, f"2{GAP}h 05{GAP}min"),
        (822_528, f"9.5{GAP}days"),
        (None, "–"),
    ],
)
def test_durations(seconds, shown):
    assert filters.duration(seconds) == shown


@pytest.mark.parametrize(("steps_a_second", "shown"), [(26.74, "26.7/s"), (0.032, f"31.2{GAP}s each"), (0.0, "0.0/s"), (None, "–")])
def test_rates_of_slow_steps_are_no_zero(steps_a_second, shown):
    assert filters.rate(steps_a_second) == shown


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [(319_584, f"320{GAP}k"), (8_030_000_000, f"8{GAP}B"), (405e9, f"405{GAP}B"), (1_050_000, f"1.1{GAP}M"), (12e6, f"12{GAP}M")],
)
def test_sizes(parameters, shown):
    assert filters.size(parameters) == shown


def test_minus_signs_only_where_a_number_is_negative():
    assert filters.minus("gap -0.004 (CI -0.012 to +0.004); nvfp4-x 10-20") == "gap −0.004 (CI −0.012 to +0.004); nvfp4-x 10-20"


def test_the_time_between_two_instants():
    assert filters.between("2026-01-01T00:00:00.000Z", "2026-01-01T00:01:30.000Z") == f"1{GAP}min 30{GAP}s"
    assert filters.between(None, None) == "–"


def _verdict(mean, half, margin=0.01):
    return {"gap": {"mean": mean, "lo": mean - half, "hi": mean + half}, "margin": {"nats": margin}}


def test_small_figures_of_gaps_hold_all_that_they_show_and_share_a_scale():
    near, far = _verdict(0.001, 0.002), _verdict(0.05, 0.01)
    alone, together = filters.small_gap(near), filters.small_gap(near, [near, far])
    assert filters.small_gap(far, [near, far]) == filters.small_gap(far)
    assert together["margin"] == filters.small_gap(far)["margin"] < alone["margin"]
    for figure in (alone, together, filters.small_gap(far), filters.small_gap(_verdict(-0.5, 0.1))):
        assert 0 <= figure["low"] <= figure["mean"] <= figure["high"] <= 128
        assert 0 <= figure["minus"] < 64 < figure["margin"] <= 128


def test_figures_in_margins_have_one_axis_and_mark_what_lies_beyond_it():
    small, large = filters.gap_in_margins(_verdict(0.001, 0.002)), filters.gap_in_margins(_verdict(0.05, 0.01, margin=0.04))
    assert (small["minus"], small["margin"]) == (large["minus"], large["margin"]) == (42.7, 85.3)
    assert [small[name] for name in ("below", "above", "outside")] == [False, False, False]
    cut = filters.gap_in_margins(_verdict(0.02, 0.02))
    assert (cut["low"], cut["mean"], cut["high"]) == (64.0, 106.7, 128.0)
    assert [cut[name] for name in ("below", "above", "outside")] == [False, True, False]
    assert [filters.gap_in_margins(_verdict(-0.5, 0.1))[name] for name in ("below", "above", "outside")] == [True, False, True]
    wide = filters.gap_in_margins(_verdict(0.0, 0.5))
    assert [wide[name] for name in ("below", "above", "outside")] == [True, True, False]
    assert filters.gap_in_margins(_verdict(0.1, 0.1, margin=0.0)) is None
    assert filters.gap_in_margins({"gap": None}) is None


@pytest.mark.parametrize("verdict", [{}, {"gap": None}, {**_verdict(0.1, 0.1), "margin": None}, _verdict(float("nan"), 0.1)])
def test_without_a_finite_gap_and_margin_there_is_no_small_figure(verdict):
    assert filters.small_gap(verdict) is None
    assert filters.small_gap(_verdict(0.0, 0.1), [verdict]) == filters.small_gap(_verdict(0.0, 0.1))
