"""The chances of one more pair come true in simulated jobs, and none are stated where no pair
changes what decided.
"""

import copy
import dataclasses
import json
import math
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.judging.codes import BY_CODE
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.step_noise import StandardError
from parity.judging.gap.chances import chances_of
from parity.judging.gap.interval import interval, t_quantile
from parity.judging.noise.arm_noise import Prior, arm_noise, run_term, run_term_over_seeds
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import judge
from tests.conftest import some

MakeRun = Callable[..., Curve]
POLICY = {"schedule": "decayed", "margin": "1.0%"}
MARGIN, TAU, WITHIN_DF = 0.01, 0.001, 30.0
PRIOR = Prior(tau=TAU, df=4.0, basis="assumed", assumed=True)
OUTCOMES = ("pass", "fail", "undecided")


def error_of(gaps: np.ndarray, within: float) -> tuple[float, float, float]:
    """SE_run of (S,) gaps of single runs with assumed noise, its df, and SE_within, where each gap
    has an error within of so many nats.
    """
    seeds = len(gaps)
    df = 4.0 + seeds - 1
    variance = (4.0 * 2.0 * TAU**2 + float(((gaps - gaps.mean()) ** 2).sum())) / df / seeds
    return math.sqrt(variance), df, within / math.sqrt(seeds)


def ends(gaps: np.ndarray, within: float) -> tuple[float, float]:
    run, df, error = error_of(gaps, within)
    half = math.hypot(t_quantile(0.95, df) * run, t_quantile(0.95, WITHIN_DF) * error)
    return float(gaps.mean()) - half, float(gaps.mean()) + half


def outcome(gaps: np.ndarray, within: float) -> str:
    lo, hi = ends(gaps, within)
    if hi < MARGIN:
        return "pass"
    return "fail" if lo > MARGIN else "undecided"


def document_of(gaps: np.ndarray, within: float = 0.0) -> Any:
    """What `chances_of` reads of a verdict on (S,) pairs of single runs with assumed noise."""
    (run, df, error), (lo, hi) = error_of(gaps, within), ends(gaps, within)
    own = {"value": TAU, "prior_df": 4.0}
    return {
        "gap": {"mean": float(gaps.mean()), "lo": lo, "hi": hi, "confidence": 0.95},
        "margin": {"nats": MARGIN, "rel": 0.01},
        "se_parts": {
            "within": error,
            "within_df": WITHIN_DF,
            "run": run,
            "run_df": df,
            "seeds": len(gaps),
        },
        "tau": {"baseline": own, "candidate": own},
        "codes": ["CI_STRADDLES_MARGIN"],
        "window": {"n": 100},
        "params": {"policy": {"confidence": 0.95}},
        "checks": [],
        "baseline": {"runs": len(gaps)},
        "candidate": {"runs": len(gaps)},
    }


@pytest.mark.parametrize(("pairs", "within"), [(1, 0.0), (1, 0.001), (3, 0.0007)])
def test_what_is_stated_comes_true_after_the_next_pair(pairs: int, within: float) -> None:
    """Run-to-run noise as the judge assumes it; gaps spread evenly around the margin; within 7
    percentage points in every bin.
    """
    rng = np.random.default_rng(4)
    told, came = np.zeros((4000, 3)), np.zeros((4000, 3), dtype=bool)
    for job in range(len(told)):
        true = MARGIN + rng.uniform(-4.0, 4.0) * TAU * math.sqrt(2.0 / pairs)
        gaps = rng.normal(true, math.hypot(math.sqrt(2.0) * TAU, within), pairs + 1)
        chances = chances_of(document_of(gaps[:pairs], within))
        assert chances is not None
        told[job] = [chances[each] for each in OUTCOMES]  # type: ignore[literal-required]
        came[job, OUTCOMES.index(outcome(gaps, within))] = True
    assert told.sum(axis=1) == pytest.approx(np.ones(len(told)))
    for column in range(len(OUTCOMES)):
        for low, high in ((0.0, 0.1), (0.1, 0.5), (0.5, 0.9), (0.9, 1.1)):
            inside = (told[:, column] >= low) & (told[:, column] < high)
            assert inside.sum() >= 150
            assert came[inside, column].mean() == pytest.approx(
                told[inside, column].mean(), abs=0.07
            )


@pytest.mark.parametrize(("pairs", "gap"), [(1, 0.007), (1, 0.011), (2, 0.0085), (4, 0.012)])
def test_the_chances_are_those_of_a_drawn_pair(pairs: int, gap: float) -> None:
    """The slow twin: a true gap from what the verdict leaves open, a pair from that gap, and the
    interval over all of them.
    """
    rng = np.random.default_rng(pairs)
    gaps = gap + (np.linspace(-1.0, 1.0, pairs) * TAU if pairs > 1 else np.zeros(1))
    run, _, _ = error_of(gaps, 0.0)
    draws = 8000
    drawn = [
        outcome(np.append(gaps, rng.normal(rng.normal(gap, run), run * math.sqrt(pairs))), 0.0)
        for _ in range(draws)
    ]
    chances = chances_of(document_of(gaps))
    assert chances is not None
    for each in OUTCOMES:
        assert chances[each] == pytest.approx(drawn.count(each) / draws, abs=0.02)  # type: ignore[literal-required]


@pytest.mark.parametrize("pairs", [1, 2, 4])
def test_the_next_interval_is_the_judges_own(pairs: int) -> None:
    """The formula of these tests against the functions of the judge."""
    gaps = np.random.default_rng(pairs).normal(MARGIN, TAU, pairs + 1)
    seeds = list(range(pairs + 1))
    noises = arm_noise(PRIOR, np.zeros(pairs + 1), seeds), arm_noise(PRIOR, gaps, seeds)
    run = run_term_over_seeds(gaps, *noises)
    judged = interval(float(gaps.mean()), StandardError(value=0.0, df=WITHIN_DF), run)
    assert judged.bounds(0.95) == pytest.approx(ends(gaps, 0.0), abs=1e-12)
    single = run_term(*(arm_noise(PRIOR, np.zeros(1), [0]) for _ in range(2)))
    assert (single.variance**0.5, single.df) == pytest.approx(error_of(gaps[:1], 0.0)[:2])


@pytest.fixture(scope="module")
def straddling(make_run: MakeRun) -> Any:
    """A real verdict, undecided for want of evidence alone."""
    base, cand = make_run(1500), make_run(1500, seed=2, gap=0.02)
    (verdict,) = judge([base], {"c": [cand]}, policy_from_mapping(POLICY), planned_steps=1500)
    document = verdict.document()
    assert document["codes"][0] == "CI_STRADDLES_MARGIN"
    return document


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_only_what_evidence_changes_has_chances(straddling: Any, code: str) -> None:
    """A job whose deciding code is a mismatch never has a chance of a pass."""
    document = {**straddling, "codes": [code, *straddling["codes"]]}
    chances = chances_of(document)
    interval_alone = ("WITHIN_MARGIN", "GAP_EXCEEDS_MARGIN", "CI_STRADDLES_MARGIN")
    if code not in (*interval_alone, "AS_OF", "TOO_FEW_STEPS", "RUN_NOISE_ASSUMED"):
        assert chances is None
        return
    assert chances is not None
    refused = code in ("AS_OF", "TOO_FEW_STEPS")
    assert (chances["pass"] == 0.0) == refused


@pytest.mark.parametrize(
    ("change", "can_pass"),
    [
        ({}, True),
        ({"assumed_noise": "reject"}, False),
        ({"assumed_noise": "reject", "codes": []}, True),
        ({"as_of": "accept", "codes": ["AS_OF"]}, True),
        ({"codes": ["AS_OF"]}, False),
        (
            {
                "checks": [
                    {
                        "name": "grad_norm",
                        "role": "decides",
                        "state": "inconclusive",
                        "sentence": "",
                    }
                ]
            },
            False,
        ),
        (
            {"checks": [{"name": "grad_norm", "role": "advises", "state": "fail", "sentence": ""}]},
            True,
        ),
    ],
)
def test_what_is_known_to_keep_a_pass_back_leaves_none(
    straddling: Any, change: dict[str, Any], can_pass: bool
) -> None:
    document = copy.deepcopy(straddling)
    document["codes"] = ["CI_STRADDLES_MARGIN", *change.get("codes", ["RUN_NOISE_ASSUMED"])]
    document["checks"] = change.get("checks", [])
    document["params"]["policy"] |= {
        key: value for key, value in change.items() if key not in ("codes", "checks")
    }
    chances = chances_of(document)
    assert chances is not None
    assert (chances["pass"] > 0.0) == can_pass
    assert chances["pass"] + chances["fail"] + chances["undecided"] == pytest.approx(1.0)


def test_a_gap_further_below_the_margin_passes_more_often(make_run: MakeRun) -> None:
    shares = []
    for gap in (0.0, 0.01, 0.02, 0.03, 0.06):
        runs = [make_run(800), make_run(800, seed=2, gap=gap)]
        document = judge(
            [runs[0]], {"c": [runs[1]]}, policy_from_mapping(POLICY), planned_steps=800
        )[0].document()
        chances = chances_of(document)
        assert chances is not None
        shares.append((chances["pass"], chances["fail"]))
    assert [passes for passes, _ in shares] == sorted(
        (passes for passes, _ in shares), reverse=True
    )
    assert [fails for _, fails in shares] == sorted(fails for _, fails in shares)
    assert shares[0][0] > 0.99
    assert shares[-1][1] > 0.99


def test_a_candidate_that_is_better_by_the_margin_passes_in_neither_policy(
    make_run: MakeRun,
) -> None:
    runs = [make_run(800), make_run(800, seed=2, gap=-0.024)]
    shares = []
    for policy in (POLICY, {**POLICY, "two_sided": True}):
        document = judge(
            [runs[0]], {"c": [runs[1]]}, policy_from_mapping(policy), planned_steps=800
        )[0].document()
        chances = chances_of(document)
        shares.append(None if chances is None else chances["pass"])
    assert shares[1] is not None
    assert shares[0] is None or shares[1] < shares[0]


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0", "0.3.0", "0.4.0"])
def test_documents_of_earlier_judges_are_read(data: Path, version: str) -> None:
    with zipfile.ZipFile(data / f"judge-{version}.zip") as bundle:
        for document in json.loads(bundle.read("verdict.json"))["verdicts"]:
            # as migration 0031 renames it on record
            document["params"]["policy"] = document["params"].pop("criteria")
            chances = chances_of(document)
            assert chances is None or 0.0 <= chances["pass"] <= 1.0


losses = st.one_of(
    st.floats(-5, 50), st.sampled_from([float("nan"), float("inf"), 0.0, 1e300, 1e6])
)
series = st.lists(st.tuples(st.integers(0, 300), losses), max_size=300)


def stated(arms: Sequence[Sequence[Curve]], policy: dict[str, Any], planned: int | None) -> None:
    (verdict,) = judge(arms[0], {"c": arms[1]}, policy_from_mapping(policy), planned_steps=planned)
    chances = chances_of(verdict.document())
    if chances is not None:
        assert all(0.0 <= chances[each] <= 1.0 for each in OUTCOMES)  # type: ignore[literal-required]
        assert sum(chances[each] for each in OUTCOMES) == pytest.approx(1.0)  # type: ignore[literal-required]
        json.dumps(chances, allow_nan=False)


@settings(max_examples=some(60), deadline=None)
@given(
    st.lists(series, min_size=1, max_size=3),
    st.lists(series, min_size=1, max_size=3),
    st.one_of(st.none(), st.integers(1, 400)),
)
def test_no_hostile_log_makes_them_fail(base, cand, planned: int | None) -> None:
    arms = [
        [curve_from_arrays([s for s, _ in rows], [loss for _, loss in rows]) for rows in arm]
        for arm in (base, cand)
    ]
    stated(arms, POLICY, planned)


@settings(max_examples=some(40), deadline=None)
@given(
    st.integers(1, 3), st.integers(1, 3), st.floats(-0.05, 0.05), st.booleans(), st.integers(1, 3)
)
def test_no_plausible_verdict_makes_them_fail(
    make_run: MakeRun, base: int, cand: int, gap: float, seeded: bool, looks: int
) -> None:
    arms = [
        [
            dataclasses.replace(
                make_run(200, seed=10 * arm + run, batch_seed=run * seeded, gap=arm * gap),
                seed=run * seeded,
            )
            for run in range(number)
        ]
        for arm, number in enumerate((base, cand))
    ]
    stated(arms, {**POLICY, "looks": looks, "two_sided": seeded}, 200)
