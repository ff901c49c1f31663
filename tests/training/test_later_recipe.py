"""An arm that goes on with another recipe: what its GEMMs do, what it is called, what is refused,
and what earlier versions stored.
"""

from dataclasses import replace

import pytest

from training.later_recipe import LaterRecipe, in_todays_form, later_recipe, needed_recipes
from training.overrides import Override
from training.rules import SpecError
from training.spec import ArmSpec, Data, JobSpec, Model, Schedule, labels_of
from training.switches import Switches

JOB = JobSpec(
    name="job",
    baseline=ArmSpec(recipe="bf16"),
    candidates=(ArmSpec(recipe="nvfp4"),),
    model=Model(d_model=64, n_layers=3, n_heads=2, n_kv_heads=2, d_ff=128),
    data=Data(sequence_length=32, batch_size=4),
    schedule=Schedule(steps=100, warmup_steps=10),
    layer_policy="mlp_only",
    keep_last=1,
)


def job(then, recipe="nvfp4", *, engine="emulated", **fields):
    """A job whose candidate goes on so."""
    arm = ArmSpec(recipe=recipe, then=then, **fields)
    layers = {"layer_policy": "all_linears"} if engine == "transformer_engine" else {}
    return replace(JOB, candidates=(arm,), engine=engine, **layers)


def table(spec, step):
    """The recipe of each GEMM of the candidate at a step, by block, projection and GEMM."""
    run = spec.run_of(spec.candidates[0], 0)
    part = [part for part in run.segments if part.first_step <= step][-1]
    return {
        (block, projection, gemm): arithmetic.recipe
        for span in part.spans
        for block in range(span.first, span.last + 1)
        for projection, layer in zip(
            ("query", "key", "value", "out", "gate", "up", "down"), span.layers, strict=True
        )
        for gemm, arithmetic in zip(("fprop", "dgrad", "wgrad"), layer, strict=True)
    }


@pytest.mark.parametrize("recipe", ["bf16", "mxfp8", "fp8_current"])
def test_what_is_quantized_gets_the_later_recipe_and_what_is_not_stays(recipe):
    spec = job(LaterRecipe(recipe=recipe, from_step=60))
    before, after = table(spec, 59), table(spec, 60)
    assert {before[place] for place in before} == {"bf16", "nvfp4"}
    for place, word in before.items():
        assert after[place] == (recipe if word == "nvfp4" else "bf16")


def test_of_the_forward_products_alone():
    spec = job(LaterRecipe(recipe="mxfp8", from_step=60, gemms="forward"))
    after = table(spec, 99)
    assert [after[0, "down", gemm] for gemm in ("fprop", "dgrad", "wgrad")] == [
        "mxfp8",
        "nvfp4",
        "nvfp4",
    ]


def test_a_layer_that_an_override_put_into_bf16_stays_there():
    late = LaterRecipe(recipe="mxfp8", from_step=60)
    spec = job(late, overrides=(Override(recipe="bf16", blocks=(0,)),))
    assert table(spec, 60)[0, "down", "fprop"] == "bf16"
    assert table(spec, 60)[1, "down", "fprop"] == "mxfp8"


@pytest.mark.parametrize(
    ("then", "name", "labels"),
    [
        (
            LaterRecipe(recipe="mxfp8", from_step=60),
            "nvfp4.then-mxfp8.from-step-60",
            [(0, "nvfp4"), (60, "mxfp8")],
        ),
        (
            LaterRecipe(recipe="bf16", from_step=60, gemms="forward"),
            "nvfp4.then-bf16-forward.from-step-60",
            [(0, "nvfp4"), (60, "nvfp4+bf16@fprop")],
        ),
    ],
)
def test_the_arm_is_named_after_it_here_and_in_a_record(then, name, labels):
    spec = job(then)
    arm = spec.candidates[0]
    assert arm.name == name
    assert spec.labels(arm) == labels
    document = spec.document()
    assert labels_of(document, document["candidates"][0]) == labels
    others = {"candidates": document["candidates"]}  # of another trainer, without layers on record
    assert labels_of(others, document["candidates"][0]) == labels


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: LaterRecipe(recipe="f32", from_step=3), "arm.then.recipe"),
        (lambda: LaterRecipe(recipe="nvfp5", from_step=3), "arm.then.recipe"),
        (lambda: LaterRecipe(recipe="bf16", from_step=3, gemms="wgrad"), "arm.then.gemms"),
        (lambda: job(LaterRecipe(recipe="bf16", from_step=0)), "arm.then.from_step"),
        (lambda: job(LaterRecipe(recipe="bf16", from_step=100)), "arm.then.from_step"),
        (lambda: job(LaterRecipe(recipe="mxfp8", from_step=9), "bf16"), "arm.then"),
        (lambda: job(LaterRecipe(recipe="nvfp4", from_step=9)), "arm.then"),
        (
            lambda: job(LaterRecipe(recipe="nvfp4", from_step=9, gemms="forward"), "nvfp4_no_rht"),
            "arm.then",
        ),
        (lambda: job(LaterRecipe(recipe="fp8_delayed", from_step=9)), "arm.overrides"),
        (
            lambda: job(
                LaterRecipe(recipe="bf16", from_step=9, gemms="forward"),
                engine="transformer_engine",
            ),
            "arm.then.gemms",
        ),
        (
            lambda: job(LaterRecipe(recipe="mxfp4", from_step=9), engine="transformer_engine"),
            "arm.then.recipe",
        ),
    ],
)
def test_what_no_run_can_go_on_with_is_refused(make, field):
    with pytest.raises(SpecError) as refused:
        make()
    assert refused.value.field == field


def test_a_switch_of_the_arm_is_a_difference_to_its_plain_recipe():
    plain = LaterRecipe(recipe="nvfp4", from_step=9)
    assert table(job(plain, switches=Switches(rht=False)), 9)[0, "up", "wgrad"] == "nvfp4"


def test_a_run_needs_the_later_recipe_too():
    then = LaterRecipe(recipe="mxfp8", from_step=9)
    assert needed_recipes("nvfp4", (Override(recipe="bf16"),), then) == ("nvfp4", "bf16", "mxfp8")
    spec = job(then)
    assert spec.run_of(spec.candidates[0], 0).recipes == ("nvfp4", "mxfp8")


def test_it_comes_back_from_its_document_and_from_that_of_an_earlier_version():
    then = LaterRecipe(recipe="bf16", from_step=9, gemms="forward")
    assert later_recipe(then.document()) == then
    assert later_recipe(None) is None
    earlier = {"recipe": "nvfp4", "bf16_from_step": 9, "bf16_scope": "forward"}
    assert in_todays_form(earlier) == {"recipe": "nvfp4", "then": then.document()}
    unset = {"recipe": "nvfp4", "bf16_from_step": None, "bf16_scope": "all"}
    assert in_todays_form(unset) == {"recipe": "nvfp4"}
    today = {"recipe": "nvfp4", "then": then.document()}
    assert in_todays_form(today) == today
