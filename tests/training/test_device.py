import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from training.device import (
    Device,
    can_run,
    class_of_gpus,
    describe,
    instruction_set,
    main,
    slices_of,
    usable_memory_bytes,
)
from training.provenance import trainer_facts
from training.rules import RECIPES

H100 = Device(
    platform="gpu",
    device_kind="NVIDIA H100",
    device_class="gpu:sm90",
    sm="90",
    memory_bytes=80 << 30,
    cpu_count=8,
    threads=8,
    versions={},
    fast_bf16=True,
    slices=(1,),
)


def test_the_one_flag_is_the_widest_that_decides_kernels():
    assert instruction_set(frozenset({"avx2", "avx512f", "avx512_bf16", "sse2"})) == "avx512_bf16"
    assert instruction_set(frozenset({"avx2", "amx_bf16", "avx512_bf16"})) == "amx_bf16"
    assert instruction_set(frozenset({"avx2", "avx512f"})) == "avx512f"
    assert instruction_set(frozenset({"asimd"})) == ""


def test_this_machine_describes_itself():
    device = describe()
    assert device.device_class.split(":")[0] == device.platform
    assert device.threads <= device.cpu_count
    assert device.memory_bytes > 1 << 28
    assert device.versions["jax"] == __import__("jax").__version__


def test_a_container_may_have_less_memory_than_its_machine(tmp_path, monkeypatch):
    whole = usable_memory_bytes()
    monkeypatch.setattr(
        "training.device._MEMORY_LIMITS", (tmp_path / "memory.max", tmp_path / "limit")
    )
    (tmp_path / "limit").write_text("9223372036854771712\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert usable_memory_bytes() >= whole
    (tmp_path / "memory.max").write_text("1048576\n")
    assert usable_memory_bytes() == 1 << 20


def test_emulation_runs_every_recipe_and_says_how():
    for recipe in RECIPES:
        assert can_run("emulated", recipe, H100) == (
            True,
            "exact codes on gpu:sm90 with bfloat16 products",
        )
    ok, reason = can_run("emulated", "nvfp4", replace(H100, fast_bf16=False))
    assert ok
    assert "float32 products" in reason


def test_a_recipe_whose_format_has_other_codes_here_is_refused():
    wrong = {"nvfp4_1d_rht": "3 of 8,192 codes differ"}
    for recipe, able in (
        ("nvfp4", False),
        ("nvfp4_no_sr", False),
        ("nvfp4_no_rht", True),
        ("fp8_delayed", True),
        ("bf16", True),
    ):
        ok, reason = can_run("emulated", recipe, H100, wrong)
        assert ok is able
        assert ok or "3 of 8,192 codes differ" in reason
    assert not can_run(
        "emulated", "fp8_delayed", H100, {"fp8_cs_e5m2": "1 of 2 tensor scales differ"}
    )[0]


@pytest.mark.parametrize(
    ("engine", "recipe", "device", "reason"),
    [
        ("transformer_engine", "nvfp4", H100, "needs SM 10.0 or 10.3; this GPU is SM 9.0"),
        (
            "transformer_engine",
            "fp8_current",
            replace(H100, sm=None, device_class="cpu:x86_64"),
            "this is cpu:x86_64",
        ),
        (
            "transformer_engine",
            "nvfp4",
            replace(H100, sm="120", device_class="gpu:sm120"),
            "needs SM 10.0 or 10.3; this GPU is SM 12.0",
        ),
        ("transformer_engine", "f32", H100, "has no recipe f32"),
        ("maxtext", "fp8_current", H100, "PARITY_MAXTEXT_PYTHON is not set"),
        ("maxtext", "mxfp4", H100, "has no recipe mxfp4"),
        (
            "maxtext",
            "nvfp4",
            replace(H100, sm=None, device_class="cpu:x86_64"),
            "trains bf16, fp8_delayed without an NVIDIA GPU",
        ),
        (
            "maxtext",
            "fp8_current",
            replace(H100, slices=(72, 56)),
            "72 + 56 devices, and MaxText needs equally many on each",
        ),
        ("external", "nvfp4", H100, "not trained by a worker"),
        ("emulated", "fp3", H100, "is not one of f32"),
    ],
)
def test_a_refusal_has_its_reason(engine, recipe, device, reason):
    ok, why = can_run(engine, recipe, device)
    assert not ok
    assert reason in why


@pytest.mark.parametrize(
    ("nodes", "slices", "name"),
    [
        ([0] * 8, (8,), "gpu:sm90"),
        ([1, 0, 1, 0], (2, 2), "gpu:sm90:2x2"),
        ([0, 0, 3], (2, 1), "gpu:sm90:2+1"),
        ([None], (1,), "gpu:sm90"),
    ],
)
def test_gpus_on_several_nodes_are_a_class_of_their_own(nodes, slices, name):
    devices = [SimpleNamespace(**({} if n is None else {"slice_index": n})) for n in nodes]
    assert slices_of(devices) == slices
    assert class_of_gpus("gpu:sm90", slices) == name


def test_command_line_prints_text_and_json(capsys):
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert "device_class" in printed
    natively, by_maxtext, emulated = printed.split("\n\n")[1:]
    assert natively.startswith("with Transformer Engine's kernels in our trainer")
    assert (
        "no  fp8_current, fp8_delayed: engine transformer_engine needs an NVIDIA GPU of SM 8.9 or "
        "later" in natively
    )
    assert by_maxtext.startswith("by MaxText")
    assert "yes f32, bf16, fp8_current, fp8_delayed, mxfp8, fp8_block, nvfp4," in emulated
    assert main(["--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["can_run"]["emulated/nvfp4"]["ok"] is True
    assert printed["wrong_formats"] == {}


def test_flags_and_specification_are_read_without_jax():
    reads = "training.device.versions(); training.device.cpu_flags()"
    code = f"import training.spec, training.device, sys; {reads}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_path_of_cudas_headers_is_no_fact_of_a_run():
    """Transformer Engine sets it as it is imported, so only runs have it, and not the worker that
    registered before.
    """
    variables = {
        "NVTE_CUDA_INCLUDE_DIR": "/opt/cuda/include",
        "NVTE_FP8_GEMM_HIGH_PRECISION_ACCUMULATION": "1",
    }
    named = {name for name in trainer_facts(variables) if name.startswith("env.")}
    assert named == {"env.NVTE_FP8_GEMM_HIGH_PRECISION_ACCUMULATION"}
