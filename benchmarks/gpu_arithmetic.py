"""What emulation costs on an NVIDIA GPU: the step of an MLP stack of the 1 B class, quantized, beside the same in bf16, and its roofline.

    python benchmarks/gpu_arithmetic.py [--recipes fp8_current mxfp8 nvfp4] [--layers 16]

The linears of Llama-3.2-1B's MLP (2,048 -> 8,192 -> 2,048, sixteen blocks), 2,048 tokens, forward and backward. Bar: every
recipe's step <= 1.5x the bf16 step; exit code 1 where it is missed, 2 where there is no GPU.

Roofline: what the step must do at least (FLOPs of its GEMMs; bytes: every operand read and every result written once,
and for a quantizer its input read and its bfloat16 codes written once), each divided by the ceiling measured in the same
run (a large bfloat16 product, a large copy). Printed: that least time as a share of the measured time. A share well below
that of bf16 says that XLA's fusion leaves passes over memory on the table.

**Not yet run on that hardware.** The counting, and the step on a CPU at a tenth of the size, are tested.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.arithmetic import fastest
from training.arithmetic.linear import linear, quiet_channel
from training.arithmetic.recipes import LinearRecipe, linear_recipe
from training.rules import Recipe

BAR = 1.5
_BYTES = 2  # of a bfloat16


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Blocks of gate, up and down, as in Llama's MLP; tokens are batch times sequence."""

    layers: int = 16
    width: int = 2048
    hidden: int = 8192
    tokens: int = 2048

    @property
    def linears(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of every linear layer."""
        return ((self.width, self.hidden), (self.width, self.hidden), (self.hidden, self.width)) * self.layers

    @property
    def flops(self) -> int:
        """Of one step: three GEMMs a linear, two FLOPs a multiplication and addition."""
        return sum(3 * 2 * self.tokens * inputs * outputs for inputs, outputs in self.linears)

    def least_bytes(self, recipe: LinearRecipe) -> int:
        """Bytes that one step's linears must move: three GEMMs a linear, and for each quantized operand a read and a write."""
        total = 0
        for inputs, outputs in self.linears:
            x, w, y = self.tokens * inputs, inputs * outputs, self.tokens * outputs
            total += 3 * _BYTES * (x + w + y)
            sizes = (x, w, y, w, x, y)  # the operands in the order of `LinearRecipe.operands`
            total += sum(2 * _BYTES * size for size, quantizer in zip(sizes, recipe.operands, strict=True) if quantizer is not None)
        return total


def parameters(stack: Stack) -> list[jax.Array]:
    """Bfloat16 weights, normal with standard deviation 1 / sqrt(inputs)."""
    keys = jax.random.split(jax.random.key(0), len(stack.linears))
    return [
        (jax.random.normal(key, shape, jnp.float32) / np.float32(np.sqrt(shape[0]))).astype(jnp.bfloat16)
        for key, shape in zip(keys, stack.linears, strict=True)
    ]


def step(stack: Stack, recipe: LinearRecipe) -> Callable[[list[jax.Array], jax.Array], Any]:
    """The compiled loss and gradients of the stack."""

    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for block in range(stack.layers):
            seed = jnp.uint32(block)
            gate, up, down = (
                lambda v, w=w, seed=seed: linear(recipe, v, w, seed, quiet_channel()) for w in weights[3 * block : 3 * block + 3]
            )
            hidden = jax.nn.silu(gate(x).astype(jnp.float32)) * up(x).astype(jnp.float32)
            x = (x.astype(jnp.float32) + down(hidden.astype(jnp.bfloat16)).astype(jnp.float32)).astype(jnp.bfloat16)
        return jnp.mean(jnp.square(x.astype(jnp.float32)))

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))


def ceilings(seconds: float) -> tuple[float, float]:
    """FLOPs and bytes a second that this device reaches: a product of 8,192 cubed in bfloat16, and a copy of 1 GiB."""
    a = jnp.ones((8192, 8192), jnp.bfloat16)
    wide = jnp.ones((2**28,), jnp.float32)
    product, copy = jax.jit(lambda v: v @ v), jax.jit(lambda v: v * 1.5)
    times = fastest({"product": lambda: product(a).block_until_ready(), "copy": lambda: copy(wide).block_until_ready()}, seconds)
    return 2 * 8192**3 / times["product"], 2 * 2**30 / times["copy"]


def main() -> int:
    """Measure, print, and return 1 where the bar was missed, 2 where there is no GPU."""
    parser = argparse.ArgumentParser(description="The emulated step on an NVIDIA GPU.")
    parser.add_argument("--recipes", nargs="*", default=["fp8_current", "mxfp8", "nvfp4"])
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    device = jax.devices()[0]
    if device.platform != "gpu":
        sys.stderr.write(f"this is a {device.platform}, expected an NVIDIA GPU; benchmarks/arithmetic.py measures CPUs\n")
        return 2
    stack = Stack(layers=options.layers)
    names: list[Recipe] = ["bf16", *options.recipes]
    recipes = {name: linear_recipe(name, fast_bf16=True) for name in names}
    weights, x = parameters(stack), jax.random.normal(jax.random.key(1), (stack.tokens, stack.width), jnp.bfloat16)
    steps = {name: step(stack, recipe) for name, recipe in recipes.items()}
    times = fastest({name: lambda run=run: jax.block_until_ready(run(weights, x)) for name, run in steps.items()}, options.seconds)
    flops, bandwidth = ceilings(options.seconds / 4)
    sys.stdout.write(f"{device.device_kind}: {flops / 1e12:.0f} TFLOP/s in bfloat16, {bandwidth / 1e12:.2f} TB/s measured\n")
    sys.stdout.write(f"{'recipe':14}{'ms':>9}{'x bf16':>9}{'GEMMs':>9}{'bytes':>9}   least time as a share of the measured\n")
    missed = []
    for name, recipe in recipes.items():
        ratio = times[name] / times["bf16"]
        compute, memory = stack.flops / flops / times[name], stack.least_bytes(recipe) / bandwidth / times[name]
        sys.stdout.write(f"{name:14}{times[name] * 1e3:9.2f}{ratio:9.3f}{compute:9.1%}{memory:9.1%}\n")
        missed += [f"{name}: {ratio:.2f} of the bf16 step, bar {BAR}"] if ratio > BAR else []
    for line in missed:
        sys.stdout.write(f"MISSED {line}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
