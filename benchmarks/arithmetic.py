"""What emulation costs: the step of every recipe next to our own bfloat16 step, and the quantizer
next to a plain copy.

    taskset -c 0 python benchmarks/arithmetic.py [--sizes 0.34M 5M 20M] [--seconds 20]

Ratios of times measured in turn in one process, the minimum of each over all rounds, so that a
neighbour's load on the machine falls on all alike. Exit code 1 where a bar is missed. Every step
takes the norm of each layer's gradient along.

The bars of the step depend on the class of CPU, which is detected (`BARS`): with AMX a bf16 product
is three to seven times faster, so the same quantization is a larger share. Processors without
bfloat16 products have none: there bf16 itself is emulated. To measure as another class on the same
machine, set XLA_FLAGS=--xla_cpu_max_isa=AVX2 and name it by --class. Other bars: NVFP4 quantization
of 1024 x 512 float32 in cache at >= 1/3 of a copy's speed; the statistics of every layer on one
step in 25 at <= 1 %.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from training import device
from training.arithmetic.formats import E2M1
from training.arithmetic.quantize import Quantizer, to_bfloat16
from training.rules import Recipe
from training.spec import Data, Model, RunSpec, Schedule
from training.trainer.data import Corpus
from training.trainer.run import TrainingRun

BARS: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "avx512_bf16": {
        "0.34M": {"fp8_current": 1.04, "mxfp8": 1.12, "nvfp4": 1.18},
        "5M": {"fp8_current": 1.04, "mxfp8": 1.12, "nvfp4": 1.13},
        "20M": {"fp8_current": 1.04, "mxfp8": 1.12, "nvfp4": 1.18},
    },
    "amx_bf16": {
        "0.34M": {"fp8_current": 1.02, "mxfp8": 1.08, "nvfp4": 1.15},
        "5M": {"fp8_current": 1.02, "mxfp8": 1.08, "nvfp4": 1.10},
        "20M": {"fp8_current": 1.02, "mxfp8": 1.08, "nvfp4": 1.10},
    },
}
"""Step over our bf16 step, by class of CPU and size."""
_STATISTICS_BAR = 0.01
RECIPES: tuple[Recipe, ...] = ("f32", "bf16", "fp8_current", "mxfp8", "nvfp4")
SIZES: Mapping[str, tuple[Model, Data]] = {
    "0.34M": (Model(), Data(batch_size=8)),
    "5M": (Model(d_model=256, n_layers=6, n_heads=8, n_kv_heads=2, d_ff=768), Data(batch_size=8)),
    "20M": (Model(d_model=512, n_layers=7, n_heads=8, n_kv_heads=2, d_ff=1536), Data(batch_size=4)),
}


def fastest(
    runs: Mapping[str, Callable[[], Any]], seconds: float, burst: int = 1
) -> dict[str, float]:
    """The least time of each function in seconds, taking turns until the time is over and each has
    had five.

    A turn is `burst` runs in a row: more than one lets a small function find its numbers in the
    cache.
    """
    best = dict.fromkeys(runs, float("inf"))
    for run in runs.values():
        run()
    end, rounds = time.perf_counter() + seconds, 0
    while time.perf_counter() < end or rounds < 5:
        for name, run in runs.items():
            for _ in range(burst):
                start = time.perf_counter()
                run()
                best[name] = min(best[name], time.perf_counter() - start)
        rounds += 1
    return best


def step_of(
    recipe: Recipe, shape: Model, data: Data, count: int = 3, schedule: Schedule | None = None
) -> Callable[[], Any]:
    """A function that trains `count` steps and waits for them; steps that the schedule watches or
    compares are.
    """
    random = np.random.default_rng(0).integers(0, 256, 1 << 20).astype(np.uint8)
    corpus = Corpus(
        train=random, validation=random[:0], largest=255, digest="", description="random bytes"
    )
    spec = RunSpec(
        recipe=recipe,
        engine="emulated",
        model=shape,
        data=data,
        schedule=schedule or Schedule(statistics_every=0),
        layer_policy="mlp_only",
        seed=0,
        replicate=0,
        devices=1,
    )
    run = TrainingRun(spec, corpus, fast_bf16=device.describe().fast_bf16)
    return lambda: jax.block_until_ready(run.advance(0, count))


def steps(name: str, seconds: float, cpu: str) -> list[str]:
    """Print a row for every recipe of a size; the bars that were missed."""
    shape, data = SIZES[name]
    start = time.perf_counter()
    times = fastest(
        {recipe: step_of(recipe, shape, data) for recipe in RECIPES}, seconds * len(RECIPES)
    )
    missed = []
    sys.stdout.write(
        f"\n{name}: {shape.parameters / 1e6:.2f} M parameters, {data.tokens_per_step} tokens a "
        "step, mlp_only"
    )
    sys.stdout.write(
        f" ({time.perf_counter() - start:.0f} "
        f"s)\n{'recipe':14}{'steps/s':>10}{'x bf16':>9}{'bar':>7}{'x f32':>9}\n"
    )
    for recipe in RECIPES:
        ratio, bar = times[recipe] / times["bf16"], BARS.get(cpu, {}).get(name, {}).get(recipe)
        if bar is not None and ratio > bar:
            missed.append(f"{name} {recipe}: {ratio:.3f} of the bf16 step, bar {bar}")
        shown = f"{bar:7.2f}" if bar is not None else " " * 7
        sys.stdout.write(
            f"{recipe:14}{3 / times[recipe]:10.2f}{ratio:9.3f}{shown}{times[recipe] / times['f32']:9.3f}\n"  # noqa: E501
        )
    return missed


def watching(seconds: float) -> list[str]:
    """Print the cost of watched and compared steps, spread over 25 and 100 steps; returns the
    missed bars (watched steps only).
    """
    shape, data = SIZES["0.34M"]
    missed = []
    schedules = {
        "plain": Schedule(statistics_every=0),
        "watched": Schedule(statistics_every=1),
        "compared": Schedule(statistics_every=1, gradients_every=1),
    }
    sys.stdout.write(
        f"\n{shape.parameters / 1e6:.2f} M parameters, share of the run of the statistics of every "
        "layer on one step in 25"
    )
    sys.stdout.write(
        ", and of the weights' gradients on one in "
        f"100\n{'recipe':14}{'statistics':>12}{'gradients':>12}\n"
    )
    for recipe in ("fp8_current", "nvfp4"):
        times = fastest(
            {
                name: step_of(recipe, shape, data, 1, schedule)
                for name, schedule in schedules.items()
            },
            seconds,
        )
        cost, more = (
            (times["watched"] / times["plain"] - 1) / 25,
            (times["compared"] - times["watched"]) / times["plain"] / 100,
        )
        sys.stdout.write(f"{recipe:14}{cost:12.2%}{more:12.2%}\n")
        if cost > _STATISTICS_BAR:
            missed.append(
                f"statistics of {recipe} at {cost:.2%} of a run, bar {_STATISTICS_BAR:.0%}"
            )
    return missed


def quantizers(seconds: float) -> list[str]:
    """NVFP4 next to a copy, 1024 x 512 float32 (2 MiB) in cache; the bar that was missed."""
    x = jnp.asarray(np.random.default_rng(0).standard_normal((1024, 512)), jnp.float32)
    plain = Quantizer(format=E2M1, scaling="nvfp4", block=16)
    times = fastest(
        {
            "copy x 1.5": _over(x, lambda v: v * 1.5),
            "nvfp4 1x16, axis 1": _over(x, lambda v: to_bfloat16(v, 1, plain)),
            "nvfp4 1x16, axis 0": _over(x, lambda v: to_bfloat16(v, 0, plain)),
        },
        seconds,
        burst=20,
    )
    copy = times["copy x 1.5"]
    sys.stdout.write(
        f"\nquantizers on 1024 x 512 float32\n{'':20}{'Gelem/s':>9}{'of a copy':>11}\n"
    )
    for name, value in times.items():
        sys.stdout.write(f"{name:20}{x.size / value / 1e9:9.2f}{copy / value:11.2f}\n")
    share = copy / times["nvfp4 1x16, axis 1"]
    return (
        [] if share >= 1 / 3 else [f"nvfp4 quantization at {share:.2f} of a copy's speed, bar 0.33"]
    )


def _over(x: jax.Array, function: Callable[[jax.Array], Any]) -> Callable[[], Any]:
    compiled = jax.jit(function)
    return lambda: jax.block_until_ready(compiled(x))


def main() -> int:
    """Measure, print, and return 1 where a bar was missed."""
    parser = argparse.ArgumentParser(description="Speed of the emulated arithmetic, as ratios.")
    parser.add_argument("--sizes", nargs="*", choices=list(SIZES), default=list(SIZES))
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="time for each recipe of each size"
    )
    parser.add_argument(
        "--class",
        dest="cpu",
        metavar="NAME",
        help="the class of CPU whose bars apply; the machine's own by default",
    )
    options = parser.parse_args()
    here = device.describe()
    cpu = options.cpu or device.instruction_set(device.cpu_flags())
    sys.stdout.write(
        f"{here.device_class}, {here.threads} thread(s), jax {here.versions['jax']}, "
        f"{f'bars of {cpu}' if cpu in BARS else 'no bars'}\n"
    )
    missed = quantizers(options.seconds) + watching(2 * options.seconds)
    for name in options.sizes:
        missed += steps(name, options.seconds, cpu)
    for line in missed:
        sys.stdout.write(f"MISSED {line}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
