"""Compare our quantizers and our linear layer with a file of vectors that another implementation
made.

What it answers: does our emulation give the same codes, scale bytes and products as the build that
wrote this file?

    python -m tools.vectors FILE.npz [FILE.npz ...]

prints a row for every case and format and exits 0 when nothing differs, else 1 (2: the file holds
nothing to compare).

Format of a file (NumPy .npz; <case> is any name):
    <case>/x                          float32 input; treated as bfloat16 where every value is one
    <case>/<format>/row_codes         uint8, quantized along the last axis of x; col_codes of x
                                      transposed (MX, fp8_block: not transposed)
    <case>/<format>/{row,col}_scale_e4m3, _scale_e8m0, _amax   (one amax, or one for each row; 2D
      scales are repeated for every row)
    <case>/fp8_cs_{e4m3,e5m2}/{codes,scale_inv}
    delayed/<max|most_recent>/<e4m3|e5m2>/step<i>/{x,scale_before,hist_before,codes,scale_inv,scale_after,hist_after}
    x, w, g and <recipe>/{y,dx,dw}    a linear layer, forward and gradients, bfloat16 values

What may differ, and is counted apart as granted: the code of an element below 1.2e-38, which XLA on
CPUs takes for zero, and the scale of a block of such elements; the sign of an FP4 zero; an NVFP4
block scale on a
rounding tie, where (b / 6) S and b (S / 6) round apart, with the sixteen codes under it; for an
input that is no bfloat16, codes after the Hadamard rotation by one step (the order of float32 sums
shows); a dense result by one bfloat16 ulp of the largest magnitude, or two for FP8 with per-tensor
scales, whose reference rounds once before and once after the scale. A dense result is compared
twice, with products of float32 and of bfloat16 matrices; a processor without bfloat16 products
computes the second by emulation.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from parity.frozen import frozen
from training.arithmetic import delayed_scaling, formats, four_over_six, known_answers, random_bits
from training.arithmetic.formats import E2M1, E4M3, E5M2
from training.arithmetic.linear import linear, quiet_channel
from training.arithmetic.quantize import Quantizer, block_amax, quantize
from training.arithmetic.recipes import LinearRecipe, linear_recipe
from training.switches import Switches

Arrays = Mapping[str, npt.NDArray[Any]]


class VectorFileError(ValueError):
    """A file is no vector file, or holds something that the format does not know; the message names
    the key.
    """


_FOUR_OVER_SIX = Quantizer(
    format=E2M1, scaling="nvfp4", block=16, four_over_six="mae", scale_bound=four_over_six.BOUND
)
VARIANTS: Mapping[str, Quantizer] = {
    "nvfp4_1d_row": Quantizer(format=E2M1, scaling="nvfp4", block=16, row_scaled=True),
    "nvfp4_1d_rht_row": Quantizer(
        format=E2M1, scaling="nvfp4", block=16, rotated=True, row_scaled=True
    ),
    "nvfp4_1d_4over6": _FOUR_OVER_SIX,
    "nvfp4_1d_4over6_448": replace(_FOUR_OVER_SIX, scale_bound=E4M3.largest),
    "nvfp4_1d_4over6_mse": replace(_FOUR_OVER_SIX, four_over_six="mse"),
    "nvfp4_1d_row_4over6": replace(_FOUR_OVER_SIX, row_scaled=True),
    "nvfp4_1d_rht_4over6": replace(_FOUR_OVER_SIX, rotated=True),
    "nvfp4_2d_4over6": replace(_FOUR_OVER_SIX, two_dimensional=True),
    "nvfp4_2d_4over6_mse": replace(_FOUR_OVER_SIX, two_dimensional=True, four_over_six="mse"),
    "fp8_block_1d_e4m3": Quantizer(format=E4M3, scaling="fp8_block", block=128),
    "fp8_block_1d_e5m2": Quantizer(format=E5M2, scaling="fp8_block", block=128),
    "fp8_block_2d_e4m3": Quantizer(
        format=E4M3, scaling="fp8_block", block=128, two_dimensional=True
    ),
}
QUANTIZERS: Mapping[str, Quantizer] = {**known_answers.QUANTIZERS, **VARIANTS}
_DENSE = ("y", "dx", "dw")
_DELAYED = ("x", "scale_before", "hist_before", "codes", "scale_inv", "scale_after", "hist_after")
_quantize = jax.jit(quantize, static_argnums=(1, 2))


@frozen
class VectorComparison:
    """One case and format: how much was compared, how much differs, how much of that is granted;
    dense errors in bf16 ulp.
    """

    name: str
    codes: int = 0
    codes_differ: int = 0
    scales: int = 0
    scales_differ: int = 0
    granted: int = 0
    worst_ulp: float = 0.0
    allowed_ulp: float = 0.0

    @property
    def passed(self) -> bool:
        return (
            not self.codes_differ and not self.scales_differ and self.worst_ulp <= self.allowed_ulp
        )


def compare(arrays: Arrays) -> Iterator[VectorComparison]:
    """Every comparison that a vector file allows."""
    for key in arrays:
        case, _, rest = key.partition("/")
        name, _, part = rest.rpartition("/")
        if name in QUANTIZERS and part in ("row_codes", "col_codes"):
            yield _compare_blocks(arrays, case, name, part[:3])
        elif case == "delayed" and part == "codes":
            yield _compare_delayed(arrays, rest.rpartition("/")[0])
        elif name in QUANTIZERS and part == "codes":
            yield _compare_tensor(arrays, case, name)
        elif rest == "y" and {"x", "w", "g"} <= arrays.keys():
            yield from (
                _compare_dense(arrays, case, through_bfloat16) for through_bfloat16 in (False, True)
            )


def _input(x: npt.NDArray[Any]) -> jax.Array:
    """x as bfloat16 where that loses nothing (what the kernels take), else as float32."""
    narrow = jnp.asarray(x, jnp.float32).astype(jnp.bfloat16)
    return (
        narrow
        if np.array_equal(np.asarray(narrow.astype(jnp.float32)), x)
        else jnp.asarray(x, jnp.float32)
    )


def _compare_blocks(arrays: Arrays, case: str, name: str, side: str) -> VectorComparison:
    quantizer = QUANTIZERS[name]
    prefix = f"{case}/{name}/{side}"
    x = _input(arrays[f"{case}/x"])
    axis = 1 if side == "row" else 0
    ours = _quantize(x, axis, quantizer)
    scales = _oriented(ours.scales, axis, quantizer)
    codes = _oriented(ours.codes, axis, replace(quantizer, two_dimensional=False))
    theirs, their_codes = (
        arrays[f"{prefix}_scale_{'e4m3' if quantizer.scaling == 'nvfp4' else 'e8m0'}"],
        arrays[f"{prefix}_codes"],
    )
    if quantizer.scaling == "nvfp4":
        codes, their_codes = _unsigned_zero(codes), _unsigned_zero(their_codes)
    if codes.shape[1] % 2 and their_codes.shape[1] == codes.shape[1] - 1:
        # codes lie in pairs of one byte: of an odd number the last may be missing
        codes = codes[:, :-1]
    if codes.shape != their_codes.shape or scales.shape != theirs.shape:
        shapes = f"codes {their_codes.shape} and scales {theirs.shape}"
        raise VectorFileError(
            f"{prefix} has {shapes}, expected codes {codes.shape} and scales {scales.shape}"
        )
    off, wrong = scales != theirs, codes != their_codes
    tie, excused = np.zeros_like(off), np.zeros_like(wrong)
    if quantizer.scaling == "nvfp4" and not quantizer.four_over_six and np.any(off):
        tie = off & (
            _oriented(_other_order(x, axis, quantizer, ours.amax), axis, quantizer) == theirs
        )
        excused = wrong & _under(tie, quantizer, wrong.shape)
    if not quantizer.rotated:
        elements, blocks = _lost(arrays[f"{case}/x"], axis, quantizer)
        zero = (codes & (7 if quantizer.format == E2M1 else 127)) == 0
        excused |= wrong & zero & elements[:, : codes.shape[1]]
        tie |= off & blocks
    if quantizer.rotated and x.dtype != jnp.bfloat16:
        excused |= wrong & (np.abs(_step(codes) - _step(their_codes)) <= 1)
    amax_off, amax_excused = _compare_amax(
        arrays.get(f"{prefix}_amax"), ours.amax, quantizer.rotated and x.dtype != jnp.bfloat16
    )
    return VectorComparison(
        name=prefix,
        codes=codes.size,
        codes_differ=int(np.sum(wrong & ~excused)),
        scales=scales.size + (arrays[f"{prefix}_amax"].size if f"{prefix}_amax" in arrays else 0),
        scales_differ=int(np.sum(off & ~tie)) + amax_off,
        granted=int(np.sum(tie) + np.sum(excused)) + amax_excused,
    )


def _compare_amax(
    theirs: npt.NDArray[Any] | None, ours: jax.Array, one_ulp_granted: bool
) -> tuple[int, int]:
    """How many amaxes of the tensor (one, or one for each row) differ, and how many of these are
    granted.
    """
    if theirs is None:
        return 0, 0
    a, b = np.asarray(ours, np.float32).ravel(), theirs.astype(np.float32).ravel()
    if a.shape != b.shape:
        raise VectorFileError(f"an amax has {b.size} values, expected {a.size}")
    excused = (a == 0) & (b != 0) & (b < np.finfo(np.float32).smallest_normal)
    if one_ulp_granted:
        excused |= (a != b) & (np.abs(a - b) <= np.spacing(b))
    return int(np.sum((a != b) & ~excused)), int(np.sum(excused))


def _oriented(blocks: jax.Array, axis: int, quantizer: Quantizer) -> npt.NDArray[Any]:
    """Codes or scale bytes as the file lays them out: NVFP4 columns transposed, 2D scales repeated
    for every row.
    """
    array = np.asarray(blocks)
    if quantizer.two_dimensional:
        array = np.repeat(array, quantizer.block, axis=1 - axis)
    return array.T if axis == 0 and quantizer.scaling == "nvfp4" else array


def _lost(
    x: npt.NDArray[np.float32], axis: int, quantizer: Quantizer
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which elements are too small for a normal float32 without being zero, and which blocks have
    some of those and nothing larger; laid out as codes and scales are.
    """
    large = np.abs(x) >= np.finfo(np.float32).smallest_normal
    lost = ~large & (x != 0)
    has_large, has_lost = (
        np.asarray(block_amax(jnp.asarray(mask, jnp.float32), axis, quantizer)) > 0
        for mask in (large, lost)
    )
    return (
        _oriented(jnp.asarray(lost), axis, replace(quantizer, two_dimensional=False)),
        _oriented(jnp.asarray(has_lost & ~has_large), axis, quantizer),
    )


def _other_order(x: jax.Array, axis: int, quantizer: Quantizer, amax: jax.Array) -> jax.Array:
    """The E4M3 scale bytes in the order (b / 6) S, which Transformer Engine's JAX path and its
    older kernels use.
    """
    sixth = np.asarray(block_amax(x, axis, quantizer)) * np.float32(1 / 6)
    scale = sixth * (np.float32(2688) / np.asarray(amax))
    return formats.encode(formats.nearest(jnp.asarray(scale), E4M3), E4M3)


def _unsigned_zero(codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.where(codes == 8, 0, codes)


def _step(codes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Position of an FP4 code on the grid, -7..7."""
    index = (codes & 7).astype(np.int64)
    return np.where(codes & 8, -index, index)


def _under(
    blocks: npt.NDArray[np.bool_], quantizer: Quantizer, shape: tuple[int, ...]
) -> npt.NDArray[np.bool_]:
    """A mask over blocks of the last axis as a mask over elements."""
    return np.repeat(blocks, quantizer.block, axis=-1)[: shape[0], : shape[1]]


def _compare_tensor(arrays: Arrays, case: str, name: str) -> VectorComparison:
    ours = _quantize(_input(arrays[f"{case}/x"]), 1, QUANTIZERS[name])
    codes = arrays[f"{case}/{name}/codes"]
    differ = int(np.sum(np.asarray(ours.codes) != codes))
    scale = int(np.float32(ours.scale_inv) != arrays[f"{case}/{name}/scale_inv"].reshape(()))
    return VectorComparison(
        name=f"{case}/{name}", codes=codes.size, codes_differ=differ, scales=1, scales_differ=scale
    )


def _compare_delayed(arrays: Arrays, step: str) -> VectorComparison:
    """One step of delayed scaling: codes under the scale before it; scale and history after it
    count as two scales.
    """
    mine = {key: arrays[f"delayed/{step}/{key}"] for key in _DELAYED}
    fmt = E4M3 if "e4m3" in step else E5M2
    before = delayed_scaling.Scales(
        jnp.asarray(mine["scale_before"]), jnp.asarray(mine["hist_before"])[None]
    )
    quantizer = Quantizer(format=fmt, scaling="tensor", delayed=True)
    ours = _quantize(_input(mine["x"]), 1, quantizer, None, before.scale[0])
    rule = delayed_scaling.DelayedScaling(formats=(fmt,), most_recent="most_recent" in step)
    after = delayed_scaling.update(before, ours.amax[None], rule)
    scales = (
        (ours.scale_inv, mine["scale_inv"]),
        (after.scale, mine["scale_after"]),
        (after.history, mine["hist_after"]),
    )
    return VectorComparison(
        name=f"delayed/{step}",
        codes=mine["codes"].size,
        codes_differ=int(np.sum(np.asarray(ours.codes) != mine["codes"])),
        scales=len(scales),
        scales_differ=sum(not np.array_equal(np.asarray(a).ravel(), b.ravel()) for a, b in scales),
    )


def _dense_recipe(name: str, through_bfloat16: bool) -> tuple[LinearRecipe, float]:
    """Our recipe for a name such as nvfp4_rht_2d or fp8_cs, without stochastic rounding (a file
    holds no chance), and the ulp allowed.

    through_bfloat16: its products are of bfloat16 matrices, as on a processor that has such
    products; else of float32 ones.
    """
    words = name.split("_")
    if words[0] == "nvfp4":
        rotated = "rht" in words and "no" not in words[: words.index("rht")]
        switches = Switches(
            stochastic_rounding=False, rht=rotated, weight_scaling="1d" if "1d" in words else "2d"
        )
        return linear_recipe("nvfp4", switches, fast_bf16=through_bfloat16), 1.0
    if name in ("mxfp8", "bf16"):
        return linear_recipe(
            "mxfp8" if name == "mxfp8" else "bf16", fast_bf16=through_bfloat16
        ), 1.0
    if name in ("fp8_cs", "fp8_current"):
        return linear_recipe("fp8_current", fast_bf16=through_bfloat16), 2.0
    raise VectorFileError(
        f"{name}/y is of recipe {name}, expected nvfp4 with _rht, _no_rht, _1d or _2d behind it, "
        "mxfp8, fp8_cs or bf16"
    )


def _compare_dense(arrays: Arrays, name: str, through_bfloat16: bool) -> VectorComparison:
    recipe, allowed = _dense_recipe(name, through_bfloat16)
    matrices = (jnp.asarray(arrays[key], jnp.bfloat16) for key in ("x", "w", "g"))
    worst = 0.0
    for ours, part in zip(_layer(recipe, *matrices), _DENSE, strict=True):
        worst = max(
            worst,
            _worst_ulp(np.asarray(ours, np.float32), arrays[f"{name}/{part}"].astype(np.float32)),
        )
    return VectorComparison(
        name=f"dense/{name}/{recipe.products}", worst_ulp=worst, allowed_ulp=allowed
    )


@partial(jax.jit, static_argnums=0)
def _layer(recipe: LinearRecipe, x: jax.Array, w: jax.Array, g: jax.Array) -> tuple[jax.Array, ...]:
    """y, dx and dw of a layer."""
    y, pull = jax.vjp(lambda x, w: linear(recipe, x, w, random_bits.key(0), quiet_channel()), x, w)
    return y, *pull(g)


def _worst_ulp(ours: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32]) -> float:
    """The largest difference in bfloat16 ulp of their largest magnitude; infinite where anything is
    not finite in one of them alone.
    """
    if ours.shape != theirs.shape:
        raise VectorFileError(f"a product has the shape {theirs.shape}, expected {ours.shape}")
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return 0.0 if np.array_equal(ours, theirs, equal_nan=True) else float("inf")
    largest = max(float(np.max(np.abs(theirs))), float(np.finfo(np.float32).tiny))
    return float(np.max(np.abs(ours - theirs)) / 2.0 ** (np.floor(np.log2(largest)) - 7))


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a file by name; raises VectorFileError where it is no archive of them."""
    try:
        # of a torn archive that it opened itself numpy leaves the file open
        with path.open("rb") as stream:
            archive = np.load(stream)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise VectorFileError("it holds one array without a name")
            return {key: archive[key] for key in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise VectorFileError(f"expected a NumPy .npz archive: {error}") from None


def main(arguments: list[str] | None = None) -> int:
    """Print the comparisons of the files that were named; 0 where nothing differs, 1 where
    something does, 2 on a useless file.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tools.vectors",
        description="Compare our codes, scales and products with a vector file.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.npz")
    rows: list[VectorComparison] = []
    for path in parser.parse_args(arguments).files:
        try:
            comparisons = list(compare(_arrays(path)))
        except KeyError as missing:
            sys.stderr.write(
                f"{path} has no {missing.args[0]}, expected it beside what is compared with it\n"
            )
            return 2
        except (ValueError, TypeError) as error:
            sys.stderr.write(f"{path}: {error}\n")
            return 2
        if not comparisons:
            sys.stderr.write(
                f"{path} holds no case that this program knows; expected keys such as "
                "<case>/nvfp4_1d/row_codes\n"
            )
            return 2
        rows += comparisons
    sys.stdout.write(
        f"{'case and format':44} {'codes':>8} {'differ':>7} {'scales':>7} {'differ':>7} "
        f"{'granted':>8} {'worst ulp':>10}\n"
    )
    for row in rows:
        dense = f"{row.worst_ulp:10.2f}" if row.allowed_ulp else " " * 10
        sys.stdout.write(
            f"{row.name:44} {row.codes:8} {row.codes_differ:7} {row.scales:7} "
            f"{row.scales_differ:7} {row.granted:8} {dense}"
            f"{'' if row.passed else '  DIFFERS'}\n"
        )
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
