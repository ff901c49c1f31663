"""Transformer Engine's compiled part without a GPU (`make test-te`): it loads, and the engine's
layers are lowered for CUDA.

Only `get_device_compute_capability`, which asks the driver, is replaced. What is checked is which
kernels would be called with which attributes and types; no kernel runs.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from training.environment import transformer_engine_installed as installed

if "transformer_engine_jax" not in installed.versions():
    pytest.skip(
        "Transformer Engine's compiled part is not installed here; `make test-te` builds it",
        allow_module_level=True,
    )

from jax import export

from training.arithmetic import hadamard, random_bits
from training.arithmetic.linear import quiet_channel
from training.arithmetic.recipes import linear_recipe
from training.engines import transformer_engine as engine

ROOT = Path(__file__).parents[2]
QUANTIZE, GEMM, AMAX = "te_dbias_quantize_ffi", "te_gemm_v2_ffi", "te_rht_amax_ffi"
FP8 = ("f8E4M3FN", "f8E4M3FN", "f8E5M2")  # x, kernel and gradient
# Transformer Engine's numbers of how a tensor is scaled (JAXX_Scaling_Mode).
DELAYED, MXFP8, CURRENT, NVFP4_1D, NVFP4_2D = 1, 2, 3, 4, 5
M, K, N = 256, 128, 384
# A recipe, and how x, kernel and gradient are scaled under it.
ON_HOPPER = {"fp8_current": (CURRENT,) * 3, "fp8_delayed": (DELAYED,) * 3}
ON_BLACKWELL = ON_HOPPER | {
    "mxfp8": (MXFP8,) * 3,
    "nvfp4": (NVFP4_1D, NVFP4_2D, NVFP4_1D),
    "nvfp4_no_rht": (NVFP4_1D, NVFP4_2D, NVFP4_1D),
    "nvfp4_no_sr": (NVFP4_1D, NVFP4_2D, NVFP4_1D),
    "nvfp4_no_rht_no_sr": (NVFP4_1D, NVFP4_2D, NVFP4_1D),
}
CASES = [(sm, name) for sm, recipes in ((90, ON_HOPPER), (100, ON_BLACKWELL)) for name in recipes]


class Call(NamedTuple):
    """A custom call: its target, its attributes as text by name, and the types of what it takes and
    returns.
    """

    target: str
    attributes: dict[str, str]
    takes: list[str]
    returns: list[str]


@pytest.fixture
def on_gpu(monkeypatch):
    """A function that lets Transformer Engine see a GPU of a compute capability."""
    te = installed.jax_modules()
    asked = te.extension.get_device_compute_capability
    named = [
        module
        for name, module in sys.modules.items()
        if name.partition(".")[0].startswith("transformer_engine")
    ]
    device_utils = sys.modules["transformer_engine.jax.quantize.device_utils"]
    gemm = sys.modules["transformer_engine.jax.cpp_extensions.gemm"]
    helper: Any = sys.modules["transformer_engine.jax.quantize.helper"]

    def forget():
        jax.clear_caches()
        device_utils.get_device_compute_capability.cache_clear()
        device_utils.is_fp8_gemm_with_all_layouts_supported.cache_clear()
        gemm._get_high_precision_accumulation_from_env.cache_clear()
        helper._is_scaling_mode_supported = helper._reason_for_no_scaling_mode = None

    def see(sm):
        forget()
        for module in named:
            if getattr(module, "get_device_compute_capability", None) is asked:
                monkeypatch.setattr(module, "get_device_compute_capability", lambda _gpu=0: sm)

    yield see
    monkeypatch.undo()
    forget()


def calls(name):
    """The custom calls of y, dx and dw of one layer under a recipe, in their order."""
    recipe = linear_recipe(name, fast_bf16=True)

    def layer(x, w, g):
        y, pull = jax.vjp(
            lambda x, w: engine.linear(recipe, x, w, random_bits.key(0), quiet_channel()), x, w
        )
        return y, *pull(g)

    like = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((M, K), (K, N), (M, N))]
    known = [export.DisabledSafetyCheck.custom_call(target) for target in (QUANTIZE, GEMM, AMAX)]
    with engine.kernels():
        text = export.export(jax.jit(layer), platforms=["cuda"], disabled_checks=known)(
            *like
        ).mlir_module()
    lines = [line for line in text.splitlines() if "stablehlo.custom_call" in line]
    # XLA's own: memory without contents
    return [parsed(line) for line in lines if "@AllocateBuffer(" not in line]


def parsed(line):
    target = re.search(r"custom_call @(\w+)\(", line)[1]
    attributes = dict(
        re.findall(r"(\w+) = (-?\w+)", re.search(r"mhlo\.backend_config = \{(.*?)\}", line)[1])
    )
    takes, returns = line.rpartition("} : (")[2].split("->")
    types = [
        re.findall(r"tensor<(?:\d+x)*(\w+)>", part)
        for part in (takes, returns.partition(" loc(")[0])
    ]
    return Call(target, attributes, *types)


def test_it_starts_in_a_process_whose_jax_has_loaded_no_library_of_cuda():
    """Its core library needs NCCL, which jax loads with its first GPU, and we load for it. Without
    a driver it says so.
    """
    script = (
        "from training.environment.transformer_engine_installed import can_run, jax_modules; "
        "jax_modules(); "
        "print(can_run('fp8_current', {}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "does not start" not in done.stdout
    if installed.driver() == "unknown":
        assert done.stdout.startswith(
            "(False, \"Transformer Engine cannot ask the GPU (the driver's version is unknown): "
            "CUDA driver"
        )


def test_its_versions_are_those_that_the_engine_knows():
    assert {
        "transformer_engine",
        "transformer_engine_jax",
        "transformer_engine_cu13",
    } <= installed.versions().keys()
    facts = installed.facts()
    assert set(installed.versions().values()) == {"2.20.2"}
    assert facts["cuda"].startswith("13")
    assert int(facts["cublaslt"]) >= 130100


@pytest.mark.parametrize(
    ("sm", "able"), [(80, ()), (90, tuple(ON_HOPPER)), (100, tuple(ON_BLACKWELL))]
)
def test_its_own_test_admits_the_recipes_of_a_generation(sm, able, on_gpu):
    on_gpu(sm)
    assert tuple(name for name in ON_BLACKWELL if installed.can_run(name, {})[0]) == able


@pytest.mark.parametrize(("sm", "name"), CASES)
def test_a_layer_quantizes_three_tensors_and_multiplies_three_times(sm, name, on_gpu):
    on_gpu(sm)
    rotates = name in ("nvfp4", "nvfp4_no_sr")
    assert Counter(call.target for call in calls(name)) == {QUANTIZE: 3, GEMM: 3} | (
        {AMAX: 2} if rotates else {}
    )


@pytest.mark.parametrize(("sm", "name"), CASES)
def test_each_tensor_is_quantized_as_the_emulation_quantizes_it(sm, name, on_gpu):
    on_gpu(sm)
    recipe, scaling = linear_recipe(name, fast_bf16=True), ON_BLACKWELL[name]
    operands = (recipe.wgrad_x, recipe.dgrad_w, recipe.wgrad_g)
    codes = ("f4E2M1FN",) * 3 if name.startswith("nvfp4") else FP8
    if name == "mxfp8":
        codes = ("f8E4M3FN",) * 3
    made = [call for call in calls(name) if call.target == QUANTIZE]
    for call, operand, mode, code in zip(made, operands, scaling, codes, strict=True):
        assert call.attributes["scaling_mode"] == str(mode)
        assert call.attributes["stochastic_rounding"] == str(operand.stochastic).lower()
        assert call.attributes["use_rht"] == str(operand.rotated).lower()
        assert call.attributes["is_dbias"] == "false"
        assert call.takes[0] == "bf16"
        assert call.returns[0] == code


def test_the_rotations_signs_are_those_of_the_emulation(on_gpu):
    on_gpu(100)
    mask = sum(1 << place for place, sign in enumerate(hadamard.SIGNS) if sign < 0)
    rotated = [call.attributes for call in calls("nvfp4") if call.target == AMAX]
    assert {attributes["rht_matrix_random_sign_mask_t"] for attributes in rotated} == {str(mask)}


@pytest.mark.parametrize(("sm", "name"), CASES)
def test_products_take_the_layouts_that_a_generation_has(sm, name, on_gpu):
    """Hopper multiplies FP8 only with the contracted dimension last in both; Blackwell takes FP8 as
    it lies, FP4 as Hopper does FP8.
    """
    on_gpu(sm)
    products = [call.attributes for call in calls(name) if call.target == GEMM]
    layouts = [
        (attributes["lhs_transposed"], attributes["rhs_transposed"]) for attributes in products
    ]
    if sm == 90 or name.startswith("nvfp4"):
        assert layouts == [("false", "true")] * 3
    else:
        assert layouts == [("false", "false"), ("false", "true"), ("true", "false")]
    assert {call.returns[0] for call in calls(name) if call.target == GEMM} == {"bf16"}


@pytest.mark.parametrize(("variable", "split"), [(None, "false"), ("0", "false"), ("1", "true")])
def test_the_accumulation_of_products_follows_its_variable(variable, split, on_gpu, monkeypatch):
    """Without it Hopper adds FP8 products with fewer bits than float32, which the emulation uses
    (docs/hardware.md).
    """
    name = "NVTE_FP8_GEMM_HIGH_PRECISION_ACCUMULATION"
    monkeypatch.delenv(name, raising=False) if variable is None else monkeypatch.setenv(
        name, variable
    )
    on_gpu(90)
    assert {
        call.attributes["use_split_accumulator"]
        for call in calls("fp8_current")
        if call.target == GEMM
    } == {split}
