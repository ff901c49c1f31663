"""What is borrowed from the emulated engine's own small models."""

import dataclasses
import math

import numpy as np
import pytest

from parity.judging import special
from parity.judging.bundles.verification import verify
from parity.judging.bundles.write_bundle import bundle_bytes
from parity.judging.case import Case
from parity.judging.curves.curve import curve_from_arrays
from parity.judging.noise.emulated_table import (
    DEMO,
    EMULATED,
    SMALL,
    TABLE,
    emulated_noise_table,
    fit_emulated,
)
from parity.judging.noise.family_spread import MAX_DF, fit_family
from parity.judging.noise.noise_source import find_noise_source
from parity.judging.noise.noise_table import NoiseTable, RerunGroup
from parity.judging.noise.public_table import public_noise_table
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import judge


def group(runs, sd, level=1.4, number=0):
    return RerunGroup(
        family=DEMO,
        group=f"{number} of {runs} at {sd}",
        runs=runs,
        mean_loss=level,
        sd=sd,
        rounding="nearest",
        varies="replicate",
        source="",
        licence="",
    )


def test_the_shipped_table_has_noise_of_both_classes_of_rounding_and_is_its_own_csv():
    noise_table = emulated_noise_table()
    assert set(noise_table.families) == EMULATED
    assert not EMULATED & set(public_noise_table().families)
    assert noise_table.csv() == TABLE.read_text(encoding="utf-8")
    assert all(
        not family.problems and not family.bit_equal for family in noise_table.families.values()
    )
    for name in EMULATED:
        near, stochastic = (
            find_noise_source(noise_table, name, rounding).noise
            for rounding in ("nearest", "stochastic")
        )
        assert 0.001 < near.share < 0.0025
        assert 0.001 < stochastic.share < 0.004
        assert near.families == stochastic.families == 0


def test_the_demo_pools_its_seeds():
    groups = [group(2, 0.002), group(3, 0.001), group(8, 0.003)]
    noise = fit_emulated(DEMO, groups)
    squares, df = 0.0, 0
    for one in groups:  # by the definition of a pooled variance
        runs = np.linspace(-1.0, 1.0, one.runs)
        runs *= one.sd / np.std(runs, ddof=1) / one.mean_loss
        squares += float(((runs - runs.mean()) ** 2).sum())
        df += one.runs - 1
    assert noise.share == pytest.approx(math.sqrt(squares / df))
    assert (noise.df, noise.groups, noise.runs, noise.levels) == (df, 3, 13, (1.4, 1.4))


def test_the_demo_is_usable_from_eight_degrees_of_freedom_and_worth_no_more_than_any_family():
    with pytest.raises(ValueError, match="7 degrees of freedom"):
        fit_emulated(DEMO, [group(8, 0.002)])
    assert fit_emulated(DEMO, [group(9, 0.002)]).df == 8.0
    assert fit_emulated(DEMO, [group(100, 0.002)]).df == MAX_DF


def test_the_demo_holds_at_its_own_loss_and_other_sizes_at_any():
    noise_table = emulated_noise_table()
    own = find_noise_source(noise_table, DEMO, "nearest").noise
    level = sum(own.levels) / 2.0
    assert own.is_near(level)
    assert not own.is_near(1.25 * level)
    assert find_noise_source(noise_table, SMALL, "nearest").noise.is_near(5.0)


def test_other_sizes_are_a_family_whose_losses_may_differ():
    groups = [group(4, 0.002 + 0.0005 * number, 1.2 + 0.3 * number, number) for number in range(4)]
    with pytest.raises(ValueError, match="within a tenth"):
        fit_family(groups)
    noise = fit_emulated(SMALL, groups)
    alike = fit_family(
        [dataclasses.replace(one, mean_loss=1.4, sd=one.share * 1.4) for one in groups]
    )
    assert (noise.share, noise.df) == pytest.approx((alike.share, alike.df))
    assert noise.levels is None


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_a_set_up_that_is_left_out_is_covered_by_the_others(rounding):
    """Each group of other sizes, judged by noise from the rest: pairs of its runs differ by no
    more in at least 95 % on average.
    """
    rows = emulated_noise_table().only({SMALL}).rows
    covered = {}
    for left_out in (row for row in rows if row["rounding"] == rounding):
        borrowed = find_noise_source(
            NoiseTable(tuple(row for row in rows if row is not left_out)), SMALL, rounding
        ).noise
        own = float(left_out["sd"]) / float(left_out["mean_loss"])
        covered[left_out["group"]] = math.erf(
            float(special.stdtrit(borrowed.df, 0.975)) * borrowed.share / own / math.sqrt(2.0)
        )
    assert len(covered) == 10
    assert np.mean(list(covered.values())) >= 0.95
    assert min(covered.values()) >= 0.85, covered


STEPS = 1000


def pair(level, final_fraction):
    """A baseline and a candidate of one order of batches, without a gap, whose rate falls to this
    share of its peak.
    """
    t = np.arange(STEPS)
    rates = 4e-3 * (
        final_fraction + (1.0 - final_fraction) * 0.5 * (1.0 + np.cos(np.pi * t / (STEPS - 1)))
    )
    batches = np.random.default_rng(0).normal(0.0, 0.1, STEPS)
    return [
        curve_from_arrays(
            t,
            level * (1.0 + 3.0 / (1.0 + t))
            + batches
            + np.random.default_rng(seed).normal(0.0, 0.01, STEPS),
            columns={"learning_rate": rates},
            recipe=recipe,
            rounding="nearest",
        )
        for seed, recipe in ((1, "fp8_current"), (2, "mxfp8"))
    ]


def borrowing(name, runs):
    base, cand = runs
    return Case(
        baseline=[base],
        candidates={"mxfp8": [cand]},
        policy=policy_from_mapping({"margin": "1 %"}),
        planned_steps=STEPS,
        baseline_name="fp8",
        noise_table=emulated_noise_table().only({name}),
        families=dict.fromkeys(("fp8", "mxfp8"), name),
    )


def test_a_pair_passes_on_the_demos_noise_and_says_whose_it_is(tmp_path):
    level = find_noise_source(emulated_noise_table(), DEMO, "nearest").noise.levels[0]
    case = borrowing(DEMO, pair(level, 0.1))
    (document,) = case.documents()
    (sentence,) = [
        reason["sentence"]
        for reason in document["reasons"]
        if reason["code"] == "RUN_NOISE_BORROWED"
    ]
    assert document["verdict"] == "pass"
    assert DEMO in sentence
    assert "degrees of freedom" in sentence
    path = tmp_path / "evidence.zip"
    path.write_bytes(bundle_bytes(case, [document]))
    assert verify(str(path)).differences == ()


@pytest.mark.parametrize(
    ("name", "level", "final_fraction", "reason"),
    [
        (DEMO, 1.0, 0.5, "finished their schedule"),
        (SMALL, 1.0, 0.5, "finished their schedule"),
        (DEMO, 1.5, 0.1, "another model"),
    ],
)
def test_unfinished_runs_and_another_loss_borrow_nothing(name, level, final_fraction, reason):
    runs = pair(
        level * find_noise_source(emulated_noise_table(), DEMO, "nearest").noise.levels[0],
        final_fraction,
    )
    (document,) = borrowing(name, runs).documents()
    (sentence,) = [one["sentence"] for one in document["reasons"] if one["code"] == "FAMILY_UNUSED"]
    assert reason in sentence
    assert "borrowed" not in document["tau"]["candidate"]


def test_runs_that_are_noisier_than_the_demos_contradict_it():
    level = find_noise_source(emulated_noise_table(), DEMO, "nearest").noise.levels[0]
    base, cand = pair(level, 0.1)
    rng = np.random.default_rng(3)
    reruns = [
        dataclasses.replace(
            base,
            loss=base.loss + shift * level + rng.normal(0.0, 0.01, STEPS),
            recipe="mxfp8",
            replicate=number,
        )
        for number, shift in ((1, 0.02), (2, -0.02))
    ]
    (verdict,) = judge(
        [base],
        {"mxfp8": [cand, *reruns]},
        policy_from_mapping({"margin": "1 %"}),
        planned_steps=STEPS,
        baseline_name="fp8",
        noise_table=emulated_noise_table().only({DEMO}),
        families=dict.fromkeys(("fp8", "mxfp8"), DEMO),
    )
    assert verdict.verdict != "pass"
    assert "RUN_NOISE_CONTRADICTED" in verdict.codes
