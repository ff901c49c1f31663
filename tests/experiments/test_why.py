"""The cases of the attribution experiment can be trained, and its table counts what is on record."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import why
from parity.why.halving import find_guilty
from training.arithmetic import linear
from training.arithmetic.formats import E2M1
from training.arithmetic.quantize import Quantizer
from training.why.units import measured

PLAIN = Quantizer(format=E2M1, scaling="nvfp4", block=16)
MARKED = Quantizer(format=E2M1, scaling="nvfp4", block=16, drops_nan=True, stochastic=True)


def current():
    """The quantizer that the linear layers use now."""
    return vars(linear)["to_bfloat16"]


@pytest.mark.parametrize("case", why.CASES, ids=lambda case: case.name)
def test_every_case_is_a_pair_of_runs_that_differ_where_it_says(case):
    baseline, candidate = why._spec(case, case.baseline, ()), why._spec(case, "nvfp4", case.candidate)
    own = measured(candidate.segments[0], why._MODEL.n_layers)
    assert why.guilty_units(case) <= {unit.name for unit in own.units}
    assert (baseline.label == candidate.label) == (case.name == "healthy")


def test_a_fault_spoils_marked_operands_alone_and_goes_with_its_case():
    x = jnp.asarray(np.random.default_rng(1).normal(0, 1, (32, 32)), jnp.bfloat16)
    seed = jnp.uint32(1)
    before = current()
    with why.planted(why.CASES[0]):
        assert (current()(x, 1, MARKED, seed, None).value == 0).all()
        assert (current()(x, 1, PLAIN).value != 0).any()
    assert current() is before
    for case in why.CASES:
        if case.spoil not in (None, why._zeroed):
            with why.planted(case):
                plain = Quantizer(format=E2M1, scaling="nvfp4", block=16, drops_nan=True)
                assert (current()(x, 1, plain).value != before(x, 1, plain).value).any()


def test_the_table_has_the_gap_and_what_was_named(tmp_path, monkeypatch):
    case = why.CASES[0]
    units = ("0.down.dgrad", "1.down.dgrad")
    guilt = find_guilty(units, lambda cluster: 0.001 if "0.down.dgrad" in cluster else 0.8)
    lines = [
        {"kind": "run", "arm": arm, "replicate": at, "late_mean": 2.0 + at / 10 + (0.03 if arm == "candidate" else 0.0)}
        for arm in ("baseline", "candidate")
        for at in range(3)
    ]
    lines.append({"kind": "answer", "whole": [0.01, 0.001], **why._answer(guilt), "forks": 9, "fork_steps": 540, "pair_steps": 1200})
    record = tmp_path / "why.jsonl"
    record.write_text("".join(json.dumps({"case": case.name, "settings": why._SETTINGS, **line}) + "\n" for line in lines))
    monkeypatch.setattr(why, "RECORD", record)
    *_, row = why.table()
    assert row.startswith(f"| {case.name} | +0.0300 (+0.0300 to +0.0300) | +0.0100 | not run | 0.down.dgrad | 0.down.dgrad | 9 | 0.45 |")


def test_what_is_put_in_needs_all_forks_of_the_baseline():
    rows = [
        {
            "kind": "fork",
            "arm": arm,
            "replicate": parent,
            "draw": draw,
            "loss": 2.0 + parent + 0.001 * draw + (0.01 if arm == "put in" else 0.0),
        }
        for arm in ("put in", "baseline")
        for parent in range(3)
        for draw in range(4)
    ]
    assert why.put_in(rows).value == pytest.approx(0.01)
    assert why.put_in(rows[1:]) is None
