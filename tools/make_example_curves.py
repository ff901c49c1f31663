"""Train the curves of examples/curves again: `python -m tools.make_example_curves [RECIPE ...]` writes one CSV file per recipe.

The runs are those of examples/demo.yaml with replicate 0, on another text and for 1,500 steps: one seed, so the arms read the same batches.
About a minute per curve on one core. The losses are ours; the text they were trained on is this Python's standard library.
"""

import csv
import sys
from pathlib import Path

import yaml
from pydantic import TypeAdapter

from training.spec import JobSpec, RunSpec
from training.trainer import loop

CHECKOUT = Path(__file__).parents[1]
JOB = CHECKOUT / "examples" / "demo.yaml"
FOLDER = CHECKOUT / "examples" / "curves"


def runs() -> dict[str, RunSpec]:
    """The first run of each arm of the demo, by the recipe's name."""
    written = yaml.safe_load(JOB.read_text(encoding="utf-8"))["job"]
    written["data"]["source"] = "python_stdlib"  # the text and length of the recorded curves; the demo's are newer
    written["schedule"]["steps"] = 1500
    job = TypeAdapter(JobSpec).validate_python(written)
    return {arm.recipe: spec for arm, spec in job.runs() if spec.replicate == 0}


def write(recipe: str, spec: RunSpec) -> None:
    """Train one run and write its steps, losses (nats per byte, six decimals) and learning rates."""
    with (FOLDER / f"{recipe.removesuffix('_current')}.csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["step", "loss", "learning_rate"])
        rows.writerows((step.step, f"{step.lm_loss:.6f}", f"{step.learning_rate:.6g}") for step in loop.train(spec))


if __name__ == "__main__":
    specs = runs()
    for name in sys.argv[1:] or specs:
        write(name, specs[name])
