"""When are chances of one more pair stated, and what keeps them from being a pass?"""

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from parity.judging.bundles.compare_documents import compare_documents
from parity.judging.curves.curve import Curve
from parity.judging.gap.chances import chances_of
from parity.judging.multiplicity import Multiplicity
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import judge

MakeRun = Callable[..., Curve]


@pytest.fixture(scope="module")
def stated(make_run: MakeRun) -> Any:
    """A verdict that a pair more may make a pass."""
    (verdict,) = judge(
        [make_run()],
        {"c": [make_run(seed=2, gap=0.02)]},
        Policy(margin="1%", schedule="decayed"),
        planned_steps=2000,
    )
    assert verdict.codes[0] == "CI_STRADDLES_MARGIN"
    return json.loads(json.dumps(verdict.document()))


def changed(document: Any, *path: object, to: object) -> Any:
    made = copy.deepcopy(document)
    inside = made
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = to
    return made


@pytest.mark.parametrize(("points", "known"), [(7, False), (8, True)])
def test_chances_need_eight_points(points: int, known: bool, stated: Any) -> None:
    assert (chances_of(changed(stated, "window", "n", to=points)) is not None) == known


@pytest.mark.parametrize(
    ("path", "value", "passes"),
    [
        (("margin", "rel"), 0.05, True),
        (("margin", "rel"), math.nextafter(0.05, 1.0), False),
        (("codes",), ["CI_STRADDLES_MARGIN", "AS_OF"], False),
        (("codes",), ["CI_STRADDLES_MARGIN", "TOO_FEW_STEPS"], False),
        (("codes",), ["CI_STRADDLES_MARGIN", "RUN_NOISE_ASSUMED"], True),
    ],
)
def test_what_keeps_a_pass_back_keeps_its_chance_at_nothing(
    path: tuple[str, ...], value: object, passes: bool, stated: Any
) -> None:
    made = chances_of(changed(stated, *path, to=value))
    assert (made["pass"] > 0.0) == passes
    assert made["pass"] + made["fail"] + made["undecided"] == pytest.approx(1.0)


def test_a_policy_may_accept_what_would_keep_a_pass_back(stated: Any) -> None:
    wide = changed(stated, "margin", "rel", to=0.06)
    wide = changed(wide, "params", "policy", "wide_margin", to="accept")
    assert chances_of(wide)["pass"] > 0.0
    as_of = changed(stated, "codes", to=["CI_STRADDLES_MARGIN", "AS_OF"])
    as_of = changed(as_of, "params", "policy", "as_of", to="accept")
    assert chances_of(as_of)["pass"] > 0.0
    rejected = changed(stated, "params", "policy", "assumed_noise", to="reject")
    measured = changed(rejected, "codes", to=["CI_STRADDLES_MARGIN"])
    assert chances_of(measured)["pass"] > 0.0
    rejected = changed(rejected, "codes", to=["CI_STRADDLES_MARGIN", "RUN_NOISE_ASSUMED"])
    assert chances_of(rejected)["pass"] == 0.0


@pytest.mark.parametrize("candidates", [1, 12])
def test_a_chance_to_fail_is_at_the_level_of_the_policy(candidates: int, stated: Any) -> None:
    """Two pairs of one run each in place of one, by the formula: the run term on df + 1, over two
    seeds, and the further pair's own distance in it."""
    made = copy.deepcopy(stated)
    run, within = 0.002, 1e-9
    made["se_parts"] = {
        "run": run,
        "run_df": 4.0,
        "within": within,
        "within_df": 50.0,
        "seeds": 1,
    }
    level = Multiplicity(candidates=candidates).confidence(0.95)
    t4 = [float(student.ppf(0.5 + own / 2, 4.0)) for own in (level, 0.95)]
    mean, margin = 0.03, 0.027
    made["gap"] |= {
        "mean": mean,
        "lo": mean - t4[0] * run,
        "hi": mean + t4[0] * run,
        "confidence": level,
    }
    made["margin"]["nats"] = margin
    made["multiplicity"] |= {"looks": 1, "candidates": candidates}
    for arm in ("baseline", "candidate"):
        made["tau"][arm] = {**made["tau"][arm], "prior_df": 4.0}
    found = chances_of(made)
    quantiles = norm.ppf((0.5 + np.arange(2000)) / 2000)
    moves = run * math.sqrt(0.5) * quantiles
    variance = (4.0 * run**2 + 2.0 * moves**2) / 5.0 / 2.0
    half = [float(student.ppf(0.5 + own / 2, 5.0)) * variance**0.5 for own in (level, 0.95)]
    assert found["fail"] == pytest.approx(float((mean + moves - half[1] > margin).mean()), abs=2e-3)
    assert found["pass"] == pytest.approx(float((mean + moves + half[0] < margin).mean()), abs=2e-3)


@pytest.mark.parametrize(("by", "differs"), [(0.9e-9, False), (1.1e-9, True)])
@pytest.mark.parametrize("value", [1.0, -3e3, 5e12])
def test_numbers_of_a_verdict_agree_to_a_billionth(value: float, by: float, differs: bool) -> None:
    found = list(compare_documents({"a": value}, {"a": value * (1.0 + by)}, "verdict"))
    assert bool(found) == differs


@pytest.mark.parametrize(("value", "differs"), [(0.9e-12, False), (1.1e-12, True)])
def test_a_number_next_to_zero_is_zero(value: float, differs: bool) -> None:
    assert bool(list(compare_documents({"a": 0.0}, {"a": value}, "verdict"))) == differs
