"""What MaxText is told: typed options, the arms' difference, replicates, and nothing that a shell
or YAML would interpret.
"""

from dataclasses import replace

import pytest

from training.engines import maxtext_command
from training.engines.maxtext_command import Launch
from training.environment.maxtext_installed import Installed
from training.environment.maxtext_mesh import DCN, ICI, MeshError
from training.environment.maxtext_options import QUANTIZATION, MaxTextOptions
from training.rules import SpecError
from training.spec import ArmSpec, Data, Model, Schedule, capability

ALONE = (1,)  # one device on one node
MAXTEXT = Installed(python="python", base_yml="base.yml", versions={})


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


def launch(spec, folder, environment=None):
    return Launch(
        spec=spec,
        maxtext=MAXTEXT,
        environment=environment or {},
        folder=folder,
        slices=(spec.devices,),
    )


def settings_of(spec, folder, environment=None, steps=None):
    arguments = maxtext_command.train_command(
        launch(spec, folder, environment), steps or spec.schedule.steps
    )
    assert arguments[:4] == ["python", "-m", "maxtext.trainers.pre_train.train", "base.yml"]
    return dict(argument.split("=", 1) for argument in arguments[4:])


def test_the_command_says_what_the_run_is(spec, folder):
    settings = settings_of(
        replace(spec, gradient_accumulation=2), folder, {"JAX_COMPILATION_CACHE_DIR": "/cache"}
    )
    assert settings["base_emb_dim"] == "96"
    assert settings["per_device_batch_size"] == "4.0"
    assert settings["gradient_accumulation_steps"] == "2"
    assert (
        int(int(settings["steps"]) * float(settings["warmup_steps_fraction"]))
        == spec.schedule.warmup_steps
    )
    assert (settings["enable_dropout"], settings["eval_interval"]) == ("False", "-1")
    assert (settings["hardware"], settings["skip_jax_distributed_system"]) == ("cpu", "True")
    assert settings["load_parameters_path"] == str(launch(spec, folder).first_parameters)
    assert settings["jax_cache_dir"] == "/cache"


def test_a_run_that_stops_early_has_the_schedule_of_the_whole_one(spec, folder):
    whole, stopped = settings_of(spec, folder), settings_of(spec, folder, steps=40)
    assert stopped == whole | {"steps": "40", "learning_rate_schedule_steps": "85"}
    assert "learning_rate_schedule_steps" not in whole
    assert int(85 * float(stopped["warmup_steps_fraction"])) == spec.schedule.warmup_steps


def test_a_model_by_name_brings_its_own_dimensions(spec, folder):
    settings = settings_of(
        replace(spec, maxtext=replace(spec.maxtext, model_name="llama3-8b")), folder
    )
    assert settings["model_name"] == "llama3-8b"
    assert "base_emb_dim" not in settings


@pytest.mark.parametrize("steps", [10, 85, 999, 1500, 10_007])
def test_warmup_steps_survive_the_way_through_a_fraction(spec, steps):
    for warmup in (0, 1, 7, steps // 3, steps - 1):
        plan = maxtext_command.settings(
            replace(spec, schedule=Schedule(steps=steps, warmup_steps=warmup)), ALONE
        )
        assert int(steps * plan["warmup_steps_fraction"]) == warmup


def test_arms_differ_in_quantization_and_its_declared_consequences(job, folder):
    options = replace(job().maxtext, quantized_remat_policy="minimal_with_quantization")
    runs = [run for _, run in job(maxtext=options).runs() if run.replicate == 1]
    bf16, fp8 = (settings_of(run, folder) for run in runs)
    differing = {name for name in bf16.keys() | fp8.keys() if bf16.get(name) != fp8.get(name)}
    assert differing == {
        "quantization",
        "remat_policy",
        "load_parameters_path",
        "init_weights_seed",
    }
    assert maxtext_command.shared(runs[0], ALONE) == maxtext_command.shared(runs[1], ALONE)
    assert (
        maxtext_command.arm_options(runs[1])
        == "quantization=fp8 remat_policy=minimal_with_quantization first_parameters=drawn"
    )


def test_replicates_share_parameters_and_batches_and_differ_in_rounding(job, folder):
    one, other = (settings_of(run, folder) for _, run in list(job().runs())[:2])
    differing = {name for name in one if one[name] != other[name]}
    assert differing == {"init_weights_seed", "learning_rate"}
    assert float(other["learning_rate"]) / float(one["learning_rate"]) == pytest.approx(
        1 + 1e-6, abs=1e-9
    )
    first = [
        maxtext_command.first_parameters_command(launch(run, folder)) for _, run in job().runs()
    ]
    assert first[0] == first[1] == first[2]
    assert {"quantization=fp8", "learning_rate=0.0", "steps=1", "init_weights_seed=0"} <= set(
        first[0]
    )


def test_every_te_recipe_has_its_name(job, folder):
    for recipe, name in QUANTIZATION["te"].items():
        native = job(
            baseline=ArmSpec(recipe=recipe),
            candidates=(ArmSpec(recipe="bf16", name="other"),),
            maxtext=MaxTextOptions(),
            model=Model(preset="llama3-1b"),
        )
        assert settings_of(next(native.runs())[1], folder).get("quantization", "") == name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"maxtext": {"hardware": "tpu"}}, r"maxtext\.hardware is 'tpu', expected one of cpu, gpu"),
        (
            {"maxtext": {"grain_worker_count": "2"}},
            r"maxtext\.grain_worker_count is '2', expected a whole number",
        ),
        ({"maxtext": {"packing": 1}}, r"maxtext\.packing is 1, expected true or false"),
        ({"maxtext": {"hf_name": "${oc.env:HOME}"}}, r"maxtext\.hf_name is .*, expected letters"),
        ({"maxtext": {"tokenizer_path": "-x"}}, r"maxtext\.tokenizer_path is '-x'"),
        ({"maxtext": {"attention": "flash"}}, "autoselected or dot_product with hardware: cpu"),
        ({"data": Data(source="grain", path="/a b; rm")}, r"data\.path is '/a b; rm'"),
        ({"maxtext": {"implementation": "te"}}, "xla with maxtext.hardware: cpu"),
        (
            {"candidates": (ArmSpec(recipe="nvfp4"),)},
            r"arm\.recipe is 'nvfp4', expected one of bf16, fp8_delayed",
        ),
        (
            {"schedule": Schedule(validation_every=10)},
            r"expected 0 under engine maxtext, or data\.source: grain and maxtext\.eval_path",
        ),
        ({"maxtext": {"eval_steps": 0}}, r"maxtext\.eval_steps is 0"),
        (
            {"schedule": Schedule(statistics_every=10)},
            r"0 under engine maxtext; .*maxtext\.record_internal_nn_metrics",
        ),
        (
            {"maxtext": {"num_vocab_tiling": 3}},
            r"num_vocab_tiling is 3, expected a divisor of the 1,024 tokens that a device has",
        ),
        ({"maxtext": {"num_vocab_tiling": 0}}, "num_vocab_tiling is 0, expected a divisor"),
        ({"gradient_accumulation": 3}, "a multiple of gradient_accumulation x devices"),
        (
            {"engine": "emulated", "data": Data()},
            "maxtext is 'set', expected nothing under engine emulated",
        ),
    ],
)
def test_options_that_maxtext_has_not_are_refused(job, changes, message):
    def make():
        values = dict(changes)
        if "maxtext" in values:
            values["maxtext"] = replace(job().maxtext, **values["maxtext"])
        return job(**values)

    with pytest.raises(SpecError, match=message):
        make()


def test_the_command_has_every_size_of_the_mesh_on_the_workers_nodes(job):
    options = MaxTextOptions(hardware="gpu_multiprocess", ici_tensor_parallelism=2)
    run = next(job(devices=8, maxtext=options).runs())[1]

    def mesh(*slices):
        settings = maxtext_command.settings(run, slices)
        assert settings["per_device_batch_size"] == 1.0
        return [settings[name] for name in (*ICI, *DCN)]

    assert mesh(8) == [1, 4, 2, 1, 1, 1]
    assert mesh(4, 4) == [1, 2, 2, 1, 2, 1]
    with pytest.raises(MeshError, match="ici sizes multiply to 2, expected 1 devices of a node"):
        mesh(*[1] * 8)


@pytest.mark.parametrize(
    ("hardware", "devices", "meets"),
    [("cpu", 1, False), ("cpu", 2, True), ("gpu", 8, False), ("gpu_multiprocess", 8, True)],
)
def test_processes_of_a_run_meet_where_there_may_be_several(spec, hardware, devices, meets):
    options = replace(spec.maxtext, hardware=hardware)
    told = maxtext_command.settings(replace(spec, devices=devices, maxtext=options), (devices,))
    assert told["skip_jax_distributed_system"] is not meets


def test_an_option_outside_the_list_is_refused():
    with pytest.raises(TypeError, match="enable_dropout"):
        MaxTextOptions(enable_dropout=True)  # type: ignore[call-arg]


def test_a_job_on_processors_waits_for_a_worker_with_processors(job):
    assert capability(job())[0] == "cpu"
    assert capability(job(maxtext=MaxTextOptions()))[0] == "sm90"


@pytest.mark.parametrize("steps", [10, 85, 999, 10_007])
def test_a_stable_phase_survives_the_way_through_fractions(spec, steps):
    assert "lr_schedule_type" not in maxtext_command.settings(spec, ALONE)
    for warmup, decay in (
        (0, 1),
        (1, steps - 2),
        (steps // 3, steps // 5),
        (steps // 2, steps - steps // 2 - 1),
    ):
        plan = maxtext_command.settings(
            replace(spec, schedule=Schedule(steps=steps, warmup_steps=warmup, decay_steps=decay)),
            ALONE,
        )
        assert plan["lr_schedule_type"] == "wsd"
        rising, falling = (
            float(plan["warmup_steps_fraction"]),
            float(plan["wsd_decay_steps_fraction"]),
        )
        assert (int(steps * rising), int(steps * falling)) == (warmup, decay)
        assert rising + falling <= 1


def test_muon_is_maxtexts_with_the_scale_of_ours(spec):
    plan = maxtext_command.settings(
        replace(spec, schedule=Schedule(optimizer="muon", weight_decay=0.3)), ALONE
    )
    assert (plan["opt_type"], plan["muon_consistent_rms"], plan["muon_weight_decay"]) == (
        "muon",
        0.2,
        0.3,
    )
    assert maxtext_command.settings(spec, ALONE)["opt_type"] == "adamw"
    assert not any(name.startswith("muon") for name in maxtext_command.settings(spec, ALONE))
