"""NVFP4 quantization on a CPU next to a plain copy and next to qwix and torchao: the same numbers
in and out, one core.

    pip install --require-hashes -r locks/bench.lock
    pip install torch==2.13.0                    # the CPU build; PyPI's Linux wheel brings CUDA
      along, PyTorch's own CPU index doesn't
    taskset -c 0 python benchmarks/quantizers.py [--seconds 60]

Quantize and dequantize ("fake quantization"), 1x16 blocks and a tensor scale, 1024 x 512 float32 (2
MiB) in cache. Everyone takes turns in one process; each one's least time counts. Bars: ours at >=
1/3 of a copy's speed, >= 3.5x qwix (jit), >= 60x torchao eager, and faster than torchao under
torch.compile; exit code 1 where one is missed. torchao's quantizer is timed alone where its
dequantization isn't compiled: that is in its favour.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import qwix
import torch
from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale

# benchmarks run without installing this repository
sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.arithmetic import fastest
from training.arithmetic.formats import E2M1
from training.arithmetic.quantize import Quantizer, to_bfloat16

SHAPE = (1024, 512)
NVFP4 = Quantizer(format=E2M1, scaling="nvfp4", block=16)


def jitted(function: Callable[[jax.Array], Any], x: jax.Array) -> Callable[[], Any]:
    """The compiled function of x, waited for."""
    compiled = jax.jit(function)
    return lambda: jax.block_until_ready(compiled(x))


def ours(x: jax.Array) -> jax.Array:
    """Exact bfloat16 numbers, with the tensor's factor, as float32."""
    made = to_bfloat16(x, 1, NVFP4)
    return made.value.astype(jnp.float32) * made.factor


def theirs_qwix(x: jax.Array) -> jax.Array:
    """qwix's nvfp4: its own scaling rule, without a scale of the tensor."""
    return qwix.dequantize(qwix.quantize(x, "nvfp4", tiled_axes={1: 16}))


def torchao_parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Packed codes and scales by torchao."""
    made = NVFP4Tensor.to_nvfp4(x, per_tensor_scale=per_tensor_amax_to_scale(x.abs().max()))
    return made.qdata, made.scale


def torchao_values(x: torch.Tensor) -> torch.Tensor:
    """Quantized and dequantized by torchao."""
    return NVFP4Tensor.to_nvfp4(
        x, per_tensor_scale=per_tensor_amax_to_scale(x.abs().max())
    ).dequantize(torch.float32)


def error(x: np.ndarray[Any, Any], values: Any) -> float:
    """Relative root mean square error, so that a fast wrong answer shows."""
    return float(np.linalg.norm(np.asarray(values) - x) / np.linalg.norm(x))


def main() -> int:
    """Measure, print, and return 1 where a bar was missed."""
    parser = argparse.ArgumentParser(description="NVFP4 quantization next to other libraries.")
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    host = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    x, x_torch = jnp.asarray(host), torch.from_numpy(host)
    compiled = torch.compile(torchao_parts, fullgraph=False)
    with torch.no_grad():
        times = fastest(
            {
                "copy (x 1.5)": jitted(lambda v: v * 1.5, x),
                "ours, codes for a product": jitted(lambda v: to_bfloat16(v, 1, NVFP4)[:2], x),
                "ours, values": jitted(ours, x),
                "qwix jit, values": jitted(theirs_qwix, x),
                "torchao eager, values": lambda: torchao_values(x_torch),
                "torchao compiled, codes": lambda: compiled(x_torch),
            },
            seconds,
            burst=20,
        )
        errors = {
            "ours, values": error(host, jax.jit(ours)(x)),
            "qwix jit, values": error(host, theirs_qwix(x)),
            "torchao eager, values": error(host, torchao_values(x_torch)),
        }
    best = times["ours, values"]
    sys.stdout.write(
        f"{'':28}{'Gelem/s':>9}{'of a copy':>11}{'ours is faster by':>19}{'rel. error':>12}\n"
    )
    for name, value in times.items():
        shown = f"{errors[name]:12.4f}" if name in errors else ""
        sys.stdout.write(
            f"{name:28}{x.size / value / 1e9:9.3f}{times['copy (x 1.5)'] / value:11.3f}{value / best:19.2f}{shown}\n"  # noqa: E501
        )
    bars = {
        "of a copy's speed": (
            times["copy (x 1.5)"] / min(best, times["ours, codes for a product"]),
            1 / 3,
        ),
        "times qwix": (times["qwix jit, values"] / best, 3.5),
        "times torchao eager": (times["torchao eager, values"] / best, 60.0),
        "times torchao compiled": (
            times["torchao compiled, codes"] / times["ours, codes for a product"],
            1.0,
        ),
    }
    missed = [
        f"{value:.2f} {name}, bar {bar:.2f}" for name, (value, bar) in bars.items() if value < bar
    ]
    for line in missed:
        sys.stdout.write(f"MISSED {line}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
