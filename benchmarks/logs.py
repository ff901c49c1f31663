"""How long a printed log takes to read, compared with a loop that searches the one pattern that
fits it in each line.

    python benchmarks/logs.py

The loop knows the pattern and reads step and loss alone; `parity.readers` finds both by its rule.
Limit: twice the loop's time, for a text of 100 MB of each form.
"""

import argparse
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from parity.readers import read_run

LIMIT = 2.0
FORMS = {
    "one line a step": (
        (
            "step {s:6d}/{n} | loss {l:.6f} | grad norm 1.2345 | lr 3.00e-04 | 250.20 ms | 40.1% "
            "MFU | 123456 tok/s"
        ),
        r"step +(\d+)/\d+ \| loss ([\d.]+)",
    ),
    "a line of evaluation every 100 steps": (
        "iter {s}: loss {l:.4f}, time 12.34ms, mfu 3.5%",
        r"iter (\d+): loss ([\d.]+)",
    ),
    "torchtitan": (
        (
            "[titan] 2026-11-22 07:00:00,001 - root - INFO - step: {s:2}  loss: {l:7.4f}  "
            "grad_norm:  1.5000  memory: 40.25GiB(42.10%)"
        ),
        r"step: *(\d+)  loss: *([\d.]+)",
    ),
}


def write(path: Path, form: str, megabytes: float) -> int:
    """Write a log of the given size; returns its number of steps."""
    line, rng = FORMS[form][0], np.random.default_rng(1)
    steps = int(megabytes * 1e6 / (len(line.format(s=100_000, n=1_000_000, l=2.5)) + 1))
    with path.open("w") as file:
        for first in range(1, steps + 1, 10_000):
            losses = rng.normal(2.5, 0.05, 10_000).tolist()
            for step, loss in enumerate(losses[: steps + 1 - first], first):
                file.write(line.format(s=step, n=steps, l=loss) + "\n")
                if "evaluation" in form and step % 100 == 0:
                    file.write(f"step {step}: train loss {loss:.4f}, val loss {loss + 0.1:.4f}\n")
    return steps


def loop(path: Path, pattern: str) -> int:
    """The steps and losses that the pattern finds, line by line."""
    search = re.compile(pattern).search
    steps, losses = [], []
    with path.open() as file:
        for line in file:
            if (match := search(line)) is not None:
                steps.append(int(match[1]))
                losses.append(float(match[2]))
    return len(np.array(losses)[np.argsort(np.array(steps), kind="stable")])


def steps_of(path: Path) -> int:
    """The steps that the reader finds."""
    return len(read_run(str(path)).steps)


def seconds(call: Callable[[], int], steps: int) -> float:
    """The CPU time of one call, which must find every step."""
    begun = time.process_time()
    steps_read = call()
    if steps_read != steps:
        raise SystemExit(f"{steps_read:,} steps, expected {steps:,}")
    return time.process_time() - begun


def main() -> int:
    """Print the medians and their ratios; 1 if one is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for form, (_, pattern) in FORMS.items():
            path = Path(folder) / "train.log"
            steps = write(path, form, arguments.megabytes)
            times: dict[str, list[float]] = {"loop": [], "parity": []}
            for _ in range(arguments.rounds):
                times["loop"].append(seconds(partial(loop, path, pattern), steps))
                times["parity"].append(seconds(partial(steps_of, path), steps))
            ours, peer = statistics.median(times["parity"]), statistics.median(times["loop"])
            worst = max(worst, ours / peer)
            print(
                f"{form}, {steps:,} steps: {ours:.2f} s, the loop {peer:.2f} s, ratio "
                f"{ours / peer:.2f} (limit {LIMIT})"
            )
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
