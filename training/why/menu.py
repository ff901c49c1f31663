"""A linear layer whose arithmetic is chosen while the program runs: one compilation measures every unit.

What it answers: what are y, dx and dw if fprop, dgrad and wgrad of this layer each take the recipe of this number of a menu?

    static    a recipe is compiled in: as many programs as units, and compiling is what costs on small models
    menu      the numbers (3,) are an argument; a branch computes the operands of the recipe that was chosen, and no other

The operands of a GEMM come from its own recipe, as in `training.arithmetic.recipes.layer_recipe`, and what is done with them is the code of
`training.arithmetic.linear`. A test compares losses and gradients of the two to the bit.

The assumption that can fail: XLA may fuse what surrounds a layer in another way, and then last bits may differ. Within one program they
do not, so differences between units are free of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from training.arithmetic import random_bits
from training.arithmetic.linear import DGRAD, PANEL, WGRAD, finished, operand_of, product, transposed
from training.arithmetic.quantize import Operand, Quantizer
from training.arithmetic.recipes import LinearRecipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Menu:
    """The recipes from which every GEMM chooses one by its number. Hashable; it takes the place of a layer's recipe in a `Decoder`."""

    recipes: tuple[LinearRecipe, ...]

    def __post_init__(self) -> None:
        kinds = {(each.activations, each.products) for each in self.recipes}
        if len(kinds) != 1:
            raise ValueError(f"a menu has recipes of the types {sorted(kinds)}, expected one; f32 changes the whole model")

    @property
    def quantized(self) -> bool:
        """True: the engine computes the layer, whatever is chosen."""
        return True

    @property
    def activations(self) -> str:
        """The type of the layer's inputs and outputs."""
        return self.recipes[0].activations


class MenuChannel(NamedTuple):
    """What a layer gets in addition to its operands: scales of delayed scaling (..., 3), and the recipes of its GEMMs, int32 (..., 3)."""

    scale: jax.Array
    choice: jax.Array


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def menu_linear(menu: Menu, x_MK: jax.Array, w_KN: jax.Array, seed: jax.Array, channel: MenuChannel) -> jax.Array:
    """Returns y (M, N) = x (M, K) w (K, N) with the recipes that `channel.choice` names; arguments as for `linear`."""
    return _forward(menu, x_MK, w_KN, seed, channel)[0]


def _forward(menu: Menu, x_MK: jax.Array, w_KN: jax.Array, seed: jax.Array, channel: MenuChannel) -> tuple[jax.Array, Any]:
    fprop, dgrad, wgrad = channel.choice
    x_scale, w_scale, g_scale = channel.scale
    x = _chosen(menu, fprop, [each.fprop_x for each in menu.recipes], x_MK, 1, x_scale)
    w = _chosen(menu, fprop, [each.fprop_w for each in menu.recipes], w_KN, 0, w_scale)
    y_MN = finished(product(x.value, w.value), x, w, x_MK.dtype)
    saved_x = _chosen(menu, wgrad, [each.wgrad_x for each in menu.recipes], x_MK, 0, x_scale)
    saved_w = _chosen(menu, dgrad, [each.dgrad_w for each in menu.recipes], w_KN, 1, w_scale)
    return y_MN, (saved_x, saved_w, seed, g_scale, dgrad, wgrad)


def _backward(menu: Menu, saved: Any, g_MN: jax.Array) -> tuple[jax.Array, jax.Array, None, None]:
    x, w, seed, scale, dgrad, wgrad = saved
    g = _chosen(menu, dgrad, [each.dgrad_g for each in menu.recipes], g_MN, 1, scale, random_bits.fold(seed, DGRAD))
    dx_MK = finished(product(g.value, w.value, transpose_b=True), g, w, g_MN.dtype)
    g = _chosen(menu, wgrad, [each.wgrad_g for each in menu.recipes], g_MN, 0, scale, random_bits.fold(seed, WGRAD))
    if g_MN.shape[1] < x.value.shape[1] and g_MN.shape[1] % PANEL == 0:  # as in `linear`: the narrower of the two is transposed
        return dx_MK, transposed(finished(product(transposed(g.value), x.value), g, x, g_MN.dtype)), None, None
    return dx_MK, finished(product(transposed(x.value), g.value), x._replace(factor=x.factor.T), g, g_MN.dtype), None, None


menu_linear.defvjp(_forward, _backward)


def _chosen(
    menu: Menu,
    choice: jax.Array,
    quantizers: Sequence[Quantizer | None],
    x: jax.Array,
    axis: int,
    scale: jax.Array,
    seed: jax.Array | None = None,
) -> Operand:
    """The operand under the quantizer of this number; equal quantizers share a branch."""
    different = list(dict.fromkeys(quantizers))
    branches = [_branch(menu.recipes[0], each, x.shape, axis, any(_is_row_scaled(one) for one in different)) for each in different]
    if len(branches) == 1:
        return branches[0](x, scale, seed)
    number = jnp.asarray([different.index(each) for each in quantizers], jnp.int32)[choice]
    operand: Operand = jax.lax.switch(number, branches, x, scale, seed)
    return operand


def _branch(
    recipe: LinearRecipe, quantizer: Quantizer | None, shape: tuple[int, ...], axis: int, by_row: bool
) -> Callable[[jax.Array, jax.Array, jax.Array | None], Operand]:
    """Computes one operand; with a factor for each row (or column) if another branch has one."""
    factor_shape = (1, shape[1]) if axis == 0 else (shape[0], 1)

    def operand(x: jax.Array, scale: jax.Array, seed: jax.Array | None) -> Operand:
        result = operand_of(recipe, quantizer, x, axis, scale, seed)
        return result._replace(factor=jnp.broadcast_to(result.factor, factor_shape)) if by_row else result

    return operand


def _is_row_scaled(quantizer: Quantizer | None) -> bool:
    return quantizer is not None and quantizer.row_scaled
