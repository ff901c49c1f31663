"""When are learning rates a record, when do they differ, and when have they come to their end?

Each limit, from both sides.
"""

import math
from typing import Any

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.learning_rates import (
    constant_rate,
    contradicting_rate,
    cut_schedule,
    decimal_step,
    differing_rates,
    not_at_end,
    rates_could_explain_a_gap,
    recorded_rates,
)

STEPS = 1000
AT = np.arange(STEPS)


def rated(rate: Any, steps: Any = AT, loss: float = 3.0) -> Curve:
    at = np.asarray(steps)
    rates = np.broadcast_to(np.asarray(rate, dtype=float), len(at))
    return curve_from_arrays(
        at, np.broadcast_to(loss, len(at)), columns={"learning_rate": rates}, label="r"
    )


# Irrational rates, which no number of digits explains.
IRREGULAR = 0.5 + 0.1 * np.sin(AT * math.e) / math.pi


@pytest.mark.parametrize(("rates", "recorded"), [(1, False), (2, True)])
def test_two_rates_are_a_record(rates: int, recorded: bool) -> None:
    """One is a setting."""
    sparse = np.full(STEPS, np.nan)
    sparse[[10, 500][:rates]] = 1.0
    assert (recorded_rates(rated(sparse)) is not None) == recorded
    short = np.arange(rates)
    assert (recorded_rates(rated(1.0, short)) is not None) == recorded


@pytest.mark.parametrize(("by", "constant"), [(0.99e-3, True), (1.01e-3, False)])
def test_a_rate_is_constant_within_a_thousandth_from_a_tenth_of_the_run_on(
    by: float, constant: bool
) -> None:
    rate = np.ones(STEPS)
    rate[-1] = 1.0 - by
    assert constant_rate([rated(rate)]) == constant
    rate[99], rate[-1] = 0.5, 1.0
    assert constant_rate([rated(rate)])
    rate[100] = 0.5
    assert not constant_rate([rated(rate)])


@pytest.mark.parametrize(("by", "differ"), [(0.99e-3, False), (1.01e-3, True)])
def test_rates_differ_beyond_a_thousandth_of_the_peak(by: float, differ: bool) -> None:
    other = IRREGULAR.copy()
    peak = float(IRREGULAR.max())
    highest = 1 + int(np.argmax(IRREGULAR[1:-1]))
    other[highest] += by * peak
    found = differing_rates([rated(IRREGULAR), rated(other)])
    assert (found is not None) == differ


@pytest.mark.parametrize(
    ("share", "by", "explain"),
    [(0.051, 0.0101, True), (0.051, 0.0099, False), (0.049, 0.0101, False)],
)
def test_rates_explain_a_gap_where_they_differ_by_a_hundredth_at_a_twentieth_of_the_steps(
    share: float, by: float, explain: bool
) -> None:
    """Of the steps after the first fifth of the run, 800 here."""
    other = np.ones(STEPS)
    other[STEPS - round(800 * share) :] += by
    assert rates_could_explain_a_gap([rated(1.0), rated(other)]) == explain


@pytest.mark.parametrize(("until", "explain"), [(239, False), (240, True)])
def test_rates_of_the_first_fifth_explain_no_gap(until: int, explain: bool) -> None:
    """Where 39 or 40 of the 800 steps after it differ."""
    other = np.ones(STEPS)
    other[:until] = 0.5
    assert rates_could_explain_a_gap([rated(1.0), rated(other)]) == explain


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([0.5, 0.25, 0.13], 0.01),
        ([1.0, 0.1234, 0.5], 1e-4),
        ([1.0, 0.12345, 0.5], 0.0),
        ([9.0, 0.1234, 0.5], 0.0),
        ([0.0, 0.0], 0.0),
    ],
)
def test_rates_are_rounded_to_a_ten_thousandth_of_the_largest_at_most(
    values: list[float], step: float
) -> None:
    assert decimal_step(np.array(values)) == pytest.approx(step)


def decayed(end: float, last: float = 0.5, points: int = STEPS) -> Curve:
    """A constant rate that falls over the last half to this share of its peak and stays there."""
    at = np.linspace(0.0, 1.0, points)
    fall = np.clip((at - (1.0 - last)) / (0.6 * last), 0.0, 1.0)
    return rated(1.0 + (end - 1.0) * fall, np.linspace(0, STEPS - 1, points).astype(int))


@pytest.mark.parametrize(("end", "is_end"), [(0.1999, True), (0.2001, False)])
def test_a_schedule_has_ended_at_a_fifth_of_its_peak(end: float, is_end: bool) -> None:
    run = decayed(end)
    assert (not_at_end([run]) is None) == is_end
    assert (contradicting_rate([run], cut_counts=True) is None) == is_end


@pytest.mark.parametrize(("points", "is_known"), [(9, False), (10, True)])
def test_ten_rates_show_a_schedule(points: int, is_known: bool) -> None:
    assert (not_at_end([decayed(0.1, points=points)]) is None) == is_known


@pytest.mark.parametrize(("first", "is_known"), [(100, True), (101, False)])
def test_the_rates_reach_from_the_first_tenth_of_the_run(first: int, is_known: bool) -> None:
    """And one logging interval, of 1,000 steps."""
    run = decayed(0.1)
    rates = run.columns["learning_rate"].copy()
    rates[:first] = np.nan
    assert (not_at_end([rated(rates)]) is None) == is_known


@pytest.mark.parametrize(("missing", "is_known"), [(2, True), (3, False)])
def test_the_rates_reach_to_two_intervals_before_the_end(missing: int, is_known: bool) -> None:
    rates = decayed(0.1).columns["learning_rate"].copy()
    rates[-missing:] = np.nan
    assert (not_at_end([rated(rates)]) is None) == is_known


@pytest.mark.parametrize(("before", "is_decay"), [(0.4999, True), (0.5001, False)])
def test_a_decay_is_at_half_of_its_peak_two_percent_before_the_end(
    before: float, is_decay: bool
) -> None:
    rates = np.ones(1001)
    rates[900:981] = np.linspace(1.0, before, 81)
    rates[980:] = np.linspace(before, 0.0, 21)
    run = rated(rates, np.arange(1001))
    assert ("a step" not in str(not_at_end([run]))) == is_decay


@pytest.mark.parametrize(("rise", "end"), [(0.0099, None), (0.0101, "rises")])
def test_a_rate_that_still_rises_by_a_hundredth_was_cut(rise: float, end: str | None) -> None:
    """Over the last twentieth of the run."""
    rates = np.full(1001, 1.0 - rise)
    rates[:900] = 1.0
    rates[950:] = 1.0 - rise + rise * np.linspace(0.0, 1.0, 51)
    assert cut_schedule(rated(rates, np.arange(1001))) == end


def line(r0: float, r1: float, r2: float) -> Curve:
    """Rates at the end, 5 % and 10 % before it; a peak before that."""
    rates = np.ones(1001)
    rates[800:901] = np.linspace(1.0, r2, 101)
    rates[900:951] = np.linspace(r2, r1, 51)
    rates[950:] = np.linspace(r1, r0, 51)
    return rated(rates, np.arange(1001))


@pytest.mark.parametrize(
    ("rates", "end"),
    [
        ((0.0101, 0.03, 0.05), None),  # zero at 2.5 %
        ((0.0201, 0.05, 0.08), "falls"),  # zero at 3.4 %
        ((0.0176, 0.0476, 0.0776), None),  # zero at 2.93 %
        ((0.0184, 0.0484, 0.0784), "falls"),  # zero at 3.07 %
        ((0.0099, 0.0129, 0.0159), None),  # at one percent of the peak it has ended
        ((0.0101, 0.0131, 0.0161), "falls"),
        ((0.5, 0.5019, 0.5038), None),  # it fell by less than 0.2 % of the peak
        ((0.05, 0.0519, 0.0538), None),
        ((0.05, 0.0521, 0.0542), "falls"),
        ((0.1, 0.1033, 0.1066), None),  # zero at 1.52 and below 12 % of the peak
        ((0.1, 0.1034, 0.1068), "falls"),  # zero at 1.47
        ((0.121, 0.1233, 0.1256), "falls"),  # zero at 2.6, never flat, above 12 %
        ((0.119, 0.1213, 0.1236), None),  # the same below 12 %
        ((0.1, 0.13, 0.1795), "falls"),  # it levels off after 5.2 % of the run
        ((0.1, 0.13, 0.1805), None),  # after 4.8 %
    ],
)
def test_what_a_cut_schedule_is(rates: tuple[float, float, float], end: str | None) -> None:
    assert cut_schedule(line(*rates)) == end
