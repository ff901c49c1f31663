import dataclasses

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.step_noise import mean_se
from parity.judging.gap.interval import t_quantile
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import Verdict, judge

LEVEL, STEPS, MARGIN = 2.0, 1000, 0.02
POLICY = policy_from_mapping({"margin": "1%", "schedule": "decayed"})


def seeds(
    worse: float = 0.0, *, stated: bool = True, rng_seed: int = 0, every: int = 1
) -> tuple[list[Curve], list[Curve]]:
    """Three seeds an arm, each pair on its own batches; the candidate's second run is worse by so
    many margins.
    """
    rng = np.random.default_rng(rng_seed)
    steps = np.arange(STEPS)
    arms: tuple[list[Curve], list[Curve]] = ([], [])
    for seed in range(3):
        batches = rng.normal(0.0, 0.16, STEPS) + rng.normal(0.0, 0.01)
        for number, arm in enumerate(arms):
            loss = (
                LEVEL
                + 3.0 * np.exp(-steps / 60)
                + batches
                + rng.normal(0.0, 0.0004 * LEVEL)
                + rng.normal(0.0, 0.014, STEPS)
            )
            loss += number * (seed == 1) * worse * MARGIN
            at = slice((STEPS - 1) % every, None, every)
            known = {"seed": seed} if stated else {}
            arm.append(
                curve_from_arrays(
                    steps[at], loss[at], label=f"{'ab'[number]}{seed}", rounding="nearest", **known
                )
            )
    return arms if stated else (arms[0], [arms[1][k] for k in (2, 0, 1)])


def judged(base: list[Curve], cand: list[Curve]) -> Verdict:
    return judge(base, {"c": cand}, POLICY, planned_steps=STEPS)[0]


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("every", [1, 5])
def test_honest_seeds_pass_and_one_broken_run_does_not(stated: bool, every: int) -> None:
    for rng_seed in range(4):
        honest = judged(*seeds(stated=stated, rng_seed=rng_seed, every=every))
        assert honest.verdict == "pass", honest.codes
        assert not {
            "RUN_ABOVE_MARGIN",
            "REPLICATES_IDENTICAL",
            "DATA_ORDER_MISMATCH",
            "SEEDS_UNSTATED",
        } & set(honest.codes)
        broken = judged(*seeds(2.0, stated=stated, rng_seed=rng_seed, every=every))
        assert (broken.verdict, "RUN_ABOVE_MARGIN" in broken.codes) == ("inconclusive", True), (
            broken.codes
        )
        reasons = (broken.decision.deciding, *broken.decision.others)
        assert any(
            "Run b1 " in reason.sentence for reason in reasons if reason.code == "RUN_ABOVE_MARGIN"
        )


def test_the_document_says_how_runs_were_paired() -> None:
    document = judged(*seeds(stated=False)).document()
    assert document["pairing"]["by"] == "batches"
    assert [(pair["baseline"], pair["candidate"]) for pair in document["pairing"]["pairs"]] == [
        ("a0", "b0"),
        ("a1", "b1"),
        ("a2", "b2"),
    ]
    assert "pairing" not in judged(*seeds()).document()


def test_the_limit_is_that_of_one_run_against_its_pair() -> None:
    base, cand = seeds(2.0)
    verdict = judged(base, cand)
    worst = verdict.measurements.worst_run
    assert worst is not None
    assert worst.label == "b1"
    gap = (cand[1].loss - base[1].loss)[-100:]  # the last half shows it best here, or the window
    whole = (cand[1].loss - base[1].loss)[-200:]
    level = verdict.measurements.statistics.baseline.level
    assert verdict.margin is not None
    for part in (gap, whole):
        error = mean_se(part)
        half = np.hypot(
            t_quantile(0.95, 4) * 0.0009 * level * 2**0.5, t_quantile(0.95, error.df) * error.value
        )
        assert worst.limit - worst.gap <= verdict.margin.nats - (part.mean() - half) + 1e-9
    assert worst.gap == pytest.approx(float(gap.mean())) or worst.gap == pytest.approx(
        float(whole.mean())
    )


def test_a_run_without_a_pair_is_compared_with_the_mean_and_its_batches_are_no_fault() -> None:
    base, cand = seeds()
    alone = dataclasses.replace(seeds(rng_seed=9)[1][0], seed=7)
    honest = judged(base, [*cand, alone])
    assert honest.verdict == "pass", honest.codes
    broken = dataclasses.replace(alone, loss=alone.loss + 6 * MARGIN)
    assert "RUN_ABOVE_MARGIN" in judged(base, [*cand, broken]).codes


def test_seeds_that_the_batches_do_not_show_are_asked_for() -> None:
    base, cand = seeds(stated=False)
    other = [
        dataclasses.replace(run, label=f"other {run.label}")
        for run in seeds(stated=False, rng_seed=5)[1]
    ]
    verdict = judged(base, [*cand[:2], other[0]])
    assert verdict.codes == ("SEEDS_UNSTATED",)
    assert "--seeds" in verdict.decision.deciding.sentence
