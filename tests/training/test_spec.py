"""What a specification refuses, and the sentences it refuses with."""

import dataclasses
import hashlib
import re
import typing
from dataclasses import asdict, replace

import pytest

from parity import recipes
from training import rules
from training.later_recipe import LaterRecipe
from training.model_shapes import PRESETS
from training.rules import SpecError
from training.spec import (
    SPEC_VERSION,
    ArmSpec,
    Data,
    JobSpec,
    Model,
    Projections,
    RunSpec,
    Schedule,
    ShortReruns,
    capability,
)
from training.switches import Switches

JOB = JobSpec(
    name="job",
    baseline=ArmSpec(recipe="fp8_current", replicates=2),
    candidates=(ArmSpec(recipe="nvfp4", replicates=3),),
)


def changed(**changes):
    return lambda: replace(JOB, **changes)


def model(**changes):
    return lambda: replace(JOB, model=replace(Model(), **changes))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (model(n_heads=5), r"model\.n_heads is 5, expected a divisor of d_model = 96"),
        (model(head_dim=31), r"model\.head_dim is 31, expected an even size per head"),
        (model(head_dim=0), r"model\.head_dim is 0, expected a number of at least 2"),
        (model(head_dim=20), r"model\.n_heads x head size is 60, expected a multiple of 16"),
        (
            lambda: Schedule(steps=10, warmup_steps=4, decay_steps=6),
            r"schedule\.decay_steps is 6, expected at most 5",
        ),
        (lambda: Schedule(decay_steps=-1), r"schedule\.decay_steps is -1"),
        (
            lambda: Data(dtype="uint32"),
            r"data\.dtype is 'uint32', expected nothing but for source tokens",
        ),
        (lambda: Data(source="tokens", path="a.npy", dtype="uint16"), r"data\.dtype is 'uint16'"),
        (
            changed(
                engine="maxtext",
                data=Data(source="grain", path="x"),
                model=replace(Model(), qk_norm=True),
            ),
            r"model\.qk_norm is True, expected false under engine maxtext",
        ),
        (
            changed(schedule=Schedule(steps=2**32 // 42 + 1)),
            (
                r"schedule\.steps is 102261127, expected at most 102,261,126 with stochastic "
                r"rounding "
                r"of 42 tensors a step"
            ),
        ),
        (model(n_kv_heads=2), r"model\.n_kv_heads is 2, expected a divisor of n_heads = 3"),
        (
            model(d_ff=250),
            r"model\.d_ff is 250, expected a multiple of 16.*recipe nvfp4.*value is 256",
        ),
        (
            lambda: replace(JOB, data=Data(batch_size=3, sequence_length=5)),
            r"data\.sequence_length is 15, expected a multiple of 16",
        ),
        (
            changed(engine="maxtext", data=Data(source="grain", path="x"), layer_policy="mlp_only"),
            "leaves attention projections out",
        ),
        (changed(candidates=()), "at least one candidate arm"),
        (
            lambda: ShortReruns(runs=0),
            r"short_reruns\.runs is 0, expected a whole number from 1 to 16",
        ),
        (
            lambda: ShortReruns(stop_at=0.39),
            r"short_reruns\.stop_at is 0\.39, expected a share of the steps from 0\.4 to 0\.9",
        ),
        (lambda: ShortReruns(stop_at=float("nan")), r"short_reruns\.stop_at is nan"),
        (
            changed(schedule=Schedule(steps=1, warmup_steps=0), short_reruns=ShortReruns()),
            r"schedule\.steps is 1, expected enough steps",
        ),
        (changed(candidates=(ArmSpec(recipe="fp8_current"),)), "a different name for each arm"),
        (changed(seed=-1), "seed is -1"),
        (
            changed(keep_first=1, keep_last=2),
            r"keep_first \+ keep_last is 3, expected fewer than model\.n_layers = 3",
        ),
        (
            changed(
                candidates=(
                    ArmSpec(recipe="nvfp4", then=LaterRecipe(recipe="bf16", from_step=1500)),
                )
            ),
            r"arm\.then\.from_step is 1500, expected a step after the first",
        ),
        (
            changed(
                candidates=(ArmSpec(recipe="bf16", then=LaterRecipe(recipe="bf16", from_step=5)),)
            ),
            "only a quantized recipe can go on",
        ),
        (
            changed(engine="maxtext", data=Data(source="grain", path="x"), keep_last=1),
            "0 under engine maxtext",
        ),
        (lambda: ArmSpec(recipe="fp3"), "arm.recipe is 'fp3', expected one of f32"),
        (lambda: ArmSpec(recipe="fp8-curent"), r"did you mean fp8_current\?"),
        (lambda: ArmSpec(recipe="nvfp4_ue5m3"), "NVFP4 with UE5M3 block scales is not emulated"),
        (lambda: ArmSpec(recipe="NVFP4-UE5M3"), "other:NAME under engine command or external"),
        (lambda: ArmSpec(recipe="nvfp4", replicates=0), "arm.replicates is 0"),
        (lambda: Data(source="text"), r"data\.path is None, expected a path for source text"),
        (lambda: Data(validation_fraction=1.0), "a share of at least 0 and below 1"),
        (lambda: Schedule(steps=10, warmup_steps=10), "fewer than steps = 10"),
        (lambda: Schedule(learning_rate=0.0), "a finite number above 0"),
        (lambda: Model(preset="gpt2"), r"model\.preset is 'gpt2', expected one of llama3-0\.3m"),
        (
            lambda: Model(preset="llama3-1b", d_model=0),
            r"model\.d_model is 0, expected a number of at least 1",
        ),
        (
            changed(gradient_accumulation=3),
            (
                r"data\.batch_size is 8, expected a multiple of gradient_accumulation x devices = "
                r"3 x "
                r"1"
            ),
        ),
        (changed(devices=0), "devices is 0, expected a number of at least 1"),
        (
            changed(devices=2, data=Data(batch_size=2, sequence_length=40)),
            r"\(gradient_accumulation x devices\) is 40, expected a multiple of 16.*value is 32",
        ),
        (
            changed(data=Data(source="hf", path="x")),
            "maxtext, which reads it with its own tokenizer",
        ),
    ],
)
def test_a_refusal_names_the_field_its_value_and_what_was_expected(make, message):
    with pytest.raises(SpecError, match=message):
        make()


def test_runs_of_a_job_differ_in_recipe_switch_and_replicate_alone():
    job = replace(
        JOB,
        candidates=(ArmSpec(recipe="nvfp4", then=LaterRecipe(recipe="bf16", from_step=1230)),),
        keep_first=1,
    )
    runs = list(job.runs())
    assert [(arm.name, run.recipe, run.replicate, run.then) for arm, run in runs] == [
        ("fp8_current", "fp8_current", 0, None),
        ("fp8_current", "fp8_current", 1, None),
        ("nvfp4.then-bf16.from-step-1230", "nvfp4", 0, LaterRecipe(recipe="bf16", from_step=1230)),
    ]
    alike = {replace(run, recipe="bf16", replicate=0, then=None) for _, run in runs}
    assert len(alike) == 1
    assert next(iter(alike)).keep_first == 1


def test_a_run_checks_itself():
    run = next(JOB.runs())[1]
    assert isinstance(run, RunSpec)
    with pytest.raises(SpecError, match=r"model\.d_ff is 20"):
        replace(run, recipe="mxfp8", model=replace(Model(), d_ff=20))


def test_number_of_parameters_of_the_demo_model():
    block = 2 * 96 * 96 + 2 * 96 * 32 + 3 * 96 * 256 + 2 * 96
    assert Model().parameters == 256 * 96 + 3 * block + 96 == 320_160


def test_capability_follows_engine_and_recipe():
    assert capability(JOB)[0] == "cpu"
    native = replace(JOB, engine="transformer_engine", model=Model(preset="llama3-0.3m-by128"))
    assert capability(native)[0] == "sm100"
    assert capability(replace(native, candidates=(ArmSpec(recipe="bf16"),)))[0] == "sm90"


def test_a_preset_is_a_way_to_write_a_shape():
    written = Model(preset="llama3-1b", n_layers=4)
    assert (written.d_model, written.n_layers, written.vocab_size, written.tied_embeddings) == (
        2048,
        4,
        128_256,
        True,
    )
    assert replace(written, n_layers=16) == Model(preset="llama3-1b")
    assert Model(**asdict(written)) == written
    assert Model(preset="llama3-0.3m") == Model()
    assert not Model(preset="llama3-8b").tied_embeddings


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_as_large_as_its_name_and_fits_every_recipe(preset):
    model = Model(preset=preset)
    size = preset.removeprefix("llama3-").removesuffix("-by128")
    named = float(size[:-1]) * {"m": 1e6, "b": 1e9}[size[-1]]
    assert model.parameters == pytest.approx(named, rel=0.25)
    replace(JOB, model=model, baseline=ArmSpec(recipe="mxfp8"), layer_policy="all_linears")


def test_switches_and_projections_are_closed_and_fit_recipe_engine_and_shape():
    arm = ArmSpec(recipe="nvfp4", switches=Switches(rht=False, block_size=32))
    assert arm.name == "nvfp4.no_rht.block_size-32"
    job = replace(
        JOB,
        candidates=(
            arm,
            ArmSpec(
                recipe="nvfp4",
                name="late",
                then=LaterRecipe(recipe="bf16", from_step=900, gemms="forward"),
            ),
        ),
    )
    runs = {arm.name: run for arm, run in job.runs()}
    assert runs[arm.name].switches == arm.switches
    assert runs["late"].then == LaterRecipe(recipe="bf16", from_step=900, gemms="forward")
    with pytest.raises(SpecError, match=r"model\.d_ff is 272, expected a multiple of 32"):
        replace(job, model=Model(d_ff=272))
    with pytest.raises(SpecError, match=r"blocks of 16, not of 32; or use engine: emulated"):
        replace(job, candidates=(arm,), engine="transformer_engine", layer_policy="all_linears")


@pytest.mark.parametrize(
    ("kept", "steps"),
    [
        ((900, 1200), (900, 1200)),
        ((0.5, 0.7, 0.9), (750, 1050, 1350)),
        ((0.5, 1200), (750, 1200)),
        ((1200.0, 1500), (1200, 1500)),
    ],
)
def test_checkpoints_are_kept_at_steps_or_at_shares_of_them(kept, steps):
    job = replace(JOB, keep_checkpoints=kept)
    assert job.keep_checkpoints == steps
    assert all(isinstance(step, int) for step in job.keep_checkpoints)
    assert job == replace(JOB, keep_checkpoints=steps)


@pytest.mark.parametrize("kept", [(0.7, 0.5), (0,), (1501,), (900.5,), (0.0001,), (float("nan"),)])
def test_a_checkpoint_that_no_run_has_is_refused(kept):
    with pytest.raises(SpecError) as refused:
        replace(JOB, keep_checkpoints=kept)
    assert refused.value.field == "keep_checkpoints"


def test_projections_depart_from_the_layer_policy():
    assert Projections().quantized("mlp_only") == {"gate", "up", "down"}
    assert Projections(out="quantized", down="bf16").quantized("mlp_only") == {"gate", "up", "out"}
    assert Projections(query="bf16", key="bf16").quantized("all_linears") == {
        "value",
        "out",
        "gate",
        "up",
        "down",
    }
    with pytest.raises(SpecError, match="expected a layer that is quantized"):
        replace(
            JOB,
            layer_policy="mlp_only",
            projections=Projections(gate="bf16", up="bf16", down="bf16"),
        )
    with pytest.raises(SpecError, match=r"projections\.up is 'fp8', expected quantized or bf16"):
        Projections(up="fp8")


def test_short_reruns_have_the_full_schedule_and_replicate_numbers_of_their_own():
    job = replace(JOB, short_reruns=ShortReruns(runs=2, stop_at=0.4))
    runs = [(arm.recipe, run.replicate, run.schedule.steps) for arm, run in job.early_runs()]
    assert runs == [
        ("fp8_current", 3, 1500),
        ("nvfp4", 3, 1500),
        ("fp8_current", 4, 1500),
        ("nvfp4", 4, 1500),
    ]
    assert job.short_steps == 600
    assert [run for _, run in job.runs()] == [run for _, run in JOB.runs()]
    assert [*JOB.early_runs()] == []
    assert JOB.short_steps == 1500


def test_a_job_without_noise_has_the_document_of_earlier_versions():
    assert "short_reruns" not in JOB.document()
    assert replace(JOB, short_reruns=ShortReruns()).document()["short_reruns"] == {
        "runs": 3,
        "stop_at": 0.5,
    }


@pytest.mark.parametrize(("statistics", "gradients"), [(0, 100), (25, 30), (25, -1)])
def test_gradients_are_compared_only_on_steps_with_statistics(statistics, gradients):
    with pytest.raises(SpecError) as refused:
        Schedule(statistics_every=statistics, gradients_every=gradients)
    assert refused.value.field == "schedule.gradients_every"


def test_a_schedule_that_compares_no_gradients_has_the_document_of_earlier_versions():
    assert "gradients_every" not in Schedule(statistics_every=25).document()
    assert Schedule(statistics_every=25, gradients_every=100).document()["gradients_every"] == 100


def test_what_came_later_is_in_the_document_only_if_it_is_set():
    assert JOB.document()["model"].keys() == {*PRESETS["llama3-0.3m"], "preset"}
    assert JOB.document()["data"].keys() == {
        "source",
        "path",
        "sequence_length",
        "batch_size",
        "validation_fraction",
    }
    assert not {"decay_steps", "optimizer", "gradients_every"} & JOB.document()["schedule"].keys()
    later = replace(
        JOB,
        model=replace(Model(), head_dim=16, qk_norm=True),
        data=Data(source="tokens", path="ids.bin", dtype="uint32"),
        schedule=Schedule(decay_steps=100, optimizer="muon"),
    )
    for document in (later.document(), next(later.runs())[1].document()):
        assert (document["model"]["head_dim"], document["model"]["qk_norm"]) == (16, True)
        assert document["data"]["dtype"] == "uint32"
        assert (document["schedule"]["decay_steps"], document["schedule"]["optimizer"]) == (
            100,
            "muon",
        )
        assert Model(**document["model"]) == later.model
        assert Data(**document["data"]) == later.data
        assert Schedule(**document["schedule"]) == later.schedule
    # the digest of MaxText's data is taken over it
    assert repr(later.data) == repr(replace(later.data, dtype=None))


def test_a_head_may_have_any_even_size():
    assert Model(d_model=96, n_heads=3, head_dim=32) == Model(d_model=96, n_heads=3)
    wide = Model(d_model=96, n_heads=5, n_kv_heads=5, head_dim=32)
    assert (wide.head_size, wide.head_dim) == (32, 32)
    block = 4 * 96 * 160 + 3 * 96 * 256 + 2 * 96
    assert wide.parameters == 256 * 96 + 3 * block + 96
    assert replace(wide, qk_norm=True).parameters == wide.parameters + 3 * 2 * 32


def test_another_recipe_is_kept_as_said_and_only_for_an_external_trainer():
    external = {"name": "j", "engine": "external", "baseline": ArmSpec(recipe="fp8_current")}
    job = JobSpec(**external, candidates=(ArmSpec(recipe="other:my nvfp4"),))
    (candidate,) = job.candidates
    assert (candidate.recipe, candidate.label, capability(job)[0]) == (
        "other:my nvfp4",
        "other:my nvfp4",
        "external",
    )
    assert [run.recipe for _, run in job.runs()] == ["fp8_current", "other:my nvfp4"]
    assert job.document()["candidates"][0]["recipe"] == "other:my nvfp4"
    assert ArmSpec(recipe="other:mine").name == "mine"
    for arm, change in (
        (ArmSpec(recipe="other:mine"), {"engine": "emulated"}),
        (ArmSpec(recipe="other:mine", switches=Switches(rht=False)), {}),
        (ArmSpec(recipe="other:mine", then=LaterRecipe(recipe="bf16", from_step=5)), {}),
        (ArmSpec(recipe="other:", name="a"), {}),
        (ArmSpec(recipe="other:" + "x" * 65, name="a"), {}),
        (ArmSpec(recipe="other:a\nb", name="a"), {}),
    ):
        with pytest.raises(SpecError, match=r"arm\.recipe"):
            JobSpec(**external | change, candidates=(arm,))


def test_the_words_for_other_recipes_are_those_of_the_judge():
    assert rules.OTHER == recipes.OTHER
    assert {*rules.RECIPES, *rules.STATED_RECIPES} == set(recipes.RECIPES)


@pytest.mark.parametrize("recipe", rules.STATED_RECIPES)
def test_a_word_that_names_no_scaling_is_stated_of_a_trainer_of_ones_own(recipe):
    external = {
        "name": "j",
        "engine": "external",
        "baseline": ArmSpec(recipe="bf16"),
        "candidates": (ArmSpec(recipe=recipe),),
    }
    job = JobSpec(**external)
    assert (job.candidates[0].name, job.labels(job.candidates[0])) == (recipe, [(0, recipe)])
    assert job.document()["candidates"][0]["recipe"] == recipe
    with pytest.raises(SpecError, match="one of fp8_current, fp8_delayed, fp8_block") as refused:
        JobSpec(**external | {"engine": "emulated"})
    assert "names no scaling" in str(refused.value)
    with pytest.raises(SpecError, match="no switches"):
        JobSpec(
            **external
            | {
                "candidates": (
                    ArmSpec(recipe=recipe, then=LaterRecipe(recipe="bf16", from_step=5)),
                )
            }
        )


def _shape(kind, seen):
    """The fields of a value and of the values in it, with their types as they are written; a class
    may move to another module.
    """
    if not dataclasses.is_dataclass(kind) or kind in seen:
        return
    seen[kind] = [
        (field.name, re.sub(r"training\.[a-z_.]+\.", "", str(field.type)))
        for field in dataclasses.fields(kind)
    ]
    for hint in typing.get_type_hints(kind).values():
        for part in (
            hint,
            *typing.get_args(hint),
            *(deep for each in typing.get_args(hint) for deep in typing.get_args(each)),
        ):
            _shape(part, seen)


def test_a_changed_specification_has_a_new_version():
    """An older worker refuses a field that it does not know: raise SPEC_VERSION with this digest,
    so that it leaves the job to others.
    """
    seen = {}
    _shape(JobSpec, seen)
    assert len(seen) >= 8
    shape = sorted((kind.__qualname__, fields) for kind, fields in seen.items())
    digest = hashlib.sha256(repr(shape).encode()).hexdigest()[:16]
    assert (SPEC_VERSION, digest) == (5, "366c8a5b55fd6eae")
