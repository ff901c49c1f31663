"""Write a vector file from Transformer Engine's PyTorch reference classes, which run on a CPU: the
variants that its JAX path lacks.

    pip install torch && pip install --no-deps transformer_engine==2.20.2           # in an
      environment of their own
    python tools/make_reference_vectors.py variants.npz --fp8-block blockwise_quantizer_reference.py
    python -m tools.vectors variants.npz                                         # in ours; exits 0
      if nothing differs

NVFP4 with a scale for each row and four over six come from `NVFP4QuantizerRef` in the installed
package. FP8 in blocks of 128 comes from tests/pytorch/references/blockwise_quantizer_reference.py
of the repository NVIDIA/TransformerEngine, which is not in the package; give its path, with
quantize_scale_calc.py next to it, or these formats are left out. Only two base classes and one
function of the package are stubbed, because importing them needs a GPU; the classes that compute
the codes are unchanged. `--many` writes larger inputs. The format of the file is described in
`tools/vectors.py`.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_RECIPES = "transformer_engine.pytorch.custom_recipes"
# The arguments of NVFP4QuantizerRef for each format of `tools.vectors`.
NVFP4: Mapping[str, Mapping[str, Any]] = {
    "nvfp4_1d_row": {"row_scaled_nvfp4": True},
    "nvfp4_1d_rht_row": {"row_scaled_nvfp4": True, "with_rht": True},
    "nvfp4_1d_4over6": {"nvfp4_use_4over6": True, "nvfp4_e4m3_max": 256},
    "nvfp4_1d_4over6_448": {"nvfp4_use_4over6": True, "nvfp4_e4m3_max": 448},
    "nvfp4_1d_4over6_mse": {
        "nvfp4_use_4over6": True,
        "nvfp4_e4m3_max": 256,
        "nvfp4_4over6_err_mode": "MSE",
    },
    "nvfp4_1d_row_4over6": {
        "row_scaled_nvfp4": True,
        "nvfp4_use_4over6": True,
        "nvfp4_e4m3_max": 256,
    },
    "nvfp4_1d_rht_4over6": {"nvfp4_use_4over6": True, "nvfp4_e4m3_max": 256, "with_rht": True},
    "nvfp4_2d_4over6": {
        "nvfp4_use_4over6": True,
        "nvfp4_e4m3_max": 256,
        "quant_tile_shape": (16, 16),
    },
    "nvfp4_2d_4over6_mse": {
        "nvfp4_use_4over6": True,
        "nvfp4_e4m3_max": 256,
        "nvfp4_4over6_err_mode": "MSE",
        "quant_tile_shape": (16, 16),
    },
}
FP8_BLOCKS = ("fp8_block_1d_e4m3", "fp8_block_1d_e5m2", "fp8_block_2d_e4m3")
_TILE = 128


def bfloat16(x: Array) -> Array:
    """x rounded to the nearest bfloat16, ties to even, kept as float32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def inputs(*, many: bool) -> dict[str, Array]:
    """The matrices that are quantized, by the name of their case; `many` gives more and larger
    ones.
    """
    random = np.random.default_rng(18)
    rows, columns = (512, 512) if many else (32, 144)

    def normal(*shape: int) -> Array:
        return random.standard_normal(shape).astype(np.float32)

    grid = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 4.0, 5.0, 6.0], np.float32)
    dead = normal(rows, columns)
    dead[: rows // 2, : columns // 2] = 0
    dead[3] = 0
    wide = np.exp2(np.linspace(-20, 20, rows)).astype(np.float32)[:, None]
    cases = {
        "normal": normal(rows, columns),
        "ties": random.choice(grid, (rows, columns))
        * random.choice(np.array([-1, 1], np.float32), (rows, columns)),
        "wide_rows": normal(rows, columns) * wide,
        "dead_blocks": dead,
        "tiny": normal(rows, columns) * np.float32(1e-30),
    }
    if many:
        outliers = normal(rows, columns)
        outliers.ravel()[random.choice(outliers.size, outliers.size // 100, replace=False)] *= 300
        cases |= {"outliers": outliers, "huge": normal(rows, columns) * np.float32(1e30)}
        cases["odd_shape"] = normal(48, 36)
        cases |= {
            f"normal_{i}": normal(rows, columns) * np.float32(np.exp2(random.uniform(-30, 30)))
            for i in range(8)
        }
    return {name: bfloat16(x) for name, x in cases.items()} | {"f32": normal(rows, columns)}


def unpacked(pairs: Array) -> Array:
    """FP4 codes (rows, columns) from bytes (rows, columns / 2); the first code is in the low
    half.
    """
    return np.stack([pairs & 0x0F, pairs >> 4], axis=-1).reshape(len(pairs), -1).astype(np.uint8)


def nvfp4(torch: Any, reference: ModuleType, x: Array, name: str) -> Iterator[tuple[str, Array]]:
    """Parts of one NVFP4 format by their names in the file."""
    options = {"quant_tile_shape": (1, 16), **NVFP4[name]}
    quantizer = reference.NVFP4QuantizerRef(
        dtype=reference.reference_utils.Fp4Formats.E2M1, **options
    )
    narrow = torch.from_numpy(x).to(torch.bfloat16)
    tensor = narrow if bool((narrow.float() == torch.from_numpy(x)).all()) else torch.from_numpy(x)
    made = quantizer.quantize(tensor)
    sides = {"col": (made.data_t, made.scale_t, made.global_amax_col)}
    if not options.get("with_rht"):
        sides["row"] = (made.data, made.scale, made.global_amax_row)
    for side, (codes, scale, amax) in sides.items():
        yield f"{side}_codes", unpacked(codes.numpy())
        yield f"{side}_scale_e4m3", scale.view(torch.uint8).numpy()
        yield f"{side}_amax", amax.numpy()


def fp8_block(
    torch: Any, reference: ModuleType, x: Array, name: str
) -> Iterator[tuple[str, Array]]:
    """Parts of one FP8 format with power-of-two block scales; a scale is written as the exponent
    byte of its float32.
    """
    options = {"return_transpose": True, "pow_2_scales": True, "eps": 0.0}
    square = "2d" in name
    quantizer = reference.BlockwiseQuantizerReference
    tile = quantizer._quantize_square_block_tiling if square else quantizer._quantize_vector_tiling
    made = tile(
        torch.from_numpy(x),
        torch.float8_e5m2 if name.endswith("e5m2") else torch.float8_e4m3fn,
        _TILE,
        **options,
    )
    for side, codes, scale in (("row", made.data, made.scale), ("col", made.data_t, made.scale_t)):
        code, value = codes.view(torch.uint8).numpy(), scale.numpy()
        byte = (np.ascontiguousarray(value).view(np.uint32) >> 23).astype(np.uint8)
        byte = np.repeat(byte, _TILE, axis=0) if square else byte
        yield f"{side}_codes", np.ascontiguousarray(code.T if side == "col" else code)
        yield f"{side}_scale_e8m0", np.ascontiguousarray(byte.T if side == "col" else byte)


def nvfp4_reference(package: Path) -> ModuleType:
    """The module reference_nvfp4 of an installed package, without the compiled extension that
    importing the package needs.
    """

    class Base:
        def __init__(self, *, rowwise: bool = True, columnwise: bool = True) -> None:
            self.rowwise_usage, self.columnwise_usage = rowwise, columnwise

    stubs: dict[str, dict[str, Any]] = {
        "transformer_engine": {},
        "transformer_engine.pytorch": {},
        "transformer_engine.pytorch.tensor": {},
        "transformer_engine.pytorch.quantized_tensor": {
            "Quantizer": Base,
            "QuantizedTensorStorage": object,
        },
        "transformer_engine.pytorch.tensor.utils": {"is_custom": bool},
        _RECIPES: {},
    }
    for name, content in stubs.items():
        module = ModuleType(name)
        module.__dict__.update(content)
        module.__path__ = []
        sys.modules[name] = module
    folder = package / "pytorch" / "custom_recipes"
    for name in ("reference_utils", "gemm", "reference_nvfp4"):
        setattr(sys.modules[_RECIPES], name, _loaded(f"{_RECIPES}.{name}", folder / f"{name}.py"))
    return sys.modules[f"{_RECIPES}.reference_nvfp4"]


def block_reference(file: Path) -> ModuleType:
    """The module of FP8 block scaling in Transformer Engine's tests."""
    for name in ("tests", "tests.pytorch", "tests.pytorch.references"):
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = []
    _loaded(
        "tests.pytorch.references.quantize_scale_calc", file.with_name("quantize_scale_calc.py")
    )
    return _loaded("tests.pytorch.references.blockwise_quantizer_reference", file)


def _loaded(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def vectors(
    nvfp4_module: ModuleType, block_module: ModuleType | None, *, many: bool
) -> dict[str, Array]:
    """Everything of the file."""
    import torch  # noqa: PLC0415

    arrays: dict[str, Array] = {}
    for case, x in inputs(many=many).items():
        arrays[f"{case}/x"] = x
        for name, options in NVFP4.items():
            if options.get("with_rht") and (x.shape[0] % 16 or case == "f32"):
                # the reference rotates whole groups, and float32 sums depend on their order
                continue
            arrays |= {
                f"{case}/{name}/{part}": value
                for part, value in nvfp4(torch, nvfp4_module, x, name)
            }
        if block_module is None:
            continue
        for name in FP8_BLOCKS:
            arrays |= {
                f"{case}/{name}/{part}": value
                for part, value in fp8_block(torch, block_module, x, name)
            }
    return arrays


def main(arguments: list[str] | None = None) -> int:
    """Write the file; 0 if it is written, 2 if the references are not installed."""
    parser = argparse.ArgumentParser(
        prog="make_reference_vectors.py",
        description="Write a vector file from Transformer Engine's PyTorch references.",
    )
    parser.add_argument("file", type=Path, metavar="FILE.npz")
    parser.add_argument(
        "--fp8-block",
        type=Path,
        metavar="FILE.py",
        help="blockwise_quantizer_reference.py of the repository",
    )
    parser.add_argument("--many", action="store_true", help="write larger inputs")
    options = parser.parse_args(arguments)
    missing = [
        name for name in ("torch", "transformer_engine") if importlib.util.find_spec(name) is None
    ]
    if missing:
        sys.stderr.write(
            f"no vectors are made: {' and '.join(missing)} not installed; see the head of this "
            "file for the commands\n"
        )
        return 2
    package = importlib.util.find_spec("transformer_engine")
    folder = Path(str(package and package.origin)).parent
    blocks = block_reference(options.fp8_block) if options.fp8_block else None
    arrays: dict[str, Any] = vectors(nvfp4_reference(folder), blocks, many=options.many)
    np.savez_compressed(options.file, **arrays)
    sys.stdout.write(
        f"{options.file}: {len(arrays)} arrays; compare them with: python -m tools.vectors "
        f"{options.file}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
