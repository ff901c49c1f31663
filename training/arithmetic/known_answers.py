"""Known answers: what Transformer Engine's reference code makes of two small matrices, and whether
this device's codes are the same.

What it answers: may the arithmetic on this device be trusted? A compiler or a device that divides,
rounds or fuses differently from the CPUs on which we compared with Transformer Engine would train
with other codes, and nobody would see it in the loss at once.

The matrices: 64 x 128 normal numbers, and 64 x 128 numbers of which many lie halfway between two
codes. `known_answers.npz` has them and their codes, scale bytes and amaxes; the normal ones also
after the Hadamard rotation, which needs whole rows of 64.

The assumption that can fail: two matrices stand for all. `python -m tools.vectors` compares many
more.

Source: Transformer Engine 2.20.2, pytorch/custom_recipes/reference_nvfp4.py and
reference_current_scaling.py run with torch 2.13.0, jax/quantize/quantizer.py for the MX formats,
all on a CPU. tests/data/README.md has the details.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from training.arithmetic.formats import E2M1, E4M3, E5M2
from training.arithmetic.quantize import Quantizer, quantize
from training.frozen import frozen

Array = npt.NDArray[Any]
QUANTIZERS: Mapping[str, Quantizer] = {
    "nvfp4_1d": Quantizer(format=E2M1, scaling="nvfp4", block=16),
    "nvfp4_2d": Quantizer(format=E2M1, scaling="nvfp4", block=16, two_dimensional=True),
    "nvfp4_1d_rht": Quantizer(format=E2M1, scaling="nvfp4", block=16, rotated=True),
    "mxfp8_e4m3": Quantizer(format=E4M3, scaling="mx", block=32),
    "mxfp8_e5m2": Quantizer(format=E5M2, scaling="mx", block=32),
    "fp8_cs_e4m3": Quantizer(format=E4M3, scaling="tensor"),
    "fp8_cs_e5m2": Quantizer(format=E5M2, scaling="tensor"),
}
KINDS = ("codes", "scale bytes", "tensor scales")
_FILE = Path(__file__).with_name("known_answers.npz")
# times how often the matrix is laid side by side, which changes no code
_CASES = {"normal_64x128": 1, "ties_32x64": 2}


class QuantizedCopy(NamedTuple):
    """One quantized copy of a matrix (M, K): codes (M, K) uint8, scale bytes (blocks in place of
    elements), and the tensor's scalar.

    The scalar is the amax (NVFP4) or the decode scale (FP8); None where the format has none (MX).
    """

    codes: Array
    scales: Array | None
    scalar: np.float32 | None


@frozen
class KnownAnswer:
    """The known copy of x (M, K), bfloat16 values as float32, in one format along one axis."""

    format: str
    axis: int
    x: Array
    copy: QuantizedCopy


@frozen
class CopyDifference:
    """How many numbers of each kind (KINDS) were compared, and how many of them differ."""

    compared: Counter[str] = field(default_factory=Counter)
    differing: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: CopyDifference) -> CopyDifference:
        return CopyDifference(
            compared=self.compared + other.compared, differing=self.differing + other.differing
        )

    def __bool__(self) -> bool:
        return self.differing.total() > 0


@functools.cache
def answers() -> tuple[KnownAnswer, ...]:
    """Every known answer."""
    with np.load(_FILE) as archive:
        arrays = dict(archive)
    return tuple(
        _answer(arrays, case, name, axis)
        for case in _CASES
        for name in QUANTIZERS
        for axis in (1, 0)
        if _has(arrays, case, name, axis)
    )


def difference(answer: KnownAnswer, copy: QuantizedCopy) -> CopyDifference:
    """Counts what differs between a copy and the known one. The sign of an FP4 zero is free; a copy
    without a scalar has none compared.
    """
    reference = answer.copy
    total = CopyDifference()
    codes = _unsigned_zero(answer, reference.codes), _unsigned_zero(answer, copy.codes)
    scalars = (None if copy.scalar is None else reference.scalar), copy.scalar
    for kind, (expected, found) in zip(
        KINDS, (codes, (reference.scales, copy.scales), scalars), strict=True
    ):
        if expected is not None:
            total.compared[kind] = expected.size
            total.differing[kind] = _differing(expected, found)
    return total


def differing_formats() -> dict[str, str]:
    """The formats whose codes on this device are not the known ones, with how many differ in words;
    empty where all is well.
    """
    totals = dict.fromkeys(QUANTIZERS, CopyDifference())
    for answer, made in zip(
        answers(), _quantized([jnp.asarray(answer.x) for answer in answers()]), strict=True
    ):
        totals[answer.format] += difference(answer, copy_of(made, QUANTIZERS[answer.format]))
    return {name: words(total) for name, total in totals.items() if total}


def words(total: CopyDifference) -> str:
    """A difference in words, such as "12 of 8,192 codes and 3 of 512 scale bytes differ"."""
    if total:
        wrong = [
            f"{total.differing[kind]:,} of {total.compared[kind]:,} {kind}"
            for kind in KINDS
            if total.differing[kind]
        ]
        return f"{' and '.join(wrong)} differ"
    return f"{', '.join(f'{total.compared[kind]:,} {kind}' for kind in KINDS)}, 0 differ"


def format_of(quantizer: Quantizer) -> str | None:
    """The name of the format that a quantizer rounds to, whatever its rounding and the age of its
    scale; None if no answer is known.

    A variant stands for the format that it varies, whose divisions and roundings it shares: a scale
    per row, four over six, NaN dropped from the amax, and for FP8 in blocks of 128 those of 32.
    """
    plain = replace(
        quantizer,
        stochastic=False,
        sr_bits=16,
        delayed=False,
        row_scaled=False,
        four_over_six=None,
        scale_bound=E4M3.largest,
        drops_nan=False,
    )
    if plain.scaling == "fp8_block":
        plain = replace(plain, scaling="mx", block=32, two_dimensional=False)
    return next((name for name, quantizer in QUANTIZERS.items() if quantizer == plain), None)


def formats_of(quantizers: Iterable[Quantizer]) -> set[str]:
    """The formats of a recipe's quantizers, as far as answers are known."""
    return {name for quantizer in quantizers if (name := format_of(quantizer)) is not None}


def copy_of(made: Any, quantizer: Quantizer) -> QuantizedCopy:
    """What `quantize` returned, as a copy to compare."""
    scalar = {"nvfp4": made.amax, "tensor": made.scale_inv, "mx": None}[quantizer.scaling]
    scales = None if quantizer.scaling == "tensor" else np.asarray(made.scales)
    return QuantizedCopy(
        np.asarray(made.codes), scales, None if scalar is None else np.float32(scalar)
    )


@jax.jit
def _quantized(matrices: list[jax.Array]) -> list[Any]:
    """All copies in one program. The matrices are arguments: XLA would compute with constants on
    the host, not on the device.
    """
    pairs = zip(answers(), matrices, strict=True)
    return [
        quantize(x.astype(jnp.bfloat16), answer.axis, QUANTIZERS[answer.format])
        for answer, x in pairs
    ]


def _has(arrays: Mapping[str, Array], case: str, name: str, axis: int) -> bool:
    return (
        axis == 1 and f"{case}/{name}/codes" in arrays
    ) or f"{case}/{name}/{_side(axis)}_codes" in arrays


def _side(axis: int) -> str:
    return "row" if axis == 1 else "col"


def _answer(arrays: Mapping[str, Array], case: str, name: str, axis: int) -> KnownAnswer:
    """An answer from the layout of a vector file (`tools.vectors`): NVFP4 columns are transposed,
    2D scales repeated for every row.
    """
    prefix, times = f"{case}/{name}/", _CASES[case]
    x = np.tile((arrays[f"{case}/x"].astype(np.uint32) << 16).view(np.float32), (times, times))
    if QUANTIZERS[name].scaling == "tensor":
        copy = QuantizedCopy(
            np.tile(arrays[prefix + "codes"], (times, times)),
            None,
            np.float32(arrays[prefix + "scale_inv"][0]),
        )
        return KnownAnswer(format=name, axis=axis, x=x, copy=copy)
    is_nvfp4 = QUANTIZERS[name].scaling == "nvfp4"
    prefix += _side(axis)
    codes, scales = (
        arrays[f"{prefix}_codes"],
        arrays[f"{prefix}_scale_{'e4m3' if is_nvfp4 else 'e8m0'}"],
    )
    if QUANTIZERS[name].two_dimensional:
        scales = scales[:: QUANTIZERS[name].block]
    if is_nvfp4 and axis == 0:
        codes, scales = codes.T, scales.T
    scalar = np.float32(arrays[f"{prefix}_amax"][0]) if is_nvfp4 else None
    return KnownAnswer(
        format=name,
        axis=axis,
        x=x,
        copy=QuantizedCopy(np.tile(codes, (times, times)), np.tile(scales, (times, times)), scalar),
    )


def _differing(expected: Array | np.float32, other: Array | np.float32 | None) -> int:
    if other is None or other.shape != expected.shape:
        return expected.size
    return int(np.sum(expected != other))


def _unsigned_zero(answer: KnownAnswer, codes: Array) -> Array:
    if QUANTIZERS[answer.format].scaling == "nvfp4":
        return np.where(codes == 8, 0, codes)
    return codes
