"""Faults that are planted in single GEMMs while one compiled program runs; the product has no code
for them.

A candidate of the experiment has `nan: hardware` in every GEMM, which changes no bit of finite
numbers. Its operands are the marked ones: `planted` replaces the function that computes operands,
and a marked one reads a number from the scales of delayed scaling, which these recipes do not use.
0 is healthy, so that all cases share their programs.

    zeroed gradient         dgrad's copy of the output gradient is zero
    stale amax              the tensor saturates at an eighth of its largest value
    scale order             each block has the scale of the block before it (gradients and
                            activations)
    clipped blocks          each block saturates at a quarter of its largest value
    mxfp4, blocks of 128, no rotation, no stochastic rounding, 1D weights      the quantizer of
      another recipe or switch

The assumption that can fail: marked and unmarked operands are equal bit for bit where nothing is
planted. A test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from parity_lab.training import menu_layer
from training.arithmetic.linear import operand_of
from training.arithmetic.quantize import Operand, Quantizer
from training.arithmetic.recipes import LinearRecipe, linear_recipe
from training.overrides import GEMMS
from training.step_values import PROJECTIONS
from training.switches import Switches

MARK = Switches(nan="hardware")
KINDS = (
    "healthy",
    "zeroed gradient",
    "stale amax",
    "scale order",
    "clipped blocks",
    "mxfp4",
    "blocks of 128",
    "no rotation",
    "no stochastic rounding",
    "1D weights",
)
_ZEROED, _STALE, _ORDER, _CLIPPED = range(1, 5)
_BLOCK, _BASE = 16, 16
_MARKED = frozenset(linear_recipe("nvfp4", MARK, fast_bf16=True).operands)
# The GEMM to which an operand belongs, by the axis that is contracted.
_GEMM_OF = {"x": ("wgrad", "fprop"), "w": ("fprop", "dgrad"), "g": ("wgrad", "dgrad")}


def codes(shape: tuple[int, ...], kind: str, units: Sequence[str]) -> npt.NDArray[np.float32]:
    """The scales (blocks, projections, operands) of a state in which these units have a fault; ones
    without units.
    """
    numbers = np.zeros((*shape[:2], len(GEMMS)), np.int64)
    for name in units:
        block, projection, gemm = name.split(".")
        numbers[int(block), PROJECTIONS.index(projection), GEMMS.index(gemm)] = KINDS.index(kind)
    by_operand = [
        numbers[..., GEMMS.index(along_rows)] + _BASE * numbers[..., GEMMS.index(along_columns)]
        for along_columns, along_rows in _GEMM_OF.values()
    ]
    return (1 + np.stack(by_operand, axis=-1)).astype(np.float32)


@contextmanager
def planted() -> Iterator[None]:
    """Marked operands have the fault that the state names."""
    names: Any = vars(menu_layer)
    original = names["operand_of"]
    names["operand_of"] = spoiled
    jax.clear_caches()
    try:
        yield
    finally:
        names["operand_of"] = original
        jax.clear_caches()


def spoiled(
    recipe: LinearRecipe,
    quantizer: Quantizer | None,
    x: jax.Array,
    axis: int,
    scale: jax.Array,
    seed: jax.Array | None = None,
) -> Operand:
    """The operand, with the fault that its scale names if it is marked."""
    if quantizer not in _MARKED or quantizer is None:
        return operand_of(recipe, quantizer, x, axis, scale, seed)
    code = scale.astype(jnp.int32) - 1
    kind = code % _BASE if axis == 1 else code // _BASE
    different, number = _different(_variants(quantizer))
    branches: list[Callable[[jax.Array], Operand]] = [
        partial(_operand, recipe, variant, axis, scale, seed) for variant in different
    ]
    operand: Operand = jax.lax.switch(
        jnp.asarray(number, jnp.int32)[kind], branches, _clipped(x, axis, kind)
    )
    value = operand.value
    if quantizer.stochastic and axis == 1:
        value = jnp.where(kind == _ZEROED, jnp.zeros_like(value), value)
    if not quantizer.two_dimensional:
        value = jnp.where(kind == _ORDER, _misplaced(value, axis), value)
    return operand._replace(value=value)


def _operand(
    recipe: LinearRecipe,
    quantizer: Quantizer,
    axis: int,
    scale: jax.Array,
    seed: jax.Array | None,
    x: jax.Array,
) -> Operand:
    return operand_of(recipe, quantizer, x, axis, scale, seed)


def _variants(quantizer: Quantizer) -> Mapping[str, Quantizer]:
    """The quantizer of each kind that has another one."""
    return {
        "mxfp4": replace(
            quantizer,
            scaling="mx",
            block=32,
            two_dimensional=False,
            stochastic=False,
            rotated=False,
        ),
        "blocks of 128": replace(quantizer, block=128),
        "no rotation": replace(quantizer, rotated=False),
        "no stochastic rounding": replace(quantizer, stochastic=False),
        "1D weights": replace(quantizer, two_dimensional=False),
        "healthy": quantizer,
    }


def _different(variants: Mapping[str, Quantizer]) -> tuple[list[Quantizer], list[int]]:
    """The different quantizers, and the number of each kind's."""
    different = list(dict.fromkeys([variants["healthy"], *variants.values()]))
    return different, [different.index(variants.get(kind, variants["healthy"])) for kind in KINDS]


def _clipped(x: jax.Array, axis: int, kind: jax.Array) -> jax.Array:
    size = jnp.abs(x.astype(jnp.float32))
    bound = jnp.where(
        kind == _STALE,
        jnp.max(size) / 8,
        jnp.where(kind == _CLIPPED, _block_variants(size, axis) / 4, jnp.inf),
    )
    return jnp.clip(x.astype(jnp.float32), -bound, bound).astype(x.dtype)


def _misplaced(value: jax.Array, axis: int) -> jax.Array:
    largest = _block_variants(jnp.abs(value.astype(jnp.float32)), axis)
    other = jnp.roll(largest, _BLOCK, axis)
    return (value.astype(jnp.float32) * jnp.where(largest > 0, other / largest, 1)).astype(
        value.dtype
    )


def _block_variants(size: jax.Array, axis: int) -> jax.Array:
    """The largest value of its block along the contracted axis, for each element."""
    rows, columns = size.shape
    view = size.reshape(
        (rows // _BLOCK, _BLOCK, columns) if axis == 0 else (rows, columns // _BLOCK, _BLOCK)
    )
    return jnp.broadcast_to(jnp.max(view, axis=axis + 1, keepdims=True), view.shape).reshape(
        size.shape
    )
