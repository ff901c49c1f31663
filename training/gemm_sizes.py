"""GEMM sizes: what a recipe requires of the tokens, inputs and outputs of a linear layer.

What it answers: can this engine compute these GEMMs at all, and if not, which size or preset is
the nearest that can?

A layer has M tokens, K inputs and N outputs. fprop contracts K, dgrad contracts N, wgrad
contracts M. Each size must be a multiple of:

    engine emulated            the block size, along the contracted size
    Transformer Engine, FP8    16 along the contracted size                      cuBLAS
    Transformer Engine, MXFP8  32 along the contracted size                      blocks of 32,
                               along both axes of x and g
    Transformer Engine, NVFP4  32 along the contracted size                      cuBLAS
      wgrad with the rotation  M: 64, K and N: 128                               the kernel that
                               rotates x (M, K) and g (M, N)
    MaxText, MXFP8 and NVFP4   32 and 16 for sequence length T and head size E   (batch, T, heads,
                               E): no block spans two rows

An abort on a GPU comes after the job waited for it, so it is refused when the job is made. Engine
maxtext runs the same kernels with `implementation: te`, on the share of one device.

The assumption that can fail: these are the rules of Transformer Engine 2.20.2. Another version
may need more; its own check then ends the run with an error. Standard library only, like
`training.spec`.

Source: Transformer Engine 2.20.2, jax/cpp_extensions/quantization.py (rows % 64, columns % 128
with use_rht; the same in jax/csrc/extensions/quantization.cpp), jax/cpp_extensions/gemm.py
for assert_cublas_requirements, jax/quantize/scaling_modes.py (blocks),
common/gemm/cublaslt_gemm.cu (leading dimensions of FP8 operands).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from training.overrides import Gemm
from training.segments import Arithmetic
from training.switches import features

_CONTRACTED: Mapping[Gemm, str] = {"fprop": "K", "dgrad": "N", "wgrad": "M"}
ATTENTION = ("query", "key", "value", "out")
_CUBLAS_FP8, _CUBLAS_NVFP4 = 16, 32
_ROTATED: Mapping[str, int] = {"M": 64, "K": 128, "N": 128}


class GemmSize(NamedTuple):
    """A size of a layer: its value, and the field of the specification that sets it."""

    value: int
    field: str


class Need(NamedTuple):
    """One requirement: a size (M, K, N, T or E) must be a multiple of a number, and why."""

    size: str
    multiple: int
    reason: str


class Misfit(NamedTuple):
    """A GEMM that cannot be computed: its projection, the size and what it would need."""

    projection: str
    gemm: Gemm
    arithmetic: Arithmetic
    size: GemmSize
    need: Need

    @property
    def nearest(self) -> int:
        """The multiple that is nearest to the size, at least one."""
        return max(
            self.need.multiple, round(self.size.value / self.need.multiple) * self.need.multiple
        )


Sizes = Mapping[str, GemmSize]
"""M, K and N of one layer; for MaxText also T and, of an attention projection, E."""


def linear_sizes(
    d_model: int, d_ff: int, head_size: int, heads: tuple[int, int]
) -> dict[str, tuple[GemmSize, GemmSize]]:
    """(inputs, outputs) of the linear layers of a block; `heads` are those of the queries and those
    of keys and values.
    """
    width, mlp = GemmSize(d_model, "model.d_model"), GemmSize(d_ff, "model.d_ff")
    queries, keys = (
        GemmSize(count * head_size, f"model.{name} x head size")
        for count, name in zip(heads, ("n_heads", "n_kv_heads"), strict=True)
    )
    queries = width if queries.value == d_model else queries
    return {
        "query": (width, queries),
        "key": (width, keys),
        "value": (width, keys),
        "out": (queries, width),
        "gate": (width, mlp),
        "up": (width, mlp),
        "down": (mlp, width),
    }


def needs(gemm: Gemm, arithmetic: Arithmetic, *, native: bool) -> Iterator[Need]:
    """What one GEMM requires; `native`: computed by Transformer Engine's kernels instead of the
    emulation.
    """
    resolved = features(*arithmetic)
    contracted = _CONTRACTED[gemm]
    if resolved is None:
        return
    if not native:
        if resolved.block_size > 1:
            yield Need(
                contracted,
                resolved.block_size,
                f"recipe {arithmetic.recipe} scales blocks of {resolved.block_size} along it",
            )
        return
    if resolved.family in ("fp8_current", "fp8_delayed"):
        yield Need(contracted, _CUBLAS_FP8, "cuBLAS contracts FP8 in multiples of 16")
        return
    if resolved.family == "nvfp4":
        if gemm == "wgrad" and resolved.rht:
            reason = (
                "the kernel of the Hadamard rotation takes tokens in multiples of 64 and columns "
                "of 128"
            )
            yield from (Need(size, multiple, reason) for size, multiple in _ROTATED.items())
        else:
            yield Need(contracted, _CUBLAS_NVFP4, "cuBLAS contracts NVFP4 in multiples of 32")
    else:
        yield Need(
            contracted,
            resolved.block_size,
            f"{resolved.family.upper()} scales blocks of {resolved.block_size} along it",
        )
    reason = (
        f"Transformer Engine lays blocks of {resolved.block_size} along the last axis of a tensor "
        "that it does not flatten"
    )
    yield from (Need(size, resolved.block_size, reason) for size in ("T", "E"))


def misfit(
    cells: Iterable[tuple[str, Gemm, Arithmetic]], sizes: Callable[[str], Sizes], *, native: bool
) -> Misfit | None:
    """The first (projection, GEMM, arithmetic) whose sizes do not fit, or None; `sizes` returns
    those of a projection's layer.
    """
    for projection, gemm, arithmetic in cells:
        layer = sizes(projection)
        for need in needs(gemm, arithmetic, native=native):
            if need.size in layer and layer[need.size].value % need.multiple:
                return Misfit(projection, gemm, arithmetic, layer[need.size], need)
    return None
