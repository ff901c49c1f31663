"""Parts of a gap from ablation runs: against a slow twin, against the judge's own two-arm term, and
by simulation.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from parity.judging.curves.step_noise import StandardError
from parity.judging.noise.arm_noise import ArmNoise, Prior, run_term
from parity_lab.ablations import AblationArm, ArmErrors, ablate

REPLICATES = 4


def arm(name, level, seed=0, tau=0.004, replicates=REPLICATES, **changes):
    noise = {
        "tau": tau,
        "df": 7.0,
        "prior": "assumed 0.003",
        "prior_df": 4.0,
        "within": 0.001,
        "within_df": 12.0,
        "reruns": True,
    }
    random = np.random.default_rng(seed)
    losses = {(0, at): float(level + random.normal(0, tau)) for at in range(replicates)}
    return AblationArm(name=name, losses=losses, noise=ArmErrors(**noise | changes))


ARMS = [
    arm("fp8", 2.0, 1, tau=0.001),
    arm("full", 2.05, 2),
    arm("without mlp", 2.01, 3, tau=0.002, df=5.0),
    arm("without attention", 2.035, 4, prior="measured by a family", prior_df=9.0, df=12.0),
]


def slow(arms, weights):
    """The mean and its 95 % interval, term by term in plain loops."""
    pairs = [pair for pair in arms[0].losses if all(pair in arm.losses for arm in arms)]
    values = []
    for pair in pairs:
        total = 0.0
        for arm_losses, weight in zip(arms, weights, strict=True):
            total += weight * arm_losses.losses[pair]
        values.append(total)
    used = [(arm.noise, weight) for arm, weight in zip(arms, weights, strict=True) if weight != 0.0]
    run = [weight * weight * noise.tau * noise.tau / len(pairs) for noise, weight in used]
    v_run = sum(run)
    denominator = 0.0
    for i, (first, _) in enumerate(used):
        for j, (second, _) in enumerate(used):
            rho = 1.0 if i == j else 0.0
            if i != j and first.prior == second.prior:
                rho = math.sqrt((first.prior_df / first.df) * (second.prior_df / second.df))
            denominator += rho * run[i] * run[j] / math.sqrt(first.df * second.df)
    df_run = v_run**2 / denominator
    v_within = sum((weight * noise.within) ** 2 for noise, weight in used)
    df_within = min(noise.within_df for noise, _ in used)
    half = math.hypot(
        stats.t.ppf(0.975, df_run) * math.sqrt(v_run),
        stats.t.ppf(0.975, df_within) * math.sqrt(v_within),
    )
    mean = sum(values) / len(values)
    return mean, mean - half, mean + half


def shown(interval):
    return (interval.mean, *interval.bounds(0.95))


def test_every_number_is_that_of_the_slow_twin():
    result = ablate(ARMS[0], ARMS[1], ARMS[2:])
    assert shown(result.whole) == pytest.approx(slow(ARMS, [-1, 1, 0, 0]))
    assert shown(result.parts[0].part) == pytest.approx(slow(ARMS, [0, 1, -1, 0]))
    assert shown(result.parts[1].part) == pytest.approx(slow(ARMS, [0, 1, 0, -1]))
    assert shown(result.parts[0].left) == pytest.approx(slow(ARMS, [-1, 0, 1, 0]))
    assert shown(result.total) == pytest.approx(slow(ARMS, [0, 2, -1, -1]))
    assert shown(result.unexplained) == pytest.approx(slow(ARMS, [-1, -1, 1, 1]))


def test_few_degrees_of_freedom_widen_the_interval_as_they_do_for_the_judge():
    few = [replace(arm, noise=replace(arm.noise, df=3.0, prior_df=2.0)) for arm in ARMS]
    result = ablate(few[0], few[1], few[2:])
    assert result.parts[0].part.run.df < 4.0
    assert shown(result.parts[0].part) == pytest.approx(slow(few, [0, 1, -1, 0]))


def test_the_parts_and_what_is_unexplained_add_up_to_the_whole():
    result = ablate(ARMS[0], ARMS[1], ARMS[2:])
    parts = sum(part.part.mean for part in result.parts)
    assert result.total.mean == pytest.approx(parts)
    assert parts + result.unexplained.mean == pytest.approx(result.whole.mean)
    for part in result.parts:
        assert part.part.mean + part.left.mean == pytest.approx(result.whole.mean)


@pytest.mark.parametrize("same", [True, False])
def test_two_arms_have_the_run_term_of_the_judge(same):
    """One assumed number for both arms, and two different ones."""
    first, second = (
        ARMS[1],
        replace(
            ARMS[2], noise=replace(ARMS[2].noise, prior="assumed 0.003" if same else "declared")
        ),
    )
    part = ablate(ARMS[0], first, [second]).parts[0].part
    noises = [
        ArmNoise(
            tau=arm.noise.tau,
            df=arm.noise.df,
            source="replicates",
            prior=Prior(tau=0.003, df=arm.noise.prior_df, basis=arm.noise.prior),
            measured=None,
            measured_df=3,
            runs=REPLICATES,
        )
        for arm in (first, second)
    ]
    term = run_term(*noises)
    assert (part.run.variance, part.run.df) == pytest.approx((term.variance, term.df))
    assert part.within == StandardError(value=pytest.approx(0.001 * math.sqrt(2)), df=12.0)


def test_only_replicates_that_every_arm_has_are_used():
    short = replace(
        ARMS[2], losses={pair: loss for pair, loss in ARMS[2].losses.items() if pair[1] in (1, 2)}
    )
    arms = [*ARMS[:2], short, ARMS[3]]
    result = ablate(arms[0], arms[1], arms[2:])
    assert result.pairs == ((0, 1), (0, 2))
    assert shown(result.whole) == pytest.approx(slow(arms, [-1, 1, 0, 0]))


def test_an_arm_without_reruns_is_named():
    alone = arm("full", 2.05, 2, reruns=False)
    assert ablate(ARMS[0], alone, ARMS[2:]).assumed == ("full",)
    assert ablate(ARMS[0], ARMS[1], ARMS[2:]).assumed == ()


def test_what_has_no_parts_is_refused():
    with pytest.raises(ValueError, match="no ablation"):
        ablate(ARMS[0], ARMS[1], [])
    other = replace(ARMS[2], losses={(7, 0): 2.0})
    with pytest.raises(ValueError, match="share no seed and replicate"):
        ablate(ARMS[0], ARMS[1], [other])


def test_the_intervals_cover_what_is_true():
    """800 jobs whose run-to-run noise is that of the arms: each interval covers at least about 95
    %.
    """
    levels, taus, repeats = (2.0, 2.05, 2.01, 2.035), (0.001, 0.004, 0.002, 0.004), 800
    truths = {"whole": 0.05, "part": 0.04, "unexplained": -0.005}
    covered = dict.fromkeys(truths, 0)
    for number in range(repeats):
        arms = [
            arm(str(at), level, seed=10 * number + at, tau=tau, within=0.0, df=1e6, prior_df=0.0)
            for at, (level, tau) in enumerate(zip(levels, taus, strict=True))
        ]
        result = ablate(arms[0], arms[1], arms[2:])
        intervals = {
            "whole": result.whole,
            "part": result.parts[0].part,
            "unexplained": result.unexplained,
        }
        for name, truth in truths.items():
            low, high = intervals[name].bounds(0.95)
            covered[name] += low <= truth <= high
    for name, count in covered.items():
        assert 0.93 <= count / repeats <= 0.97, name
