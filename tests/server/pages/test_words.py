"""Numbers as people read them."""

import pytest

from server.pages import words

GAP = "\u00a0"


@pytest.mark.parametrize(
    ("value", "shown"), [(0.02621, "+0.0262"), (-0.004, "−0.0040"), (None, "–"), ("nan", "NaN"), ("-inf", "−∞"), (0.0, "+0.0000")]
)
def test_gaps_carry_their_sign(value, shown):
    assert words.nats(value) == shown


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
    assert words.duration(seconds) == shown


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [(319_584, f"320{GAP}k"), (8_030_000_000, f"8{GAP}B"), (405e9, f"405{GAP}B"), (1_050_000, f"1.1{GAP}M"), (12e6, f"12{GAP}M")],
)
def test_sizes(parameters, shown):
    assert words.size(parameters) == shown


def test_minus_signs_only_where_a_number_is_negative():
    assert words.minus("gap -0.004 (CI -0.012 to +0.004); nvfp4-x 10-20") == "gap −0.004 (CI −0.012 to +0.004); nvfp4-x 10-20"


def test_the_time_between_two_instants():
    assert words.between("2026-01-01T00:00:00.000Z", "2026-01-01T00:01:30.000Z") == f"1{GAP}min 30{GAP}s"
    assert words.between(None, None) == "–"
