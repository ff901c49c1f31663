"""A bigram model, trained by a loop of jax with optax.MultiSteps and flax's checkpoints of bytes.

python -m tools.trainers.multi_steps FOLDER [--steps 30] [--accumulation 4] [--kill-at N] [--nan-at
N]
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import serialization

from parity.integrations.loop import Loop
from parity.integrations.optax import finished_step

BATCH, LENGTH, VOCABULARY = 8, 16, 64


def main() -> None:
    """Train, from the last checkpoint where there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for name, default in (("steps", 30), ("accumulation", 4), ("kill-at", -1), ("nan-at", -1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    optimizer = optax.MultiSteps(optax.adamw(1e-2), options.accumulation)
    params = jnp.zeros((VOCABULARY, VOCABULARY))
    state: Any = optimizer.init(params)
    micro, first = BATCH // options.accumulation, 0
    tokens = jax.random.randint(jax.random.key(1), (512, LENGTH), 0, VOCABULARY)

    @jax.jit
    def train(params: jax.Array, state: Any, batch: jax.Array, factor: float) -> Any:
        def loss_of(params: jax.Array) -> jax.Array:
            logits: Any = params[batch[:, :-1]]
            losses: jax.Array = optax.softmax_cross_entropy_with_integer_labels(
                logits, batch[:, 1:]
            )
            return losses.mean() * factor

        loss, gradient = jax.value_and_grad(loss_of)(params)
        update, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, update), state, loss

    checkpoint = options.folder / "checkpoint"
    if checkpoint.exists():
        first, params, state = serialization.from_bytes((0, params, state), checkpoint.read_bytes())
    options.folder.mkdir(exist_ok=True)
    with Loop(recipe="bf16", name="run", folder=options.folder / "spool") as record:
        for call in range(first, options.steps * options.accumulation):
            start = call * micro % len(tokens)
            is_nan = call == options.nan_at * options.accumulation
            params, state, loss = train(
                params, state, tokens[start : start + micro], float("nan") if is_nan else 1.0
            )
            record.micro_step(loss, micro * LENGTH)
            step = finished_step(state)
            record.log(step)
            if step is not None and (step + 1) % 10 == 0:
                record.flush()
                checkpoint.with_suffix(".new").write_bytes(
                    serialization.to_bytes((call + 1, params, state))
                )
                checkpoint.with_suffix(".new").rename(checkpoint)
            if step == options.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
