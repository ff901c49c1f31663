"""The faults of the attribution experiment change what they name, and nothing else; its tables
count what is on record.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import why_cases, why_faults, why_outside, why_table
from parity_lab.training import menu_layer
from training.arithmetic import random_bits
from training.arithmetic.recipes import linear_recipe
from training.trainer.run import TrainingRun

PLAIN, MARKED = (
    linear_recipe("nvfp4", *switches, fast_bf16=True) for switches in ((), (why_faults.MARK,))
)
# An operand by its name: its place in a recipe, the axis that is contracted, and its column in the
# scales.
OPERANDS = {
    "fprop_x": (1, 0),
    "fprop_w": (0, 1),
    "dgrad_g": (1, 2),
    "dgrad_w": (1, 1),
    "wgrad_x": (0, 0),
    "wgrad_g": (0, 2),
}
# The operands that each fault changes, of a GEMM in which it is planted.
CHANGED = {
    "zeroed gradient": {"dgrad_g"},
    "stale amax": set(OPERANDS),
    "scale order": set(OPERANDS) - {"fprop_w", "dgrad_w"},
    "clipped blocks": set(OPERANDS),
    "mxfp4": set(OPERANDS),
    "blocks of 128": set(OPERANDS),
    "no rotation": {"wgrad_x", "wgrad_g"},
    "no stochastic rounding": {"dgrad_g", "wgrad_g"},
    "1D weights": {"fprop_w", "dgrad_w"},
}


@cache
def _compiled(recipe, name):
    axis = OPERANDS[name][0]
    return jax.jit(
        lambda x, scale: (
            vars(menu_layer)["operand_of"](
                recipe, getattr(recipe, name), x, axis, scale, random_bits.key(7)
            ).value
        )
    )


def operand(recipe, name, scale):
    x = jnp.asarray(np.random.default_rng(1).standard_t(3, (128, 128)), jnp.bfloat16)
    return _compiled(recipe, name)(x, jnp.float32(scale[OPERANDS[name][1]]))


@pytest.fixture(scope="module", autouse=True)
def planting():
    before = vars(menu_layer)["operand_of"]
    with why_faults.planted():
        yield
    assert vars(menu_layer)["operand_of"] is before


@pytest.mark.parametrize("name", OPERANDS)
def test_a_marked_operand_without_a_fault_is_equal_bit_for_bit(name):
    np.testing.assert_array_equal(
        operand(MARKED, name, np.ones(3)), operand(PLAIN, name, np.ones(3))
    )


@pytest.mark.parametrize("kind", CHANGED)
def test_a_fault_changes_the_operands_of_its_gemm_alone(kind):
    assert set(CHANGED) == set(why_faults.KINDS) - {"healthy"}
    for gemm in ("fprop", "dgrad", "wgrad"):
        scale = why_faults.codes((2, 7, 3), kind, [f"1.down.{gemm}"])
        assert (scale[0] == 1).all()
        different = {
            name
            for name in OPERANDS
            if (operand(MARKED, name, scale[1, 6]) != operand(PLAIN, name, scale[1, 6])).any()
        }
        assert different == {name for name in CHANGED[kind] if name.startswith(gemm)}


def test_every_case_has_random_numbers_of_its_own():
    for is_planted in (False, True):
        places = [
            (case.seed, case.step)
            for trial in (why_cases.PLANTED, why_cases.LARGER)
            for case in why_cases.cases(trial)
            if bool(case.units) == is_planted
        ]
        assert len(places) == len(set(places)) == why_cases.ROUNDS * why_cases.ROUND + 36 + 60


def test_every_layer_of_the_larger_model_has_every_visible_fault():
    faults = [(case.kind, *case.units) for case in why_cases.cases(why_cases.LARGER) if case.units]
    assert len(faults) == len(set(faults)) == 4 * 9


def test_every_pair_of_layers_has_every_visible_fault_at_once():
    faults = [
        (case.kind, *case.units)
        for case in why_cases.cases(why_cases.PLANTED)
        if case.seed >= 21 and case.units
    ]
    assert len(faults) == len(set(faults)) == 4 * 15
    assert {len(each) for each in faults} == {3}


def lines():
    """Two faults with three pairs each: one of +0.1 nats, one without an effect."""
    for replicate, noise in enumerate((-0.01, 0.0, 0.01)):
        about = {"settings": "0.1M", "kind": "run", "seed": 0, "replicate": replicate}
        yield {**about, "fault": "healthy", "gemms": [], "late_mean": 2.0}
        yield {**about, "fault": "stale amax", "gemms": ["a"], "late_mean": 2.1 + noise}
        yield {**about, "fault": "mxfp4", "gemms": ["b", "c"], "late_mean": 2.0 + noise}


def answered(fault, units, named, value=0.0):
    return {
        "settings": "0.1M",
        "kind": "answer",
        "case": f"{fault} {named}",
        "fault": fault,
        "gemms": units,
        "named": named,
        "seed": 0,
        "step": 220,
        "unexplained": {"value": value, "low": value - 0.01, "high": value + 0.01}
        if named
        else None,
        "gradient_errors": {"all": 0.5, "a": 0.2, "b": 0.1 if units else 0.02},
        "steps_spent": 1000.0,
    }


def test_only_faults_that_the_judge_fails_are_counted():
    effects = why_table.full_effects([*lines()])
    seen = {fault: why_table.is_seen(effect) for fault, effect in effects.items()}
    assert seen == {("stale amax", ("a",), 0): True, ("mxfp4", ("b", "c"), 0): False}
    answers = [
        answered("stale amax", ["a"], [["a"]]),
        answered("mxfp4", ["b", "c"], []),
        answered("healthy", [], []),
    ]
    rows = [*why_table.table([*lines(), *answers], [])]
    assert "| stale amax | 1 | 1 | 1 | 0 | +0.100 (+0.100 to +0.100) |" in rows
    assert any(row.startswith("| not failed, gap can be 0 | 2 | 1 of 2 ") for row in rows)
    assert any(row.startswith("| healthy cases in which a unit is named | 0 of 1 ") for row in rows)
    fault = {"fault": "stale amax", "gemms": ["a"], "seed": 0}
    verdict = {
        "settings": "0.1M",
        "kind": "verdict",
        **fault,
        "verdict": "fail",
        "gap": [0.1, 0.09, 0.11],
    }
    rows = [*why_table.table([*lines(), verdict, *answers], [])]
    assert "| stale amax | 1 | 1 | 1 | 1 | +0.100 (+0.100 to +0.100) |" in rows
    assert "| stale amax | 1 | 1 | 0 | 0 | 0 | 1 of 1 | 0 of 1 |" in rows
    assert any(row.startswith("| all | 1 | 1 of 1 ") for row in rows)
    rows = [*why_table.table([*lines(), {**verdict, "verdict": "inconclusive"}, *answers], [])]
    assert any(row.startswith("| not failed, gap above or below 0 | 1 | 1 of 1 ") for row in rows)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ([["a"]], "right"),
        ([["a"], ["b"]], "right"),
        ([["a", "c"]], "wider"),
        ([["a"], ["c"]], "wrong"),
        ([], "none"),
    ],
)
def test_an_answer_is_right_only_if_every_named_unit_is_planted(named, expected):
    assert why_table.outcome(answered("mxfp4", ["a", "b"], named)) == expected


def test_the_unexplained_part_is_0_only_where_every_planted_unit_is_named():
    whole, part = (
        answered("mxfp4", ["a", "b"], [["a", "b"]], 0.02),
        answered("mxfp4", ["a", "b"], [["a"]], 0.02),
    )
    truths = {part["case"]: {"unexplained": 0.025, "se": 0.0}}
    assert why_table.covers(whole, truths) is False
    assert why_table.covers(part, truths) is True
    assert why_table.covers(part, {}) is None
    assert (
        why_table.covers({**whole, "unexplained": {"value": 0.0, "low": 0.0, "high": 0.0}}, truths)
        is None
    )
    assert why_table.covers(answered("mxfp4", ["a"], []), truths) is None


def test_of_really_different_recipes_the_truth_is_that_of_further_forks():
    line = answered("nvfp4 against fp8_current", [], [["a"]], 0.02)
    assert why_table.covers(line, {}) is None
    assert why_table.covers(line, {line["case"]: {"unexplained": 0.0, "se": 0.001}}) is False
    assert why_table.covers(line, {line["case"]: {"unexplained": 0.028, "se": 0.001}}) is True


def test_every_cause_outside_changes_what_a_run_is_given():
    cases = [*why_outside.cases()]
    assert len({case.name for case in cases}) == len(cases) >= 60
    assert {(case.arm, len(set(case.recipes))) for case in cases} == {
        ("candidate", 2),
        ("candidate", 1),
        ("baseline", 2),
    }
    spec = why_outside.spec_of("fp8_current", 0)
    honest = TrainingRun(spec, why_outside._corpus(), fast_bf16=True)
    for cause in why_outside.CAUSES:
        run = why_outside.Caused(spec, cause)
        last = min(cause.end, why_cases.STEPS) - 1
        same_tokens = (
            np.asarray(run._tokens(last, 1)) == np.asarray(honest._tokens(last, 1))
        ).all()
        changed = cause.change is not None and any(
            (before != after).any()
            for before, after in zip(
                jax.tree.leaves(run.state), jax.tree.leaves(cause.change(run.state)), strict=True
            )
            if before.shape == after.shape
        )
        assert (
            cause.schedule
            or not same_tokens
            or changed
            or cause.change in (why_outside._forgotten, why_outside._halved)
        ), cause.name


def test_a_run_without_a_cause_is_that_of_its_specification():
    spec = why_outside.spec_of("fp8_current", 0)
    runs = (
        why_outside.Caused(spec, why_outside.Cause(name="none")),
        TrainingRun(spec, why_outside._corpus(), fast_bf16=True),
    )
    tokens, others = (np.asarray(run._tokens(37, 5)) for run in runs)
    np.testing.assert_array_equal(tokens, others)
