"""Finds this process's Transformer Engine and checks whether it runs a recipe on this GPU, with the
reason either way.

What it answers: can engine transformer_engine train this recipe here? The checks, in this order:
the GPU's compute capability (asked by `training.device`), the package and its compiled part,
environment variables that would replace its kernels, and Transformer Engine's own test of the
recipe.

NVFP4 trains on compute capability 10.0 and 10.3 only: stochastic rounding is an instruction of
these two. Transformer Engine's own test refuses no later GPU, and before its pull request 3281
(August 2026, which rounds in software) all gradients became zero there without an error. Its
rotation has no kernel from 12.0 on (pull request 3300, open). Without both, users trained on 12.0
with its PyTorch layers (issues 2255 and 3062), whose kernels its JAX layers call too. MXFP8 trains
on 10.x and 11.x: from 12.0 on the matrix units take only one of the layouts that a backward pass
needs (Transformer Engine 2.20.2, pytorch/quantization.py). Transformer Engine's JAX test only
checks a minimum.

Nothing is imported before `jax_modules` is called. Its compiled part is loaded and its layers are
lowered by `make test-te`. **No kernel has run on a GPU yet.**
"""

import ctypes
import functools
import importlib.metadata
import os
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

PACKAGES = (
    "transformer_engine",
    "transformer_engine_jax",
    "transformer_engine_cu12",
    "transformer_engine_cu13",
)
# another minor version may rename what is called here, or compute something else
FIRST_VERSION, FIRST_UNKNOWN = (2, 20, 2), (2, 21)
INSTALL = "install transformer_engine[jax,core_cu13] where jax sees the GPU (docs/hardware.md)"
# The packages of the libraries that Transformer Engine's compiled part needs, by the beginning of
# the library's name.
_LIBRARIES: Mapping[str, str] = {
    "libnccl": "nvidia-nccl-cu13",
    "libcurand": "nvidia-curand",
    "libcudnn": "nvidia-cudnn-cu13",
    "libcublas": "nvidia-cublas",
    "libcudart": "nvidia-cuda-runtime",
    "libnvrtc": "nvidia-cuda-nvrtc",
}
# Compute capabilities without their dot, and in words.
NATIVE_SM: Mapping[str, tuple[range | tuple[int, ...], str]] = {
    "bf16": (range(80, 1000), "8.0 or later"),
    "fp8_current": (range(89, 1000), "8.9 or later"),
    "fp8_delayed": (range(89, 1000), "8.9 or later"),
    "mxfp8": (range(100, 120), "10.0 to 11.x"),
    "nvfp4": ((100, 103), "10.0 or 10.3"),
    "nvfp4_no_rht": ((100, 103), "10.0 or 10.3"),
    "nvfp4_no_sr": ((100, 103), "10.0 or 10.3"),
    "nvfp4_no_rht_no_sr": ((100, 103, 120), "10.0, 10.3 or 12.0"),
}
# What is wrong on later GPUs, which Transformer Engine itself does not refuse.
_ZEROS = "Transformer Engine before its pull request 3281 rounds all gradients to zero"
_WITHOUT: Mapping[str, str] = {
    "nvfp4": _ZEROS,
    "nvfp4_no_rht": _ZEROS,
    "nvfp4_no_sr": "Transformer Engine has no kernel for the rotation",
}
_CLASSES: Mapping[str, str] = {
    "fp8_current": "Float8CurrentScaling",
    "fp8_delayed": "DelayedScaling",
    "mxfp8": "MXFP8BlockScaling",
    "nvfp4": "NVFP4BlockScaling",
    "nvfp4_no_rht": "NVFP4BlockScaling",
    "nvfp4_no_sr": "NVFP4BlockScaling",
    "nvfp4_no_rht_no_sr": "NVFP4BlockScaling",
}
_CUSTOM_CALLS = ("NVTE_JAX_CUSTOM_CALLS", "NVTE_JAX_CUSTOM_CALLS_RE")
_DRIVER = Path("/proc/driver/nvidia/version")


def sm_refusal(recipe: str, sm: int) -> str | None:
    """Returns why a GPU of this compute capability (90 is 9.0) cannot run the recipe, or None."""
    able, words = NATIVE_SM[recipe]
    if sm in able:
        return None
    needs = f"recipe {recipe} needs SM {words}; this GPU is SM {sm / 10:.1f}"
    if recipe in _WITHOUT and sm > min(able):
        return f"{needs}, where {_WITHOUT[recipe]}"
    return needs


def can_run(recipe: str, environment: Mapping[str, str] = os.environ) -> tuple[bool, str]:
    """Returns whether this process's Transformer Engine runs a recipe of NATIVE_SM on its GPUs, and
    the reason either way.
    """
    te, why_not = _import()
    if te is None:
        return False, why_not
    for name in _CUSTOM_CALLS:
        if name in environment:
            return (
                False,
                (
                    f"{name} is set, which may replace Transformer Engine's kernels by other "
                    "arithmetic; unset it on this worker"
                ),
            )
    try:
        if recipe in _CLASSES:
            able, reason = te.quantize.is_quantize_recipe_supported(_CLASSES[recipe])
            if not able:
                return False, f"Transformer Engine refuses {_CLASSES[recipe]} here: {reason}"
        return True, ", ".join(f"{name} {value}" for name, value in facts().items())
    # CUDA has no driver, or one that is older than this Transformer Engine's CUDA
    except RuntimeError as error:
        remedy = "update NVIDIA's driver, or install a Transformer Engine of its CUDA version"
        return (
            False,
            (
                f"Transformer Engine cannot ask the GPU (the driver's version is {driver()}): "
                f"{_last_line(error)}; {remedy}"
            ),
        )


def jax_modules() -> SimpleNamespace:
    """Returns the modules of Transformer Engine that we call: dense, quantize, quantization,
    sharding, recipe, extension.

    Raises ImportError with the reason if they cannot be imported.
    """
    te, why_not = _import()
    if te is None:
        raise ImportError(why_not)
    return te


def versions() -> dict[str, str]:
    """Versions of the packages that are installed, read from metadata."""
    by_name = {}
    for name in PACKAGES:
        try:
            by_name[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return by_name


def facts() -> dict[str, str]:
    """Returns the versions that affect only this engine's bits: of Transformer Engine, CUDA,
    cuBLASLt and the driver.
    """
    extension = jax_modules().extension
    cuda = {
        "cuda": str(extension.get_cuda_version()),
        "cublaslt": str(extension.get_cublasLt_version()),
    }
    return versions() | cuda | {"driver": driver()}


def driver(file: Path = _DRIVER) -> str:
    """The version of NVIDIA's kernel driver, or "unknown" if the system does not report it."""
    match = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", file.read_text()) if file.exists() else None
    return match[1] if match else "unknown"


@functools.cache
def _import() -> tuple[SimpleNamespace | None, str]:
    """Returns the modules, or None and the reason."""
    version = versions().get("transformer_engine")
    if version is None:
        return (
            None,
            (
                "engine transformer_engine needs the package transformer_engine, which is not "
                f"installed on this worker; {INSTALL}"
            ),
        )
    if (
        not FIRST_VERSION
        <= tuple(int(part) for part in re.findall(r"\d+", version)[:3])
        < FIRST_UNKNOWN
    ):
        first, unknown = (".".join(map(str, version)) for version in (FIRST_VERSION, FIRST_UNKNOWN))
        return (
            None,
            (
                f"Transformer Engine {version} is installed, expected {first} or later and below "
                f"{unknown}"
            ),
        )
    try:
        _load_nccl()
        return SimpleNamespace(
            dense=import_module("transformer_engine.jax.dense"),
            quantize=import_module("transformer_engine.jax.quantize"),
            quantization=import_module("transformer_engine.jax.cpp_extensions.quantization"),
            sharding=import_module("transformer_engine.jax.sharding"),
            recipe=import_module("transformer_engine.common.recipe"),
            extension=import_module("transformer_engine_jax"),
        ), ""
    except (ImportError, OSError, RuntimeError, AssertionError, AttributeError) as error:
        # OSError: a missing driver or library. RuntimeError and AssertionError: its own checks at
        # start-up.
        what = (
            f"Transformer Engine {version} is installed but does not start: "
            f"{type(error).__name__}: {error}"
        )
        return None, f"{what}; {_remedy(str(error))}"


def _load_nccl() -> None:
    """Load NCCL from NVIDIA's package, if it is there: Transformer Engine loads its other libraries
    itself, and needs this one, too.

    jax loads it with its first GPU, but a process without one, or one that asks before, has not.
    """
    try:
        files = importlib.metadata.files("nvidia-nccl-cu13") or []
    except importlib.metadata.PackageNotFoundError:
        return  # the system may have it
    for file in files:
        if file.name.startswith("libnccl.so."):
            ctypes.CDLL(str(file.locate()), mode=ctypes.RTLD_GLOBAL)


def _remedy(message: str) -> str:
    """What to install, by the library that a message names; else Transformer Engine itself."""
    if "libcuda.so" in message:
        return (
            f"NVIDIA's driver is missing (its version is {driver()}), or the container was started "
            "without the GPU"
        )
    # "libnccl.so.2: cannot open shared object file" is the loader's message, "curand shared object
    # not found." Transformer Engine's own.
    for library, package in _LIBRARIES.items():
        if (
            library in message
            or f"{library.removeprefix('lib')} shared object not found" in message
        ):
            return f"install {package}, or put the folder of the library into LD_LIBRARY_PATH"
    return INSTALL


def _last_line(error: Exception) -> str:
    """The end of an error, which says what is wrong: Transformer Engine's begin with a place in its
    sources.
    """
    return str(error).strip().rpartition("CUDA Error: ")[2]
