"""The right unit is named, and seldom one without an effect."""

import numpy as np
import pytest
from scipy import stats

from parity.why.halving import both_ways, clusters, find_guilty, halves

UNITS = tuple(f"u{number}" for number in range(24))


def p_of(effects, seed):
    """p-values of a z-test of the summed effect of a cluster, both ways."""
    random = np.random.default_rng(seed)

    def of(cluster):
        total = sum(effects.get(unit, 0.0) for unit in cluster)
        rest = sum(effects.values()) - sum(value for unit, value in effects.items() if unit not in cluster)
        without, alone = (2 * stats.norm.sf(abs(each + random.normal())) for each in (total, rest))
        return both_ways(without, alone)

    return of


def test_the_tree_halves_down_to_single_units():
    assert halves(("a", "b", "c")) == (("a", "b"), ("c",))
    assert halves(("a",)) == ()
    assert len([*clusters(UNITS)]) == 2 * len(UNITS) - 1
    assert {cluster for cluster in clusters(UNITS) if len(cluster) == 1} == {(unit,) for unit in UNITS}


def test_a_guilty_unit_is_named_with_few_tests():
    right, tests = 0, []
    for seed in range(100):
        guilt = find_guilty(UNITS, p_of({"u13": 8.0}, seed))
        right += guilt.named == (("u13",),)
        tests.append(len(guilt.tested))
    assert right >= 90  # each search may name a further cluster with a chance of 5 %
    assert np.mean(tests) < 12


def test_two_guilty_units_of_opposite_effect_are_named_in_separate_halves():
    effects = {"u1": 9.0, "u20": -7.0}
    both = [set(find_guilty(UNITS, p_of(effects, seed)).named) == {("u1",), ("u20",)} for seed in range(20)]
    assert sum(both) < 20  # at the root they cancel in part
    cancelling = find_guilty(UNITS, p_of({"u1": 9.0, "u20": -9.0}, 1))
    assert len(cancelling.tested) == 1


def test_without_effects_any_unit_is_named_in_at_most_five_percent():
    named = sum(bool(find_guilty(UNITS, p_of({}, seed)).named) for seed in range(600))
    assert named / 600 <= 0.05 + 2 * (0.05 * 0.95 / 600) ** 0.5


def test_an_innocent_unit_next_to_a_guilty_one_is_seldom_named():
    wrong = sum(any("u0" in cluster for cluster in find_guilty(UNITS, p_of({"u13": 12.0}, seed)).named) for seed in range(200))
    assert wrong / 200 <= 0.05


def test_what_is_below_an_innocent_cluster_is_not_tested():
    asked = []
    guilt = find_guilty(UNITS, lambda cluster: asked.append(cluster) or 0.9)
    assert asked == [UNITS]
    assert guilt.named == ()
    guilt = find_guilty(UNITS, lambda cluster: 0.001 if len(cluster) == len(UNITS) else 0.9)
    assert guilt.named == (UNITS,)  # guilty together, and no half by itself
    assert [each.adjusted for each in guilt.tested] == [0.001, 1.0, 1.0]


def test_what_is_no_probability_is_refused():
    with pytest.raises(ValueError, match="0 to 1"):
        find_guilty(UNITS, lambda _: float("nan"))
    with pytest.raises(ValueError, match="at least one"):
        find_guilty((), lambda _: 0.5)
