import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.judging.live.pair_sums import (
    BLOCKS,
    PairProgress,
    begin,
    observe,
    progress_from_mapping,
)
from tests.conftest import some


def fed(
    planned: int, base: np.ndarray, gap: np.ndarray, first: int = 1, cuts: tuple[int, ...] = ()
) -> PairProgress:
    steps = np.arange(first, first + len(base))
    state = begin(planned)
    for part in np.split(np.arange(len(base)), cuts):
        state = observe(state, steps[part], base[part], base[part] + gap[part])
        state = progress_from_mapping(json.loads(json.dumps(state.document())))
    return state


def test_slow_twin() -> None:
    rng = np.random.default_rng(0)
    base, gap = rng.normal(3.0, 0.1, 700), rng.normal(0.02, 0.01, 700)
    state = fed(1000, base, gap)
    gaps, baselines = state.means(slice(0, BLOCKS))
    for block in range(56):
        inside = [i for i in range(700) if i * BLOCKS // 1000 == block]
        assert gaps[block] == pytest.approx(np.mean([(base[i] + gap[i]) - base[i] for i in inside]))
        assert baselines[block] == pytest.approx(base[inside].mean())
    assert state.share == pytest.approx(0.7)
    assert state.blocks_done() == 56


@settings(max_examples=some(60))
@given(
    cuts=st.lists(st.integers(0, 500), max_size=8),
    first=st.sampled_from([0, 1]),
    planned=st.sampled_from([37, 640, 777]),
)
def test_a_resumed_state_equals_an_uninterrupted_one_bit_for_bit(
    cuts: list[int], first: int, planned: int
) -> None:
    rng = np.random.default_rng(1)
    base, gap = rng.normal(3.0, 0.1, 500), rng.normal(0.0, 0.1, 500)
    assert fed(planned, base, gap, first, tuple(sorted(cuts))) == fed(planned, base, gap, first)


@pytest.mark.parametrize("planned", [40, 90, 1000])
def test_the_state_after_some_blocks_is_the_one_it_had_then(planned: int) -> None:
    rng = np.random.default_rng(2)
    base, gap = rng.normal(3.0, 0.1, planned), rng.normal(0.0, 0.1, planned)
    whole = fed(planned, base, gap)
    for blocks in (8, 41, 79, 80):
        reached = -(-planned * blocks // BLOCKS)
        assert whole.until(blocks) == fed(planned, base[:reached], gap[:reached])


def test_the_state_is_small_however_long_the_run() -> None:
    base = np.random.default_rng(3).normal(3.0, 0.1, 200_000)
    state = fed(200_000, base, 0.1 * base)
    assert len(json.dumps(state.document())) < 6000


def test_non_finite_steps_and_steps_outside_the_plan_are_left_out() -> None:
    losses = np.array([3.0, np.nan, np.inf, 3.0, 1e300, 3.0])
    state = observe(begin(5), np.arange(1, 7), np.full(6, 2.0), losses)
    assert sum(state.counts) == 2
    assert state.last_step == 5
    assert observe(begin(5), np.arange(7, 9), np.full(2, 2.0), np.full(2, 2.0)).counts == ()


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="planned_steps is 0"):
        begin(0)
    state = observe(begin(100), np.arange(1, 11), np.ones(10), np.ones(10))
    with pytest.raises(ValueError, match="from 10 on were fed after step 10"):
        observe(state, np.arange(10, 12), np.ones(2), np.ones(2))
    with pytest.raises(ValueError, match="expected planned_steps"):
        progress_from_mapping({"blocks": []})
