import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.judging.curves.spikes import (
    binomial_upper,
    diverged_late,
    find_spikes,
    interpolate,
    spikes_over_run,
    stretches,
    widen,
)


def quiet(n: int = 400, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 0.004, n)


def test_no_spikes_in_quiet_noise() -> None:
    spikes = find_spikes(quiet(), 3.0)
    assert (spikes.baseline, spikes.candidate, spikes.masked_share) == (0, 0, 0.0)


def test_spikes_are_masked_widened_and_attributed() -> None:
    gap = quiet()
    gap[100:103] += 1.0
    gap[200:204] -= 1.0
    gap[300] += 1.0
    spikes = find_spikes(gap, 3.0)
    assert (spikes.baseline, spikes.candidate) == (1, 2)
    assert np.flatnonzero(spikes.mask).tolist() == [
        *range(95, 108),
        *range(195, 209),
        *range(295, 306),
    ]
    assert abs(spikes.masked_gap.mean()) < 0.001
    assert spikes.masked_gap[100] == pytest.approx(np.interp(100, [94, 108], [gap[94], gap[108]]))


def test_what_reaches_the_last_point_is_no_spike() -> None:
    gap = quiet()
    gap[-30:] += np.linspace(0, 4, 30)
    spikes = find_spikes(gap, 3.0)
    assert (spikes.candidate, spikes.masked_share) == (0, 0.0)
    assert spikes.masked_gap[-1] == gap[-1]
    assert diverged_late(spikes.masked_gap, 0.03)
    assert find_spikes(gap, 3.0, part_of_run=True).candidate == 1


@pytest.mark.parametrize("shift", [1.0, -1.0])
def test_a_level_shift_is_no_spike(shift: float) -> None:
    gap = quiet()
    gap[100:] += shift
    spikes = find_spikes(gap, 3.0)
    assert (spikes.baseline, spikes.candidate, spikes.masked_share) == (0, 0, 0.0)


def test_a_spike_that_recovers_is_no_divergence() -> None:
    gap = quiet()
    gap[365:385] += 2.0
    assert not diverged_late(find_spikes(gap, 3.0).masked_gap, 0.03)


def test_equal_curves_with_rounding_dust_have_no_spikes() -> None:
    gap = np.zeros(400)
    gap[::7] = 1e-7
    assert find_spikes(gap, 3.0).masked_share == 0.0
    assert find_spikes(1e4 * gap, 3.0, rounding_step=1e-3).masked_share == 0.0
    assert find_spikes(1e4 * gap, 3.0, part_of_run=True).masked_share > 0.5
    assert find_spikes(np.empty(0), 3.0).masked_share == 0.0


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 6))
def test_widen_twin(mask: list[bool], by: int) -> None:
    expected = [any(mask[max(0, i - by) : i + by + 1]) for i in range(len(mask))]
    assert widen(np.array(mask), by).tolist() == expected


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_stretches_cover_exactly_the_mask(mask: list[bool]) -> None:
    again = np.zeros(len(mask), dtype=bool)
    for a, b in zip(*stretches(np.array(mask)), strict=True):
        assert b > a
        again[a:b] = True
    assert again.tolist() == mask


def test_interpolation_holds_the_nearest_value_at_the_ends_and_gives_up_where_all_is_masked() -> (
    None
):
    series = np.array([9.0, 1.0, 9.0, 3.0, 9.0])
    assert interpolate(series, np.array([True, False, True, False, True])).tolist() == [
        1.0,
        1.0,
        2.0,
        3.0,
        3.0,
    ]
    assert interpolate(series, np.ones(5, dtype=bool)).tolist() == series.tolist()


@pytest.mark.parametrize(("count", "total"), [(0, 0), (1, 1), (7, 7), (6, 7), (5, 12)])
def test_binomial_twin(count: int, total: int) -> None:
    from math import comb

    assert binomial_upper(count, total) == pytest.approx(
        sum(comb(total, k) for k in range(count, total + 1)) / 2**total
    )


def test_divergence_needs_both_conditions_and_enough_points() -> None:
    # high from the start: a gap, not a divergence
    assert not diverged_late(np.full(400, 0.2), 0.03)
    assert not diverged_late(np.linspace(0, 0.08, 400), 0.03)  # below three margins
    assert diverged_late(np.linspace(0, 0.3, 400), 0.03)
    assert not diverged_late(np.linspace(0, 9, 10), 0.03)


def test_spikes_over_the_run_are_counted_on_the_scale_of_their_block() -> None:
    """The gap's noise falls tenfold over the run: a jump of 0.15 is a spike late, and noise early;
    one scale for all would miss it.
    """
    rng = np.random.default_rng(0)
    gap = rng.normal(0.0, 1.0, 4000) * np.linspace(0.05, 0.005, 4000)
    late = (2900, 3100, 3300, 3700, 3750, 3850, 3950)
    for at in late:
        gap[at] += 0.15
    gap[3000] -= 0.15
    spikes = spikes_over_run(gap, 10 * np.arange(4000), 3.0)
    assert spikes is not None
    assert (spikes["candidate"], spikes["baseline"], spikes["blocks"]) == (7, 1, 20)
    assert spikes["p_candidate_more"] == pytest.approx(9 / 256)
    assert spikes["steps"] == [[30_000], [10 * at for at in late]]
    assert find_spikes(gap, 3.0).candidate < 7
    mirrored = spikes_over_run(-gap, np.arange(4000), 3.0)
    assert mirrored is not None
    assert (mirrored["candidate"], mirrored["baseline"]) == (1, 7)
    assert spikes_over_run(gap[:199], np.arange(199), 3.0) is None


@given(
    st.integers(200, 2_300),
    st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from([1.0, -1.0, np.nan])),
        max_size=6,
    ),
)
def test_the_spikes_of_a_run_are_those_of_its_blocks(
    points: int, added: list[tuple[float, float]]
) -> None:
    gap, steps = quiet(points), 3 * np.arange(points)
    for place, size in added:
        gap[int(place * points)] += size
    expected: tuple[list[int], list[int]] = [], []
    blocks = min(20, points // 100)
    for part, at in zip(np.array_split(gap, blocks), np.array_split(steps, blocks), strict=True):
        spikes = find_spikes(part, 3.0, part_of_run=True)
        expected[0].extend(at[spikes.baseline_at])
        expected[1].extend(at[spikes.candidate_at])
    counted = spikes_over_run(gap, steps, 3.0)
    assert counted is not None
    assert counted["steps"] == [expected[0], expected[1]]
    assert counted["blocks"] == blocks


def test_an_early_spike_outside_the_window_is_reported_and_does_not_decide(
    make_run, judge_pair
) -> None:
    from parity.judging.curves.curve import curve_from_arrays
    from parity.report.formats.markdown import render_markdown

    cand = make_run(seed=2)
    loss = cand.loss.copy()
    loss[500:1300:100] += 1.0
    verdict = judge_pair(make_run(), curve_from_arrays(cand.steps, loss, label=cand.label))
    document = verdict.document()
    assert verdict.verdict == "pass"
    assert (
        document["spikes"]["candidate"],
        document["run_spikes"]["candidate"],
        document["run_spikes"]["baseline"],
    ) == (0, 8, 0)
    assert (
        "over the whole run 8 of cand and 0 of run1, more than chance gives (p 0.0039)"
        in render_markdown([document])
    )
