"""The search for the latest switch that heals: few looks, none that could not change the answer."""

from dataclasses import replace

import pytest

from parity_lab.healing import (
    HealingSetup,
    Look,
    cost_of,
    estimated_switch,
    expected_gap,
    found,
    looks_for,
    next_switch,
    setup_from,
    steps_spent,
)

MARGIN, HALF = 0.010, 0.002
SETUP = HealingSetup(
    recipe="bf16",
    gemms="all",
    parents=("r1", "r2", "r3"),
    steps=(1000, 1400, 1600, 1800),
    run_steps=2000,
    gap=0.02,
    half_width=HALF,
    margin=MARGIN,
    most_steps=1e9,
)


def look(step: int, gap: float, half: float = HALF, margin: float = MARGIN) -> Look:
    """What the judge says of a gap with this half width."""
    verdict = "inconclusive"
    if gap + half < margin:
        verdict = "pass"
    elif gap - half > margin:
        verdict = "fail"
    return Look(
        step=step,
        verdict=verdict,
        gap=gap,
        low=gap - half,
        high=gap + half,
        level=0.9875,
        code="CODE",
        sentence="",
    )


def searched(setup: HealingSetup, gaps: dict[int, float], half: float = HALF) -> list[Look]:
    """The looks of a whole search where each switch has this gap."""
    looks: list[Look] = []
    while (step := next_switch(setup, looks)) is not None:
        looks.append(look(step, gaps[step], half))
    return looks


def kept(count: int) -> HealingSetup:
    steps = tuple(100 * (number + 1) for number in range(count))
    return replace(SETUP, steps=steps, run_steps=100 * (count + 1))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 9, 15])
def test_the_latest_passing_switch_is_found_within_the_planned_looks(count):
    setup = kept(count)
    for passing in range(count + 1):
        gaps = {step: 0.001 if place < passing else 0.03 for place, step in enumerate(setup.steps)}
        looks = searched(setup, gaps)
        assert len(looks) == len({look.step for look in looks}) <= setup.most_looks
        answer = found(setup, looks)
        assert answer.switch == (setup.steps[passing - 1] if passing else None)
        assert answer.outcome == ("named" if passing else "none")
        assert not answer.untested
        assert not answer.contradictions
        assert steps_spent(setup, looks) <= setup.largest_cost


def test_the_first_look_is_at_the_latest_switch_that_is_expected_to_pass():
    assert [expected_gap(SETUP, (), step) for step in (0, 1000, 2000)] == [0.0, 0.02 / 16, 0.02]
    assert next_switch(SETUP, ()) == 1400  # 0.0048 and 0.0020 are below 0.010, at 1600 0.0082
    assert next_switch(replace(SETUP, margin=0.011), ()) == 1600
    assert next_switch(replace(SETUP, gap=0.5), ()) == 1000
    assert next_switch(replace(SETUP, gap=None, half_width=None), ()) == 1600  # a diverged one


def test_looks_that_are_left_always_suffice():
    assert next_switch(replace(kept(7), gap=0.5), ()) == 400
    assert [looks_for(steps) for steps in (0, 1, 2, 3, 4, 7, 8)] == [0, 1, 2, 2, 3, 3, 4]


def test_an_open_verdict_moves_the_search_earlier_and_names_nothing():
    gaps = dict.fromkeys(SETUP.steps, 0.0095)
    looks = searched(SETUP, gaps)
    assert looks[-1].step == 1000
    assert (found(SETUP, looks).outcome, found(SETUP, looks).switch) == ("open", None)


def test_a_switch_that_passes_below_an_open_one_is_named():
    answer = found(SETUP, [look(1400, 0.001), look(1600, 0.0095)])
    assert (answer.outcome, answer.switch, answer.until) == ("named", 1400, 1600)
    assert next_switch(SETUP, [look(1400, 0.001), look(1600, 0.0095)]) is None


def test_a_killed_search_goes_on_where_it_was():
    gaps = {1000: 0.001, 1400: 0.03, 1600: 0.03, 1800: 0.03}
    looks = searched(SETUP, gaps)
    for done in range(len(looks)):
        assert next_switch(SETUP, looks[:done]) == looks[done].step
    assert setup_from(SETUP.document()) == SETUP


def test_the_search_stops_where_the_next_look_would_cost_too_much():
    first = next_switch(SETUP, ())
    assert first is not None
    assert SETUP.least_steps == cost_of(SETUP, first) == 3 * 600
    dear = replace(SETUP, most_steps=SETUP.least_steps)
    looks = searched(dear, dict.fromkeys(SETUP.steps, 0.001))
    answer = found(dear, looks)
    assert (len(looks), answer.is_stopped, answer.untested) == (1, True, (1600, 1800))
    assert answer.switch == first
    assert next_switch(replace(SETUP, most_steps=1.0), ()) is None


def test_a_pass_after_a_fail_is_not_named_and_the_law_is_said_to_break():
    looks = [look(1400, 0.03), look(1800, 0.001)]
    answer = found(SETUP, looks)
    assert answer.switch is None
    assert answer.contradictions == ({"earlier": 1400, "later": 1800},)
    both = found(SETUP, [look(1000, 0.001), *looks])
    assert (both.switch, both.until) == (1000, 1400)


def test_a_larger_gap_of_an_earlier_switch_within_noise_is_no_contradiction():
    assert found(SETUP, [look(1000, 0.004), look(1400, 0.003)]).contradictions == ()
    broken = found(SETUP, [look(1000, 0.030), look(1400, 0.020)])
    assert broken.contradictions == ({"earlier": 1000, "later": 1400},)


def test_a_switch_without_a_gap_is_a_look_all_the_same():
    diverged = Look(
        step=1400,
        verdict="fail",
        gap=None,
        low=None,
        high=None,
        level=None,
        code="DIVERGED",
        sentence="",
    )
    assert next_switch(SETUP, [diverged]) == 1000
    assert found(SETUP, [diverged]).until == 1400


def test_an_estimate_follows_the_gaps_and_names_no_pass():
    assert estimated_switch(SETUP, ()) is None  # nothing was trained
    looks = [look(1400, 0.0085), look(1000, 0.0088)]
    assert [one.verdict for one in looks] == ["inconclusive"] * 2
    assert estimated_switch(SETUP, looks) == 1400  # at 1600 some 0.0118 are expected
    assert found(SETUP, looks).switch is None
    assert estimated_switch(SETUP, [look(1400, 0.02), look(1000, 0.012)]) is None
    humped = [look(1000, 0.012, half=0.01), look(1400, 0.008, half=0.01)]
    assert estimated_switch(SETUP, humped) is None  # not the one behind a larger gap


def test_a_look_that_compares_nothing_ends_the_search():
    nothing = replace(
        look(1400, 0.03), verdict="inconclusive", gap=None, low=None, high=None, level=None
    )
    assert next_switch(SETUP, [nothing]) is None
    answer = found(SETUP, [nothing])
    assert (answer.outcome, answer.switch, answer.is_stopped) == ("open", None, False)


@pytest.mark.parametrize("steps", [(), (0, 100), (100, 100), (200, 100), (100, 2000)])
def test_steps_that_no_run_can_have_kept_are_refused(steps):
    with pytest.raises(ValueError, match="steps are"):
        replace(SETUP, steps=steps)
