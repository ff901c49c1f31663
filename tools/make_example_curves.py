"""Train the curves of examples/curves again: `python -m tools.make_example_curves [RECIPE ...]`
writes one CSV file per recipe.

The runs are those of examples/demo.yaml with replicate 0, on another text and for 1,500 steps: one
seed, so the arms read the same batches. About a minute per curve on one core. The losses are ours;
the text they were trained on is this Python's standard library. `python -m
tools.make_example_curves reruns` writes those of examples/curves/reruns from
experiments/demo_floor.jsonl, without training.
"""

import csv
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import jax.numpy as jnp
import yaml
from pydantic import TypeAdapter

from training.spec import JobSpec, RunSpec
from training.trainer import loop
from training.trainer.optimizer import learning_rate, settings

CHECKOUT = Path(__file__).parents[1]
JOB = CHECKOUT / "examples" / "demo.yaml"
FOLDER = CHECKOUT / "examples" / "curves"
RECORD = CHECKOUT / "experiments" / "demo_floor.jsonl"
SEED = 1  # one whose first pair cannot decide a margin of 0.5 %


def runs() -> dict[str, RunSpec]:
    """The first run of each arm of the demo, by the recipe's name."""
    written = yaml.safe_load(JOB.read_text(encoding="utf-8"))["job"]
    # the text and length of the recorded curves; the demo's are newer
    written["data"]["source"] = "python_stdlib"
    written["schedule"]["steps"] = 1500
    job = TypeAdapter(JobSpec).validate_python(written)
    return {arm.recipe: spec for arm, spec in job.runs() if spec.replicate == 0}


def write_rows(
    path: Path,
    rows: Iterable[tuple[object, ...]],
    columns: tuple[str, ...] = ("step", "loss", "learning_rate"),
) -> None:
    """Write a CSV file of runs, with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        written = csv.writer(file, lineterminator="\n")
        written.writerow(columns)
        written.writerows(rows)


def write(recipe: str, spec: RunSpec) -> None:
    """Train one run and write its steps, losses (nats per byte, six decimals) and learning
    rates.
    """
    steps = (
        (step.step, f"{step.lm_loss:.6f}", f"{step.learning_rate:.6g}") for step in loop.train(spec)
    )
    write_rows(FOLDER / f"{recipe.removesuffix('_current')}.csv", steps)


def write_reruns() -> None:
    """Two runs of FP8 and two of MXFP8 of one seed, as recorded; the learning rates are those of
    the demo's schedule.
    """
    written = yaml.safe_load(JOB.read_text(encoding="utf-8"))["job"]
    schedule = settings(TypeAdapter(JobSpec).validate_python(written).schedule)
    for line in RECORD.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        if run["seed"] == SEED and run["recipe"] in ("fp8_current", "mxfp8"):
            rows = (
                (step, loss, f"{float(learning_rate(schedule, jnp.int32(step))):.6g}")
                for step, loss in enumerate(run["losses"])
            )
            write_rows(
                FOLDER
                / "reruns"
                / f"{run['recipe'].removesuffix('_current')}-{run['replicate']}.csv",
                rows,
            )


if __name__ == "__main__":
    if sys.argv[1:] == ["reruns"]:
        write_reruns()
    else:
        specs = runs()
        for name in sys.argv[1:] or specs:
            write(name, specs[name])
