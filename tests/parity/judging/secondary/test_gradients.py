from collections.abc import Callable

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.secondary.gradients import gradient_parity, norm_ratio
from parity.judging.verdict.verdict import Verdict
from parity.report.formats.markdown import render_markdown

STEPS = np.arange(800, 1000)


def run(factor: float, seed: int, spikes: int = 0) -> Curve:
    rng = np.random.default_rng(seed)
    norm = factor * np.exp(
        np.random.default_rng(0).normal(0, 0.2, 1000) + rng.normal(0, 0.02, 1000)
    )
    norm[900 : 900 + spikes] *= 10
    return curve_from_arrays(np.arange(1000), np.ones(1000), columns={"grad_norm": norm})


@pytest.mark.parametrize(
    ("factor", "state"),
    [(1.0, "inside"), (1.05, "inside"), (1.3, "outside"), (0.7, "outside"), (1.10, "open")],
)
def test_states(factor: float, state: str) -> None:
    parity = gradient_parity((run(1.0, 1),), (run(factor, 2),), STEPS, 0.95)
    assert parity is not None
    assert parity["ratio"] == pytest.approx(factor, rel=0.01)
    assert parity["state"] == state


def test_tails_and_run_noise() -> None:
    spiky = gradient_parity((run(1.0, 1),), (run(1.0, 2, spikes=10),), STEPS, 0.95)
    assert spiky is not None
    assert spiky["p99_ratio"] > 3
    assert "not in the interval" in spiky["basis"]
    several = gradient_parity((run(1.0, 1), run(1.04, 3)), (run(1.0, 2), run(0.96, 4)), STEPS, 0.95)
    one = gradient_parity((run(1.0, 1),), (run(1.0, 2),), STEPS, 0.95)
    assert several is not None
    assert one is not None
    assert several["hi"] / several["lo"] > 2 * one["hi"] / one["lo"]


def test_missing_zero_and_nan_norms() -> None:
    bare = curve_from_arrays(np.arange(1000), np.ones(1000))
    assert gradient_parity((run(1.0, 1),), (bare,), STEPS, 0.95) is None
    norms = run(1.0, 2).columns["grad_norm"].copy()
    norms[810:820] = [0.0, np.nan, np.inf, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    holes = curve_from_arrays(np.arange(1000), np.ones(1000), columns={"grad_norm": norms})
    assert gradient_parity((run(1.0, 1),), (holes,), STEPS, 0.95)["n"] == 190
    zeros = curve_from_arrays(np.arange(1000), np.ones(1000), columns={"grad_norm": np.zeros(1000)})
    assert gradient_parity((run(1.0, 1),), (zeros,), STEPS, 0.95) is None


def test_the_share_of_clipped_steps(
    make_run: Callable[..., Curve], judge_pair: Callable[..., Verdict]
) -> None:
    def clipped(run: Curve, limit: float) -> Curve:
        norm = np.exp(np.random.default_rng(0).normal(0, 0.1, len(run.steps)))
        columns = {
            "grad_norm": norm,
            "clipped_grad_norm": np.minimum(norm, limit).astype(np.float32),
        }
        return curve_from_arrays(run.steps, run.loss, columns=columns)

    document = judge_pair(clipped(make_run(), 9.0), clipped(make_run(seed=2), 1.0)).document()
    base, cand = document["grad_norm"]["clipped_share"]
    assert base == 0.0
    assert cand == pytest.approx(0.5, abs=0.08)
    assert "of the steps against 0 %" in render_markdown([document])


@pytest.mark.parametrize("factor", [0.01, 1.0, 100.0])
def test_the_ratio_of_norms_needs_eight_points(factor: float) -> None:
    assert norm_ratio((run(1.0, 1),), (run(factor, 2, spikes=20),), STEPS[:8]) == pytest.approx(
        factor, rel=0.05
    )
    assert norm_ratio((run(1.0, 1),), (run(factor, 2),), STEPS[:7]) is None
    assert (
        norm_ratio((run(1.0, 1),), (curve_from_arrays(np.arange(1000), np.ones(1000)),), STEPS)
        is None
    )
