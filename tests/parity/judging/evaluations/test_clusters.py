import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.judging.evaluations.clusters import ClusteredGap, clustered_gap
from parity.judging.evaluations.group_means import difference

Arm = dict[str, list[float]]
runs = st.lists(st.floats(2.0, 4.0), min_size=1, max_size=5)
arms = st.dictionaries(st.sampled_from("abcd"), runs, min_size=1, max_size=4)


def gap_of(baseline: Arm, candidate: Arm) -> ClusteredGap | None:
    return clustered_gap(
        *({name: np.array(own) for name, own in arm.items()} for arm in (baseline, candidate))
    )


def nested_twin(baseline: Arm, candidate: Arm) -> tuple[float, float, float] | None:
    """Mean, standard error and df of disjoint clusters, term by term."""
    means = [[sum(own) / len(own) for own in arm.values()] for arm in (baseline, candidate)]
    centres = [sum(own) / len(own) for own in means]
    df = sum(len(own) - 1 for own in means)
    if df < 1:
        return None
    squares = sum(
        (mean - centre) ** 2 for own, centre in zip(means, centres, strict=True) for mean in own
    )
    variance = sum(squares / df / len(own) for own in means)
    floor = 0.0
    for arm in (baseline, candidate):
        inside = sum(len(own) - 1 for own in arm.values())
        if inside:
            spread = (
                sum((x - sum(own) / len(own)) ** 2 for own in arm.values() for x in own) / inside
            )
            floor += sum(spread / len(own) for own in arm.values()) / len(arm) ** 2
    return centres[1] - centres[0], math.sqrt(max(variance, floor)), df


@given(arms, arms)
def test_nested_twin(baseline: Arm, candidate: Arm) -> None:
    other = {name.upper(): own for name, own in candidate.items()}  # no cluster is shared
    gap, expected = gap_of(baseline, other), nested_twin(baseline, other)
    if gap is None or expected is None:
        assert gap is None
        assert expected is None
        return
    assert (gap.estimate.mean, gap.estimate.se, gap.estimate.df) == pytest.approx(
        expected, abs=1e-12
    )
    assert gap.clusters == (len(baseline), len(other))
    assert not gap.crossed


@given(arms, arms)
def test_swapped_arms_change_only_the_sign(baseline: Arm, candidate: Arm) -> None:
    one, other = gap_of(baseline, candidate), gap_of(candidate, baseline)
    if one is None or other is None:
        assert one is other
    else:
        assert (one.estimate.mean, one.estimate.se, one.estimate.df) == pytest.approx(
            (-other.estimate.mean, other.estimate.se, other.estimate.df)
        )


def test_crossed_clusters_cancel_what_both_arms_share() -> None:
    systems = {"a": 0.5, "b": -0.4, "c": 0.1}
    baseline = {name: [3.0 + shift, 3.01 + shift] for name, shift in systems.items()}
    candidate = {name: [3.1 + shift, 3.11 + shift] for name, shift in systems.items()}
    crossed = gap_of(baseline, candidate)
    nested = gap_of(baseline, {name.upper(): own for name, own in candidate.items()})
    assert crossed is not None
    assert nested is not None
    assert crossed.crossed
    assert crossed.estimate.mean == pytest.approx(0.1)
    assert crossed.estimate.se < 0.01 < 0.1 < nested.estimate.se


def test_clusters_that_agree_by_chance_leave_the_error_of_the_runs() -> None:
    arm = {"a": [3.0, 3.2], "b": [3.1, 3.1]}
    gap = gap_of(arm, {"c": [3.3, 3.1], "d": [3.2, 3.2]})
    assert gap is not None
    assert gap.estimate.se > 0.05


def test_one_cluster_an_arm_says_nothing() -> None:
    assert gap_of({"a": [3.0, 3.1]}, {"b": [3.2, 3.3]}) is None
    assert gap_of({"a": [3.0, 3.1]}, {"a": [3.2, 3.3]}) is None


def test_runs_of_one_cluster_are_no_independent_evidence() -> None:
    """Twenty runs of two systems that differ: over runs the interval is too narrow, over clusters
    it covers what two systems can say.
    """
    rng = np.random.default_rng(1)
    outside = {"runs": 0, "clusters": 0}
    for _ in range(300):
        made = [
            {
                f"{arm}{j}": rng.normal(rng.normal(3.0, 0.01), 0.002, 10).tolist()
                for j in range(2 + 2 * number)
            }
            for number, arm in enumerate("ab")
        ]
        plain = difference(
            *(np.concatenate([np.array(own) for own in arm.values()]) for arm in made)
        )
        over = gap_of(made[0], made[1])
        assert over is not None
        for name, estimate in (("runs", plain), ("clusters", over.estimate)):
            lo, hi = estimate.bounds(0.95)
            outside[name] += not lo <= 0.0 <= hi
    assert outside["clusters"] / 300 < 0.10 < 0.30 < outside["runs"] / 300


@pytest.mark.parametrize(
    ("baseline", "candidate", "df"),
    [
        ({"a": 1}, {"b": 1}, None),
        ({"a": 1, "b": 1}, {"c": 1}, 1),
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1, "b": 1}, {"a": 1, "b": 1}, 1),
        ({"a": 1, "b": 1}, {"b": 1, "c": 1}, 2),
    ],
)
def test_clusters_leave_a_degree_of_freedom(
    baseline: dict[str, int], candidate: dict[str, int], df: int | None
) -> None:
    rng = np.random.default_rng(0)
    arms = [
        {name: rng.normal(3.0, 0.1, n) for name, n in arm.items()} for arm in (baseline, candidate)
    ]
    found = clustered_gap(arms[0], arms[1])
    assert (None if found is None else found.estimate.df) == df
