"""Overrides: which arithmetic each GEMM gets, and what is refused."""

import json
from dataclasses import asdict, replace

import pytest

from training.later_recipe import LaterRecipe
from training.overrides import GEMMS, Override, document, from_document, phrase, short
from training.rules import SpecError
from training.segments import Arithmetic, gemm_key
from training.spec import ArmSpec, JobSpec, Model, Projections, RunSpec, Schedule, capability
from training.step_values import PROJECTIONS
from training.switches import Switches, label

JOB = JobSpec(
    name="job",
    baseline=ArmSpec(recipe="fp8_current"),
    candidates=(ArmSpec(recipe="nvfp4"),),
    model=Model(n_layers=8),
    schedule=Schedule(steps=1000),
)
BF16 = {"recipe": "bf16"}
NO_RHT, NO_SR = Switches(rht=False), Switches(stochastic_rounding=False)


def run(*overrides, recipe="nvfp4", arm=None, **job) -> RunSpec:
    candidate = ArmSpec(recipe=recipe, name="own", overrides=tuple(overrides), **(arm or {}))
    return next(
        spec
        for arm_of_run, spec in replace(JOB, candidates=(candidate,), **job).runs()
        if arm_of_run.name == "own"
    )


def table(spec, segment=0):
    """{(block, projection, GEMM): label} of the GEMMs whose arithmetic is not the run's own
    recipe.
    """
    part = spec.segments[segment]
    cells = {
        (block, projection, gemm): label(*arithmetic)
        for span in part.spans
        for block in range(span.first, span.last + 1)
        for projection, layer in zip(PROJECTIONS, span.layers, strict=True)
        for gemm, arithmetic in zip(GEMMS, layer, strict=True)
    }
    assert len(cells) == spec.model.n_layers * 21
    return {
        place: text for place, text in cells.items() if text != label(spec.recipe, spec.switches)
    }


def test_wgrad_of_one_projection_in_two_blocks():
    spec = run(Override(blocks=("0-1",), projections=("down",), gemms=("wgrad",), **BF16))
    assert table(spec) == {(0, "down", "wgrad"): "bf16", (1, "down", "wgrad"): "bf16"}
    assert len(spec.segments) == 1


def test_another_format_in_the_last_two_blocks():
    assert {
        (block, text)
        for (block, *_), text in table(run(Override(blocks=("last 2",), recipe="mxfp8"))).items()
    } == {
        (6, "mxfp8"),
        (7, "mxfp8"),
    }


def test_the_rotation_off_in_one_projection():
    changed = table(run(Override(projections=("out",), switches=NO_RHT)))
    assert changed == {(block, "out", gemm): "nvfp4+no_rht" for block in range(8) for gemm in GEMMS}
    rotated, without = Arithmetic("nvfp4"), Arithmetic("nvfp4", NO_RHT)
    assert [gemm_key(gemm, rotated) == gemm_key(gemm, without) for gemm in GEMMS] == [
        True,
        True,
        False,
    ]


def test_stochastic_rounding_in_dgrad_only():
    changed = table(run(Override(gemms=("wgrad",), switches=NO_SR)))
    assert {gemm for _, _, gemm in changed} == {"wgrad"}
    assert len(changed) == 56


def test_the_forward_product_in_bf16_from_a_step_on_in_some_blocks():
    spec = run(Override(blocks=("4-7",), gemms=("fprop",), from_step=800, **BF16))
    assert [part.first_step for part in spec.segments] == [0, 800]
    assert table(spec, 0) == {}
    assert {(block, gemm) for block, _, gemm in table(spec, 1)} == {
        (block, "fprop") for block in (4, 5, 6, 7)
    }


def test_every_gemm_may_have_its_own_format_and_later_rules_win():
    spec = run(
        Override(gemms=("fprop",), recipe="mxfp8"),
        Override(gemms=("dgrad",), recipe="fp8_current"),
        Override(
            blocks=(0, "first 2", "5"),
            projections=("gate",),
            gemms=("fprop", "dgrad"),
            recipe="bf16",
        ),
        Override(
            blocks=(1,), gemms=("fprop",), recipe="nvfp4_no_rht", switches=Switches(block_size=32)
        ),
    )
    changed = table(spec)
    assert {changed[3, "gate", gemm] for gemm in GEMMS[:2]} == {"mxfp8", "fp8_current"}
    assert {changed[block, "gate", "fprop"] for block in (0, 5)} == {"bf16"}
    assert changed[1, "gate", "fprop"] == "nvfp4+no_rht+block_size=32"
    assert changed[1, "gate", "dgrad"] == "bf16"
    assert not [place for place in changed if place[2] == "wgrad"]


def test_an_override_refines_the_jobs_policy_and_the_switch_to_bf16_comes_last():
    policy = {
        "layer_policy": "mlp_only",
        "projections": Projections(out="quantized", down="bf16"),
        "keep_first": 1,
        "keep_last": 2,
    }
    plain = table(run(**policy))
    quantized = {
        (block, name, gemm)
        for block in range(1, 6)
        for name in ("out", "gate", "up")
        for gemm in GEMMS
    }
    assert set(plain.values()) == {"bf16"}
    assert len(plain) == 168 - len(quantized)
    refined = table(
        run(Override(blocks=("last 1",), projections=("down",), recipe="mxfp8"), **policy)
    )
    assert {place: text for place, text in refined.items() if plain[place] != text} == {
        (7, "down", gemm): "mxfp8" for gemm in GEMMS
    }
    switched = run(
        Override(blocks=(3,), switches=NO_RHT),
        arm={"then": LaterRecipe(recipe="bf16", from_step=900, gemms="forward")},
        **policy,
    )
    assert [part.first_step for part in switched.segments] == [0, 900]
    late = table(switched, 1)
    assert late[3, "gate", "wgrad"] == "nvfp4+no_rht"
    assert {text for (_, _, gemm), text in late.items() if gemm == "fprop"} == {"bf16"}
    assert not set(
        table(run(arm={"then": LaterRecipe(recipe="bf16", from_step=900)}), 1).values()
    ) - {"bf16"}


def test_one_gemm_of_a_bf16_arm_may_be_quantized():
    spec = run(
        Override(blocks=(2,), projections=("up",), gemms=("dgrad",), recipe="nvfp4"),
        recipe="bf16",
        layer_policy="mlp_only",
    )
    assert table(spec) == {(2, "up", "dgrad"): "nvfp4"}
    assert spec.recipes == ("bf16", "nvfp4")


@pytest.mark.parametrize(
    ("recipe", "overrides", "expected"),
    [
        ("nvfp4", (), "stochastic"),
        ("fp8_current", (), "nearest"),
        ("nvfp4", (Override(switches=NO_SR),), "nearest"),
        ("nvfp4", (Override(gemms=("wgrad",), switches=NO_SR),), "stochastic"),
        ("nvfp4", (Override(gemms=("dgrad", "wgrad"), recipe="mxfp8"),), "nearest"),
        (
            "fp8_current",
            (Override(blocks=(0,), projections=("up",), gemms=("wgrad",), recipe="nvfp4"),),
            "stochastic",
        ),
        (
            "fp8_current",
            (
                Override(
                    blocks=(0,),
                    projections=("up",),
                    gemms=("wgrad",),
                    recipe="nvfp4",
                    from_step=999,
                ),
            ),
            "stochastic",
        ),
        (
            "fp8_current",
            (Override(blocks=(0,), projections=("up",), gemms=("fprop",), recipe="nvfp4"),),
            "nearest",
        ),
    ],
)
def test_a_run_is_stochastic_if_any_gemm_rounds_stochastically_in_any_step(
    recipe, overrides, expected
):
    spec = run(*overrides, recipe=recipe)
    assert spec.rounding == expected
    assert (
        replace(
            JOB, candidates=(ArmSpec(recipe=recipe, name="own", overrides=overrides),)
        ).rounding(spec)
        == expected
    )


def rule(**values):
    return lambda: run(Override(**values))


@pytest.mark.parametrize(
    ("make", "field", "message"),
    [
        (
            rule(projections=("dwon",), **BF16),
            "overrides.projections",
            "expected one of query.*did you mean down",
        ),
        (
            rule(gemms=("wgard",), **BF16),
            "overrides.gemms",
            "expected one of fprop, dgrad, wgrad; did you mean wgrad",
        ),
        (rule(recipe="nvfp5"), "overrides.recipe", "did you mean nvfp4"),
        (rule(recipe="f32"), "overrides.recipe", "use it as an arm's recipe"),
        (
            rule(blocks=("0:1",), **BF16),
            "overrides.blocks",
            "numbers such as 3, ranges such as 0-1",
        ),
        (rule(blocks=(True,), **BF16), "overrides.blocks", "numbers such as 3"),
        # a digit, but not an ASCII one
        (rule(blocks=("\u0663",), **BF16), "overrides.blocks", "numbers such as 3"),
        (rule(blocks=("3-1",), **BF16), "overrides.blocks", "the nearest is 1-3"),
        (rule(blocks=("last 0",), **BF16), "overrides.blocks", "the nearest is last 1"),
        (
            rule(blocks=(8,), **BF16),
            "arm.overrides.0.blocks",
            "blocks of 0 to 7.*the nearest is 7$",
        ),
        (rule(blocks=("6-9",), **BF16), "arm.overrides.0.blocks", "the nearest is 6-7$"),
        (rule(blocks=("first 9",), **BF16), "arm.overrides.0.blocks", "the nearest is first 8$"),
        (
            rule(from_step=1000, **BF16),
            "arm.overrides.0.from_step",
            "before schedule.steps = 1000; the last one is 999",
        ),
        (rule(from_step=0, **BF16), "overrides.from_step", "a step after the first"),
        (rule(gemms=("wgrad",)), "overrides", "a recipe, switches or both"),
        (rule(recipe="nvfp4"), "arm.overrides.0", "a rule that changes something"),
        (rule(switches=Switches(rht=True)), "arm.overrides.0", "a rule that changes something"),
        (
            rule(gemms=("fprop", "dgrad"), switches=NO_RHT),
            "arm.overrides.0",
            "a rule that changes something",
        ),
        (
            rule(recipe="bf16", switches=NO_RHT),
            "overrides.switches.rht",
            "expected no switch on recipe bf16",
        ),
        (
            lambda: run(
                Override(blocks=(0,), **BF16), Override(blocks=("first 2",), recipe="mxfp8")
            ),
            "arm.overrides.0",
            "another rule",
        ),
        (
            lambda: run(
                Override(blocks=(0,), from_step=600, **BF16),
                arm={"then": LaterRecipe(recipe="bf16", from_step=500)},
            ),
            "arm.overrides.0",
            "then",
        ),
        (
            lambda: run(Override(switches=NO_RHT), recipe="fp8_current"),
            "arm.overrides.0.switches.rht",
            "nothing on recipe fp8_current.*query in block 0 has recipe fp8_current",
        ),
        (
            lambda: run(Override(gemms=("wgrad",), recipe="nvfp4"), recipe="f32"),
            "arm.overrides",
            "nothing for recipe f32",
        ),
        (
            lambda: run(
                *(
                    Override(blocks=(0,), from_step=step, recipe=("bf16", "mxfp8")[step % 2])
                    for step in range(1, 9)
                )
            ),
            "arm.overrides",
            "at most 7",
        ),
        (
            rule(gemms=("dgrad",), switches=Switches(row_scaled_activation=True)),
            "arm.overrides.0",
            "a rule that changes something",
        ),
        (
            rule(gemms=("wgrad",), switches=Switches(nvfp4_4over6="weights")),
            "arm.overrides.0",
            "a rule that changes something",
        ),
        (
            rule(gemms=("dgrad",), switches=Switches(nvfp4_4over6="activations")),
            "arm.overrides.0",
            "a rule that changes something",
        ),
        (
            lambda: run(
                Override(
                    gemms=("dgrad",),
                    switches=Switches(nvfp4_4over6="all", nvfp4_4over6_e4m3_use_256="weights"),
                ),
                Override(gemms=("dgrad",), switches=Switches(nvfp4_4over6_e4m3_use_256="all")),
            ),
            "arm.overrides.1",
            "a rule that changes something",
        ),
        (
            lambda: run(
                *(
                    Override(
                        projections=("up", "gate")[at:],
                        recipe="fp8_delayed",
                        switches=Switches(margin=at),
                    )
                    for at in (0, 1)
                )
            ),
            "arm.overrides",
            (
                "is 'fp8_delayed.margin=1', expected fp8_delayed, as in the other layers.*one kind "
                "of history|expected fp8_delayed.margin=1"
            ),
        ),
        (
            lambda: run(Override(gemms=("wgrad",), recipe="fp8_delayed", from_step=9)),
            "arm.overrides",
            "wgrad of query in block 0 has no history of amaxes.*the nearest is fp8_current",
        ),
    ],
)
def test_a_refusal_names_the_field_the_value_and_the_nearest(make, field, message):
    with pytest.raises(SpecError, match=message) as refusal:
        make()
    assert refusal.value.field == field


NATIVE = {"engine": "transformer_engine", "model": Model(preset="llama3-0.3m-by128", n_layers=8)}


def test_transformer_engine_takes_what_is_one_recipe_per_layer():
    spec = run(
        Override(projections=("out",), switches=NO_RHT),
        # the rotation is wgrad's alone
        Override(projections=("gate",), gemms=("wgrad",), switches=NO_RHT),
        Override(blocks=("last 2",), recipe="mxfp8"),
        Override(
            blocks=("last 1",), gemms=("dgrad", "wgrad"), switches=Switches(gradient_format="e5m2")
        ),
        Override(blocks=(3,), recipe="fp8_current"),
        Override(blocks=(0,), recipe="bf16", from_step=500),
        Override(
            blocks=(2,),
            projections=("up",),
            gemms=("fprop", "dgrad"),
            switches=Switches(weight_scaling="1d"),
        ),
        Override(blocks=(2,), projections=("up",), switches=NO_RHT),
        **NATIVE,
    )
    assert len(spec.segments) == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            Override(projections=("down",), gemms=("wgrad",), **BF16),
            r"wgrad of down in block 0: recipe is bf16, and nvfp4 in another GEMM",
        ),
        (
            Override(blocks=(1,), gemms=("dgrad",), switches=NO_SR),
            r"wgrad of query in block 1: stochastic_rounding is True, and False",
        ),
        (Override(gemms=("wgrad",), switches=Switches(block_size=32)), r"block_size is 32, and 16"),
        (
            Override(switches=Switches(weight_scaling="1d")),
            r"refuses 1D weight scales together with the Hadamard rotation",
        ),
        (Override(switches=Switches(block_size=32)), r"in blocks of 16, not of 32"),
        (Override(switches=Switches(sr_bits=8)), r"query in block 0: .*leave sr_bits out"),
        (Override(recipe="fp8_current", switches=Switches(nan="propagate")), r"use nan: hardware"),
        (
            Override(gemms=("wgrad",), recipe="mxfp8", switches=Switches(gradient_format="e5m2")),
            r"recipe is mxfp8, and nvfp4",
        ),
        (
            Override(switches=Switches(row_scaled_activation=True)),
            r"row_scaled_activation for PyTorch only",
        ),
        (Override(recipe="fp8_block"), "Float8BlockScaling for PyTorch only"),
        (Override(recipe="mxfp4"), "Transformer Engine has no MXFP4 recipe; use engine: emulated"),
    ],
)
def test_transformer_engine_refuses_the_rest_with_layer_gemm_and_reason(override, message):
    with pytest.raises(SpecError, match=message) as refusal:
        run(override, **NATIVE)
    assert refusal.value.field.startswith("arm.overrides.0")
    assert "use engine: emulated" in str(refusal.value)


@pytest.mark.parametrize("engine", ["maxtext", "external"])
def test_other_trainers_have_no_overrides(engine):
    data = {"data": replace(JOB.data, source="grain", path="x")} if engine == "maxtext" else {}
    with pytest.raises(SpecError, match=f"nothing under engine {engine}"):
        run(Override(blocks=(0,), **BF16), engine=engine, model=Model(preset="llama3-20m"), **data)


def test_the_worker_needs_every_recipe():
    arm = ArmSpec(
        recipe="bf16", name="one", overrides=(Override(projections=("up",), recipe="mxfp8"),)
    )
    native = replace(JOB, candidates=(arm,), **NATIVE)
    assert capability(native)[0] == "sm100"
    assert capability(replace(native, candidates=(ArmSpec(recipe="bf16"),)))[0] == "sm90"


OVERRIDES = (
    Override(
        blocks=(0, "2-3"),
        projections=("down", "up"),
        gemms=("wgrad",),
        recipe="bf16",
        from_step=800,
    ),
    Override(blocks=("last 2",), switches=Switches(rht=False, block_size=32)),
)


def test_an_override_has_a_word_a_phrase_and_a_document():
    assert [short(override) for override in OVERRIDES] == [
        "bf16@blocks:0,2-3.down,up.wgrad.from:800",
        "rht=false,block_size=32@blocks:last2",
    ]
    assert [phrase(override) for override in OVERRIDES] == [
        "wgrad of down, up in blocks 0, 2-3 from step 800: bf16",
        "all GEMMs of all projections in blocks last 2: rht=false, block_size=32",
    ]
    assert [
        from_document(json.loads(json.dumps(document(override)))) for override in OVERRIDES
    ] == list(OVERRIDES)
    assert document(OVERRIDES[1]) == {
        "blocks": ["last 2"],
        "switches": {"rht": False, "block_size": 32},
    }


def test_a_specification_without_overrides_has_the_document_of_earlier_versions():
    _, plain = next(JOB.runs())
    assert "overrides" not in plain.document()
    # later switches only if they are set
    first = dict.fromkeys(("stochastic_rounding", "rht", "weight_scaling", "block_size"))
    later = ("overrides", "then", "command", "revision", "environment")
    assert plain.document() == {
        name: value for name, value in asdict(plain).items() if name not in later
    } | {
        "switches": first,
        "schedule": plain.schedule.document(),
        "model": plain.model.document(),
        "data": plain.data.document(),
        "maxtext": plain.maxtext.document(),
    }
    assert "overrides" not in json.dumps(JOB.document())
    spec = run(*OVERRIDES)
    assert spec.document()["overrides"] == [document(override) for override in OVERRIDES]
    assert spec.label == "nvfp4+" + "+".join(map(short, OVERRIDES))
    assert ArmSpec(recipe="nvfp4", overrides=OVERRIDES).name == "nvfp4.overrides"
