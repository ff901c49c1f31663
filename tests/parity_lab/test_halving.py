"""The right unit is named, and seldom one without an effect."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from parity_lab.halving import LOOKS, any_way, find_guilty, tree_of
from tests.conftest import some

UNITS = tuple(f"u{number}" for number in range(24))
EVEN = tree_of(dict.fromkeys(UNITS, 1.0))
ALPHA = 0.05


def p_of(effects, seed):
    """p-values of z-tests of the summed effect of a cluster, by itself and together; a first look
    at halves has twice the noise.
    """
    random = np.random.default_rng(seed)

    def cluster_p(cluster, look):
        size = 1.0 if len(cluster) == len(UNITS) or look == 1 else 0.5
        total = sum(effects.get(unit, 0.0) for unit in cluster)
        rest = sum(effects.values()) - sum(
            value for unit, value in effects.items() if unit not in cluster
        )
        ways = [side * size + random.normal() for side in (total, rest)]
        return any_way(*(2 * stats.norm.sf(abs(z)) for z in (*ways, sum(ways) / 2**0.5)))

    return lambda clusters, look: [cluster_p(cluster, look) for cluster in clusters]


def test_an_even_tree_halves_down_to_single_units():
    assert tree_of({"a": 1.0, "b": 1.0, "c": 1.0}).halves(("a", "b", "c")) == (("a",), ("b", "c"))
    assert EVEN.units == UNITS
    assert EVEN.halves(UNITS) == (UNITS[:12], UNITS[12:])
    assert EVEN.halves(("u3",)) == ()
    clusters = [*EVEN.clusters()]
    assert len(clusters) == 2 * len(UNITS) - 1
    assert {cluster for cluster in clusters if len(cluster) == 1} == {(unit,) for unit in UNITS}


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=20))
def test_clusters_are_cut_where_the_halves_weigh_most_nearly_the_same(weights):
    tree = tree_of({f"u{number}": weight for number, weight in enumerate(weights)})
    assert list(tree.weights) == sorted(tree.weights, reverse=True)
    assert tree.weight(tree.units) == 1.0
    for cluster in tree.clusters():
        if halves := tree.halves(cluster):
            assert halves[0] + halves[1] == cluster
            cut = abs(tree.weight(halves[0]) - tree.weight(halves[1]))
            cuts = [
                abs(tree.weight(cluster[:at]) - tree.weight(cluster[at:]))
                for at in range(1, len(cluster))
            ]
            assert cut == pytest.approx(min(cuts), abs=1e-9)


def test_a_guilty_unit_is_named_with_few_tests():
    right, tests = 0, []
    for seed in range(100):
        guilt = find_guilty(EVEN, p_of({"u13": 8.0}, seed), ALPHA)
        right += guilt.named == (("u13",),)
        tests.append(len(guilt.tested))
    assert right >= 90  # each search may name a further cluster with a chance of 5 %
    assert np.mean(tests) < 12


def test_a_unit_that_weighs_most_is_tested_first_and_with_most_of_the_level():
    """An effect that an even tree misses in most cases."""
    heavy = tree_of(dict.fromkeys(UNITS, 1.0) | {"u13": 24.0})
    assert heavy.halves(heavy.units)[0] == ("u13",)
    right = {
        tree: sum(
            find_guilty(tree, p_of({"u13": 2.5}, seed), ALPHA).named == (("u13",),)
            for seed in range(100)
        )
        for tree in (EVEN, heavy)
    }
    assert right[heavy] > 65 > 35 > right[EVEN]


def test_a_second_look_is_taken_only_where_neither_half_is_guilty():
    looks = []

    def of(clusters, look):
        looks.append((clusters, look))
        if clusters == (UNITS,):
            return [0.0]
        return [1.0, 1e-9 if look == 1 and "u23" in clusters[1] else 1.0]

    guilt = find_guilty(EVEN, of, ALPHA)
    assert looks[:3] == [
        ((UNITS,), 0),
        ((UNITS[:12], UNITS[12:]), 0),
        ((UNITS[:12], UNITS[12:]), 1),
    ]
    assert guilt.named == (("u23",),)
    assert guilt.tested[2].p == pytest.approx(1e-9 / LOOKS[1])
    first = []
    find_guilty(EVEN, lambda clusters, look: first.append(look) or [1e-9] * len(clusters), ALPHA)
    assert set(first) == {0}


def test_two_guilty_units_of_opposite_effect_are_named_in_separate_halves():
    effects = {"u1": 9.0, "u20": -7.0}
    both = [
        set(find_guilty(EVEN, p_of(effects, seed), ALPHA).named) == {("u1",), ("u20",)}
        for seed in range(20)
    ]
    assert sum(both) < 20  # at the root they cancel in part
    cancelling = find_guilty(EVEN, p_of({"u1": 9.0, "u20": -9.0}, 1), ALPHA)
    assert len(cancelling.tested) == 1


def test_without_effects_any_unit_is_named_in_at_most_five_percent():
    named = sum(bool(find_guilty(EVEN, p_of({}, seed), ALPHA).named) for seed in range(600))
    assert named / 600 <= 0.05 + 2 * (0.05 * 0.95 / 600) ** 0.5


@pytest.mark.parametrize("weight", [0.1, 1.0, 24.0])
def test_a_cluster_beside_a_guilty_unit_is_seldom_named(weight):
    """Whatever the unit weighs, and though each split has two looks."""
    tree = tree_of(dict.fromkeys(UNITS, 1.0) | {"u13": weight})
    count = some(1200)
    wrong = sum(
        any(
            "u13" not in cluster
            for cluster in find_guilty(tree, p_of({"u13": 12.0}, seed), ALPHA).named
        )
        for seed in range(count)
    )
    assert wrong / count <= 0.05 + 2 * (0.05 * 0.95 / count) ** 0.5


def test_of_two_units_one_has_an_effect_and_the_other_is_tested_at_the_level_of_both():
    pair = tree_of({"a": 1.0, "b": 1.0})
    guilt = find_guilty(pair, lambda clusters, _: [0.04 * LOOKS[0]] * len(clusters), ALPHA)
    assert guilt.named == (("a",), ("b",))
    named = [find_guilty(pair, _pair_p(seed), ALPHA).named for seed in range(600)]
    assert (
        sum(("b",) in clusters for clusters in named) / 600 <= 0.05 + 2 * (0.05 * 0.95 / 600) ** 0.5
    )


def _pair_p(seed):
    """p-values of two units of which `a` has a large effect."""
    random = np.random.default_rng(seed)
    return lambda clusters, _: [
        1e-9 if "a" in cluster else float(random.uniform()) for cluster in clusters
    ]


def test_what_is_below_an_innocent_cluster_is_not_tested():
    asked = []
    guilt = find_guilty(EVEN, lambda clusters, look: asked.append((clusters, look)) or [0.9], ALPHA)
    assert asked == [((UNITS,), 0)]
    assert guilt.named == ()
    guilt = find_guilty(
        EVEN, lambda clusters, _: [0.001 if clusters == (UNITS,) else 0.9] * len(clusters), ALPHA
    )
    assert guilt.named == (UNITS,)  # guilty together, and no half by itself
    assert [cluster.adjusted for cluster in guilt.tested] == [0.001, 1.0, 1.0]


def test_halves_that_cannot_be_tested_are_neither_guilty_nor_innocent():
    guilt = find_guilty(EVEN, lambda clusters, _: [0.0] if clusters == (UNITS,) else None, ALPHA)
    assert guilt.named == (UNITS,)
    assert guilt.untested == (UNITS[:12], UNITS[12:])
    guilt = find_guilty(
        EVEN,
        lambda clusters, look: [0.0] if clusters == (UNITS,) else [0.9, 0.9] if look == 0 else None,
        ALPHA,
    )
    assert guilt.named == (UNITS,)
    assert not guilt.untested
    assert find_guilty(EVEN, lambda *_: None, ALPHA).untested == (UNITS,)


def test_what_is_no_probability_and_no_weight_is_refused():
    with pytest.raises(ValueError, match="0 to 1"):
        find_guilty(EVEN, lambda *_: [float("nan")], ALPHA)
    for weights in ({}, {"a": 0.0}, {"a": float("nan")}, {"a": 1.0, "b": float("inf")}):
        with pytest.raises(ValueError, match="above 0"):
            tree_of(weights)
