"""Ablations by named switches: removes, adds or changes one part of a recipe.

What it answers: which arithmetic is "nvfp4 without rotation, 1D weight scales, blocks of 32", and does Transformer Engine have it?

    stochastic_rounding   gradients are rounded at random instead of to the nearest value (both copies, dgrad's and wgrad's)
    rht                   both operands of wgrad are rotated in groups of sixteen tokens (training.arithmetic.hadamard)
    weight_scaling        1d: a weight has its scales along the contracted axis, so fprop and dgrad see two quantizations of it;
                          2d: one scale for a square of block_size x block_size, the same in both
    block_size            how many numbers share a scale

A switch that is not set keeps the recipe's value. The named variants are short names for such settings: nvfp4_no_rht is
nvfp4 with rht: false. Standard library only, because the web process imports this module.

The assumption that can fail: that a recipe's parts act independently. They interact: without rotation, an outlier depends more
on the finer scale of a smaller block. An ablation measures a part in combination with the others, not alone.

Source: Transformer Engine 2.20.2, NVFP4BlockScaling (disable_rht, disable_stochastic_rounding, disable_2d_quantization) and
jax/quantize/helper.py for what it refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

from training.rules import SpecError, check_recipe

Rounding = Literal["stochastic", "nearest"]
WeightScaling = Literal["1d", "2d"]
BLOCK_SIZES = (16, 32, 64, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """An arm's changes to its recipe; None keeps the recipe's value."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    stochastic_rounding: bool | None = None
    rht: bool | None = None
    weight_scaling: WeightScaling | None = None
    block_size: int | None = None

    def __post_init__(self) -> None:
        if self.block_size is not None and self.block_size not in BLOCK_SIZES:
            raise SpecError("switches.block_size", self.block_size, f"one of {', '.join(map(str, BLOCK_SIZES))}")
        if self.weight_scaling not in (None, "1d", "2d"):
            raise SpecError("switches.weight_scaling", self.weight_scaling, "1d or 2d")

    def given(self) -> dict[str, bool | str | int]:
        """The switches that are set, by name."""
        return {part.name: value for part in fields(self) if (value := getattr(self, part.name)) is not None}


NO_SWITCHES = Switches()


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """A block-scaled recipe, resolved: its family and every switchable part."""

    family: Literal["mxfp8", "nvfp4", "mxfp4"]
    stochastic_rounding: bool = False
    rht: bool = False
    weight_scaling: WeightScaling = "1d"
    block_size: int = 32


_NVFP4 = Features(family="nvfp4", stochastic_rounding=True, rht=True, weight_scaling="2d", block_size=16)
_MXFP4 = Features(family="mxfp4")
_FEATURES: Mapping[str, Features] = {
    "mxfp8": Features(family="mxfp8"),
    "nvfp4": _NVFP4,
    "nvfp4_no_rht": replace(_NVFP4, rht=False),
    "nvfp4_no_sr": replace(_NVFP4, stochastic_rounding=False),
    "nvfp4_1d_weights": replace(_NVFP4, weight_scaling="1d"),
    "mxfp4": _MXFP4,
    "mxfp4_rht_sr": replace(_MXFP4, rht=True, stochastic_rounding=True),
}


def features(recipe: str, switches: Switches = NO_SWITCHES) -> Features | None:
    """The features of a recipe with these switches; None for a recipe without block scales, which has no switches.

    Raises SpecError if a switch is set on such a recipe.
    """
    given: dict[str, Any] = switches.given()
    resolved = _FEATURES.get(recipe)
    if resolved is None and given:
        name, value = next(iter(given.items()))
        raise SpecError(f"switches.{name}", value, f"no switch on recipe {recipe}", f"switches change {', '.join(_FEATURES)}")
    return replace(resolved, **given) if resolved is not None else None


def rounds_stochastically(recipe: str, switches: Switches = NO_SWITCHES) -> bool:
    """Whether a run of this recipe with these switches rounds stochastically; its run floor is then wider.

    Stochastic rounding applies to both quantized copies of the output gradient (for dgrad and wgrad) in every quantized linear layer;
    activations and weights are always rounded to the nearest value. This does not depend on the engine.

    Raises SpecError for an unknown recipe, and for a switch that the recipe does not have.
    """
    check_recipe("recipe", recipe)
    resolved = features(recipe, switches)
    return resolved is not None and resolved.stochastic_rounding


def rounding(recipe: str, switches: Switches = NO_SWITCHES) -> Rounding:
    """How the recipe rounds gradients, as a run records it."""
    return "stochastic" if rounds_stochastically(recipe, switches) else "nearest"


def not_te_parity(recipe: str, switches: Switches = NO_SWITCHES) -> str | None:
    """Why Transformer Engine does not have this arithmetic, or None if its JAX path has it."""
    resolved = features(recipe, switches)
    if resolved is None:
        return None
    if resolved.family == "mxfp4":
        return "Transformer Engine has no MXFP4 recipe"
    block = _FEATURES[resolved.family].block_size
    if resolved.block_size != block:
        return f"Transformer Engine scales {resolved.family.upper()} in blocks of {block}, not of {resolved.block_size}"
    if resolved.family == "mxfp8":
        if resolved != _FEATURES["mxfp8"]:
            return "Transformer Engine's MXFP8 for JAX has neither rotation nor stochastic rounding nor 2D scales"
    elif resolved.rht and resolved.weight_scaling == "1d":
        return "Transformer Engine refuses 1D weight scales together with the Hadamard rotation"
    return None


def check_engine(engine: str, recipe: str, switches: Switches) -> None:
    """Raises SpecError if the engine cannot train the recipe with these switches."""
    if engine not in ("transformer_engine", "maxtext") or not switches.given():
        return
    reason = not_te_parity(recipe, switches)
    if reason is None and engine == "maxtext":
        reason = "MaxText selects a recipe by name and has no switches; use a recipe such as nvfp4_no_rht"
    if reason is not None:
        raise SpecError("switches", switches.given(), f"switches that engine {engine} has", f"{reason}; or use engine: emulated")


def label(recipe: str, switches: Switches = NO_SWITCHES) -> str:
    """The recipe's name, or with switches that of its family and what differs from it, such as "nvfp4+no_rht+block_size=32"."""
    resolved = features(recipe, switches)
    if resolved is None or not switches.given():
        return recipe
    plain = _FEATURES[resolved.family]
    parts: list[str] = [resolved.family]
    if resolved.stochastic_rounding != plain.stochastic_rounding:
        parts.append("stochastic_rounding" if resolved.stochastic_rounding else "no_sr")
    if resolved.rht != plain.rht:
        parts.append("rht" if resolved.rht else "no_rht")
    parts += [
        f"{name}={getattr(resolved, name)}" for name in ("weight_scaling", "block_size") if getattr(resolved, name) != getattr(plain, name)
    ]
    return "+".join(parts)
