"""A trainer of somebody else's: softmax regression, one line of JSON a step. A commit of the tests' repository has it as train/loop.py."""

import argparse
import json
from pathlib import Path

import numpy as np

SKIPPED = 1  # a broken optimizer takes one step of four


def main() -> None:
    """Train, and report each step as soon as it is done."""
    parser = argparse.ArgumentParser()
    for name, kind in (("steps", int), ("seed", int), ("out", str), ("recipe", str), ("width", int)):
        parser.add_argument(f"--{name}", type=kind, default={"recipe": "bf16", "width": 16}.get(name))
    asked = parser.parse_args()
    truth = np.random.default_rng(0).standard_normal((asked.width, 32))
    weights = 0.01 * np.random.default_rng(asked.seed).standard_normal(truth.shape)
    data = np.random.default_rng(1000 + asked.seed)
    with (Path(asked.out) / "metrics.jsonl").open("w", buffering=1, encoding="utf-8") as log:
        for step in range(asked.steps):
            inputs = data.standard_normal((16, asked.width))
            labels = np.argmax(inputs @ truth + data.gumbel(size=(16, 32)), axis=1)
            scores = np.exp(inputs @ weights)
            shares = scores / scores.sum(axis=1, keepdims=True)
            loss = -np.log(shares[np.arange(16), labels]).mean()
            shares[np.arange(16), labels] -= 1.0
            gradient = inputs.T @ shares / 16
            if asked.recipe != "bf16":
                gradient = np.round(gradient, 1)
            rate = 0.5 * min(1.0, (step + 1) / 20) * 0.5 * (1 + np.cos(np.pi * step / asked.steps))
            if step % SKIPPED == 0:
                weights -= rate * gradient
            log.write(json.dumps({"step": step, "loss": float(loss), "learning_rate": float(rate)}) + "\n")


if __name__ == "__main__":
    main()
