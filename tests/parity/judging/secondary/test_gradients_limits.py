"""The limits of gradient norms: what just passes, what is open, and what just fails."""

import math

import numpy as np
import pytest
from scipy.stats import t as student

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.step_noise import mean_se
from parity.judging.gap.margin import Margin
from parity.judging.policy import Policy
from parity.judging.secondary.advisory import Advisory
from parity.judging.secondary.gradients import gradient_parity, norm_ratio
from parity.judging.verdict.checks import checks

MARGIN = Margin(nats=0.03, rel=0.01, source="1 %")


def state(name: str, **measured: object) -> str | None:
    """What a check that is on the policy's list says of what was measured."""
    policy = Policy(margin="1%", checks=("loss", name))
    made = {one["name"]: one for one in checks(Advisory(**measured), MARGIN, policy)}
    assert {one["role"] for other, one in made.items() if other != name} == {"advises"}
    assert made[name]["role"] == "decides"
    return made[name]["state"]


def normed(ratio: float, runs: int = 1, sd: float = 0.0, points: int = 50) -> tuple[Curve, ...]:
    """Runs whose gradient norms are so many times e to the 0, with noise that averages to none."""
    noise = np.resize([sd, -sd], points)
    return tuple(
        curve_from_arrays(
            np.arange(points), np.full(points, 3.0), columns={"grad_norm": ratio * np.exp(noise)}
        )
        for _ in range(runs)
    )


@pytest.mark.parametrize("confidence", [0.95, 0.99])
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_gradient_norms_agree_within_ten_percent(side: float, confidence: float) -> None:
    """The whole interval inside 1/1.1 to 1.1 is parity, the whole of it outside is none."""
    base = normed(1.0)
    noisy = normed(1.0, sd=0.01)
    steps = base[0].steps
    ratio = np.log(noisy[0].columns["grad_norm"])
    error = mean_se(ratio)
    half = float(student.ppf(0.5 + confidence / 2, error.df)) * error.value
    limit = math.log(1.1)
    for at, expected in (
        (limit - half - 1e-9, "inside"),
        (limit - half + 1e-9, "open"),
        (limit + half - 1e-9, "open"),
        (limit + half + 1e-9, "outside"),
    ):
        other = normed(math.exp(side * at), sd=0.01)
        made = gradient_parity(base, other, steps, confidence)
        assert made["state"] == expected
        assert (
            state("grad_norm", grad_norm=made)
            == {
                "inside": "pass",
                "open": "inconclusive",
                "outside": "fail",
            }[expected]
        )


def test_gradient_norms_need_fifty_points_and_their_ratio_eight() -> None:
    assert gradient_parity(normed(1.0), normed(1.0), np.arange(50), 0.95)["n"] == 50
    assert gradient_parity(normed(1.0), normed(1.0), np.arange(49), 0.95) is None
    assert norm_ratio(normed(1.0), normed(2.0), np.arange(8)) == pytest.approx(2.0)
    assert norm_ratio(normed(1.0), normed(2.0), np.arange(7)) is None


def test_two_runs_an_arm_show_how_much_their_norms_differ() -> None:
    base = (*normed(1.0), *normed(1.02))
    made = gradient_parity(base, base, base[0].steps, 0.95)
    one = gradient_parity(base[:1], base, base[0].steps, 0.95)
    assert made["hi"] / made["lo"] > 1.1
    assert one["hi"] / one["lo"] == pytest.approx(1.0)


@pytest.mark.parametrize(("share", "clipped"), [(1.0 - 0.97e-5, 0.0), (1.0 - 1.03e-5, 1.0)])
def test_a_norm_is_clipped_where_it_is_a_hundred_thousandth_smaller(
    share: float, clipped: float
) -> None:
    (run,) = normed(1.0)
    columns = {**run.columns, "clipped_grad_norm": share * run.columns["grad_norm"]}
    made = gradient_parity(
        (curve_from_arrays(run.steps, run.loss, columns=columns),), normed(1.0), run.steps, 0.95
    )
    assert made["clipped_share"] == [clipped, None]
