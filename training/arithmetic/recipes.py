"""Recipes: the quantizer of each operand of each GEMM of a linear layer.

What it answers: what does "nvfp4" do to x, w and the output gradient g in each of the three
products?

    fprop  y  = x  w      contracts K: x along its rows, w along its columns
    dgrad  dx = g  w^T    contracts N: g along its rows, w along its rows
    wgrad  dw = x^T g     contracts M (tokens): x and g along their columns

    | recipe       | x, fprop   | w, both      | g, dgrad       | x, wgrad        | g, wgrad
                   |
    | ------------ | ---------- | ------------ | -------------- | --------------- |
    ------------------------- |
    | fp8_current  | E4M3       | E4M3         | E5M2           | E4M3            | E5M2
                   |
    | fp8_delayed  | E4M3       | E4M3         | E5M2           | E4M3            | E5M2
                   |
    | mxfp8        | E4M3 1x32  | E4M3 1x32    | E4M3 1x32      | E4M3 1x32       | E4M3 1x32
                   |
    | fp8_block    | E4M3 1x128 | E4M3 128x128 | E4M3 1x128     | E4M3 1x128      | E4M3 1x128
                   |
    | nvfp4        | E2M1 1x16  | E2M1 16x16   | E2M1 1x16, SR  | E2M1 1x16, RHT  | E2M1 1x16, RHT,
                   SR        |
    | nvfp4_no_rht | E2M1 1x16  | E2M1 16x16   | E2M1 1x16, SR  | E2M1 1x16       | E2M1 1x16, SR
                                |
    | mxfp4        | E2M1 1x32  | E2M1 1x32    | E2M1 1x32      | E2M1 1x32       | E2M1 1x32
                   |

`nvfp4_no_sr` and `nvfp4_1d_weights` take one part of nvfp4 away, `nvfp4_no_rht_no_sr` two;
`mxfp4_rht_sr` gives mxfp4 NVFP4's rotation (of sixteen, inside its blocks of 32) and rounding.
Transformer Engine has no MXFP4, and refuses 1D weights together with the rotation
(`rules.NOT_TE_PARITY`).

Switches change parts of this table (`training.switches`). Four over six and row scaling concern
forward tensors (both copies of x, and four over six also w), never gradients. `fp8_delayed` scales
by the amaxes of earlier steps (`training.arithmetic.quantize`), `fp8_current` by the tensor's own.
(SR: stochastic rounding; RHT: random Hadamard transform.) Every copy is made from the bfloat16
tensor, never from another quantized copy. `bf16` leaves every operand unquantized; `f32` runs
everything in float32.

The assumption that can fail: a user's framework does the same. The table is that of Transformer
Engine's JAX classes; its PyTorch classes or other versions may differ, so a run records its recipe
and versions.

Source: Transformer Engine 2.20.2, common/recipe/__init__.py, jax/quantize/helper.py and
pytorch/quantization.py (read, not run on a GPU).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from training.arithmetic import four_over_six
from training.arithmetic.delayed_scaling import DEFAULT, DelayedScaling
from training.arithmetic.formats import E2M1, E4M3, E5M2
from training.arithmetic.quantize import Quantizer
from training.frozen import frozen
from training.rules import RECIPES, Recipe
from training.segments import Layer
from training.switches import ALL_OPERANDS, NO_SWITCHES, Features, Switches, features


@frozen
class LinearRecipe:
    """The six operands of one linear layer's three GEMMs; None leaves an operand unquantized.

    `activations` is the type that enters and leaves the layer; `products` the type that carries
    operands into the matrix unit. Quantized operands have the same values in both types, so
    `products` decides speed and order of summation only. `delayed_scaling` is used only where an
    operand is delayed. A `watched` layer also returns the statistics of its quantization, and a
    `compared` one those of its weight's gradient; each is compiled as a separate program, so that
    other steps do not pay for it.
    """

    name: Recipe
    activations: Literal["bfloat16", "float32"] = "bfloat16"
    products: Literal["bfloat16", "float32"] = "bfloat16"
    fprop_x: Quantizer | None = None
    fprop_w: Quantizer | None = None
    dgrad_g: Quantizer | None = None
    dgrad_w: Quantizer | None = None
    wgrad_x: Quantizer | None = None
    wgrad_g: Quantizer | None = None
    delayed_scaling: DelayedScaling = DEFAULT
    watched: bool = False
    compared: bool = False

    def __post_init__(self) -> None:
        rotated = [
            operand is not None and operand.rotated for operand in (self.wgrad_x, self.wgrad_g)
        ]
        if rotated[0] != rotated[1]:
            raise ValueError(
                f"wgrad rotates x and g: {rotated}, expected both or neither; the rotation cancels "
                "only in their product"
            )

    @property
    def operands(self) -> tuple[Quantizer | None, ...]:
        """The six operands, GEMM by GEMM."""
        return (self.fprop_x, self.fprop_w, self.dgrad_g, self.dgrad_w, self.wgrad_x, self.wgrad_g)

    @property
    def quantizers(self) -> tuple[Quantizer, ...]:
        """Those of the operands that are quantized."""
        return tuple(operand for operand in self.operands if operand is not None)

    @property
    def delayed(self) -> bool:
        """Whether the recipe needs the amaxes of earlier steps."""
        return any(quantizer.delayed for quantizer in self.quantizers)

    @property
    def quantized(self) -> bool:
        return bool(self.quantizers)


_FP8 = Quantizer(format=E4M3, scaling="tensor")
_GRADIENT = {"e4m3": E4M3, "e5m2": E5M2}
_BLOCKS: Mapping[str, Quantizer] = {
    "mxfp8": Quantizer(format=E4M3, scaling="mx", block=32),
    "fp8_block": Quantizer(format=E4M3, scaling="fp8_block", block=128),
    "nvfp4": Quantizer(format=E2M1, scaling="nvfp4", block=16),
    "mxfp4": Quantizer(format=E2M1, scaling="mx", block=32),
}


def linear_recipe(
    name: Recipe, switches: Switches = NO_SWITCHES, *, fast_bf16: bool
) -> LinearRecipe:
    """Returns the recipe of that name with its switches; raises ValueError for an unknown name.

    `fast_bf16`: this machine multiplies bfloat16 matrices natively (`Device.fast_bf16`).
    """
    products: Literal["bfloat16", "float32"] = "bfloat16" if fast_bf16 else "float32"
    plain = LinearRecipe(name=name, products=products)
    parts = features(name, switches)
    if parts is not None:
        if parts.block_scaled:
            return _blocks(plain, parts)
        return _per_tensor(plain, parts)
    if name == "f32":
        return replace(plain, activations="float32", products="float32")
    if name == "bf16":
        return plain
    raise ValueError(f"recipe is {name!r}, expected one of {', '.join(RECIPES)}")


def layer_recipe(layer: Layer, *, fast_bf16: bool) -> LinearRecipe:
    """Returns the recipe of one layer whose GEMMs may each have a recipe of their own: a GEMM's two
    operands come from its own.
    """
    fprop, dgrad, wgrad = (linear_recipe(*arithmetic, fast_bf16=fast_bf16) for arithmetic in layer)
    return replace(
        fprop,
        name=next(
            (arithmetic.recipe for arithmetic in reversed(layer) if arithmetic.recipe != "bf16"),
            "bf16",
        ),
        dgrad_g=dgrad.dgrad_g,
        dgrad_w=dgrad.dgrad_w,
        wgrad_x=wgrad.wgrad_x,
        wgrad_g=wgrad.wgrad_g,
        delayed_scaling=next(
            (recipe.delayed_scaling for recipe in (fprop, dgrad, wgrad) if recipe.delayed),
            DEFAULT,
        ),
    )


def _per_tensor(plain: LinearRecipe, parts: Features) -> LinearRecipe:
    forward = replace(
        _FP8, delayed=parts.family == "fp8_delayed", drops_nan=parts.nan == "hardware"
    )
    backward = replace(forward, format=_GRADIENT[parts.gradient_format])
    recipe = replace(
        plain,
        fprop_x=forward,
        fprop_w=forward,
        dgrad_g=backward,
        dgrad_w=forward,
        wgrad_x=forward,
        wgrad_g=backward,
    )
    if not forward.delayed:
        return recipe
    rule = DelayedScaling(
        margin=parts.margin,
        history_length=parts.amax_history_len,
        most_recent=parts.amax_compute_algo == "most_recent",
        formats=(forward.format, forward.format, backward.format),
    )
    return replace(recipe, delayed_scaling=rule)


def _blocks(plain: LinearRecipe, parts: Features) -> LinearRecipe:
    plain_data = replace(
        _BLOCKS[parts.family], block=parts.block_size, drops_nan=parts.nan == "hardware"
    )
    data = replace(
        _four_over_six(plain_data, parts, "activations"), row_scaled=parts.row_scaled_activation
    )
    weight = replace(
        _four_over_six(plain_data, parts, "weights"), two_dimensional=parts.weight_scaling == "2d"
    )
    gradient = replace(plain_data, stochastic=parts.stochastic_rounding, sr_bits=parts.sr_bits)
    if parts.gradient_format == "e5m2":
        gradient = replace(gradient, format=E5M2)
    return replace(
        plain,
        fprop_x=data,
        fprop_w=weight,
        dgrad_g=gradient,
        dgrad_w=weight,
        wgrad_x=replace(data, rotated=parts.rht),
        wgrad_g=replace(gradient, rotated=parts.rht),
    )


def _four_over_six(
    data: Quantizer, parts: Features, operands: Literal["weights", "activations"]
) -> Quantizer:
    """The quantizer with four over six if it concerns these operands."""
    if parts.nvfp4_4over6 not in (operands, ALL_OPERANDS):
        return data
    narrow = parts.nvfp4_4over6_e4m3_use_256 in (operands, ALL_OPERANDS)
    return replace(
        data,
        four_over_six=parts.nvfp4_4over6_err_mode,
        scale_bound=four_over_six.BOUND if narrow else E4M3.largest,
    )
