"""What the preflight examines: the quantizers and the linear layer of one engine on this device,
behind one interface.

An engine gives, for each operand of a linear layer, its two quantized copies (along rows and
along columns), and the layer's three products. `EmulatedKernels` is our own arithmetic, compiled
for this device; `TransformerEngineKernels` calls the kernels of the installed package as engine
transformer_engine does. Tests put kernels with a planted fault in their place.
"""

from functools import partial
from typing import Any, Literal, Protocol, get_args

import jax
import jax.numpy as jnp
import numpy as np

from training.arithmetic import linear as emulated
from training.arithmetic import random_bits
from training.arithmetic.known_answers import Array, QuantizedCopy, copy_of
from training.arithmetic.linear import quiet_channel
from training.arithmetic.quantize import Quantizer, quantize, tensor_scale
from training.arithmetic.recipes import LinearRecipe
from training.device import Device, can_run
from training.engines import transformer_engine

OperandName = Literal["x", "kernel", "grad"]
Matrices = tuple[Array, Array, Array]

ENGINES = ("emulated", "transformer_engine")
_NUMBERS: dict[OperandName, int] = {"x": 0, "kernel": 1, "grad": 2}


class Kernels(Protocol):
    """The arithmetic of one engine on this device. Matrices are float32 arrays of bfloat16
    values.
    """

    name: str

    def refusal(self, recipe: LinearRecipe) -> str | None:
        """Why this engine cannot run a recipe here, or None."""

    def copies(
        self, recipe: LinearRecipe, operand: OperandName, x_MK: Array, seed: int
    ) -> tuple[QuantizedCopy, QuantizedCopy]:
        """The copies of an operand along its rows and along its columns; seed: for stochastic
        rounding.
        """

    def layer(
        self, recipe: LinearRecipe, x_MK: Array, w_KN: Array, g_MN: Array, seed: int
    ) -> tuple[Array, Array, Array]:
        """Returns y (M, N), dx (M, K) and dw (K, N) as float32 of y = x w with the output gradient
        g.
        """

    def delayed(
        self, recipe: LinearRecipe, matrices: Matrices, scale: Array
    ) -> tuple[Array, Array, Array, Array]:
        """`layer` of x, w and g with these encode scales (3,), and the amaxes (3,) that it
        reports.
        """


def quantizers(recipe: LinearRecipe, operand: OperandName) -> tuple[Quantizer, Quantizer]:
    """The quantizers of an operand's copies along rows and along columns; ValueError if one is not
    quantized.
    """
    pairs = {
        "x": (recipe.fprop_x, recipe.wgrad_x),
        "kernel": (recipe.dgrad_w, recipe.fprop_w),
        "grad": (recipe.dgrad_g, recipe.wgrad_g),
    }
    rows, columns = pairs[operand]
    if rows is None or columns is None:
        raise ValueError(
            f"recipe {recipe.name} leaves {operand} unquantized, expected one that quantizes it"
        )
    return rows, columns


class EmulatedKernels:
    """Our own arithmetic on this process's device."""

    name = "emulated"

    def refusal(self, recipe: LinearRecipe) -> str | None:  # noqa: ARG002
        """None: the emulation runs everything."""
        return None

    def copies(
        self, recipe: LinearRecipe, operand: OperandName, x_MK: Array, seed: int
    ) -> tuple[QuantizedCopy, QuantizedCopy]:
        """See `Kernels`. The two copies draw different random numbers."""
        rows, columns = quantizers(recipe, operand)
        x = jnp.asarray(x_MK, jnp.bfloat16)
        scale = _scale(rows, x_MK) if recipe.delayed else None
        along_rows, along_columns = (
            _quantize(x, axis, side, random_bits.key(2 * seed + 1 - axis), scale)
            for axis, side in ((1, rows), (0, columns))
        )
        return copy_of(along_rows, rows), copy_of(along_columns, columns)

    def layer(
        self, recipe: LinearRecipe, x_MK: Array, w_KN: Array, g_MN: Array, seed: int
    ) -> tuple[Array, Array, Array]:
        """See `Kernels`."""
        return _products(emulated.linear, recipe, (x_MK, w_KN, g_MN), seed)[:3]

    def delayed(
        self, recipe: LinearRecipe, matrices: Matrices, scale: Array
    ) -> tuple[Array, Array, Array, Array]:
        """See `Kernels`."""
        return _products(emulated.linear, recipe, matrices, 0, scale)


class TransformerEngineKernels:
    """The kernels of the installed Transformer Engine, through its JAX interface. **Not yet run on
    a GPU.**
    """

    name = "transformer_engine"

    def __init__(self, device: Device) -> None:
        self._device = device

    def refusal(self, recipe: LinearRecipe) -> str | None:
        """Why this process's Transformer Engine cannot run a recipe on its GPU, or None."""
        able, reason = can_run("transformer_engine", recipe.name, self._device)
        return None if able else reason

    def copies(
        self, recipe: LinearRecipe, operand: OperandName, x_MK: Array, seed: int
    ) -> tuple[QuantizedCopy, QuantizedCopy]:
        """See `Kernels`."""
        sides = quantizers(recipe, operand)
        with transformer_engine.kernels():
            scale = _scale(sides[0], x_MK) if recipe.delayed else jnp.float32(1)
            made = transformer_engine.quantized(
                recipe,
                _NUMBERS[operand],
                jnp.asarray(x_MK, jnp.bfloat16),
                random_bits.key(seed),
                scale,
            )
        # With one scale for the whole tensor the columns' copy is the rows' codes, and there may be
        # only one.
        along_rows, along_columns = (
            getattr(made, name, made) for name in ("rowwise_tensor", "colwise_tensor")
        )
        return _copy(along_rows, sides[0], x_MK.shape), _copy(along_columns, sides[1], x_MK.shape)

    def layer(
        self, recipe: LinearRecipe, x_MK: Array, w_KN: Array, g_MN: Array, seed: int
    ) -> tuple[Array, Array, Array]:
        """See `Kernels`."""
        with transformer_engine.kernels():
            return _products(transformer_engine.linear, recipe, (x_MK, w_KN, g_MN), seed)[:3]

    def delayed(
        self, recipe: LinearRecipe, matrices: Matrices, scale: Array
    ) -> tuple[Array, Array, Array, Array]:
        """See `Kernels`."""
        with transformer_engine.kernels():
            return _products(transformer_engine.linear, recipe, matrices, 0, scale)


_quantize = jax.jit(quantize, static_argnums=(1, 2))


@partial(jax.jit, static_argnums=(0, 1))
def _compiled(
    layer: Any,
    recipe: LinearRecipe,
    matrices: tuple[jax.Array, ...],
    key: random_bits.Key,
    scale: jax.Array,
) -> tuple[jax.Array, ...]:
    x, w, g = matrices
    y, pull = jax.vjp(
        lambda x, w, channel: layer(recipe, x, w, key, channel),
        x,
        w,
        quiet_channel()._replace(scale=scale),
    )
    dx, dw, measured = pull(g)
    return y, dx, dw, measured.report[:3]


def _products(
    layer: Any, recipe: LinearRecipe, matrices: Matrices, seed: int, scale: Array | None = None
) -> tuple[Array, Array, Array, Array]:
    """y, dx, dw and the amaxes of a layer; under delayed scaling with the scales that follow from
    the matrices, unless there are others.
    """
    scale = scales(recipe, matrices) if scale is None else scale
    arguments = tuple(jnp.asarray(part, jnp.bfloat16) for part in matrices)
    made = _compiled(layer, recipe, arguments, random_bits.key(seed), jnp.asarray(scale))
    y, dx, dw, amaxes = (np.asarray(part, np.float32) for part in made)
    return y, dx, dw, amaxes


def scales(recipe: LinearRecipe, matrices: Matrices) -> Array:
    """The encode scales (3,) that delayed scaling has if x, w and g never change; 1 without it."""
    if not recipe.delayed:
        return np.ones(3, np.float32)
    pairs = zip(get_args(OperandName), matrices, strict=True)
    return np.asarray(
        [_scale(quantizers(recipe, operand)[0], matrix) for operand, matrix in pairs], np.float32
    )


def _scale(quantizer: Quantizer, matrix: Array) -> jax.Array:
    return tensor_scale(jnp.float32(np.max(np.abs(matrix))), quantizer.format)


def _copy(tensor: Any, quantizer: Quantizer, shape: tuple[int, ...]) -> QuantizedCopy:
    """A copy of Transformer Engine's in our layout: "T" data is transposed back, and 2D scales,
    which it repeats, are kept once.
    """
    codes, scales = (
        np.asarray(part).view(np.uint8)
        if np.asarray(part).dtype.itemsize == 1
        else np.asarray(part)
        for part in (tensor.data, tensor.scale_inv)
    )
    if quantizer.scaling == "tensor":
        return QuantizedCopy(
            codes.T if tensor.data_layout == "T" else codes, None, np.float32(scales.ravel()[0])
        )
    if tensor.data_layout == "T":
        codes, scales = codes.T, scales.T
    if quantizer.two_dimensional:
        rows, columns = (size // quantizer.block for size in shape)
        scales = scales[:: scales.shape[0] // rows, :: scales.shape[1] // columns]
    scalar = (
        np.float32(np.asarray(tensor.amax).ravel()[0]) if quantizer.scaling == "nvfp4" else None
    )
    return QuantizedCopy(codes, scales, scalar)
