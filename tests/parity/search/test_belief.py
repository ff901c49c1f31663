"""The posterior of gaps equals a slow twin, and moves as results say."""

import numpy as np
import pytest

from parity.search.belief import OWN, PAIR, Noise, Scale, believe
from parity.search.evaluations import Evaluation, Result
from parity.search.policies import all_policies

NOISE = Noise(fork=0.001, baseline=0.003, candidate=0.004)
SCALE = Scale(gap=0.05, seen=0.4)
POLICIES = all_policies(3)


def result(kind, policy, value, parent="", se=0.0):
    return Result(evaluation=Evaluation(kind=kind, policy=policy, number=0, parent=parent), value=value, se=se)


RESULTS = [
    result("run", "000", 2.0),
    result("run", "111", 2.05),
    result("fork", "000", 2.4, "0"),
    result("fork", "110", 2.415, "0"),
    result("fork", "011", 2.41, "1"),
    result("fork", "000", 2.399, "1"),
    result("confirmation", "101", 0.03, se=0.002),
]


def twin():
    """Weighted least squares with one more row for the prior of each unknown, solved by the normal equations."""
    unknowns = ["1", "2", "3", "12", "13", "23", "c1", "c2", "c3", "c12", "c13", "c23", "runs", "0", "1p"]
    sds = dict(zip(unknowns, [0.05] * 3 + [PAIR * 0.05] * 3 + [OWN * 0.05] * 3 + [PAIR * 0.05] * 3 + [100.0] * 3, strict=True))

    def present(policy):
        bits = [str(at + 1) for at, bit in enumerate(policy) if bit == "1"]
        return bits + [a + b for a in bits for b in bits if a < b]

    rows, values = [], []
    for each in RESULTS:
        own = each.evaluation
        row = dict.fromkeys(unknowns, 0.0)
        seen = SCALE.seen if own.kind == "fork" else 1.0
        for name in present(own.policy):
            row[name] = seen
            if own.kind == "fork":
                row["c" + name] = seen
        if own.kind == "run":
            row["runs"] = 1.0
        if own.kind == "fork":
            row["0" if own.parent == "0" else "1p"] = 1.0
        sd = {"fork": 0.001, "run": 0.003 if own.policy == "000" else 0.004, "confirmation": each.se}[own.kind]
        rows.append([row[name] / sd for name in unknowns])
        values.append(each.value / sd)
    for name in unknowns:
        rows.append([float(other == name) / sds[name] for other in unknowns])
        values.append(2.0 / sds[name] if sds[name] == 100.0 else 0.0)  # a wide prior, wherever its centre
    covariance = np.linalg.inv(np.array(rows).T @ np.array(rows))
    best = covariance @ np.array(rows).T @ np.array(values)
    gaps = np.array([[float(name in present(policy)) for name in unknowns] for policy in POLICIES])
    return gaps @ best, np.sqrt(np.einsum("pi,ij,pj->p", gaps, covariance, gaps))


def test_the_posterior_is_that_of_weighted_least_squares():
    own = believe(POLICIES, RESULTS, NOISE, SCALE)
    mean, sd = twin()
    assert own.mean == pytest.approx(mean, abs=1e-6)
    assert own.sd == pytest.approx(sd, abs=1e-6)


def test_the_baselines_gap_is_0_and_losses_may_have_any_level():
    own = believe(POLICIES, RESULTS, NOISE, SCALE)
    assert (own.mean[0], own.sd[0]) == (0.0, 0.0)
    moved = [result(r.evaluation.kind, r.evaluation.policy, r.value + (r.se == 0.0) * 3.0, r.evaluation.parent, r.se) for r in RESULTS]
    assert believe(POLICIES, moved, NOISE, SCALE).mean == pytest.approx(own.mean, abs=1e-5)


def test_a_further_result_never_widens_and_the_order_does_not_matter():
    own = believe(POLICIES, RESULTS, NOISE, SCALE)
    more = believe(POLICIES, [*RESULTS, result("run", "110", 2.04)], NOISE, SCALE)
    assert (more.sd <= own.sd + 1e-9).all()
    assert more.sd[int("110", 2)] < 0.9 * own.sd[int("110", 2)]
    assert believe(POLICIES, RESULTS[::-1], NOISE, SCALE).mean == pytest.approx(own.mean, abs=1e-9)


def test_no_results_are_refused():
    with pytest.raises(ValueError, match="no results"):
        believe(POLICIES, [], NOISE, SCALE)
