"""One linear layer of Transformer Engine, with real kernels, against the emulation: y, dx and dw,
and with --seconds the times of both.

    python -m tools.gpu_evidence.layers [--engine emulated] [--seconds 2] [--facts FILE]

The bounds are those of engine transformer_engine's tests: the root mean square of the difference is
at most 2^-8 of the product's own, the largest difference at most 2^-6 of its largest value. The
exit status is 1 where one is exceeded, 2 where no recipe runs here.

On Hopper Transformer Engine's jax part adds FP8 products with fewer bits unless
NVTE_FP8_GEMM_HIGH_PRECISION_ACCUMULATION is 1 (2.20.2, jax/cpp_extensions/gemm.py); the emulation
adds in float32. So the comparison is run with both.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.arithmetic import fastest
from benchmarks.gpu_arithmetic import plain
from tools.gpu_evidence.results import write_facts
from training import device
from training.arithmetic import linear, random_bits
from training.arithmetic.known_answers import Array
from training.arithmetic.linear import quiet_channel
from training.arithmetic.recipes import LinearRecipe, linear_recipe
from training.engines import transformer_engine
from training.preflight.kernels import EmulatedKernels, Kernels, Matrices, TransformerEngineKernels
from training.rules import Recipe

RECIPES: tuple[Recipe, ...] = ("fp8_current", "fp8_delayed", "mxfp8", "nvfp4_no_sr")
MEAN_BOUND, LARGEST_BOUND = 2.0**-8, 2.0**-6
# M, K, N of the MLP of 20 M and of 150 M (benchmarks/gpu_arithmetic.py); the last is timed with the
# tokens of a whole step.
_SHAPES = ((4096, 512, 1792), (4096, 1792, 512), (4096, 1024, 2816))
_TIMED = (16_384, 1024, 2816)
_SMALL = ((256, 128, 384),)


def matrices(M: int, K: int, N: int) -> Matrices:
    """x (M, K), w (K, N) and g (M, N): normal numbers with a few outliers, exact in bfloat16."""
    random = np.random.default_rng(64)

    def normal(rows: int, columns: int) -> Array:
        values = random.standard_normal((rows, columns)).astype(np.float32)
        values[:: max(1, rows // 7), :: max(1, columns // 5)] *= 20
        return np.asarray(jnp.asarray(values, jnp.bfloat16), np.float32)

    return normal(M, K), normal(K, N), normal(M, N)


def difference(native: Array, ours: Array) -> dict[str, float]:
    """The root mean square and the largest of native - ours, each relative to that of ours; NaN
    where one of them is not finite.
    """
    difference, product = (np.asarray(part, np.float64) for part in (native - ours, ours))
    return {
        "mean": float(np.sqrt(np.mean(difference**2)) / np.sqrt(np.mean(product**2))),
        "largest": float(np.abs(difference).max() / np.abs(product).max()),
    }


def compared(
    kernels: Kernels, emulation: Kernels, recipe: LinearRecipe, shape: tuple[int, int, int]
) -> dict[str, dict[str, float]]:
    """The differences of y, dx and dw of one layer; under delayed scaling with the scales that
    follow from its matrices.
    """
    operands = matrices(*shape)
    pairs = zip(
        kernels.layer(recipe, *operands, 0), emulation.layer(recipe, *operands, 0), strict=True
    )
    return {name: difference(*pair) for name, pair in zip(("y", "dx", "dw"), pairs, strict=True)}


def exceeded(differences: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The products whose difference exceeds a bound, NaN included."""
    return [
        f"{name} differs by {found['mean']:.2e} (rms) and {found['largest']:.2e} (largest)"
        for name, found in differences.items()
        if not (found["mean"] <= MEAN_BOUND and found["largest"] <= LARGEST_BOUND)
    ]


def times(
    engine: str, names: list[Recipe], shape: tuple[int, int, int], seconds: float
) -> dict[str, dict[str, float]]:
    """Milliseconds and TFLOP/s of y, dx and dw of a layer: Transformer Engine's, the emulation's
    and a plain bf16 product's.
    """
    flops = 3 * 2 * int(np.prod(shape))
    arguments = tuple(jnp.asarray(part, jnp.bfloat16) for part in matrices(*shape))
    found = {}
    layers: dict[str, tuple[Callable[..., jax.Array], Recipe]] = {
        "plain bf16": (plain, "fp8_current")
    }
    for name in names:
        layers |= {f"emulated {name}": (linear.linear, name)}
        if engine == "transformer_engine":
            layers |= {f"transformer_engine {name}": (transformer_engine.linear, name)}
    for title, (layer, name) in layers.items():
        recipe = linear_recipe(name, fast_bf16=True)

        def products(
            x: jax.Array,
            w: jax.Array,
            g: jax.Array,
            layer: Any = layer,
            recipe: LinearRecipe = recipe,
        ) -> Any:
            y, pull = jax.vjp(
                lambda x, w: layer(recipe, x, w, random_bits.key(0), quiet_channel()), x, w
            )
            return y, *pull(g)

        best = fastest({title: partial(_run, jax.jit(products), arguments)}, seconds)[title]
        found[title] = {"ms": best * 1e3, "tflops": flops / best / 1e12}
    return found


def _run(compiled: Any, arguments: tuple[jax.Array, ...]) -> None:
    jax.block_until_ready(compiled(*arguments))  # type: ignore[no-untyped-call]


def main() -> int:
    """Compare and measure; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.gpu_evidence.layers",
        description="Transformer Engine's layer, compared.",
    )
    parser.add_argument(
        "--engine", choices=("transformer_engine", "emulated"), default="transformer_engine"
    )
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="also measure, so long for each layer"
    )
    parser.add_argument("--facts", type=Path)
    options = parser.parse_args()
    machine = device.describe()
    emulation = EmulatedKernels()
    kernels: Kernels = (
        TransformerEngineKernels(machine) if options.engine == "transformer_engine" else emulation
    )
    has_gpu = machine.platform == "gpu"
    accumulation = os.environ.get("NVTE_FP8_GEMM_HIGH_PRECISION_ACCUMULATION", "0") == "1"
    facts: dict[str, Any] = {
        "engine": options.engine,
        "high_precision_accumulation": accumulation,
        "refused": {},
        "layers": [],
        "summary": [],
    }
    able, wrong = [], []
    for name in RECIPES:
        recipe = linear_recipe(name, fast_bf16=machine.fast_bf16)
        if refusal := kernels.refusal(recipe):
            facts["refused"][name] = refusal
            continue
        able.append(name)
        for shape in _SHAPES if has_gpu else _SMALL:
            found = compared(kernels, emulation, recipe, shape)
            facts["layers"].append({"recipe": name, "shape": shape, "differences": found})
            wrong += [f"{name} {shape}: {line}" for line in exceeded(found)]
            write_facts(options.facts, facts)
        worst = max(
            part["mean"]
            for layer in facts["layers"]
            if layer["recipe"] == name
            for part in layer["differences"].values()
        )
        facts["summary"].append(
            f"{name}: rms difference of y, dx, dw at most {worst:.1e}, bound {MEAN_BOUND:.1e}"
        )
    if options.seconds and able:
        facts["times"] = times(
            options.engine, able, _TIMED if has_gpu else _SMALL[0], options.seconds
        )
        facts["summary"] = [
            f"{name}: {time['ms']:.3f} ms, {time['tflops']:.1f} TFLOP/s"
            for name, time in facts["times"].items()
        ]
    write_facts(options.facts, facts)
    if not able:
        sys.stdout.write(f"{next(iter(facts['refused'].values()))}\n")
        return 2
    for line in wrong:
        sys.stdout.write(f"{line}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
