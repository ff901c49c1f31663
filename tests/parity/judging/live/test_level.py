"""The baseline's loss at the planned end, forecast from a part of the run."""

import numpy as np
import pytest

from parity.judging.live.baseline_end import level_at_end
from parity.judging.live.pair_sums import begin, observe
from parity.judging.live.prediction import predict
from parity.judging.live.run_noise import LiveArm
from parity.judging.policy import policy_from_mapping
from parity.readers import read_run
from server.settings import CHECKOUT

SHARES = (np.arange(36) + 0.5) / 80.0


def slow_twin(shares: np.ndarray, losses: np.ndarray, trailing: int, fraction: float) -> float:
    late = shares >= shares[-1] / 2.0
    slope, _ = np.polyfit(np.log(shares[late]), losses[late], 1)
    so_far = losses[-trailing:].mean()
    return so_far + slope * (np.log(1.0 - fraction / 2.0) - np.log(shares[-trailing:]).mean())


def test_it_follows_the_line_through_the_last_half() -> None:
    losses = 2.0 - 0.2 * np.log(SHARES) + 0.01 * np.random.default_rng(0).standard_normal(36)
    assert level_at_end(losses[-7:].mean(), SHARES, losses, 7, 0.2) == pytest.approx(
        slow_twin(SHARES, losses, 7, 0.2)
    )


@pytest.mark.parametrize(("slope", "share_of_now"), [(0.0, 1.0), (0.5, 1.0), (-5.0, 0.75)])
def test_it_never_rises_and_falls_by_a_quarter_at_most(slope: float, share_of_now: float) -> None:
    losses = 4.0 + slope * np.log(SHARES / SHARES[-1])
    so_far = float(losses[-7:].mean())
    assert level_at_end(so_far, SHARES, losses, 7, 0.2) == pytest.approx(share_of_now * so_far)


def test_at_the_end_it_is_the_loss_of_the_window() -> None:
    shares = (np.arange(80) + 0.5) / 80.0
    losses = 2.0 - 0.2 * np.log(shares)
    assert level_at_end(float(losses[-16:].mean()), shares, losses, 16, 0.2) == pytest.approx(
        losses[-16:].mean(), abs=1e-3
    )


@pytest.mark.parametrize(("share", "off"), [(0.25, 0.15), (0.45, 0.05), (0.75, 0.03)])
def test_the_margin_of_a_loss_that_still_falls_is_that_of_its_end(share: float, off: float) -> None:
    """1 % of the loss so far would be 35, 20 and 6 % more."""
    runs = [
        read_run(str(CHECKOUT / "examples" / "curves" / name)) for name in ("fp8.csv", "mxfp8.csv")
    ]
    steps = int(share * 1500)
    state = observe(begin(1500), runs[0].steps[:steps], runs[0].loss[:steps], runs[1].loss[:steps])
    made = predict(
        [(state, False)], 1, (LiveArm(), LiveArm()), policy_from_mapping({"margin": "1%"})
    )
    assert made is not None
    assert made.margin == pytest.approx(0.01 * runs[0].loss[1200:].mean(), rel=off)
