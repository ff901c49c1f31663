"""Where does a comparison stand in its training? Each limit of rates, losses and steps, from both
sides."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.decline import falls_as_before
from parity.judging.curves.learning_rates import (
    constant_rate,
    contradicting_rate,
    cut_schedule,
    differing_rates,
    not_at_end,
    quantum_of,
    rates_could_explain_a_gap,
    recorded_rates,
)
from parity.judging.curves.outside_plan import BeyondPlan, last_recorded, late_start
from parity.judging.curves.schedule import log_slope, schedule_state
from parity.judging.curves.window import make_window, plan_window
from parity.judging.policy import Policy

STEPS = 1000
AT = np.arange(STEPS)


def rated(rate: Any, steps: Any = AT, loss: float = 3.0) -> Curve:
    at = np.asarray(steps)
    rates = np.broadcast_to(np.asarray(rate, dtype=float), len(at))
    return curve_from_arrays(
        at, np.broadcast_to(loss, len(at)), columns={"learning_rate": rates}, label="r"
    )


COSINE = 0.5 * (1.0 + np.cos(np.pi * AT / (STEPS - 1)))
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
    assert quantum_of(np.array(values)) == pytest.approx(step)


# Has a schedule come to its end?


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


# Does a loss fall as before a decay?


def lossy(law: np.ndarray) -> Curve:
    noise = np.random.default_rng(0).normal(0.0, 1e-4, len(law))
    return curve_from_arrays(np.arange(len(law)), law + noise, label="l")


def bent(excess: float, points: int = 2000) -> np.ndarray:
    """A line in ln(step) that stays above itself by this share of its slope at the end."""
    x = np.log(np.arange(1, points + 1) / points)
    late = np.clip((x - math.log(0.6)) / (math.log(0.95) - math.log(0.6)), 0.0, 1.0)
    return 4.0 - 0.3 * x + 0.3 * excess * late


def test_a_loss_falls_as_before_where_it_ends_above_its_line_by_a_third_of_its_slope() -> None:
    found = [falls_as_before(lossy(bent(excess))) for excess in np.linspace(0.1, 0.4, 31)]
    assert found == sorted(found)
    turns = 0.1 + 0.01 * found.index(True)
    law = bent(turns)
    x = np.log(np.arange(1, 2001) / 2000)
    half, end = x > math.log(0.5), x > math.log(0.9)
    line_part = (x > math.log(0.25)) & (x <= math.log(0.6))
    slope = -np.polyfit(x[half], law[half], 1)[0]
    fitted = np.polyval(np.polyfit(x[line_part], law[line_part], 1), x[end]).mean()
    assert (np.median(law[end]) - fitted) / slope == pytest.approx(0.35, abs=0.02)


@pytest.mark.parametrize(("points", "seen"), [(199, False), (200, True)])
def test_a_loss_shows_that_from_two_hundred_points_on(points: int, seen: bool) -> None:
    assert falls_as_before(lossy(bent(0.5, points))) == seen


# Outside the plan.


@pytest.mark.parametrize(
    ("planned", "last"), [(1, 2), (3, 4), (4, 5), (8, 10), (1000, 1250), (1003, 1253)]
)
def test_a_record_keeps_a_quarter_of_the_plan_more(planned: int, last: int) -> None:
    assert last_recorded(planned) == last


@pytest.mark.parametrize(("first", "is_late"), [(50, False), (51, True)])
def test_a_log_starts_late_after_a_twentieth_of_the_plan(first: int, is_late: bool) -> None:
    window = make_window(1000, 0, 0.2, "declared")
    runs = [curve_from_arrays(np.arange(first, 1000), np.full(1000 - first, 3.0))]
    assert late_start(runs, window) == (first if is_late else None)


@pytest.mark.parametrize(
    ("changes", "worse"),
    [
        ({}, False),
        ({"nonfinite_step": 5}, True),
        ({"gap": 0.03}, False),
        ({"gap": 0.030001}, True),
        ({"level": 3.0 + 0.03 + 0.04}, False),  # four errors of 0.01 from 100 points
        ({"level": 3.0 + 0.03 + 0.040001}, True),
        ({"level": 3.0 + 0.03 + 0.04 / math.sqrt(2.0) + 1e-6, "points": 200}, True),
    ],
)
def test_what_makes_a_candidate_worse_beyond_the_plan(
    changes: dict[str, float], worse: bool
) -> None:
    same = BeyondPlan(last=9, share=0.01, nonfinite_step=None, gap=0.0, level=3.0, points=100)
    made = dataclasses.replace(same, **changes)
    assert made.is_worse(3.0 - 1e-12, 0.03 + 2e-12, 0.1) == worse


# How steep is the loss?


def falling(first: int = 2, start: float | None = None, slope: float = 0.1) -> float:
    """The slope of a log from a step on, whose first loss may be another one."""
    steps = np.arange(first, 1001)
    loss = 3.0 - 3.0 * slope * np.log(steps / 1000.0)
    level = float(loss[steps >= 800].mean())
    if start is not None:
        loss[0] = start * level
    return log_slope(steps, loss, loaded=False) * level / 3.0


@pytest.mark.parametrize(("first", "slope"), [(100, 0.1), (200, 0.1), (201, 0.2), (400, 0.2)])
def test_a_log_that_begins_after_a_fifth_of_its_steps_counts_twice(
    first: int, slope: float
) -> None:
    assert falling(first) == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize(("first", "unknown"), [(50, True), (51, False)])
def test_a_log_from_the_start_that_begins_low_may_be_cut(first: int, unknown: bool) -> None:
    """Its slope is then taken to be a fifth at least."""
    steps = np.arange(first, 1001)
    loss = 3.0 - 0.003 * np.log(steps / 1000.0)
    found = log_slope(steps, loss, loaded=False)
    assert found == (pytest.approx(0.2) if unknown else pytest.approx(0.001, rel=0.01))
    assert log_slope(steps, loss, loaded=True) == pytest.approx(0.001, rel=0.01)


@pytest.mark.parametrize(("start", "unknown"), [(1.299, True), (1.301, False)])
def test_a_loss_from_scratch_begins_at_1_3_times_its_end(start: float, unknown: bool) -> None:
    steps = np.arange(1, 1001)
    loss = 3.0 - 0.003 * np.log(steps / 1000.0)
    loss[0] = start * float(loss[799:].mean())
    found = log_slope(steps, loss, loaded=False)
    assert found == (pytest.approx(0.2) if unknown else pytest.approx(0.001, rel=0.01))


def test_a_steeper_log_that_may_be_cut_keeps_its_slope() -> None:
    steps = np.arange(50, 1001)
    for slope, expected in ((0.19, 0.2), (0.22, 0.22)):
        loss = 3.0 - 3.0 * slope * np.log(steps / 1000.0)
        loss[0] = 3.0
        level = float(loss[steps >= 800].mean())
        found = log_slope(steps, loss, loaded=False)
        own = slope * 3.0 / level
        assert found == pytest.approx(max(own, expected if expected == 0.2 else own), rel=1e-3)


@pytest.mark.parametrize(("points", "known"), [(2, False), (3, True)])
def test_a_slope_needs_three_points(points: int, known: bool) -> None:
    steps = np.array([700, 850, 1000])[-points:]
    loss = 5.0 - 0.3 * np.log(steps / 1000.0)
    assert (log_slope(steps, loss, loaded=True) == 0.2) != known


def test_the_slope_is_that_of_the_last_four_fifths() -> None:
    """What was trained before a fifth of the last step counts for nothing."""
    steps = np.arange(1, 1001)
    loss = np.where(steps < 200, 9.0, 3.0 - 0.3 * np.log(steps / 1000.0))
    level = float(loss[steps >= 800].mean())
    assert log_slope(steps, loss, loaded=False) == pytest.approx(0.3 / level, rel=1e-6)
    loss[199] = 9.0  # step 200
    assert log_slope(steps, loss, loaded=False) != pytest.approx(0.3 / level, rel=1e-6)


# Finished, and why not.


@pytest.mark.parametrize(
    ("end", "stated", "plan", "finished"),
    [
        (0.1999, False, 1000, True),
        (0.2001, False, 1000, False),
        (0.2001, True, 1000, False),
        (None, True, 1000, True),
        (None, False, 1000, False),
        (0.1, False, None, False),
        (0.1, False, 1005, True),  # half a percent may be missing
        (0.1, False, 1006, False),
    ],
)
def test_a_training_is_finished(
    end: float | None, stated: bool, plan: int | None, finished: bool
) -> None:
    if end is None:
        run = curve_from_arrays(AT, np.full(STEPS, 3.0))
    else:
        run = decayed(end)
    window = plan_window([run], plan, False, 0.2)
    policy = Policy(margin="1%", schedule="decayed" if stated else "unstated")
    state = schedule_state(([run], [run]), window, policy, 0.1)
    assert state.finished == finished
    assert state.assumed_slope == (None if finished else 0.1)
