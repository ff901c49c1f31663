from collections.abc import Callable

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.live.gap_chart import StepRange, binned_gap, gap_basis, step_edges
from parity.judging.noise.arm_noise import Prior
from parity.judging.policy import Policy, policy_from_mapping

MakeRun = Callable[..., Curve]


def cut(run: Curve, keep: slice, **extra: object) -> Curve:
    return curve_from_arrays(run.steps[keep], run.loss[keep], **extra)  # type: ignore[arg-type]


def test_bands_start_from_the_priors_that_a_verdict_borrowed(
    make_run: MakeRun, one_percent: Policy
) -> None:
    pair = [make_run(1000)], [make_run(1000, seed=2)]
    prior = Prior(tau=0.0001, df=30.0, basis="borrowed")
    assumed, borrowed = (
        binned_gap(*pair, one_percent, StepRange(bins=7), planned_steps=1000, priors=priors)
        for priors in (None, (prior, prior))
    )
    assert (borrowed.hi - borrowed.lo < assumed.hi - assumed.lo).all()
    assert (borrowed.mean == assumed.mean).all()


def test_bins_are_the_mean_gap_of_their_steps(make_run: MakeRun, one_percent: Policy) -> None:
    base, cand = make_run(1000), make_run(1000, seed=2, gap=0.05)
    bins = binned_gap([base], [cand], one_percent, StepRange(bins=7), planned_steps=1000)
    assert bins.first_step[0] == 0
    assert bins.last_step[-1] == 999
    assert bins.n.sum() == 1000
    for first, last, mean, n in zip(
        bins.first_step, bins.last_step, bins.mean, bins.n, strict=True
    ):
        inside = (base.steps >= first) & (base.steps <= last)
        assert n == inside.sum()
        assert mean == pytest.approx((cand.loss - base.loss)[inside].mean())
    assert (bins.lo < bins.mean).all()
    assert (bins.mean < bins.hi).all()
    assert bins.window == (800, 999)
    assert bins.level == pytest.approx(base.loss[800:].mean())
    assert bins.margin_nats == pytest.approx(0.01 * base.loss[800:].mean())
    assert not bins.level_is_provisional


def test_the_band_is_wider_than_step_noise_alone_and_shrinks_with_runs(
    make_run: MakeRun, one_percent: Policy
) -> None:
    base = [make_run(1000, seed=s, offset_sd=0.002) for s in range(4)]
    cand = [make_run(1000, seed=10 + s, offset_sd=0.002) for s in range(4)]
    one = binned_gap(base[:1], cand[:1], one_percent, StepRange(bins=10), planned_steps=1000)
    four = binned_gap(base, cand, one_percent, StepRange(bins=10), planned_steps=1000)
    step_noise_alone = 1.96 * 0.004 / np.sqrt(100)
    assert (one.hi - one.mean > 3 * step_noise_alone).all()
    assert (four.hi - four.mean < 0.7 * (one.hi - one.mean)).all()


def test_unfinished_pairs_show_their_common_prefix(make_run: MakeRun, one_percent: Policy) -> None:
    bins = binned_gap(
        [cut(make_run(1000), slice(0, 600))],
        [cut(make_run(1000, seed=2), slice(0, 300))],
        one_percent,
        planned_steps=1000,
    )
    assert bins.last_step[-1] == 299
    assert bins.level_is_provisional
    assert bins.margin_nats is not None
    assert bins.window == (800, 999)


def test_a_run_that_has_just_started_does_not_shorten_the_chart(
    make_run: MakeRun, one_percent: Policy
) -> None:
    late = cut(make_run(1000, seed=3), slice(0, 10))
    bins = binned_gap(
        [make_run(1000)],
        [make_run(1000, seed=2), late],
        one_percent,
        StepRange(bins=20),
        planned_steps=1000,
    )
    assert bins.last_step[-1] == 999
    assert np.isfinite(bins.mean).all()


def test_nan_is_listed_and_left_out(make_run: MakeRun, one_percent: Policy) -> None:
    run = make_run(1000, seed=2)
    loss = run.loss.copy()
    loss[[10, 500]] = np.nan, np.inf
    bins = binned_gap(
        [make_run(1000)], [curve_from_arrays(run.steps, loss)], one_percent, planned_steps=1000
    )
    assert bins.nonfinite_candidate.tolist() == [10, 500]
    assert bins.nonfinite_baseline.tolist() == []
    assert bins.n.sum() == 998
    part = binned_gap(
        [make_run(1000)],
        [curve_from_arrays(run.steps, loss)],
        one_percent,
        StepRange(first=11, last=600),
        planned_steps=1000,
    )
    assert part.nonfinite_candidate.tolist() == [500]
    assert np.isfinite(bins.mean).all()


@pytest.mark.parametrize(
    ("base", "cand"),
    [
        (([], []), ([], [])),
        (([1, 2], [1.0, 2.0]), ([5, 6], [1.0, 2.0])),
        (([1], [float("nan")]), ([1], [1.0])),
        (([1], [2.0]), ([1], [2.5])),
    ],
)
def test_hardly_anything_is_no_error(
    base: tuple[list[int], list[float]], cand: tuple[list[int], list[float]], one_percent: Policy
) -> None:
    bins = binned_gap([curve_from_arrays(*base)], [curve_from_arrays(*cand)], one_percent)
    assert len(bins.mean) == len(bins.lo) == len(bins.first_step) <= 1
    assert binned_gap([], [], one_percent).mean.tolist() == []


def test_zoom(make_run: MakeRun, one_percent: Policy) -> None:
    bins = binned_gap(
        [make_run(1000)],
        [make_run(1000, seed=2)],
        one_percent,
        StepRange(bins=50, first=100, last=149),
    )
    assert (bins.first_step[0], bins.last_step[-1], len(bins.n)) == (100, 149, 50)


def test_other_grids_are_joined(make_run: MakeRun, one_percent: Policy) -> None:
    bins = binned_gap(
        [make_run(1000)],
        [cut(make_run(1000, seed=2), slice(0, None, 5))],
        one_percent,
        StepRange(bins=10),
    )
    assert bins.n.tolist() == [20] * 10


def test_an_unmeasured_noise_floor_gives_no_margin(make_run: MakeRun) -> None:
    policy = policy_from_mapping({"profile": "noise-floor"})
    assert (
        binned_gap(
            [make_run(1000)], [make_run(1000, seed=2)], policy, planned_steps=1000
        ).margin_nats
        is None
    )


def test_an_excerpt_on_known_ground_is_the_same_range(
    make_run: MakeRun, one_percent: Policy
) -> None:
    base = [make_run(1000), make_run(1000, seed=3)]
    cand = [make_run(1000, seed=2), make_run(1000, seed=2), make_run(1000, seed=4)]
    basis = gap_basis(base, cand, one_percent, planned_steps=1000)
    assert basis.counted == ((0, 1), (0, 2))
    whole = binned_gap(
        base, cand, one_percent, StepRange(bins=20, first=100, last=299), planned_steps=1000
    )
    left, right = (
        [cut(arm[i], slice(100, 300)) for i in used]
        for arm, used in zip((base, cand), basis.counted, strict=True)
    )
    part = binned_gap(left, right, one_percent, StepRange(bins=20), planned_steps=1000, basis=basis)
    for name in ("first_step", "last_step", "mean", "lo", "hi", "n"):
        assert np.array_equal(getattr(part, name), getattr(whole, name)), name
    assert (part.margin_nats, part.level, part.window) == (
        whole.margin_nats,
        whole.level,
        whole.window,
    )


@pytest.mark.parametrize(
    ("first", "last", "count"),
    [(0, 999, 30), (1, 1_000_000, 200), (5, 5, 3), (0, 0, 1), (700, 720, 50)],
)
@pytest.mark.parametrize("log", [False, True])
def test_edges_begin_at_the_first_step_and_are_no_more_than_asked(
    first: int, last: int, count: int, log: bool
) -> None:
    edges = step_edges(first, last, count, log=log)
    assert edges[0] == first
    assert edges[-1] <= last
    assert 1 <= len(edges) <= count
    assert (np.diff(edges) > 0).all()


def test_log_bins_are_narrow_at_the_start(make_run: MakeRun, one_percent: Policy) -> None:
    bins = binned_gap(
        [make_run(1000)],
        [make_run(1000, seed=2)],
        one_percent,
        StepRange(bins=40, log=True),
        planned_steps=1000,
    )
    width = bins.last_step - bins.first_step + 1
    assert width[0] == 1
    assert width[-1] > 100
    assert bins.n.sum() == 1000


def test_bands_have_the_level_that_decides_and_bins_can_be_given(
    make_run: MakeRun, one_percent: Policy
) -> None:
    pair = [make_run(1000)], [make_run(1000, seed=2)]
    usual, shared = (
        binned_gap(*pair, one_percent, StepRange(bins=10), planned_steps=1000, confidence=level)
        for level in (None, 0.99)
    )
    assert usual.mean.tolist() == shared.mean.tolist()
    assert (shared.hi - shared.lo > 1.1 * (usual.hi - usual.lo)).all()
    edges = np.array([100, 300, 800])
    bins = binned_gap(*pair, one_percent, StepRange(edges=edges, first=100), planned_steps=1000)
    assert (bins.first_step.tolist(), bins.n.tolist()) == ([100, 300, 800], [200, 500, 200])


@pytest.mark.parametrize("bins", [1, 2])
def test_a_chart_may_have_one_bin_and_not_none(
    make_run: MakeRun, one_percent: Policy, bins: int
) -> None:
    pair = [make_run(1000)], [make_run(1000, seed=2)]
    chart = binned_gap(*pair, one_percent, StepRange(bins=bins), planned_steps=1000)
    assert len(chart.mean) == bins
    assert chart.n.sum() == 1000
    with pytest.raises(ValueError, match="bins"):
        binned_gap(*pair, one_percent, StepRange(bins=0), planned_steps=1000)
