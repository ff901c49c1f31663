"""A trainer of somebody else's: softmax regression, one line of JSON a step. A commit of the tests'
repository has it as train/loop.py.

It does without numpy, whose import would take most of its time.
"""

import json
import math
import random
import sys
from pathlib import Path

SKIPPED = 1  # a broken optimizer takes one step of four
CLASSES, BATCH = 4, 4


def main() -> None:
    """Train, and report each step as soon as it is done."""
    asked = {"recipe": "bf16", "width": "16"} | dict(
        word.removeprefix("--").split("=", 1) for word in sys.argv[1:]
    )
    steps, width = int(asked["steps"]), range(int(asked["width"]))
    seeds = (0, int(asked["seed"]), 1000 + int(asked["seed"]))
    of_truth, of_weights, of_data = (random.Random(seed) for seed in seeds)  # noqa: S311
    truth = [[of_truth.gauss(0, 1) for _ in width] for _ in range(CLASSES)]
    weights = [[of_weights.gauss(0, 0.01) for _ in width] for _ in range(CLASSES)]
    with (Path(asked["out"]) / "metrics.jsonl").open("w", buffering=1, encoding="utf-8") as log:
        for step in range(steps):
            inputs = [[of_data.gauss(0, 1) for _ in width] for _ in range(BATCH)]
            loss, errors = 0.0, []
            for given in inputs:
                noisy = [
                    score - math.log(-math.log(of_data.random())) for score in _scores(truth, given)
                ]
                label = noisy.index(max(noisy))
                shares = [math.exp(score) for score in _scores(weights, given)]
                loss -= math.log(shares[label] / sum(shares)) / BATCH
                errors.append(
                    [share / sum(shares) - (at == label) for at, share in enumerate(shares)]
                )
            rate = 0.5 * min(1.0, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * step / steps))
            for own, error in zip(weights, zip(*errors, strict=True), strict=True):
                for at, values in enumerate(zip(*inputs, strict=True)):
                    gradient = sum(map(float.__mul__, error, values)) / BATCH
                    if asked["recipe"] != "bf16":
                        gradient = round(gradient, 1)
                    if step % SKIPPED == 0:
                        own[at] -= rate * gradient
            log.write(json.dumps({"step": step, "loss": loss, "learning_rate": rate}) + "\n")


def _scores(weights: list[list[float]], given: list[float]) -> list[float]:
    return [sum(map(float.__mul__, own, given)) for own in weights]


if __name__ == "__main__":
    main()
