"""Write a vector file from an installed Transformer Engine: its kernels' codes and scales, to
confront our emulation with.

    python tools/make_te_vectors.py te_kernels.npz          # on a machine with an NVIDIA GPU and
      transformer_engine[pytorch]
    python -m tools.vectors te_kernels.npz               # anywhere; exits 0 where nothing differs

NVFP4 needs compute capability 10.0 or 10.3, MXFP8 10.0, FP8 8.9; a format that the GPU cannot do is
left out and noted. Shapes are those that the fused Hadamard kernel takes (64 rows, 128 columns, and
multiples). Stochastic rounding is off, since a file can hold no chance. The format of the file
stands at the head of `tools/vectors.py`.

**Not yet run on that hardware.** Written from the interfaces of Transformer Engine 2.20.2 (its
tests tests/pytorch/nvfp4/test_nvfp4_quantize_exact.py and test_nvfp4_rht_quantize_exact.py show the
calls). What does not touch Transformer Engine (inputs, unpacking, layout of the file) is tested
with our own quantizers in its place.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FORMATS = (
    "nvfp4_1d",
    "nvfp4_2d",
    "nvfp4_1d_rht",
    "fp8_cs_e4m3",
    "fp8_cs_e5m2",
    "mxfp8_e4m3",
    "mxfp8_e5m2",
)
LAYERS = ("nvfp4_rht_2d", "nvfp4_2d", "nvfp4_1d", "mxfp8", "fp8_cs")
TOKENS, INPUTS, OUTPUTS = 128, 128, 256


class Engine(Protocol):
    """What makes the vectors."""

    def refusal(self, name: str) -> str | None:
        """Why this engine cannot do a format or a layer, or None."""

    def quantized(self, name: str, x: Array) -> Mapping[str, Array]:
        """Parts of one format by their names in the file, such as row_codes and row_amax; x is
        float32, exact in bfloat16.
        """

    def layer(self, name: str, x: Array, w: Array, g: Array) -> tuple[Array, Array, Array]:
        """y (M, N), dx (M, K), dw (K, N) as float32 of a linear layer y = x w with output gradient
        g, all exact in bfloat16.
        """


def bfloat16(x: Array) -> Array:
    """x rounded to the nearest bfloat16, ties to even, kept as float32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def inputs() -> dict[str, Array]:
    """The matrices that are quantized, by the name of their case."""
    random = np.random.default_rng(2026)

    def normal(*shape: int) -> Array:
        return random.standard_normal(shape).astype(np.float32)

    outliers = normal(128, 256)
    outliers.ravel()[random.choice(outliers.size, 64, replace=False)] *= 300
    grid = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0], np.float32)
    ties = random.choice(grid, (64, 128)) * random.choice(np.array([-1, 1], np.float32), (64, 128))
    dead = normal(64, 128)
    dead[:32, :64] = 0
    cases = {
        "normal_128x256": normal(128, 256),
        "outliers_128x256": outliers,
        "ties_64x128": ties,
        "wide_range_rows_64x128": normal(64, 128)
        * np.exp2(np.linspace(-20, 20, 64)).astype(np.float32)[:, None],
        "dead_blocks_64x128": dead,
        "zeros_64x128": np.zeros((64, 128), np.float32),
        "tiny_64x128": normal(64, 128) * np.float32(1e-30),
        "huge_64x128": normal(64, 128) * np.float32(1e36),
        "constant_64x128": np.full((64, 128), -3.5, np.float32),
        "tall_512x128": normal(512, 128),
    }
    return {name: bfloat16(x) for name, x in cases.items()}


def unpacked(pairs: Array) -> Array:
    """FP4 codes (rows, columns) from bytes (rows, columns / 2); the first code lies in the low
    half.
    """
    return np.stack([pairs & 0x0F, pairs >> 4], axis=-1).reshape(len(pairs), -1).astype(np.uint8)


def vectors(engine: Engine, note: Callable[[str], object] = sys.stderr.write) -> dict[str, Array]:
    """Everything of a vector file that the engine can make; `note` is called with what it can't."""
    arrays: dict[str, Array] = {}
    able = [name for name in (*FORMATS, *LAYERS) if not _refused(engine, name, note)]
    for case, x in inputs().items():
        arrays[f"{case}/x"] = x
        for name in FORMATS:
            if name in able:
                arrays |= {
                    f"{case}/{name}/{part}": value
                    for part, value in engine.quantized(name, x).items()
                }
    random = np.random.default_rng(7)
    shapes = {"x": (TOKENS, INPUTS), "w": (INPUTS, OUTPUTS), "g": (TOKENS, OUTPUTS)}
    arrays |= {name: bfloat16(random.standard_normal(shape)) for name, shape in shapes.items()}
    for name in LAYERS:
        if name in able:
            results = engine.layer(name, arrays["x"], arrays["w"], arrays["g"])
            arrays |= {
                f"{name}/{part}": value
                for part, value in zip(("y", "dx", "dw"), results, strict=True)
            }
    return arrays


def _refused(engine: Engine, name: str, note: Callable[[str], object]) -> bool:
    reason = engine.refusal(name)
    if reason is not None:
        note(f"{name} is left out: {reason}\n")
    return reason is not None


class InstalledKernels:
    """The kernels of the installed Transformer Engine, through its PyTorch interface."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415
        import transformer_engine.pytorch as te  # noqa: PLC0415
        import transformer_engine_torch as tex  # noqa: PLC0415
        from transformer_engine.common import recipe  # noqa: PLC0415

        self._torch, self._te, self._tex, self._recipe = torch, te, tex, recipe

    def refusal(self, name: str) -> str | None:
        probe = {"nvfp4": self._te.is_nvfp4_available, "mxfp8": self._te.is_mxfp8_available}.get(
            name.split("_", maxsplit=1)[0], self._te.is_fp8_available
        )
        able, reason = probe(return_reason=True)
        return None if able else str(reason)

    def quantized(self, name: str, x: Array) -> Mapping[str, Array]:
        tensor = self._torch.from_numpy(x).to("cuda", self._torch.bfloat16)
        rows, columns = x.shape
        if name.startswith("nvfp4"):
            return self._nvfp4(name, tensor, rows, columns)
        fp8 = self._tex.DType.kFloat8E4M3 if name.endswith("e4m3") else self._tex.DType.kFloat8E5M2
        if name.startswith("fp8_cs"):
            made = self._te.Float8CurrentScalingQuantizer(fp8, device=tensor.device)(tensor)
            return {"codes": _host(made._data), "scale_inv": _host(made._scale_inv)}
        made = self._te.MXFP8Quantizer(fp8, rowwise=True, columnwise=True)(tensor)
        return {
            "row_codes": _host(made._rowwise_data),
            "row_scale_e8m0": _host(made._rowwise_scale_inv)[:rows, : columns // 32],
            "col_codes": _host(made._columnwise_data),
            "col_scale_e8m0": _host(made._columnwise_scale_inv)[: rows // 32, :columns],
        }

    def _nvfp4(self, name: str, tensor: Any, rows: int, columns: int) -> Mapping[str, Array]:
        rotated = name.endswith("rht")
        made = self._te.NVFP4Quantizer(
            fp4_dtype=self._tex.DType.kFloat4E2M1,
            rowwise=True,
            columnwise=True,
            with_amax_reduction=False,
            amax_reduction_group=None,
            with_rht=rotated,
            with_post_rht_amax=rotated,
            with_2d_quantization=name.endswith("2d"),
        )(tensor)
        column = {
            "col_codes": unpacked(_host(made._columnwise_data)),
            "col_scale_e4m3": _host(made._columnwise_scale_inv)[:columns, : rows // 16],
            "col_amax": _host(made._amax_columnwise),
        }
        if rotated:
            return column
        return column | {
            "row_codes": unpacked(_host(made._rowwise_data)),
            "row_scale_e4m3": _host(made._rowwise_scale_inv)[:rows, : columns // 16],
            "row_amax": _host(made._amax_rowwise),
        }

    def layer(self, name: str, x: Array, w: Array, g: Array) -> tuple[Array, Array, Array]:
        recipes = {
            "nvfp4_rht_2d": lambda: self._recipe.NVFP4BlockScaling(
                disable_stochastic_rounding=True
            ),
            "nvfp4_2d": lambda: self._recipe.NVFP4BlockScaling(
                disable_rht=True, disable_stochastic_rounding=True
            ),
            "nvfp4_1d": lambda: self._recipe.NVFP4BlockScaling(
                disable_rht=True, disable_stochastic_rounding=True, disable_2d_quantization=True
            ),
            "mxfp8": self._recipe.MXFP8BlockScaling,
            "fp8_cs": self._recipe.Float8CurrentScaling,
        }
        torch = self._torch
        linear = self._te.Linear(
            w.shape[0], w.shape[1], bias=False, params_dtype=torch.bfloat16, device="cuda"
        )
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(np.ascontiguousarray(w.T)))
        entering = torch.from_numpy(x).to("cuda", torch.bfloat16).requires_grad_()
        with self._te.autocast(enabled=True, recipe=recipes[name]()):
            y = linear(entering)
        y.backward(torch.from_numpy(g).to("cuda", torch.bfloat16))
        return (
            _host(y.float()),
            _host(entering.grad.float()),
            np.ascontiguousarray(_host(linear.weight.grad.float()).T),
        )


def _host(tensor: Any) -> Array:
    """A tensor's numbers on the host: float32 as they are, anything else as bytes."""
    tensor = tensor.detach().cpu()
    if tensor.element_size() == 1:
        tensor = tensor.view(tensor.new_empty(0).byte().dtype)
    array: Array = tensor.numpy()
    return array


def missing() -> str | None:
    """Why no vectors can be made here, or None."""
    for package, remedy in (
        ("torch", "install PyTorch with CUDA"),
        ("transformer_engine", "pip install transformer_engine[pytorch]"),
    ):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed; {remedy} on a machine with an NVIDIA GPU"
    import torch  # noqa: PLC0415

    if not torch.cuda.is_available():
        return (
            "PyTorch sees no CUDA device; run this on a machine with an NVIDIA GPU of compute "
            "capability 8.9 or later"
        )
    return None


def main(arguments: list[str] | None = None) -> int:
    """Write the file; 0 when it is written, 2 where this machine cannot make it."""
    parser = argparse.ArgumentParser(
        prog="make_te_vectors.py",
        description="Write a vector file from an installed Transformer Engine.",
    )
    parser.add_argument("file", type=Path, metavar="FILE.npz")
    path = parser.parse_args(arguments).file
    reason = missing()
    if reason is not None:
        sys.stderr.write(f"no vectors are made: {reason}\n")
        return 2
    arrays: dict[str, Any] = vectors(InstalledKernels(), sys.stderr.write)
    np.savez_compressed(path, **arrays)
    sys.stdout.write(
        f"{path}: {len(arrays)} arrays; compare them with: python -m tools.vectors {path}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
