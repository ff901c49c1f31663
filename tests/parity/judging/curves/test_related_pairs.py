"""The screening may ask for a thorough test too many, never for one too few."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.judging.curves import counted_runs
from parity.judging.curves.counted_runs import independent_runs
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.independence import dependence, is_mixture, resemblance, shared_start
from parity.judging.curves.related_pairs import may_be_mixtures, may_be_related, pairs_to_test
from tests.conftest import some
from tests.parity.attacks.case import with_loss
from tests.parity.attacks.copies import COPIES

BATCHES = np.random.default_rng(7).normal(0.0, 0.1, 10_240)


def rerun(number: int, own: float = 0.01, offset: float = 0.004, n: int = 3000) -> Curve:
    """A run on the common batches with noise of its own."""
    rng = np.random.default_rng(number)
    loss = (
        2.0
        + np.exp(-np.arange(n) / 300)
        + BATCHES[:n]
        + rng.normal(0.0, offset)
        + rng.normal(0.0, own, n)
    )
    return curve_from_arrays(np.arange(n), np.float32(loss), label=f"rerun {number}")


def thorough(first: Curve, second: Curve) -> bool:
    doubts = dependence(first, second), resemblance(first, second), shared_start(first, second)
    return any(doubt is not None for doubt in doubts)


def test_real_reruns_need_no_thorough_test(reruns: tuple[Curve, ...]) -> None:
    related = may_be_related(reruns, reruns)
    assert not related[~np.eye(len(reruns), dtype=bool)].any()
    assert related.diagonal().all()
    assert not may_be_mixtures(reruns)[1:].any()
    assert pairs_to_test(reruns[:3], reruns[2:]) == [(reruns[2], reruns[2])]


@pytest.mark.parametrize("name", list(COPIES))
def test_whatever_is_related_is_tested(name: str, reruns: tuple[Curve, ...]) -> None:
    for run, other, third in (reruns[:3], reruns[3:6], reruns[4:7]):
        copies = [COPIES[name](run, number, (other, third, other)) for number in (1, 2)]
        for first, second in itertools.permutations((run, other, *copies), 2):
            doubts = resemblance(first, second), shared_start(first, second)
            if any(doubt is not None for doubt in doubts):
                assert may_be_related([first], [second]).all()
        runs = [run, other, third, *copies]
        expected = [is_mixture(each, runs[:number]) for number, each in enumerate(runs)]
        assert not (np.array(expected, dtype=bool) & ~may_be_mixtures(runs)).any()


_SIZES = st.floats(-5.0, -1.0).map(lambda power: 10.0**power)


@settings(max_examples=some(150))
@given(
    st.integers(0, 10_000),
    _SIZES,
    _SIZES,
    st.floats(0.0, 1.0),
    st.floats(0.98, 1.02),
    st.integers(40, 3000),
)
def test_near_its_limits_it_asks_for_the_thorough_test(
    seed: int, noise: float, offset: float, share: float, factor: float, n: int
) -> None:
    rng = np.random.default_rng(seed)
    run = rerun(seed, n=n)
    moved = np.where(rng.random(n) < share, noise * rng.standard_normal(n), 0.0)
    other = with_loss(run, factor * run.loss + moved + offset)
    if resemblance(run, other) is not None or shared_start(run, other) is not None:
        assert may_be_related([run], [other]).all()


def test_many_runs_are_counted_as_without_screening(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [rerun(number) for number in range(24)]
    half = 1500
    runs[5] = with_loss(runs[2], runs[2].loss + 1e-5)
    runs[9] = with_loss(runs[1], 0.3 * runs[1].loss + 0.3 * runs[3].loss + 0.4 * runs[4].loss)
    runs[13] = with_loss(runs[13], np.append(runs[0].loss[:half], runs[13].loss[half:]))
    runs[17] = curve_from_arrays(runs[17].steps[300:], runs[17].loss[300:], label="late")
    runs[20] = with_loss(runs[20], np.where(np.arange(3000) == 1500, np.nan, runs[20].loss))
    runs[21] = with_loss(runs[21], np.where(np.arange(3000) == 1500, 1e308, runs[21].loss))
    kept, left_out = independent_runs(runs)
    assert len(kept) == 20
    assert [entry.relation for entry in left_out] == ["copy", "copy", "fork", "late"]
    monkeypatch.setattr(
        counted_runs, "_related", lambda runs: np.ones((len(runs), len(runs)), dtype=bool)
    )
    monkeypatch.setattr(
        counted_runs, "may_be_mixtures", lambda runs, *_: np.ones(len(runs), dtype=bool)
    )
    assert independent_runs(runs) == (kept, left_out)


@pytest.mark.parametrize("every", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("n", [1024, 4096, 10_240])
def test_a_copy_with_points_of_its_own_at_equal_distances_is_tested(n: int, every: int) -> None:
    run, own = rerun(1, n=n), rerun(2, n=n)
    for first in range(every):
        copy = with_loss(run, np.where(np.arange(n) % every == first, own.loss, run.loss))
        assert may_be_related([run], [copy]).all() or not thorough(run, copy)


@pytest.mark.parametrize("every", [8, 10, 15, 16, 20, 32])
def test_a_scaled_copy_with_other_points_is_tested(every: int) -> None:
    for n in (768, 1024, 2560, 3000):
        run, own = rerun(1, n=n), rerun(2, n=n)
        periodic = np.arange(n) % every == 0
        random = np.random.default_rng(n).random(n) < 1.0 / every
        for elsewhere in (periodic, random):
            copy = with_loss(
                run, np.where(elsewhere, own.loss + 0.1 * BATCHES[:n][::-1], 1.01 * run.loss)
            )
            assert may_be_related([run], [copy]).all() or not thorough(run, copy)


def test_a_mixture_of_runs_with_a_few_spikes_is_tested() -> None:
    n = 40_000
    for seed in range(6):
        rng = np.random.default_rng(seed)
        batches, spikes = rng.normal(0.0, 0.1, n), np.zeros(n)
        spikes[rng.integers(n // 2, n, 3)] = 1.0
        losses = [
            2.0 + batches + rng.normal(0.0, 0.01, n) + rng.uniform(10.0, 40.0) * spikes
            for _ in range(3)
        ]
        runs = [
            curve_from_arrays(np.arange(n), loss, label=f"{number}")
            for number, loss in enumerate(losses)
        ]
        mixture = with_loss(runs[0], 0.5 * (losses[1] + losses[2]) + rng.normal(0.0, 0.01, n))
        assert may_be_mixtures([*runs, mixture])[-1] or not is_mixture(mixture, runs)
