"""A linear layer whose arithmetic is chosen while the program runs, and the units of a recipe as rows of numbers that it understands."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from parity.structure import frozen
from training.arithmetic import formats
from training.arithmetic.linear import DGRAD, PANEL, WGRAD, finished, operand_of, product, transposed
from training.arithmetic.quantize import Operand, Quantizer
from training.arithmetic.recipes import LinearRecipe
from training.rules import PROJECTIONS
from training.segments import Arithmetic, Segment, gemm_key
from training.switches import GEMMS, Gemm, Switches, features

# A linear layer whose arithmetic is chosen while the program runs: one compilation measures every unit.
#
# What it answers: what are y, dx and dw if fprop, dgrad and wgrad of this layer each take the recipe of this number of a menu?
#
#     static    a recipe is compiled in: as many programs as units, and compiling is what costs on small models
#     menu      the numbers (3,) are an argument; a branch computes the operands of the recipe that was chosen, and no other
#
# The operands of a GEMM come from its own recipe, as in `training.arithmetic.recipes.layer_recipe`, and what is done with them is the
# code of `training.arithmetic.linear`. A test compares losses and gradients of the two to the bit.
#
# The assumption that can fail: XLA may fuse what surrounds a layer in another way, and then last bits may differ. Within one program they
# do not, so differences between units are free of that.


@frozen
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
    g = _chosen(menu, dgrad, [each.dgrad_g for each in menu.recipes], g_MN, 1, scale, formats.fold(seed, DGRAD))
    dx_MK = finished(product(g.value, w.value, transpose_b=True), g, w, g_MN.dtype)
    g = _chosen(menu, wgrad, [each.wgrad_g for each in menu.recipes], g_MN, 0, scale, formats.fold(seed, WGRAD))
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


# Units: the parts of a recipe whose share of a gap is measured, as rows of numbers that a menu understands.
#
# What it answers: which recipes stand on the menu for this run, and which number does every GEMM take if one unit is off, or on alone?
#
#     unit         GEMM `gemm` of `projection` in `block` whose arithmetic differs between this run and what it is compared with
#     ingredient   a part of the recipe in all quantized GEMMs: rotation (rht), stochastic rounding (sr), 2D weight scales (2d),
#                  the format of the block scales (e4m3 with a scale of the tensor, against e8m0 in blocks of the same size)
#
# A unit that is off has the arithmetic of what the run is compared with: bf16 everywhere, or its baseline's. Number 0 is bf16. A choice
# is int32 (blocks, projections, GEMMs). Numpy only.

Choice = npt.NDArray[np.int32]
BF16 = Arithmetic("bf16")
INGREDIENTS: Mapping[str, Mapping[str, Any]] = {
    "rht": {"rht": False},
    "sr": {"stochastic_rounding": False},
    "2d": {"weight_scaling": "1d"},
}
SCALE_FORMAT = "scale_format"


class Unit(NamedTuple):
    """One GEMM of one linear layer."""

    block: int
    projection: str
    gemm: Gemm

    @property
    def name(self) -> str:
        """Such as `1.down.wgrad`."""
        return f"{self.block}.{self.projection}.{self.gemm}"

    @property
    def place(self) -> tuple[int, int, int]:
        """Its index in a choice."""
        return self.block, PROJECTIONS.index(self.projection), GEMMS.index(self.gemm)


@frozen
class Measured:
    """What stands on the menu (`arithmetics`, number 0 is bf16), what the run itself takes (`own`), what a unit takes that is off (`off`),
    and the units: the GEMMs in which the two differ.

    `ingredients` are the choices of the whole run without each ingredient that it has.
    """

    arithmetics: tuple[Arithmetic, ...]
    own: Choice
    off: Choice
    units: tuple[Unit, ...]
    ingredients: Mapping[str, Choice]

    def without(self, units: Sequence[Unit]) -> Choice:
        """The run's own choice, but with these units off."""
        choice = self.own.copy()
        for unit in units:
            choice[unit.place] = self.off[unit.place]
        return choice

    def alone(self, units: Sequence[Unit]) -> Choice:
        """All units off, but the run's own choice in these."""
        choice = self.off.copy()
        for unit in units:
            choice[unit.place] = self.own[unit.place]
        return choice


def measured(segment: Segment, n_layers: int, off: Segment | None = None) -> Measured:
    """What can be measured of the arithmetic of a segment, against that of `off` (None: bf16 everywhere).

    Raises ValueError if the segment quantizes nothing, if one of the two computes in f32, or if they do not differ.
    """
    own_cells = _cells(segment)
    off_cells = dict.fromkeys(own_cells, BF16) if off is None else _cells(off)
    own_recipes, off_recipes = ({each.recipe for each in cells.values()} for cells in (own_cells, off_cells))
    if "f32" in own_recipes | off_recipes or not any(_is_quantized(each) for each in own_cells.values()):
        recipes = ", ".join(sorted(own_recipes))
        raise ValueError(f"the run computes its linear layers in {recipes}, expected a quantized recipe; there is nothing to explain")
    menu = list(dict.fromkeys([BF16, *filter(_is_quantized, own_cells.values()), *filter(_is_quantized, off_cells.values())]))
    own, other = (_numbered(cells, menu, n_layers) for cells in (own_cells, off_cells))
    ingredients = {}
    for name in (*INGREDIENTS, SCALE_FORMAT):
        taken = [menu[number] for number in np.unique(own) if number]
        changed = {each: replaced for each in taken if (replaced := _without_ingredient(each, name)) is not None}
        if changed:
            menu = list(dict.fromkeys([*menu, *changed.values()]))
            number = {menu.index(each): menu.index(replaced) for each, replaced in changed.items()}
            ingredients[name] = np.vectorize(lambda at, number=number: number.get(at, at), otypes=[np.int32])(own)
    different = [unit for unit, each in own_cells.items() if gemm_key(unit.gemm, each) != gemm_key(unit.gemm, off_cells[unit])]
    if not different:
        raise ValueError("the two compute every GEMM alike, expected a difference; there is nothing to explain")
    units = tuple(sorted(different, key=lambda unit: (GEMMS.index(unit.gemm), unit.block, PROJECTIONS.index(unit.projection))))
    return Measured(arithmetics=tuple(menu), own=own, off=other, units=units, ingredients=ingredients)


def menu_of(runs: Mapping[str, Segment], n_layers: int) -> tuple[tuple[Arithmetic, ...], Mapping[str, Choice]]:
    """A menu on which the arithmetic of every one of these runs stands, number 0 is bf16, and each run's choice by its name.

    Raises ValueError for a run that computes in f32 or with delayed scaling, whose state lives where the choice is.
    """
    cells = {name: _cells(segment) for name, segment in runs.items()}
    used = dict.fromkeys(each for own in cells.values() for each in own.values())
    for unfit in ("f32", "fp8_delayed"):
        if any(each.recipe == unfit for each in used):
            raise ValueError(f"a GEMM has the recipe {unfit}, expected one that can be chosen while the program runs, such as fp8_current")
    menu = list(dict.fromkeys([BF16, *filter(_is_quantized, used)]))
    return tuple(menu), {name: _numbered(own, menu, n_layers) for name, own in cells.items()}


def uncovered(candidate: Segment, restored: Segment, baseline: Segment) -> Unit | None:
    """A GEMM in which `restored` has neither the baseline's arithmetic nor bf16, or None."""
    own, safe = _cells(restored), _cells(baseline)
    changed = [unit for unit, each in _cells(candidate).items() if gemm_key(unit.gemm, each) != gemm_key(unit.gemm, safe[unit])]
    restored_to_other = (unit for unit in changed if gemm_key(unit.gemm, own[unit]) != gemm_key(unit.gemm, safe[unit]))
    return next((unit for unit in restored_to_other if own[unit].recipe != "bf16"), None)


def _cells(segment: Segment) -> dict[Unit, Arithmetic]:
    """The arithmetic of every GEMM of every block."""
    ends = {span.first: span.last for span in segment.spans}
    return {
        Unit(block, projection, gemm): arithmetic
        for first, projection, gemm, arithmetic in segment.cells()
        for block in range(first, ends[first] + 1)
    }


def _is_quantized(arithmetic: Arithmetic) -> bool:
    return features(*arithmetic) is not None


def _numbered(cells: Mapping[Unit, Arithmetic], menu: Sequence[Arithmetic], n_layers: int) -> Choice:
    """The number of every GEMM's arithmetic on the menu; 0 if it is not quantized."""
    choice = np.zeros((n_layers, len(PROJECTIONS), len(GEMMS)), np.int32)
    for unit, arithmetic in cells.items():
        choice[unit.place] = menu.index(arithmetic) if _is_quantized(arithmetic) else 0
    return choice


def _without_ingredient(arithmetic: Arithmetic, name: str) -> Arithmetic | None:
    """The arithmetic without an ingredient; None if it does not have it."""
    parts = features(*arithmetic)
    if parts is None:
        return None
    if name == SCALE_FORMAT:
        if parts.family != "nvfp4" or parts.row_scaled_activation or parts.nvfp4_4over6 != "none":
            return None
        given: dict[str, Any] = {
            "stochastic_rounding": parts.stochastic_rounding,
            "rht": parts.rht,
            "weight_scaling": parts.weight_scaling,
            "block_size": parts.block_size,
            "nan": parts.nan,
        }
        return Arithmetic("mxfp4", Switches(**given))
    has = {"rht": parts.rht, "sr": parts.stochastic_rounding, "2d": parts.weight_scaling == "2d" and parts.block_scaled}[name]
    if not has:
        return None
    without = {key: value for key, value in arithmetic.switches.given().items() if not (name == "sr" and key == "sr_bits")}
    changed: dict[str, Any] = {**without, **INGREDIENTS[name]}
    return Arithmetic(arithmetic.recipe, Switches(**changed))


def rows(measured: Measured) -> Iterator[tuple[str, Choice]]:
    """Everything that the instant split evaluates, with its name: `off`, `on`, `without UNIT`, `alone UNIT`, `without INGREDIENT`."""
    yield "off", measured.off
    yield "on", measured.own
    for unit in measured.units:
        yield f"without {unit.name}", measured.without([unit])
        yield f"alone {unit.name}", measured.alone([unit])
    for name, choice in measured.ingredients.items():
        yield f"without {name}", choice
