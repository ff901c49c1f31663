"""A search asks, is told, and ends: deterministic, resumable, and never with a wrong pass more
often than it says.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from parity.judging import special
from parity_lab.belief import Outcome
from parity_lab.search import ask, candidate_gap, fastest, first_step, rate, shares
from tests.parity_lab.world import OWN, World


@pytest.fixture
def world():
    return World(own=(0.03, 0.004, 0.02, 0.001))


def run(world, setting):
    """Every step of a search and its outcome."""
    steps, results = [], []
    while not isinstance(step := ask(setting, results), Outcome):
        steps.append(step)
        results += [world(evaluation) for evaluation in step]
    return steps, results, step


def confirmations(steps):
    """How many of these steps are confirmations."""
    return sum(step[0].kind == "confirmation" for step in steps)


def test_it_returns_an_assignment_that_fits_and_is_the_fastest(world):
    setting = world.setting()
    steps, results, outcome = run(world, setting)
    fits = [
        assignment
        for assignment in rate(setting, [results[: len(steps[0])]]).assignments
        if world.gap(assignment) <= setting.target
    ]
    best = min(setting.times[int(assignment, 2)] for assignment in fits)
    assert outcome.assignment is not None
    assert world.gap(outcome.assignment) < setting.confirmation.margin
    assert best / setting.times[int(outcome.assignment, 2)] > 0.97
    assert steps[0] == first_step(setting)
    assert steps[-1][0].kind == "confirmation"
    assert 1 <= confirmations(steps) <= setting.confirmation.most


def test_a_barred_assignment_is_neither_piloted_nor_confirmed_and_the_next_one_is(world):
    setting = world.setting()
    _, _, outcome = run(world, setting)
    barred, results = [outcome.assignment], []
    while not isinstance(step := ask(setting, results, barred), Outcome):
        assert all(
            evaluation.kind == "fork" or evaluation.assignment not in barred for evaluation in step
        )
        results += [world(evaluation) for evaluation in step]
    assert step.assignment not in (None, *barred)


def test_equal_results_give_equal_steps_whatever_their_order(world):
    setting = world.setting()
    steps, results, outcome = run(world, setting)
    assert ask(setting, results[::-1]) == outcome
    for done in range(len(steps)):
        before = [world(evaluation) for step in steps[:done] for evaluation in step]
        assert ask(setting, before[::-1]) == steps[done]


def test_a_stopped_search_asks_for_the_rest_of_its_step(world):
    setting = world.setting()
    steps, _, _ = run(world, setting)
    done = [world(evaluation) for evaluation in steps[0][1:]]
    assert ask(setting, done) == (steps[0][0],)


def test_each_evaluation_is_asked_for_once(world):
    steps, _, _ = run(world, world.setting())
    every = [evaluation for step in steps for evaluation in step]
    assert len(every) == len(set(every))


def test_without_a_gap_and_with_blind_forks_it_ends_at_once(world):
    none = World(own=(-0.001, -0.02, 0.0, 0.0))
    outcome = ask(none.setting(), [])
    assert isinstance(outcome, Outcome)
    assert outcome.assignment is None
    blind = World(own=world.own, blind=True)
    setting = blind.setting()
    outcome = ask(setting, [blind(evaluation) for evaluation in first_step(setting)])
    assert isinstance(outcome, Outcome)
    assert outcome.assignment is None
    assert (
        shares(setting, [blind(evaluation) for evaluation in first_step(setting)])[0].bounds(0.9)[0]
        <= 0.0
    )


def test_where_even_one_switch_is_too_much_nothing_is_confirmed():
    world = World(own=(0.1, 0.1, 0.12))
    steps, _, outcome = run(world, world.setting())
    assert outcome.assignment is None
    assert confirmations(steps) == 0


def test_a_second_confirmation_is_of_another_assignment_and_the_last(world):
    setting = world.setting()

    def refused(evaluation):
        own = world(evaluation)
        return (
            replace(own, value=own.value + 0.02, passed=False)
            if evaluation.kind == "confirmation"
            else own
        )

    steps, _, outcome = run(refused, setting)
    confirmed = [step[0].assignment for step in steps if step[0].kind == "confirmation"]
    assert outcome.assignment is None
    assert 1 <= len(confirmed) <= setting.confirmation.most
    assert len(set(confirmed)) == len(confirmed)


def test_pilots_are_counted(world):
    steps, _, _ = run(world, world.setting(pilots=1))
    assert sum(step[0].kind == "run" for step in steps) <= 1
    steps, _, _ = run(world, world.setting(pilots=0))
    assert not any(step[0].kind == "run" for step in steps)


def test_the_fastest_has_the_chance_that_is_wanted(world):
    setting = world.setting()
    rating = rate(setting, [[world(evaluation) for evaluation in first_step(setting)]])
    at = fastest(setting, rating)
    slower = [other for other in range(16) if rating.passes[other] >= 0.95]
    assert setting.times[at] == min(setting.times[other] for other in slower)
    assert fastest(setting, rating, tried=[rating.assignments[at]]) != at
    assert candidate_gap(setting) == pytest.approx(world.gap("1111"), abs=0.01)


@settings(max_examples=25, deadline=None)
@given(own=st.lists(st.floats(0.0, 0.05), min_size=2, max_size=5), seed=st.integers(0, 1000))
def test_a_search_ends_within_its_confirmations(own, seed):
    world = World(own=tuple(own), seed=seed)
    steps, _, outcome = run(world, world.setting())
    assert confirmations(steps) <= 2
    assert len(steps) <= 1 + 4 + 2
    assert outcome.assignment is None or world.gap(outcome.assignment) < 0.03 + 0.01


class Hidden(World):
    """The gap of every assignment is the margin, and only confirmations see it."""

    def __call__(self, evaluation):
        own = super().__call__(evaluation)
        if evaluation.kind != "confirmation":
            return own
        draw = np.random.default_rng([self.seed, evaluation.number])
        mean = 0.03 + own.se * draw.standard_normal()
        half = special.ndtri(0.5 + OWN.confidence / 2.0) * own.se
        return replace(own, value=mean, passed=bool(mean + half < 0.03))


def test_wrong_passes_are_no_more_than_the_guarantee_allows():
    searches, wrong, confirmed = 60, 0, 0
    for seed in range(searches):
        world = Hidden(own=(0.004, 0.04), seed=seed)
        setting = world.setting(pilots=0)
        steps, _, outcome = run(world, setting)
        confirmed += confirmations(steps)
        wrong += outcome.assignment is not None
    assert confirmed > searches / 2
    assert wrong <= stats.binom.ppf(0.999, searches, setting.confirmation.error)


def test_a_setting_without_runs_parents_or_times_is_refused(world):
    setting = world.setting()
    for changes, word in (
        ({"given": setting.given[:4]}, "1111"),
        ({"parents": ()}, "parents"),
        ({"times": setting.times[:3]}, "3 times"),
    ):
        with pytest.raises(ValueError, match=word):
            replace(setting, **changes)
