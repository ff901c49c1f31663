"""The error of a question with several looks and candidates, shared as declared."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.judging.curves.curve import curve_from_arrays
from parity.judging.gap.interval import t_quantile
from parity.judging.multiplicity import (
    LOOK_QUANTILES,
    MAX_LOOKS,
    Multiplicity,
    look_weight,
    pairs_confidence,
)
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import judge

STEPS = 1500


def curve(gap: float = 0.0, seed: int = 0):
    rng = np.random.default_rng(seed)
    steps = np.arange(STEPS)
    batch = np.random.default_rng(1).normal(0.0, 0.05, STEPS)
    loss = 3.0 + 4.0 * (steps + 1.0) ** -0.5 + batch + gap * 3.0 + rng.normal(0.0, 0.001, STEPS)
    return curve_from_arrays(steps, loss, recipe="fp8", rounding="nearest")


def test_one_look_at_one_candidate_has_the_confidence_of_the_policy():
    for nominal in (0.9, 0.95, 0.99, 0.123456789):
        assert Multiplicity().confidence(nominal) == nominal  # bit for bit


@given(
    looks=st.integers(1, MAX_LOOKS), candidates=st.integers(1, 64), nominal=st.floats(0.5, 0.9999)
)
def test_looks_widen_run_noise_alone_and_candidates_share_all(looks, candidates, nominal):
    """No wider than Bonferroni's bound over the looks, and never less than the policy's
    confidence.
    """
    shared = Multiplicity(look=looks, looks=looks, candidates=candidates)
    spent, within = 1.0 - shared.confidence(nominal), 1.0 - shared.within_confidence(nominal)
    assert math.isclose(within * candidates, 1.0 - nominal, rel_tol=1e-9, abs_tol=1e-13)
    assert spent * candidates <= (1.0 - nominal) * (1.0 + 1e-9)
    assert spent * candidates * looks >= (1.0 - nominal) * (1.0 - 1e-9)


@pytest.mark.parametrize(("looks", "quantile"), LOOK_QUANTILES)
def test_the_quantiles_of_the_looks_are_those_of_four_degrees_of_freedom(looks, quantile):
    assert t_quantile(Multiplicity(looks=looks).confidence(0.95), 4.0) == pytest.approx(
        quantile, rel=1e-9
    )


def test_between_them_quantiles_are_interpolated_in_the_logarithm_of_the_looks():
    between = t_quantile(Multiplicity(looks=3).confidence(0.95), 4.0)
    assert between == pytest.approx(
        3.44 + (4.39 - 3.44) * math.log(3 / 2) / math.log(5 / 2), rel=1e-9
    )
    weights = [look_weight(looks) for looks in range(1, MAX_LOOKS + 1)]
    assert weights == sorted(weights, reverse=True)


def test_one_look_has_the_share_of_all():
    assert look_weight(1) == 1.0


@pytest.mark.parametrize(
    "values",
    [
        {"look": 2},
        {"looks": 0},
        {"looks": MAX_LOOKS + 1},
        {"look": 0, "looks": 2},
        {"candidates": 0},
    ],
)
def test_a_look_that_was_not_planned_is_refused(values):
    with pytest.raises(ValueError, match="expected"):
        Multiplicity(**values)


def test_all_pairs_together():
    assert pairs_confidence(0.95, 2) == 0.95
    assert math.isclose(1.0 - pairs_confidence(0.95, 4), 0.05 / 6)


def test_what_is_shown_is_what_decides():
    """The interval in the document has the level of the look, and the verdict is its side of the
    margin.
    """
    base = [curve(seed=2)]
    for looks, look in ((1, 1), (2, 1), (3, 2)):
        policy = Policy(schedule="decayed", margin="1%", looks=looks)
        for gap in np.linspace(0.0, 0.02, 9):
            verdict = judge(
                base,
                {"c": [curve(float(gap), seed=3)]},
                policy,
                planned_steps=STEPS,
                multiplicity=Multiplicity(look=look, looks=looks, candidates=4),
            )[0]
            document = verdict.document()
            shown, margin = document["gap"], document["margin"]
            assert shown["confidence"] == Multiplicity(
                look=look, looks=looks, candidates=4
            ).confidence(0.95)
            if verdict.codes[0] in ("WITHIN_MARGIN", "CI_STRADDLES_MARGIN", "GAP_EXCEEDS_MARGIN"):
                # further looks and candidates make no fail harder to reach
                fails = shown["ci95"][0] > margin["nats"]
                side = (
                    "fail" if fails else "pass" if shown["hi"] < margin["nats"] else "inconclusive"
                )
                assert verdict.verdict == side


def test_further_looks_and_candidates_only_widen():
    base, candidate = [curve(seed=2)], [curve(0.004, seed=3)]
    single = judge(
        base, {"c": candidate}, Policy(schedule="decayed", margin="1%"), planned_steps=STEPS
    )[0].document()
    both = judge(
        base,
        {"c": candidate, "d": [curve(0.004, seed=4)]},
        Policy(schedule="decayed", margin="1%"),
        planned_steps=STEPS,
    )[0].document()
    first = judge(
        base,
        {"c": candidate},
        Policy(schedule="decayed", margin="1%", looks=2),
        planned_steps=STEPS,
    )[0].document()
    assert single["gap"]["mean"] == both["gap"]["mean"] == first["gap"]["mean"]
    widths = [document["gap"]["hi"] - document["gap"]["lo"] for document in (single, both, first)]
    assert widths[0] < widths[1]
    # two looks cost less than two candidates: they share what a run is off
    assert widths[0] < widths[2] < widths[1]
    assert single["gap"]["ci95"] == both["gap"]["ci95"]


def test_a_veto_is_no_harder_to_reach_with_more_candidates():
    """A candidate that is better by more than the margin stays out of a pass, however wide its
    interval is.
    """
    base, better = [curve(seed=2)], [curve(-0.02, seed=3)]
    for candidates in (1, 30, 64):
        shared = Multiplicity(candidates=candidates)
        verdict = judge(
            base,
            {"c": better},
            Policy(schedule="decayed", margin="1%"),
            planned_steps=STEPS,
            multiplicity=shared,
        )[0]
        assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "BETTER_THAN_BASELINE")


def test_other_looks_than_the_policy_registers_are_refused():
    base, candidate = [curve(seed=2)], [curve(0.004, seed=3)]
    with pytest.raises(ValueError, match="looks"):
        judge(
            base,
            {"c": candidate},
            Policy(schedule="decayed", margin="1%"),
            multiplicity=Multiplicity(looks=2),
        )
    with pytest.raises(ValueError, match="candidates"):
        judge(
            base,
            {"c": candidate, "d": candidate},
            Policy(schedule="decayed", margin="1%"),
            multiplicity=Multiplicity(candidates=1),
        )


def test_peers_hold_together():
    base = [curve(seed=2)]
    candidates = {name: [curve(0.004, seed=number)] for number, name in enumerate("cdef", 3)}
    four = judge(base, candidates, Policy(schedule="decayed", margin="1%"), planned_steps=STEPS)[
        -1
    ].peers
    two = judge(
        base,
        dict(list(candidates.items())[::3]),
        Policy(schedule="decayed", margin="1%"),
        planned_steps=STEPS,
    )[-1].peers
    same = next(peer for peer in four if peer["name"] == two[0]["name"])
    assert same["gap"] == two[0]["gap"]
    assert same["hi"] - same["lo"] > two[0]["hi"] - two[0]["lo"]
