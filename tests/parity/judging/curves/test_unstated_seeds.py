import itertools

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.unstated_seeds import BY_SEEDS, are_seeds_unstated, pair_by_batches


def arms(
    n: int, *, seeds: int = 3, own: float = 0.01, share: float = 1.0, rng_seed: int = 0
) -> tuple[list[Curve], list[Curve], list[int]]:
    """Runs of both arms on the batches of their seeds, the candidate's in another order: its k-th
    run has the seed `order[k]`.
    """
    rng = np.random.default_rng(rng_seed)
    steps, batches = np.arange(n), rng.normal(0.0, 0.1 * share, (seeds, n))
    order = rng.permutation(seeds).tolist()
    runs = [
        curve_from_arrays(steps, 2.0 + batches[seed] + rng.normal(0.0, own, n))
        for seed in (*range(seeds), *order)
    ]
    return runs[:seeds], runs[seeds:], order


def slow_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """The correlation of second differences by loops, clipped at 6 robust standard deviations."""
    changes = []
    for loss in (x, y):
        own = [loss[t] - 2 * loss[t + 1] + loss[t + 2] for t in range(len(loss) - 2)]
        middle = float(np.median(own))
        limit = 6 * 1.482602218505602 * float(np.median([abs(value - middle) for value in own]))
        own = [min(max(value, -limit), limit) for value in own]
        mean = sum(own) / len(own)
        changes.append([value - mean for value in own])
    a, b = changes
    return (
        sum(p * q for p, q in zip(a, b, strict=True))
        / (sum(p * p for p in a) * sum(q * q for q in b)) ** 0.5
    )


@pytest.mark.parametrize("n", [20, 100, 1000])
def test_seeds_are_found_whatever_the_order(n: int) -> None:
    for rng_seed in range(20):
        base, cand, order = arms(n, rng_seed=rng_seed)
        paired = pair_by_batches(base, cand, n)
        assert paired.by == "batches"
        assert {pair.candidate: pair.baseline for pair in paired.pairs} == dict(enumerate(order))


def test_the_correlation_of_a_pair_twin() -> None:
    base, cand, _ = arms(60)
    both = [[run.loss for run in arm] for arm in (base, cand)]
    centre = np.mean([*both[0], *both[1]], axis=0)
    for pair in pair_by_batches(base, cand, 60).pairs:
        slow = slow_correlation(both[0][pair.baseline] - centre, both[1][pair.candidate] - centre)
        # the mean is taken away before the clipping there, after it here
        assert pair.r == pytest.approx(slow, abs=0.02)


def test_reruns_of_one_order_are_seen_as_that(reruns: tuple[Curve, ...]) -> None:
    for first in itertools.combinations(range(7), 3):
        others = [run for number, run in enumerate(reruns) if number not in first]
        assert pair_by_batches([reruns[k] for k in first], others, 1750).by == "one order"


def test_noise_that_hides_the_batches_is_no_claim() -> None:
    for rng_seed in range(20):
        base, cand, order = arms(40, own=0.4, rng_seed=rng_seed)
        paired = pair_by_batches(base, cand, 40)
        assert paired.by == "unknown" or {
            pair.candidate: pair.baseline for pair in paired.pairs
        } == dict(enumerate(order))
    unrelated = arms(200)[0], arms(200, rng_seed=5)[1]
    assert pair_by_batches(*unrelated, 200).by == "unknown"


def test_a_candidate_without_a_partner_leaves_it_unknown_and_a_baseline_without_one_does_not() -> (
    None
):
    base, cand, order = arms(200)
    assert pair_by_batches(base[:2], cand, 200).by == "unknown"
    paired = pair_by_batches(base, cand[:2], 200)
    assert (paired.by, [(pair.baseline, pair.candidate) for pair in paired.pairs]) == (
        "batches",
        sorted(zip(order, (0, 1), strict=False)),
    )


def test_single_runs_few_points_and_curves_without_noise_are_left_to_their_seeds() -> None:
    base, cand, _ = arms(200)
    assert pair_by_batches(base[:1], cand[:1], 200) == BY_SEEDS
    assert pair_by_batches(base, cand, 6) == BY_SEEDS
    flat = [curve_from_arrays(np.arange(100), np.full(100, level)) for level in (2.0, 2.1)]
    assert pair_by_batches(flat, flat, 100) == BY_SEEDS


def test_a_stated_seed_counts() -> None:
    run = curve_from_arrays([1, 2], [1.0, 1.0])
    assert are_seeds_unstated([run, run])
    assert not are_seeds_unstated([run, curve_from_arrays([1, 2], [1.0, 1.0], seed=0)])
