"""JAX in its strictest mood: no silent promotion of types or ranks. Transformer Engine's Python
code without its compiled part.
"""

import functools
import importlib.metadata
import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.interpreters import mlir

from training.environment import transformer_engine_installed

# Each program is lowered in an MLIR context of its own, which takes 3 ms: nearly half of the time
# of a small program from the cache.
mlir.make_ir_context = functools.cache(mlir.make_ir_context)
VECTORS = Path(__file__).parent.parent / "data" / "te_vectors.npz"
VARIANTS = VECTORS.with_name("te_variants.npz")


@pytest.fixture(autouse=True, scope="module")
def strict_jax() -> Iterator[None]:
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    yield
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    jax.config.update("jax_numpy_rank_promotion", "allow")


@pytest.fixture(scope="session")
def te_variants() -> dict[str, np.ndarray]:
    """Codes and scales of the variants that Transformer Engine has for PyTorch only
    (tests/data/README.md).
    """
    with np.load(VARIANTS) as archive:
        return {key: archive[key] for key in archive.files}


@pytest.fixture(scope="session")
def te_vectors() -> dict[str, np.ndarray]:
    """Codes, scales and products made by Transformer Engine (tests/data/README.md)."""
    with np.load(VECTORS) as archive:
        return {key: archive[key] for key in archive.files}


@pytest.fixture
def gpu_program(monkeypatch) -> Iterator[None]:
    """Programs are traced as for a GPU; those compiled before and during the test are forgotten."""
    jax.clear_caches()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    yield
    jax.clear_caches()


class _Anything(type):
    """An enumeration that has whatever member it is asked for, always the same."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(cls, name, len(vars(cls)))
        return getattr(cls, name)


def _compiled_part(compute_capability):
    """What stands for TE's compiled extension: version numbers, a GPU, and enumerations; it
    computes nothing.
    """
    module: Any = types.ModuleType("transformer_engine_jax")
    numbers = {
        "get_cuda_version": 13000,
        "get_cublasLt_version": 130100,
        "get_num_compute_streams": 1,
    }
    for name, value in numbers.items():
        setattr(module, name, lambda value=value: value)
    module.get_device_compute_capability = lambda _gpu: compute_capability
    module.get_grouped_gemm_setup_workspace_size = lambda _: 0
    module.registrations = dict
    module.__getattr__ = lambda name: module.__dict__.setdefault(name, _Anything(name, (), {}))
    return module


class _BlockScale:
    """A block's largest value by the largest of E2M1, as TE's CUDA kernels compute the scale of the
    block: times (tensor scale times 1/6). Its pure-JAX path divides first; XLA's CPU compiler makes
    the kernels' order of that in jax 0.10, and no longer in 0.12.
    """

    def __init__(self, largest):
        self._largest = largest

    def __mul__(self, tensor_scale):
        return self._largest * (tensor_scale * np.float32(1 / 6))


def _repeat(x, repeats):
    """The layout of TE's CUDA kernels, where its pure-JAX path tiles 2D block scales in the wrong
    order (2.20.2).
    """
    for axis, count in enumerate(repeats):
        x = jnp.repeat(x, count, axis)
    return x


def _scaled_matmul(lhs, rhs, lhs_scale, rhs_scale, preferred_element_type):
    """jax.nn.scaled_matmul, which has no lowering for CPUs, in float32."""

    def whole(x, scale):
        return x.astype(jnp.float32) * jnp.repeat(
            scale.astype(jnp.float32), x.shape[-1] // scale.shape[-1], -1
        )

    product = jnp.einsum(
        "bmk,bnk->bmn", whole(lhs, lhs_scale), whole(rhs, rhs_scale), precision="highest"
    )
    return product.astype(preferred_element_type)


@pytest.fixture
def stubbed_te(monkeypatch):
    """A function that gives TE's real Python code, its compiled extension stubbed, on a GPU of a
    compute capability.

    Its pure-JAX path computes what the kernels would; four of its defects on CPUs are mended.
    """
    pytest.importorskip("flax", reason="Transformer Engine's Python code imports flax")
    if importlib.util.find_spec("transformer_engine") is None:
        pytest.skip(
            "Transformer Engine's Python code is not installed here (locks/dev.lock has it)"
        )

    def forget():
        for name in [
            name for name in sys.modules if name.partition(".")[0].startswith("transformer_engine")
        ]:
            del sys.modules[name]

    def with_gpu(compute_capability=100):
        forget()
        monkeypatch.setenv("NVTE_PROJECT_BUILDING", "1")  # it then looks for no CUDA library
        monkeypatch.setenv("NVTE_JAX_CUSTOM_CALLS", "false")
        sys.modules["transformer_engine_jax"] = _compiled_part(compute_capability)
        folder = importlib.metadata.distribution("transformer_engine").locate_file(
            "transformer_engine/jax"
        )
        # its __init__ would load the compiled extension
        package = types.ModuleType("transformer_engine.jax")
        package.__path__ = [str(folder)]
        sys.modules["transformer_engine.jax"] = package
        reduce_precision = jax.lax.reduce_precision

        # XLA's CPU makes NaN of E4M3 values above 240
        def keeps_e4m3(x, exponent_bits, mantissa_bits):
            return (
                x
                if x.dtype == jnp.float8_e4m3fn
                else reduce_precision(x, exponent_bits, mantissa_bits)
            )

        monkeypatch.setattr(jax.lax, "reduce_precision", keeps_e4m3)
        divide = jnp.divide

        def by_largest(x, largest):
            is_e2m1 = isinstance(largest, np.float32) and largest == 6.0
            return _BlockScale(x) if is_e2m1 else divide(x, largest)

        monkeypatch.setattr(jnp, "divide", by_largest)
        monkeypatch.setattr(jnp, "tile", _repeat)
        monkeypatch.setattr(jax.nn, "scaled_matmul", _scaled_matmul)
        monkeypatch.setattr(
            transformer_engine_installed,
            "_import",
            functools.cache(transformer_engine_installed._import.__wrapped__),
        )
        return transformer_engine_installed

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield with_gpu
    forget()
