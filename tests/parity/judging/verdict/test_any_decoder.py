"""Verdicts of a model that belongs to no family on record: `any-decoder`, for runs that finished
their schedule.
"""

import dataclasses
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.judging.bundles.verification import verify
from parity.judging.bundles.write_bundle import bundle_bytes
from parity.judging.case import Case
from parity.judging.curves.curve import Curve
from parity.judging.noise.noise_source import find_noise_source
from parity.judging.noise.noise_table import ANY_DECODER, NoiseTable, read_noise_table
from parity.judging.noise.public_table import public_noise_table
from parity.judging.policy import Policy, policy_from_mapping
from parity.judging.verdict.verdict import Verdict, judge
from parity.report.strip import noise_basis
from parity.report.view import view_of

MakeRun = Callable[..., Curve]
POLICY = policy_from_mapping({"margin": "0.5%"})
STATED = policy_from_mapping({"schedule": "decayed", "margin": "0.5%"})
REJECT = policy_from_mapping({"margin": "0.5%", "assumed_noise": "reject"})
NAMED = {"base": ANY_DECODER, "cand": ANY_DECODER}
STEPS = 2000
P = np.arange(STEPS) / (STEPS - 1)
COSINE = 1e-3 * (0.1 + 0.45 * (1 + np.cos(np.pi * P)))


@pytest.fixture
def arm(make_run: MakeRun) -> Callable[..., list[Curve]]:
    """Runs of one arm with the learning rates of a finished cosine schedule, or with others; None:
    without any.
    """

    def make(
        seed: int,
        recipe: str = "fp8",
        rates: np.ndarray | None = COSINE,
        offsets: tuple[float, ...] = (0.0,),
    ) -> list[Curve]:
        runs = [
            make_run(seed=seed + number, recipe=recipe, gap=offset)
            for number, offset in enumerate(offsets)
        ]
        columns = {} if rates is None else {"learning_rate": rates}
        return [dataclasses.replace(run, columns={**run.columns, **columns}) for run in runs]

    return make


def verdict_of(
    base: list[Curve],
    cand: list[Curve],
    policy: Policy = POLICY,
    *,
    complete: bool = False,
    named: dict[str, str] = NAMED,
) -> Verdict:
    noise_table = public_noise_table() if named else None
    plan = {} if complete else {"planned_steps": STEPS}
    (verdict,) = judge(
        base,
        {"cand": cand},
        policy,
        assume_complete=complete,
        baseline_name="base",
        noise_table=noise_table,
        families=named,
        **plan,
    )
    return verdict


def unused(verdict: Verdict) -> list[str]:
    return [
        reason["sentence"]
        for reason in verdict.document()["reasons"]
        if reason["code"] == "FAMILY_UNUSED"
    ]


def test_a_finished_pair_of_no_family_has_a_narrower_interval_where_it_is_named(
    arm: Callable[..., list[Curve]],
) -> None:
    pair = arm(10), arm(20, recipe="nvfp4")
    verdict, without = verdict_of(*pair), verdict_of(*pair, named={})
    assert (verdict.verdict, without.verdict) == ("pass", "pass")
    assert verdict.gap.half_width(0.95) < without.gap.half_width(0.95)
    assert unused(verdict) == []
    assert noise_basis(view_of(verdict.document())) == "assumed"
    (sentence,) = [
        reason["sentence"]
        for reason in verdict.document()["reasons"]
        if reason["code"] == "RUN_NOISE_ASSUMED"
    ]
    assert "any-decoder (7 families)" in sentence
    assert [verdict.document()["tau"][name]["source"] for name in ("baseline", "candidate")] == [
        "prior",
        "prior",
    ]


def test_both_arms_rest_on_one_estimate(arm: Callable[..., list[Curve]]) -> None:
    for recipe in ("fp8", "nvfp4"):
        run = verdict_of(arm(10), arm(20, recipe=recipe)).gap.run
        assert run.df == pytest.approx(
            find_noise_source(public_noise_table(), ANY_DECODER, "nearest").noise.df
        )


def test_what_other_families_have_is_not_data(arm: Callable[..., list[Curve]]) -> None:
    verdict = verdict_of(arm(10), arm(20), REJECT)
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "RUN_NOISE_ASSUMED")


@pytest.mark.parametrize(
    ("rates", "word"),
    [
        (None, "no learning rates"),
        (np.full(STEPS, 1e-3), "100 %"),
        (1e-3 * (0.3 + 0.35 * (1 + np.cos(np.pi * P))), "30 %"),
        (1e-3 * (1 - 0.6 * P), "41 %"),
        (1e-3 * (1 - 0.9 * P), "still falls"),
        (np.where(P == 0.5, 1.0, 1e-3), "100 %"),
        (np.where(P == 1.0, 0.0, 1e-3), "before its end"),
        (np.where(P > 0.99, 1e-5, 1e-3), "before its end"),
        (np.where(np.arange(STEPS) < 200, COSINE[::10].repeat(10), np.nan), "to 199 of"),
        (np.where(P == 1.0, -1.0, 1e-3), "negative"),
        (np.where(np.arange(STEPS) < 20, 1e-2, 1e-3), "100 %"),
        (np.where(np.arange(STEPS) < 5, 1e-3, np.nan), "5 learning rates"),
    ],
    ids=[
        "none",
        "constant",
        "high end",
        "cut",
        "linear",
        "stray",
        "last 0",
        "step down",
        "early only",
        "negative",
        "short peak",
        "few",
    ],
)
def test_it_is_for_schedules_that_are_seen_to_be_finished(
    arm: Callable[..., list[Curve]], rates: np.ndarray | None, word: str
) -> None:
    pair = arm(10, rates=rates), arm(20, rates=rates)
    verdict, without = verdict_of(*pair), verdict_of(*pair, named={})
    (sentence,) = unused(verdict)
    assert word in sentence
    assert (verdict.gap, verdict.verdict) == (without.gap, without.verdict)


def test_without_learning_rates_the_statement_that_they_decayed_counts(
    arm: Callable[..., list[Curve]],
) -> None:
    assert unused(verdict_of(arm(10, rates=None), arm(20, rates=None), STATED)) == []
    assert unused(verdict_of(arm(10, rates=None), arm(20, rates=None), complete=True)) != []
    constant = np.full(STEPS, 1e-3)
    assert unused(verdict_of(arm(10, rates=constant), arm(20, rates=constant), STATED)) != []
    assert unused(verdict_of(arm(10), arm(20, rates=None), STATED)) == []


def test_noisy_reruns_of_one_arm_contradict_it_for_both(arm: Callable[..., list[Curve]]) -> None:
    noisy = verdict_of(arm(10, offsets=(0.0, 0.03, -0.03, 0.02)), arm(20, recipe="nvfp4"))
    assert "RUN_NOISE_CONTRADICTED" in noisy.codes
    taus = noisy.document()["tau"]
    assert taus["candidate"]["borrowed"]["weight"] < 0.1
    assert taus["candidate"]["value"] > 0.01


def test_the_bundle_has_the_families_that_count_and_verifies(
    arm: Callable[..., list[Curve]], tmp_path: Path
) -> None:
    case = Case(
        baseline=arm(10),
        candidates={"cand": arm(20, recipe="nvfp4")},
        policy=POLICY,
        planned_steps=STEPS,
        baseline_name="base",
        noise_table=public_noise_table(),
        families=NAMED,
    )
    path = tmp_path / "out.zip"
    path.write_bytes(bundle_bytes(case, case.documents()))
    assert verify(str(path)).differences == ()
    with zipfile.ZipFile(path) as archive:
        kept: NoiseTable = read_noise_table(archive.read("noise_table.csv").decode())
    assert "modded-nanogpt-124M/track3" in kept.families
    assert "Llama2-70B-LoRA-GovReport" not in kept.families
