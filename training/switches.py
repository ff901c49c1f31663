"""Ablations by named switches: removes, adds or changes one part of a recipe.

What it answers: which arithmetic is "nvfp4 without rotation, 1D weight scales, blocks of 32", and
does Transformer Engine have it?

    stochastic_rounding   gradients are rounded at random instead of to the nearest value (both
                          copies, dgrad's and wgrad's)
    rht                   both operands of wgrad are rotated in groups of sixteen tokens
                          by training.arithmetic.quantize
    weight_scaling        1d: a weight has its scales along the contracted axis, so fprop and
                          dgrad see two quantizations of it;
                          2d: one scale for a square of block_size x block_size, the same in both
    block_size            how many numbers share a scale
    gradient_format       FP8 format of the gradients: e4m3 or e5m2 (Transformer Engine's
                          fp8_format E4M3 or HYBRID)
    margin, amax_history_len, amax_compute_algo
                          delayed scaling: a scale is divided by 2^margin, and follows from the
                          largest (max) or the last (most_recent)
                          of so many amaxes
    row_scaled_activation x has a float32 scale for each row (in wgrad for each column) instead of
    one for the tensor
    nvfp4_4over6          weights, activations, all: their blocks choose whether their largest
                          value becomes 6 or 4
                          (training.arithmetic.quantize); ..._e4m3_use_256 lists those whose
                          scales are bound by 256, not 448;
                          ..._err_mode is the error that decides, mae or mse
    sr_bits               random bits of stochastic rounding; 8 cuts as Transformer Engine's
                          software rounder does, 16 is unbiased
    nan                   propagate: one NaN makes the scale NaN or the block 0; hardware: amax
                          ignores NaN, and FP4 turns it into +6

A switch that is not set keeps the recipe's value. The named variants are short names for such
settings: nvfp4_no_rht is nvfp4 with rht: false. Standard library only, because the web process
imports this module.

The assumption that can fail: that a recipe's parts act independently. They interact: without
rotation, an outlier depends more on the finer scale of a smaller block. An ablation measures a
part in combination with the others, not alone.

Source: Transformer Engine 2.20.2, common/recipe/__init__.py (disable_rht,
disable_stochastic_rounding, disable_2d_quantization; the switches of delayed scaling, row scaling
and four over six have its names), jax/quantize/helper.py and pytorch/quantization.py for what it
refuses.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, Literal, get_args, get_type_hints

from training.frozen import frozen
from training.rules import NOT_TE_PARITY, SpecError, Strict, check_recipe, is_stated

Rounding = Literal["stochastic", "nearest"]
WeightScaling = Literal["1d", "2d"]
GradientFormat = Literal["e4m3", "e5m2"]
AmaxAlgorithm = Literal["max", "most_recent"]
Operands = Literal["none", "weights", "activations", "all"]
ErrorMeasure = Literal["mae", "mse"]
SrBits = Literal[8, 16]
Nan = Literal["propagate", "hardware"]
ALL_OPERANDS: Operands = "all"
BLOCK_SIZES = (16, 32, 64, 128)
_LARGEST_MARGIN, _LONGEST_HISTORY = 16, 65536


@frozen
class Switches(Strict):
    """An arm's changes to its recipe; None keeps the recipe's value."""

    stochastic_rounding: bool | None = None
    rht: bool | None = None
    weight_scaling: WeightScaling | None = None
    block_size: int | None = None
    gradient_format: GradientFormat | None = None
    margin: int | None = None
    amax_history_len: int | None = None
    amax_compute_algo: AmaxAlgorithm | None = None
    row_scaled_activation: bool | None = None
    nvfp4_4over6: Operands | None = None
    nvfp4_4over6_e4m3_use_256: Operands | None = None
    nvfp4_4over6_err_mode: ErrorMeasure | None = None
    sr_bits: SrBits | None = None
    nan: Nan | None = None

    def __post_init__(self) -> None:
        for name, choices in SWITCH_CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise SpecError(f"switches.{name}", value, f"one of {', '.join(map(str, choices))}")
        for name, (least, most) in SWITCH_RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise SpecError(f"switches.{name}", value, f"a whole number from {least} to {most}")

    def stated(self) -> dict[str, bool | str | int]:
        """The switches that are set, by name."""
        return {
            part.name: value
            for part in fields(self)
            if (value := getattr(self, part.name)) is not None
        }

    def document(self) -> dict[str, bool | str | int | None]:
        """The switches as a JSON-able dict; a later one only if it is set, so that the hash of a
        job is that of earlier versions.
        """
        return {name: getattr(self, name) for name in _FIRST_SWITCHES} | self.stated()


_FIRST_SWITCHES = ("stochastic_rounding", "rht", "weight_scaling", "block_size")
_HINTS = get_type_hints(Switches)
# The values of every switch that is a Literal; of `bool | None` and `int | None` the inner get_args
# has none.
SWITCH_CHOICES: Mapping[str, tuple[Any, ...]] = {"block_size": BLOCK_SIZES} | {
    part.name: choices
    for part in fields(Switches)
    if (choices := get_args(get_args(_HINTS[part.name])[0]))
}
SWITCH_RANGES: Mapping[str, tuple[int, int]] = {
    "margin": (0, _LARGEST_MARGIN),
    "amax_history_len": (1, _LONGEST_HISTORY),
}
NO_SWITCHES = Switches()


@frozen
class Features:
    """A quantized recipe, resolved: its family and every switchable part. A part that the family
    does not have is at its default.
    """

    family: Literal["fp8_current", "fp8_delayed", "mxfp8", "fp8_block", "nvfp4", "mxfp4"]
    stochastic_rounding: bool = False
    rht: bool = False
    weight_scaling: WeightScaling = "1d"
    block_size: int = 32
    gradient_format: GradientFormat = "e4m3"
    margin: int = 0
    amax_history_len: int = 1024
    amax_compute_algo: AmaxAlgorithm = "max"
    row_scaled_activation: bool = False
    nvfp4_4over6: Operands = "none"
    nvfp4_4over6_e4m3_use_256: Operands = "all"
    nvfp4_4over6_err_mode: ErrorMeasure = "mae"
    sr_bits: SrBits = 16
    nan: Nan = "propagate"

    @property
    def block_scaled(self) -> bool:
        """Whether blocks have scales; otherwise a tensor has one."""
        return self.block_size > 1


_NVFP4 = Features(
    family="nvfp4", stochastic_rounding=True, rht=True, weight_scaling="2d", block_size=16
)
_MXFP4 = Features(family="mxfp4")
_FEATURES: Mapping[str, Features] = {
    "fp8_current": Features(family="fp8_current", block_size=1, gradient_format="e5m2"),
    "fp8_delayed": Features(family="fp8_delayed", block_size=1, gradient_format="e5m2"),
    "mxfp8": Features(family="mxfp8"),
    "fp8_block": Features(family="fp8_block", weight_scaling="2d", block_size=128),
    "nvfp4": _NVFP4,
    "nvfp4_no_rht": replace(_NVFP4, rht=False),
    "nvfp4_no_sr": replace(_NVFP4, stochastic_rounding=False),
    "nvfp4_no_rht_no_sr": replace(_NVFP4, rht=False, stochastic_rounding=False),
    "nvfp4_1d_weights": replace(_NVFP4, weight_scaling="1d"),
    "mxfp4": _MXFP4,
    "mxfp4_rht_sr": replace(_MXFP4, rht=True, stochastic_rounding=True),
}
_BLOCK_SWITCHES = ("stochastic_rounding", "rht", "weight_scaling", "block_size", "sr_bits", "nan")
_4OVER6 = ("nvfp4_4over6", "nvfp4_4over6_e4m3_use_256", "nvfp4_4over6_err_mode")
_FAMILY_SWITCHES: Mapping[str, tuple[str, ...]] = {
    "fp8_current": ("gradient_format", "nan"),
    "fp8_delayed": ("gradient_format", "margin", "amax_history_len", "amax_compute_algo", "nan"),
    "mxfp8": (*_BLOCK_SWITCHES, "gradient_format"),
    "fp8_block": (*_BLOCK_SWITCHES, "gradient_format"),
    "nvfp4": (*_BLOCK_SWITCHES, "row_scaled_activation", *_4OVER6),
    "mxfp4": _BLOCK_SWITCHES,
}


def switches_of(recipe: str) -> tuple[str, ...]:
    """The names of the switches that a recipe has; none of one that is not quantized."""
    plain = _FEATURES.get(recipe)
    if not plain:
        return ()
    return _FAMILY_SWITCHES[plain.family]


@lru_cache(1000)
def features(recipe: str, switches: Switches = NO_SWITCHES) -> Features | None:
    """The features of a quantized recipe with these switches; None for an unquantized one, which
    has no switches.

    Raises SpecError if a switch is set that the recipe does not have, or that changes nothing next
    to the others.
    """
    values: dict[str, Any] = switches.stated()
    plain, allowed = _FEATURES.get(recipe), switches_of(recipe)
    for name, value in values.items():
        if name not in allowed:
            expected, remedy = (
                f"no switch on recipe {recipe}",
                f"switches change {', '.join(_FEATURES)}",
            )
            if allowed:
                expected, remedy = (
                    f"nothing on recipe {recipe}",
                    f"its switches are {', '.join(allowed)}",
                )
            raise SpecError(f"switches.{name}", value, expected, remedy)
    if plain is None:
        return None
    resolved = replace(plain, **values)
    _check_together(values, resolved)
    return resolved


def _check_together(values: Mapping[str, Any], resolved: Features) -> None:
    if "sr_bits" in values and not resolved.stochastic_rounding:
        raise SpecError(
            "switches.sr_bits",
            values["sr_bits"],
            "nothing without stochastic rounding",
            "set stochastic_rounding: true as well",
        )
    if resolved.nvfp4_4over6 == "none":
        for name in _4OVER6[1:]:
            if name in values:
                raise SpecError(
                    f"switches.{name}",
                    values[name],
                    "nothing without nvfp4_4over6",
                    "set nvfp4_4over6 as well",
                )
    elif resolved.nvfp4_4over6 != ALL_OPERANDS and resolved.nvfp4_4over6_e4m3_use_256 not in (
        "none",
        ALL_OPERANDS,
    ):
        raise SpecError(
            "switches.nvfp4_4over6_e4m3_use_256",
            resolved.nvfp4_4over6_e4m3_use_256,
            f"none or all with nvfp4_4over6: {resolved.nvfp4_4over6}",
            "it concerns those tensors alone",
        )
    if resolved.nvfp4_4over6 != "none" and resolved.block_size != _NVFP4.block_size:
        raise SpecError(
            "switches.block_size",
            resolved.block_size,
            f"{_NVFP4.block_size} with nvfp4_4over6",
            "leave it out",
        )


def named_operands(operands: object) -> frozenset[str]:
    """The operands that a value of `nvfp4_4over6`, or of `nvfp4_4over6_e4m3_use_256`, names."""
    if operands == ALL_OPERANDS:
        return frozenset({"weights", "activations"})
    return frozenset({str(operands)} - {"none"})


def rounds_stochastically(recipe: str, switches: Switches = NO_SWITCHES) -> bool:
    """Whether a run of this recipe with these switches rounds stochastically; its run-to-run noise
    is then wider.

    Stochastic rounding applies to both quantized copies of the output gradient (for dgrad and
    wgrad) in every quantized linear layer; activations and weights are always rounded to the
    nearest value. This does not depend on the engine.

    Raises SpecError for an unknown recipe, and for a switch that the recipe does not have.
    """
    check_recipe("recipe", recipe)
    resolved = features(recipe, switches)
    return resolved is not None and resolved.stochastic_rounding


def not_te_parity(recipe: str, switches: Switches = NO_SWITCHES) -> str | None:
    """Why Transformer Engine does not have this arithmetic for JAX, with the nearest that it has;
    None if it has it.
    """
    resolved = features(recipe, switches)
    if resolved is None:
        return None
    if resolved.family in ("mxfp4", "fp8_block"):
        return NOT_TE_PARITY[resolved.family]
    if resolved.family in ("fp8_current", "fp8_delayed"):
        return None
    plain = _FEATURES[resolved.family]
    if resolved.block_size != plain.block_size:
        return (
            f"Transformer Engine scales {resolved.family.upper()} in blocks of {plain.block_size}, "
            f"not of {resolved.block_size}"
        )
    if resolved.family == "mxfp8":
        if (
            replace(
                resolved,
                gradient_format=plain.gradient_format,
                sr_bits=plain.sr_bits,
                nan=plain.nan,
            )
            != plain
        ):
            return (
                "Transformer Engine's MXFP8 for JAX has neither rotation nor stochastic rounding "
                "nor 2D scales"
            )
        return None
    return _nvfp4_only_here(resolved)


def _nvfp4_only_here(resolved: Features) -> str | None:
    if resolved.nvfp4_4over6 in ("activations", ALL_OPERANDS) and resolved.rht:
        return (
            "Transformer Engine refuses nvfp4_4over6 on activations together with the Hadamard "
            "rotation, and has it for PyTorch only"
        )
    for name in ("row_scaled_activation", "nvfp4_4over6"):
        if getattr(resolved, name) != getattr(_NVFP4, name):
            return (
                f"Transformer Engine has {name} for PyTorch only; the nearest that it has for JAX "
                "is nvfp4 without this switch"
            )
    if resolved.rht and resolved.weight_scaling == "1d":
        return "Transformer Engine refuses 1D weight scales together with the Hadamard rotation"
    return None


def check_engine(engine: str, recipe: str, switches: Switches) -> None:
    """Raises SpecError if the engine cannot train the recipe with these switches."""
    if engine not in ("transformer_engine", "maxtext") or not switches.stated():
        return
    reason = not_te_parity(recipe, switches)
    if reason is None and engine == "maxtext":
        reason = (
            "MaxText selects a recipe by name and has no switches; use a recipe such as "
            "nvfp4_no_rht"
        )
    reason = reason or kernel_refusal(switches)
    if reason is not None:
        raise SpecError(
            "switches",
            switches.stated(),
            f"switches that engine {engine} has",
            f"{reason}; or use engine: emulated",
        )


def kernel_refusal(switches: Switches) -> str | None:
    """Why Transformer Engine's kernels cannot follow these switches, whatever the recipe; None if
    they can.
    """
    if switches.sr_bits is not None:
        return (
            "Transformer Engine's kernels round with an instruction of the GPU; leave sr_bits out"
        )
    if switches.nan == "propagate":
        return (
            "its kernels ignore NaN when they compute an amax; use nan: hardware, or leave it out"
        )
    return None


def label(recipe: str, switches: Switches = NO_SWITCHES) -> str:
    """The recipe's name, or with switches that of its family and what differs from it, such as
    "nvfp4+no_rht+block_size=32".
    """
    if is_stated(recipe):
        return recipe
    resolved = features(recipe, switches)
    if resolved is None or not switches.stated():
        return recipe
    plain = _FEATURES[resolved.family]
    parts: list[str] = [resolved.family]
    if resolved.stochastic_rounding != plain.stochastic_rounding:
        parts.append("stochastic_rounding" if resolved.stochastic_rounding else "no_sr")
    if resolved.rht != plain.rht:
        parts.append("rht" if resolved.rht else "no_rht")
    if resolved.row_scaled_activation:
        parts.append("row_scaled_activation")
    parts += [
        f"{name}={getattr(resolved, name)}"
        for name in _NAMED_VALUES
        if getattr(resolved, name) != getattr(plain, name)
    ]
    return "+".join(parts)


_NAMED_VALUES = tuple(
    part.name
    for part in fields(Switches)
    if part.name not in ("stochastic_rounding", "rht", "row_scaled_activation")
)
