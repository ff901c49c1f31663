"""Numbers as people read them."""

import functools

import pytest
from markupsafe import Markup

from parity import wording
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import judge
from server.pages import formats
from tests.parity.conftest import synthetic

GAP = "\u00a0"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.02621, "+0.0262"),
        (-0.004, "−0.0040"),
        (None, "–"),
        ("nan", "NaN"),
        ("-inf", "−∞"),
        (0.0, "+0.0000"),
        (-0.00004, "+0.0000"),
    ],
)
def test_gaps_carry_their_sign(value, shown):
    assert formats.nats(value) == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0.0035, f"+0.35{GAP}%"), (-0.0035, f"−0.35{GAP}%"), (-0.00004, f"+0.00{GAP}%")],
)
def test_shares_carry_their_sign(share, shown):
    assert formats.signed_percent(share) == shown


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
    assert formats.duration(seconds) == shown


@pytest.mark.parametrize(
    ("steps_a_second", "shown"),
    [(26.74, "26.7/s"), (0.032, f"31.2{GAP}s each"), (0.0, "0.0/s"), (None, "–")],
)
def test_rates_of_slow_steps_are_no_zero(steps_a_second, shown):
    assert formats.rate(steps_a_second) == shown


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [
        (319_584, f"320{GAP}k"),
        (8_030_000_000, f"8{GAP}B"),
        (405e9, f"405{GAP}B"),
        (1_050_000, f"1.1{GAP}M"),
        (12e6, f"12{GAP}M"),
    ],
)
def test_sizes(parameters, shown):
    assert formats.size(parameters) == shown


def test_minus_signs_only_where_a_number_is_negative():
    assert (
        wording.minus("gap -0.004 (CI -0.012 to +0.004); nvfp4-x 10-20")
        == "gap −0.004 (CI −0.012 to +0.004); nvfp4-x 10-20"
    )


def test_the_time_between_two_instants():
    assert (
        formats.between("2026-01-01T00:00:00.000Z", "2026-01-01T00:01:30.000Z")
        == f"1{GAP}min 30{GAP}s"
    )
    assert formats.between(None, None) == "–"


@functools.cache
def _judged():
    policy = policy_from_mapping({"margin": "1%", "schedule": "decayed"})
    runs = synthetic(400, seed=1), synthetic(400, seed=2)
    (verdict,) = judge([runs[0]], {"cand": [runs[1]]}, policy, planned_steps=400)
    return verdict.document()


def _verdict(mean, half, margin=0.01):
    document = _judged()
    gap = {**document["gap"], "mean": mean, "lo": mean - half, "hi": mean + half}
    changes = {"codes": ["WITHIN_MARGIN"], "gap": gap}
    return {**document, **changes, "margin": {**document["margin"], "nats": margin}}


@pytest.mark.parametrize("gap", [None, _verdict(float("nan"), 0.1)["gap"]])
def test_without_a_finite_gap_there_is_no_small_figure(gap):
    assert formats.gap_in_margins({**_verdict(0.1, 0.1), "gap": gap, "verdict": "fail"}) == ""


def test_the_small_figure_of_a_verdict():
    figure = formats.gap_in_margins({**_verdict(0.001, 0.002), "verdict": "pass"})
    assert isinstance(figure, Markup)
    assert figure.startswith('<svg class="forest pass"')
