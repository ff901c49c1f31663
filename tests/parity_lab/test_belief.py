"""The posterior of gaps equals a slow twin, and moves as results say."""

import numpy as np
import pytest

from parity_lab import belief
from parity_lab.assignments import all_assignments
from parity_lab.belief import Evaluation, Noise, Result, Shares, believe
from parity_lab.effects import Estimate

NOISE = Noise(baseline=0.003, candidate=0.004)
SHARES = Shares(
    gap=0.06,
    whole=0.02,
    own=tuple(Estimate(value=value, se=0.001, df=6.0) for value in (0.012, 0.008, -0.0001)),
)
ASSIGNMENTS = all_assignments(3)


def result(kind, assignment, value, parent="", se=0.0):
    return Result(
        evaluation=Evaluation(kind=kind, assignment=assignment, number=0, parent=parent),
        value=value,
        se=se,
    )


RESULTS = [
    result("run", "000", 2.0),
    result("run", "111", 2.06),
    result("run", "110", 2.05),
    result("confirmation", "101", 0.03, se=0.002),
]


def twin():
    """Least squares with one more row for the prior of each unknown, solved by the normal
    equations.
    """
    effects = [3 * each.value for each in SHARES.own]
    each = 0.06 / 3
    size = [max(value, 0.1 * each) for value in effects]
    own_sd = np.hypot(belief.OWN * each, 0.003)
    unknowns = {"b": (belief.B, belief.B_SD), "m": (0.0, belief.COMMON), "level": (2.0, 100.0)}
    unknowns |= {f"c{at}": (0.0, own_sd) for at in range(3)} | {
        f"e{a}{b}": (0.0, belief.PAIR) for a, b in ((0, 1), (0, 2), (1, 2))
    }
    names = list(unknowns)

    def row(assignment):
        on = [at for at in range(3) if assignment[at] == "1"]
        values = dict.fromkeys(names, 0.0)
        values["b"] = sum(effects[at] for at in on)
        for at in on:
            values[f"c{at}"] = 1.0
        for a in on:
            for b in on:
                if a < b:
                    values[f"e{a}{b}"] = (size[a] * size[b]) ** 0.5
                    values["m"] += (size[a] * size[b]) ** 0.5
        return values

    rows, values = [], []
    for own in RESULTS:
        kind, assignment = own.evaluation.kind, own.evaluation.assignment
        sd = own.se if kind == "confirmation" else 0.003 if assignment == "000" else 0.004
        given = row(assignment) | ({"level": 1.0} if kind == "run" else {})
        rows.append([given[name] / sd for name in names])
        values.append(own.value / sd)
    for name, (mean, sd) in unknowns.items():
        rows.append([float(other == name) / sd for other in names])
        values.append(mean / sd)
    covariance = np.linalg.inv(np.array(rows).T @ np.array(rows))
    best = covariance @ np.array(rows).T @ np.array(values)
    gaps = np.array([[row(assignment)[name] for name in names] for assignment in ASSIGNMENTS])
    return gaps @ best, np.sqrt(np.einsum("pi,ij,pj->p", gaps, covariance, gaps))


def test_the_posterior_is_that_of_least_squares():
    own = believe(ASSIGNMENTS, RESULTS, NOISE, SHARES)
    mean, sd = twin()
    assert own.mean == pytest.approx(mean, abs=1e-6)
    assert own.sd == pytest.approx(sd, abs=1e-6)


def test_the_baselines_gap_is_0_and_losses_may_have_any_level():
    own = believe(ASSIGNMENTS, RESULTS, NOISE, SHARES)
    assert (own.mean[0], own.sd[0]) == (0.0, 0.0)
    moved = [
        result(r.evaluation.kind, r.evaluation.assignment, r.value + (r.se == 0.0) * 3.0, se=r.se)
        for r in RESULTS
    ]
    assert believe(ASSIGNMENTS, moved, NOISE, SHARES).mean == pytest.approx(own.mean, abs=1e-5)


def test_a_further_result_never_widens_and_forks_are_in_the_shares_alone():
    own = believe(ASSIGNMENTS, RESULTS, NOISE, SHARES)
    more = believe(ASSIGNMENTS, [*RESULTS, result("run", "100", 2.04)], NOISE, SHARES)
    assert (more.sd <= own.sd + 1e-9).all()
    assert more.sd[int("100", 2)] < 0.9 * own.sd[int("100", 2)]
    assert believe(ASSIGNMENTS, RESULTS[::-1], NOISE, SHARES).mean == pytest.approx(
        own.mean, abs=1e-9
    )
    assert (
        believe(ASSIGNMENTS, [*RESULTS, result("fork", "100", 9.0, "0")], NOISE, SHARES).mean
        == own.mean
    ).all()


def test_a_switch_with_more_effect_in_forks_has_the_larger_gap():
    own = believe(ASSIGNMENTS, RESULTS[:2], NOISE, SHARES)
    first, second, third = (own.mean[int(assignment, 2)] for assignment in ("100", "010", "001"))
    assert first > second > third


def test_no_full_runs_are_refused():
    with pytest.raises(ValueError, match="no full runs"):
        believe(ASSIGNMENTS, [result("fork", "100", 2.0, "0")], NOISE, SHARES)
