"""What emulation costs on an NVIDIA GPU: the real training step of every recipe, compared with a
plain bf16 step.

    python benchmarks/gpu_arithmetic.py [--sizes 20M 150M 1B] [--recipes fp8_current mxfp8 nvfp4]
    [--seconds 20] [--any-device]

The step is the compiled program of a run (`training.trainer.step.block`: forward, backward, AdamW,
gradient norms) on random tokens, `all_linears`. The plain step is the same program with `plain` in
place of the linear layers: a product in bfloat16 and what JAX makes of its gradient, without our
quantizers, counts and copies. Beside it our own bf16 recipe, so that what the layer itself costs
shows.

Bar: every recipe's step <= 1.5 times the plain one; exit code 1 where it is missed, 2 where there
is no GPU. Also printed: the FLOPs of the step (6 for each parameter and token) as a share of what a
large bfloat16 product reaches in the same process.

docs/hardware.md has the figures of an H200. The step on a CPU, at a small size, is tested.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from parity.frozen import frozen

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.arithmetic import fastest
from training.arithmetic import delayed_scaling
from training.arithmetic.linear import Channel
from training.arithmetic.random_bits import Key
from training.arithmetic.recipes import LinearRecipe
from training.rules import Recipe
from training.segments import uniform
from training.spec import Model, Schedule
from training.step_values import PROJECTIONS
from training.trainer import optimizer, step
from training.trainer.model import Decoder, decoder, initial_parameters

BAR = 1.5


@frozen
class ModelSize:
    """A model and the tokens of one step."""

    model: Model
    batch: int
    sequence: int

    @property
    def flops(self) -> int:
        """Of one step: two for each parameter and token in each of three products."""
        return 6 * self.model.parameters * self.batch * self.sequence


SIZES: Mapping[str, ModelSize] = {
    # for a rehearsal on a processor
    "0.3M": ModelSize(model=Model(preset="llama3-0.3m"), batch=8, sequence=64),
    "20M": ModelSize(model=Model(preset="llama3-20m"), batch=32, sequence=512),
    "150M": ModelSize(
        model=Model(d_model=1024, n_layers=13, n_heads=16, n_kv_heads=4, d_ff=2816),
        batch=16,
        sequence=1024,
    ),
    "1B": ModelSize(model=Model(preset="llama3-1b"), batch=2, sequence=2048),
}


def plain(
    recipe: LinearRecipe,  # noqa: ARG001
    x_MK: jax.Array,
    w_KN: jax.Array,
    key: Key,  # noqa: ARG001
    channel: Channel,  # noqa: ARG001
) -> jax.Array:
    """A linear layer as anybody writes it; its gradient is JAX's own. The arguments are those of
    `training.arithmetic.linear.linear`.

    Its result is bfloat16: of a float32 one JAX makes a gradient of TF32 products, with which the
    step took a third longer on an H200.
    """
    return jnp.matmul(x_MK, w_KN)


def model_of(size: ModelSize, name: str) -> Decoder:
    """The decoder of a recipe, or under the name "plain" one whose linear layers are plain
    products.
    """
    recipe: Recipe = "fp8_current" if name == "plain" else name  # type: ignore[assignment]
    made = decoder(size.model, uniform(recipe, size.model.n_layers), fast_bf16=True)
    return replace(made, layer=plain) if name == "plain" else made


def step_of(size: ModelSize, name: str) -> Callable[[], Any]:
    """A function that trains one step and waits for it; its state goes from call to call."""
    model = model_of(size, name)
    parameters = jax.device_put(initial_parameters(size.model, 0, 0))
    length = delayed_scaling.HISTORY_LENGTH if model.delayed else 0
    scales = delayed_scaling.initial_scales(size.model.n_layers, len(PROJECTIONS), length)
    tokens = (
        np.random.default_rng(0)
        .integers(0, size.model.vocab_size, (1, size.batch, size.sequence + 1))
        .astype(np.int32)
    )
    settings = optimizer.settings(Schedule())
    inputs = step.Inputs(
        jnp.asarray(tokens), jnp.int32(0), jnp.int32(1), jnp.zeros(2, jnp.uint32), settings
    )
    states = [step.State(parameters, optimizer.initial_state(parameters), scales)]

    def run() -> step.BlockOutput:
        states[0], output = step.block(model, step.Sharing(1, 1), states[0], inputs)
        done: step.BlockOutput = jax.block_until_ready(output)
        return done

    return run


def product_flops(seconds: float, size: int) -> float:
    """FLOPs a second that this device reaches in a product of a square matrix of that size in
    bfloat16.
    """
    a = jnp.ones((size, size), jnp.bfloat16)
    product = jax.jit(lambda v: v @ v)
    return float(
        2
        * size**3
        / fastest({"product": lambda: product(a).block_until_ready()}, seconds)["product"]
    )


def measure(name: str, recipes: list[str], seconds: float, ceiling: float) -> list[str]:
    """Print a row for every recipe of a size; the bars that were missed."""
    size = SIZES[name]
    # One after another: the states of all recipes together need not fit.
    times = {
        recipe: fastest({recipe: step_of(size, recipe)}, seconds)[recipe]
        for recipe in ("plain", "bf16", *recipes)
    }
    sys.stdout.write(
        f"\n{name}: {size.model.parameters / 1e6:.0f} M parameters, {size.batch} x {size.sequence} "
        "tokens a step\n"
    )
    sys.stdout.write(f"{'recipe':14}{'ms':>9}{'x plain':>9}{'of the ceiling':>16}\n")
    missed = []
    for recipe, time in times.items():
        ratio = time / times["plain"]
        sys.stdout.write(
            f"{recipe:14}{time * 1e3:9.2f}{ratio:9.3f}{size.flops / time / ceiling:16.1%}\n"
        )
        if recipe in recipes and ratio > BAR:
            missed.append(f"{name} {recipe}: {ratio:.2f} of the plain step, bar {BAR}")
    return missed


def main() -> int:
    """Measure, print, and return 1 where the bar was missed, 2 where there is no GPU."""
    parser = argparse.ArgumentParser(description="The emulated step on an NVIDIA GPU.")
    parser.add_argument("--sizes", nargs="*", choices=list(SIZES), default=["20M", "150M", "1B"])
    parser.add_argument("--recipes", nargs="*", default=["fp8_current", "mxfp8", "nvfp4"])
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="time for each recipe of each size"
    )
    parser.add_argument(
        "--any-device",
        action="store_true",
        help="measure on a processor too, which rehearses the measurement",
    )
    options = parser.parse_args()
    device = jax.devices()[0]
    if device.platform != "gpu" and not options.any_device:
        sys.stderr.write(
            f"this is a {device.platform}, expected an NVIDIA GPU; benchmarks/arithmetic.py "
            "measures CPUs\n"
        )
        return 2
    ceiling = product_flops(options.seconds / 2, 8192 if device.platform == "gpu" else 512)
    sys.stdout.write(
        f"{device.device_kind}: {ceiling / 1e12:.0f} TFLOP/s in a large bfloat16 product\n"
    )
    missed = [
        line
        for name in options.sizes
        for line in measure(name, options.recipes, options.seconds, ceiling)
    ]
    for line in missed:
        sys.stdout.write(f"MISSED {line}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
