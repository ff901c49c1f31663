"""A linear layer whose arithmetic is chosen while the program runs, and the decoder of such layers:
one compilation measures every GEMM.

What it answers: what are y, dx and dw if fprop, dgrad and wgrad of this layer each take the
recipe of this number of a menu?

    static    a recipe is compiled in: as many programs as units, and compiling is what costs on
              small models
    menu      the numbers (3,) are an argument; a branch computes the operands of the recipe that
              was chosen, and no other

The operands of a GEMM come from its own recipe, as in `training.arithmetic.recipes.layer_recipe`,
and what is done with them is the code of `training.arithmetic.linear`. A test compares losses and
gradients of the two to the bit.

The assumption that can fail: XLA may fuse what surrounds a layer in another way, and then last
bits may differ. Within one program they do not, so differences between units are free of that.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from parity.frozen import frozen
from parity_lab.training.menu import Choice
from training.arithmetic import random_bits
from training.arithmetic.linear import (
    DGRAD,
    PANEL,
    WGRAD,
    finished,
    operand_of,
    product,
    transposed,
)
from training.arithmetic.quantize import Operand, Quantizer
from training.arithmetic.recipes import LinearRecipe, layer_recipe, linear_recipe
from training.segments import Arithmetic
from training.spec import Model
from training.trainer.model import Decoder, Parameters, loss_and_lm_loss


@frozen
class Menu:
    """The recipes from which every GEMM chooses one by its number. Hashable; it takes the place of
    a layer's recipe in a `Decoder`.
    """

    recipes: tuple[LinearRecipe, ...]

    def __post_init__(self) -> None:
        kinds = {(recipe.activations, recipe.products) for recipe in self.recipes}
        if len(kinds) != 1:
            raise ValueError(
                f"a menu has recipes of the types {sorted(kinds)}, expected one; f32 changes the "
                "whole model"
            )

    @property
    def quantized(self) -> bool:
        """True: the engine computes the layer, whatever is chosen."""
        return True

    @property
    def activations(self) -> str:
        """The type of the layer's inputs and outputs."""
        return self.recipes[0].activations


class MenuChannel(NamedTuple):
    """What a layer gets in addition to its operands: scales of delayed scaling (..., 3), and the
    recipes of its GEMMs, int32 (..., 3).
    """

    scale: jax.Array
    choice: jax.Array


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def menu_linear(
    menu: Menu, x_MK: jax.Array, w_KN: jax.Array, key: random_bits.Key, channel: MenuChannel
) -> jax.Array:
    """Returns y (M, N) = x (M, K) w (K, N) with the recipes that `channel.choice` names; arguments
    as for `linear`.
    """
    y_MN: jax.Array = _forward(menu, x_MK, w_KN, key, channel)[0]
    return y_MN


# Compiled functions of their own, as in `linear`, so that layers of one shape and menu are traced
# once.
@partial(jax.jit, static_argnums=0)
def _forward(
    menu: Menu, x_MK: jax.Array, w_KN: jax.Array, key: random_bits.Key, channel: MenuChannel
) -> tuple[jax.Array, Any]:
    fprop, dgrad, wgrad = channel.choice
    x_scale, w_scale, g_scale = channel.scale
    x = _chosen(menu, fprop, "fprop_x", x_MK, 1, x_scale)
    w = _chosen(menu, fprop, "fprop_w", w_KN, 0, w_scale)
    y_MN = finished(product(x.value, w.value), x, w, x_MK.dtype)
    saved_x = _chosen(menu, wgrad, "wgrad_x", x_MK, 0, x_scale)
    saved_w = _chosen(menu, dgrad, "dgrad_w", w_KN, 1, w_scale)
    return y_MN, (saved_x, saved_w, key, g_scale, dgrad, wgrad)


@partial(jax.jit, static_argnums=0)
def _backward(menu: Menu, saved: Any, g_MN: jax.Array) -> tuple[jax.Array, jax.Array, None, None]:
    x, w, key, scale, dgrad, wgrad = saved
    g = _chosen(menu, dgrad, "dgrad_g", g_MN, 1, scale, key.numbered(DGRAD, 2))
    dx_MK = finished(product(g.value, w.value, transpose_b=True), g, w, g_MN.dtype)
    g = _chosen(menu, wgrad, "wgrad_g", g_MN, 0, scale, key.numbered(WGRAD, 2))
    # as in `linear`: the narrower of the two is transposed
    if g_MN.shape[1] < x.value.shape[1] and g_MN.shape[1] % PANEL == 0:
        return (
            dx_MK,
            transposed(finished(product(transposed(g.value), x.value), g, x, g_MN.dtype)),
            None,
            None,
        )
    return (
        dx_MK,
        finished(
            product(transposed(x.value), g.value), x._replace(factor=x.factor.T), g, g_MN.dtype
        ),
        None,
        None,
    )


menu_linear.defvjp(_forward, _backward)


def _chosen(
    menu: Menu,
    choice: jax.Array,
    name: str,
    x: jax.Array,
    axis: int,
    scale: jax.Array,
    key: random_bits.Key | None = None,
) -> Operand:
    """The operand of this name under the recipe of this number; equal quantizers share a branch."""
    quantizers: list[Quantizer | None] = [getattr(recipe, name) for recipe in menu.recipes]
    different = list(dict.fromkeys(quantizers))
    by_row = any(quantizer is not None and quantizer.row_scaled for quantizer in different)
    branches = [
        _branch(menu.recipes[0], quantizer, x.shape, axis, by_row) for quantizer in different
    ]
    if len(branches) == 1:
        return branches[0](x, scale, key)
    number = jnp.asarray([different.index(quantizer) for quantizer in quantizers], jnp.int32)[
        choice
    ]
    operand: Operand = jax.lax.switch(number, branches, x, scale, key)
    return operand


def _branch(
    recipe: LinearRecipe,
    quantizer: Quantizer | None,
    shape: tuple[int, ...],
    axis: int,
    by_row: bool,
) -> Callable[[jax.Array, jax.Array, random_bits.Key | None], Operand]:
    """Computes one operand; with a factor for each row (or column) if another branch has one."""
    factor_shape = (1, shape[1]) if axis == 0 else (shape[0], 1)

    def operand(x: jax.Array, scale: jax.Array, key: random_bits.Key | None) -> Operand:
        result = operand_of(recipe, quantizer, x, axis, scale, key)
        if by_row:
            return result._replace(factor=jnp.broadcast_to(result.factor, factor_shape))
        return result

    return operand


def menu_decoder(
    shape: Model, arithmetics: tuple[Arithmetic, ...], choices: Iterable[Choice], *, fast_bf16: bool
) -> Decoder:
    """A decoder whose linear layers choose from these arithmetics by their numbers; number 0 is
    bf16.

    A layer in which every one of `choices` has 0 for all GEMMs is compiled with bf16 alone, because
    each branch takes time to compile.
    """
    recipes = tuple(
        layer_recipe((arithmetic, arithmetic, arithmetic), fast_bf16=fast_bf16)
        for arithmetic in arithmetics
    )
    # they are to a menu decoder what recipes are to another
    menus: Any = (Menu(recipes=recipes[:1]), Menu(recipes=recipes))
    varied = np.any([choice != 0 for choice in choices], axis=(0, 3))
    layer: Any = menu_linear
    return Decoder(
        shape=shape,
        plain=linear_recipe("bf16", fast_bf16=fast_bf16),
        recipes=menus,
        layers=tuple(tuple(map(int, block)) for block in varied),
        layer=layer,
    )


def menu_loss(
    model: Decoder,
    parameters: Parameters,
    tokens: jax.Array,
    key: random_bits.Key,
    scale: jax.Array,
    choice: jax.Array,
    z_loss: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The loss of a batch, and its cross entropy, under a choice."""
    channels: Any = MenuChannel(scale, choice)
    return loss_and_lm_loss(model, parameters, tokens, key, channels, z_loss)
