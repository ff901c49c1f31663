"""Two arms on two cores, and the price of watching: ratios of steps per second within one run.

    two arms, each in a process pinned to its core, over one core     bar 1.90
    a step with the gradient norm of every layer over one without     bar 1.01
    25 steps of which one is watched over 25 that are not             bar 1.01 (from blocks of one
      step, as watched steps are)
    CPU time of a checkpoint every 60 seconds                         bar 1 %

    python benchmarks/training_throughput.py [--seconds 10] [--preset llama3-1m]

Exits 1 where a bar is missed. The bars are about two cores that nothing else uses; the load is
printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workers.slots import HUGE_PAGES

RECIPES = ("fp8_current", "nvfp4")
STATISTICS_EVERY = 25
STEPS = 5  # in one timing: short ones are many, and among many one is undisturbed
ROUNDS = 5


def run_of(preset: str, recipe: str, **schedule: int) -> Any:
    """A run of 1,024 tokens a step on random bytes. Imports jax, which fixes the number of
    threads.
    """
    import numpy as np  # noqa: PLC0415

    from training.device import describe  # noqa: PLC0415
    from training.spec import Data, Model, RunSpec, Schedule  # noqa: PLC0415
    from training.trainer.data import Corpus  # noqa: PLC0415
    from training.trainer.run import TrainingRun  # noqa: PLC0415

    tokens = np.random.default_rng(0).integers(0, 256, 1 << 20).astype(np.uint8)
    corpus = Corpus(
        train=tokens, validation=tokens[:0], largest=255, digest="", description="random bytes"
    )
    spec = RunSpec(
        recipe=recipe,  # type: ignore[arg-type]
        engine="emulated",
        model=Model(preset=preset),  # type: ignore[arg-type]
        data=Data(source="text", path="given"),
        schedule=Schedule(steps=1_000_000, **schedule),
        layer_policy="mlp_only",
        seed=0,
        replicate=0,
        devices=1,
    )
    return TrainingRun(spec, corpus, fast_bf16=describe().fast_bf16)


def arm(preset: str, recipe: str) -> None:
    """A child: says when it is ready, then for each line with a number of seconds trains so long
    and says steps per second.
    """
    run = run_of(preset, recipe)
    run.advance(0, STEPS).rows.block_until_ready()
    print("ready", flush=True)
    for line in sys.stdin:
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < float(line):
            run.advance(steps, STEPS).rows.block_until_ready()
            steps += STEPS
        print(steps / (time.perf_counter() - began), flush=True)


def two_arms(preset: str, seconds: float) -> float:
    """What two pinned processes get done together, in units of what one core gets done alone: the
    best round of each.
    """
    cores = sorted(os.sched_getaffinity(0))[:2]
    children = [
        child("arm", preset, recipe, core) for recipe, core in zip(RECIPES, cores, strict=True)
    ]
    for process in children:
        assert process.stdout is not None
        process.stdout.readline()
    rounds = []
    for _ in range(ROUNDS):
        alone = [rates([process], seconds / ROUNDS)[0] for process in children]
        rounds.append((alone, rates(children, seconds / ROUNDS)))
    fastest_alone = [max(rate) for rate in zip(*(alone for alone, _ in rounds), strict=True)]
    for process in children:
        process.communicate("")
    return max(
        sum(now / before for now, before in zip(together, fastest_alone, strict=True))
        for _, together in rounds
    )


def rates(children: list[subprocess.Popen[str]], seconds: float) -> list[float]:
    """Steps per second of processes that train at the same time."""
    for process in children:
        assert process.stdin is not None
        process.stdin.write(f"{seconds}\n")
        process.stdin.flush()
    return [float(process.stdout.readline()) for process in children if process.stdout is not None]


def watching(preset: str, seconds: float) -> None:
    """A child: prints what the norms by layer, the statistics and a checkpoint cost, as JSON."""
    import jax  # noqa: PLC0415

    from training.step_values import PROJECTIONS  # noqa: PLC0415
    from training.trainer import step  # noqa: PLC0415
    from training.trainer.checkpoint import Checkpointing, Checkpoints  # noqa: PLC0415

    with_norms, norms = step.block, step._layer_grad_norms
    without_norms = jax.jit(step.block.__wrapped__, static_argnums=(0, 1), donate_argnums=(2,))
    step._layer_grad_norms = lambda model, _: jax.numpy.zeros(
        (model.shape.n_layers, len(PROJECTIONS))
    )
    runs = {
        name: run_of(preset, "nvfp4", statistics_every=int(name == "watched"))
        for name in ("plain", "norms", "unwatched", "watched")
    }

    def steps(name: str, count: int) -> Callable[[], None]:
        def go() -> None:
            step.block = without_norms if name == "plain" else with_norms
            runs[name].advance(0, count).rows.block_until_ready()

        return go

    steps("plain", STEPS)()  # compiled while no norm is taken
    step._layer_grad_norms = norms
    blocks = {"plain": STEPS, "norms": STEPS, "unwatched": 1, "watched": 1}
    times = fastest({name: steps(name, count) for name, count in blocks.items()}, seconds)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Checkpointing(folder=Path(folder)), {})
        checkpoints._write(1, runs["plain"]._state)  # imports, once a run
        began = time.process_time()
        checkpoints._write(2, runs["plain"]._state)
        checkpoint_share = (time.process_time() - began) / 60
    costs = {
        "norms": times["norms"] / times["plain"],
        "watched": 1 + (times["watched"] / times["unwatched"] - 1) / STATISTICS_EVERY,
        "checkpoint": 1 + checkpoint_share,
    }
    print(json.dumps(costs))


def fastest(calls: Mapping[str, Callable[[], None]], seconds: float) -> dict[str, float]:
    """The shortest of many interleaved times of each call, after one that compiles."""
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        call()
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end:
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def child(what: str, preset: str, argument: str, core: int) -> subprocess.Popen[str]:
    """This file as a process on one core."""
    command = [
        sys.executable,
        __file__,
        "--child",
        what,
        "--preset",
        preset,
        "--argument",
        argument,
        "--core",
        str(core),
    ]
    environment = {"GLIBC_TUNABLES": HUGE_PAGES} | os.environ  # as a worker's training process
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def main() -> int:
    """Print the table; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--preset", default="llama3-1m")
    for hidden in ("--child", "--argument", "--core"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        os.sched_setaffinity(0, {int(options.core)})
        arm(options.preset, options.argument) if options.child == "arm" else watching(
            options.preset, float(options.argument)
        )
        return 0
    print(f"{options.preset}, 1,024 tokens a step; load before: {os.getloadavg()[0]:.2f}")
    process = child("watching", options.preset, str(options.seconds), min(os.sched_getaffinity(0)))
    costs = json.loads(process.communicate()[0])
    rows = [
        (
            "two arms on two cores over one core",
            two_arms(options.preset, options.seconds),
            1.9,
            False,
        ),
        ("gradient norms by layer, every step", costs["norms"], 1.01, True),
        ("layer statistics, every 25 steps", costs["watched"], 1.01, True),
        ("a checkpoint, every 60 seconds", costs["checkpoint"], 1.01, True),
    ]
    missed = [name for name, ratio, bar, below in rows if (ratio > bar if below else ratio < bar)]
    for name, ratio, bar, below in rows:
        print(
            f"{name:38}{ratio:8.3f}  bar {'<=' if below else '>='} "
            f"{bar}{'   MISSED' if name in missed else ''}"
        )
    print(f"load after: {os.getloadavg()[0]:.2f}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
