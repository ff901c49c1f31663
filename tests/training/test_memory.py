"""Memory of a run: to the byte what MaxText lays out, and for the rest as near to what XLA takes as
the module says.
"""

import json
import math
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter

from training.engines import maxtext_command
from training.environment.maxtext_installed import VARIABLE
from training.environment.maxtext_mesh import MeshError
from training.environment.maxtext_options import MaxTextOptions
from training.memory import disk, memory, smaller
from training.spec import ArmSpec, Data, JobSpec, Model, Schedule

ROOT = Path(__file__).parents[2]
RECORDED = json.loads((ROOT / "tests" / "data" / "maxtext_memory.json").read_text())
COMPILED = [case for case in RECORDED if "bytes" in case]
REFUSED = {
    "kv-heads": r"model\.n_kv_heads is 4, expected a multiple of 8, the tensor sizes",
    "d-model": r"model\.d_model is 516, expected a multiple of 8, the fsdp x context sizes",
    "vocab": r"model\.vocab_size is 8193, expected a multiple of 2, the tensor sizes",
}
GIB = 2**30


def _run(case):
    """The run that our job file would make of MaxText's options."""
    options, devices = case["options"], case["devices"]
    pieces = options["gradient_accumulation_steps"]
    model = Model(
        vocab_size=options["vocab_size"],
        d_model=options["base_emb_dim"],
        n_layers=options["base_num_decoder_layers"],
        n_heads=options["base_num_query_heads"],
        n_kv_heads=options["base_num_kv_heads"],
        head_dim=options["head_dim"],
        d_ff=options["base_mlp_dim"],
        tied_embeddings=options["logits_via_embedding"],
    )
    data = Data(
        source="grain",
        path="/data",
        sequence_length=options["max_target_length"],
        batch_size=round(options["per_device_batch_size"] * devices * pieces),
    )
    own = {
        name: options[name]
        for name in options
        if name.startswith("ici_")
        or name in ("attention", "remat_policy", "num_vocab_tiling", "scan_layers")
    }
    job = JobSpec(
        name="memory",
        engine="maxtext",
        devices=devices,
        model=model,
        data=data,
        gradient_accumulation=pieces,
        maxtext=MaxTextOptions(**own),
        schedule=Schedule(steps=options["steps"], optimizer=options["opt_type"]),
        baseline=ArmSpec(recipe="bf16"),
        candidates=(ArmSpec(recipe="bf16", name="other"),),
    )
    return next(job.runs())[1]


def _example(name):
    content = yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text())
    return next(TypeAdapter(JobSpec).validate_python(content["job"]).runs())[1]


@pytest.mark.parametrize("case", COMPILED, ids=lambda case: case["name"])
def test_maxtext_lays_out_as_many_bytes_and_xla_takes_about_as_many(case):
    run, measured = _run(case), case["bytes"]
    told = maxtext_command.settings(run, (run.devices,))
    assert {name: told[name] for name in case["options"]} == case["options"]
    taken = memory(run)
    assert (taken.weights, taken.optimizer, taken.batch) == tuple(
        measured[name] for name in ("weights", "optimizer", "batch")
    )
    # XLA leaves out one of the six arrays of the batch, which no step reads
    laid_out = taken.weights + taken.optimizer + taken.batch * 5 // 6
    assert measured["arguments"] == laid_out + measured["rest"]
    to_the_byte = taken.weights + taken.optimizer + taken.batch
    assert 0.9 < measured["temporaries"] / (taken.likely - to_the_byte) < 1.21
    whole = measured["arguments"] + measured["temporaries"]
    assert taken.least < whole < taken.most


@pytest.mark.parametrize("case", [case for case in RECORDED if "refused" in case])
def test_what_maxtext_cannot_divide_is_refused_with_the_size(case):
    with pytest.raises(MeshError, match=REFUSED[case["name"]]):
        memory(_run(case))


@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} is not set")
def test_maxtext_still_takes_what_was_recorded():
    names = {"fsdp-ga4", "tensor2-minimal", "kv-heads"}
    cases = [case for case in RECORDED if case["name"] in names]
    asked = [{name: case[name] for name in ("name", "devices", "options")} for case in cases]
    answer = subprocess.run(
        [os.environ[VARIABLE], ROOT / "tools" / "maxtext_memory.py"],
        input=json.dumps(asked),
        check=True,
        capture_output=True,
        text=True,
    )
    for again, recorded in zip(json.loads(answer.stdout), cases, strict=True):
        assert again.keys() == recorded.keys()
        for part, size in recorded.get("bytes", {}).items():
            # temporaries may move a little with the processor
            assert again["bytes"][part] == pytest.approx(size, rel=0.05 * (part == "temporaries"))


def _arrays(run, fsdp, context, tensor):
    """Every array of the model as (is it of a linear layer, values on a device), one by one."""
    model, embed = run.model, fsdp * context
    heads = {"query": model.n_heads, "key": model.n_kv_heads, "value": model.n_kv_heads}
    for _ in range(model.n_layers):
        for name in ("query", "key", "value"):
            yield True, (model.d_model // embed) * (heads[name] // tensor) * model.head_size
        yield True, (model.n_heads // tensor) * model.head_size * (model.d_model // embed)
        for _ in ("gate", "up", "down"):
            yield True, (model.d_model // embed) * (model.d_ff // tensor)
        for _ in ("before attention", "before the MLP"):
            yield False, model.d_model // tensor
    yield False, model.d_model // tensor
    for _ in ("embedding", "logits")[: 1 if model.tied_embeddings else 2]:
        yield False, (model.vocab_size // tensor) * (model.d_model // embed)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("context", "tensor"), [(1, 1), (2, 1), (1, 4), (2, 2)])
def test_the_state_is_the_sum_of_its_arrays(optimizer, tied, context, tensor):
    model = Model(preset="llama3-20m", tied_embeddings=tied, n_kv_heads=4, n_heads=8, head_dim=64)
    run = replace(
        _example("llama3-8b-nvfp4"),
        recipe="bf16",
        model=model,
        schedule=Schedule(optimizer=optimizer),
        maxtext=MaxTextOptions(ici_context_parallelism=context, ici_tensor_parallelism=tensor),
    )
    arrays = list(_arrays(run, 8 // (context * tensor), context, tensor))
    moments = sum((1 if linear and optimizer == "muon" else 2) * size for linear, size in arrays)
    taken = memory(run)
    assert taken.weights == 4 * sum(size for _, size in arrays)
    assert taken.optimizer == 4 * moments


def test_the_shipped_jobs_fit_their_machines_and_did_not_before():
    eight, large = _example("llama3-8b-nvfp4"), _example("llama3-405b-nvfp4")
    nodes = [8] * 16
    b200, of_jax = 178 * GIB, 0.75
    assert memory(eight).most < of_jax * b200
    assert memory(large, nodes).likely < of_jax * b200
    assert memory(large, nodes).most < 0.9 * b200
    whole = {"gradient_accumulation": 1}
    assert memory(replace(eight, **whole)).likely > b200
    assert memory(replace(large, **whole), nodes).least > b200
    apart = replace(large, maxtext=replace(large.maxtext, dcn_fsdp_parallelism=1))
    assert memory(apart, nodes).least > 4 * b200


def test_the_nodes_decide_by_how_many_devices_weights_are_divided():
    run = replace(
        _example("llama3-405b-nvfp4"), maxtext=MaxTextOptions(hardware="gpu_multiprocess")
    )
    assert memory(run, [8] * 16).weights == pytest.approx(16 * memory(run, [128]).weights, rel=0.01)
    assert memory(run).weights == memory(run, [128]).weights


@pytest.mark.parametrize(
    ("name", "slices", "change", "first", "also"),
    [
        (
            "llama3-8b-nvfp4",
            [8],
            {"gradient_accumulation": 1},
            "gradient_accumulation: 2",
            "gradient_accumulation: 16, maxtext.num_vocab_tiling: 16",
        ),
        (
            "llama3-8b-nvfp4",
            [4, 4],
            {
                "maxtext": MaxTextOptions(hardware="gpu_multiprocess", remat_policy="minimal"),
                "gradient_accumulation": 16,
            },
            "maxtext.remat_policy: full",
            "maxtext.dcn_fsdp_parallelism: -1",
        ),
        ("demo", [1], {}, "gradient_accumulation: 2", "gradient_accumulation: 4, remat: true"),
    ],
)
def test_changes_that_take_less_begin_with_single_ones(name, slices, change, first, also):
    run = replace(_example(name), **change)
    found = dict(smaller(run, slices))
    assert next(iter(found)) == first
    assert also in found
    assert all(
        memory(changed, slices).likely < memory(run, slices).likely for changed in found.values()
    )
    counts = [words.count(":") for words in found]
    assert counts == sorted(counts)


def test_a_run_that_cannot_be_smaller_has_no_such_change():
    run = replace(_example("demo"), remat=True, gradient_accumulation=8)
    assert list(smaller(run)) == []


def test_attention_that_is_not_fused_holds_its_scores():
    run = _example("llama3-8b-nvfp4")
    unfused = replace(run, maxtext=replace(run.maxtext, attention="dot_product"))
    scores = 4 * 2 * run.model.n_heads * 8192**2  # of two sequences
    assert memory(unfused).likely - memory(run).likely > 0.8 * scores
    assert memory(unfused).least == memory(run).least


def test_what_is_known_by_name_only_is_not_stated():
    run = _example("llama3-8b-nvfp4")
    named = replace(run, maxtext=replace(run.maxtext, model_name="llama3-8b"))
    assert (memory(named), disk(named)) == (None, None)


@pytest.mark.parametrize(
    ("change", "keeps", "checkpoints"),
    [
        ({}, 0, 4),  # three, and that of step 0
        ({"data": Data(source="hf", path="org/name", sequence_length=8192, batch_size=128)}, 0, 1),
        (
            {
                "schedule": Schedule(steps=1000, validation_every=100),
                "maxtext": MaxTextOptions(eval_path="/data/held-out"),
            },
            0,
            12,
        ),
    ],
)
def test_checkpoints_of_maxtext_have_weights_and_both_moments(change, keeps, checkpoints):
    found = disk(replace(_example("llama3-8b-nvfp4"), **change), keeps)
    assert (found.checkpoints, found.bytes_each) == (checkpoints, 12 * 8_030_261_248)


def test_our_trainer_keeps_three_checkpoints_and_those_for_forks():
    assert disk(_example("demo")).checkpoints == 3
    assert disk(_example("demo"), keeps=2).checkpoints == 5
    assert disk(_example("external")) is None


def test_remat_and_accumulation_take_less_of_our_trainer():
    run = _example("demo")
    assert math.isclose(memory(replace(run, gradient_accumulation=4)).kept, memory(run).kept / 4)
    assert memory(replace(run, remat=True)).kept == 0
