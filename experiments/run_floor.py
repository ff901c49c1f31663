"""How much do two runs of one recipe differ in the end, and how does that depend on the size of the
model and its training?

    taskset -c 1 nice -n 15 python experiments/run_floor.py run [CELL]   # trains what
      run_floor.jsonl does not hold yet; stop it at will
    python experiments/run_floor.py table                                # docs/evidence.md has its
      range

tau, the run-to-run noise, is the standard deviation of the late-window mean of lm_loss over
replicates: same tokens, same initial weights moved by one part in a million, other random numbers
in the rounding (`training.trainer.loop`). A verdict on one pair cannot be surer than tau. Every run
is one line of run_floor.jsonl: its late window (the last quarter of its steps), the slope there,
and the means of 40 equal parts of its curve.

The assumption that can fail: four replicates measure a standard deviation within a factor of 0.57
to 3.7 (95 %), twelve within 0.71 to 1.70, so only large differences in the table mean something.
The corpus is this Python's standard library, bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from training.rules import Recipe
from training.spec import Data, Model, RunSpec, Schedule
from training.trainer import data, identity, loop, optimizer

RECORD = Path(__file__).with_suffix(".jsonl")
RECIPES: tuple[Recipe, ...] = ("fp8_current", "nvfp4")
PARTS = 40
_LATE = 0.75  # the late window starts here, as a share of the steps
_COSINE = optimizer.learning_rate
_DATA = Data(batch_size=8, sequence_length=64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One size and length: a model, the peak learning rate that suits it, and the steps it
    trains.
    """

    name: str
    model: Model
    learning_rate: float
    steps: int
    replicates: int = 4
    # share of the steps at the peak rate before a linear decay to a tenth (WSD); None: cosine
    hold: float | None = None


_SMALL = Model()
_HALF = Model(d_model=128, n_layers=3, n_heads=4, n_kv_heads=1, d_ff=320)
_MIDDLE = Model(d_model=160, n_layers=4, n_heads=5, n_kv_heads=1, d_ff=416)
_LARGE = Model(d_model=256, n_layers=4, n_heads=8, n_kv_heads=2, d_ff=704)
# The most telling first: what a day's budget does not reach is at the end.
CELLS = (
    Cell(name="0.3M x 1500", model=_SMALL, learning_rate=4e-3, steps=1500, replicates=12),
    Cell(
        name="0.5M x 1000 WSD", model=_HALF, learning_rate=3e-3, steps=1000, replicates=12, hold=0.8
    ),
    Cell(name="1M x 1500", model=_MIDDLE, learning_rate=3e-3, steps=1500, replicates=12),
    Cell(
        name="0.5M x 1000 constant",
        model=_HALF,
        learning_rate=3e-3,
        steps=1000,
        replicates=12,
        hold=1.0,
    ),
    Cell(name="3M x 1500", model=_LARGE, learning_rate=2e-3, steps=1500, replicates=12),
    Cell(name="0.3M x 500", model=_SMALL, learning_rate=4e-3, steps=500),
    Cell(name="0.3M x 4500", model=_SMALL, learning_rate=4e-3, steps=4500),
    Cell(name="1M x 500", model=_MIDDLE, learning_rate=3e-3, steps=500),
    Cell(name="1M x 4500", model=_MIDDLE, learning_rate=3e-3, steps=4500),
    Cell(name="3M x 500", model=_LARGE, learning_rate=2e-3, steps=500),
    Cell(name="3M x 4500", model=_LARGE, learning_rate=2e-3, steps=4500),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorRecord:
    """One finished run. Losses in nats a byte; the slope in nats per 1,000 steps over the late
    window.
    """

    cell: str
    recipe: str
    replicate: int
    parameters: int
    steps: int
    late_mean: float
    late_slope: float
    part_means: list[float]
    code_sha256: str
    data_digest: str
    device_class: str
    threads: int


def records() -> Iterator[FloorRecord]:
    """The runs that are recorded."""
    if RECORD.exists():
        for line in RECORD.read_text().splitlines():
            yield FloorRecord(**json.loads(line))


def run(cells: Sequence[Cell]) -> None:
    """Train every run that is not recorded yet, in the order of the cells, and append it when it
    ends.
    """
    done = {(record.cell, record.recipe, record.replicate) for record in records()}
    corpus = data.load(_DATA)
    for cell in cells:
        use_schedule(cell)
        for replicate in range(cell.replicates):
            for recipe in RECIPES:
                if (cell.name, recipe, replicate) not in done:
                    finished = train(cell, recipe, replicate, corpus)
                    with RECORD.open("a") as file:
                        file.write(json.dumps(asdict(finished)) + "\n")
                    sys.stdout.write(
                        f"{cell.name} {recipe} {replicate}: {finished.late_mean:.4f}\n"
                    )
                    sys.stdout.flush()


def use_schedule(cell: Cell) -> None:
    """Make the trainer follow the cell's schedule; the service itself trains with cosine decay
    only.
    """

    def held(settings: optimizer.OptimizerSettings, step: jax.Array) -> jax.Array:
        t, hold = step.astype(jnp.float32), cell.hold * cell.steps
        warm = jnp.minimum(1.0, (t + 1) / settings.warmup_steps)
        decayed = jnp.clip((t - hold) / max(cell.steps - hold, 1.0), 0.0, 1.0)
        return settings.learning_rate * warm * (1.0 - (1.0 - settings.final_fraction) * decayed)

    jax.clear_caches()
    optimizer.learning_rate = _COSINE if cell.hold is None else held


def train(cell: Cell, recipe: Recipe, replicate: int, corpus: data.Corpus) -> FloorRecord:
    """One run from its first step to its last."""
    spec = RunSpec(
        recipe=recipe,
        engine="emulated",
        model=cell.model,
        data=_DATA,
        schedule=Schedule(steps=cell.steps, learning_rate=cell.learning_rate),
        layer_policy="mlp_only",
        seed=0,
        replicate=replicate,
        devices=1,
    )
    facts = identity.manifest(spec, corpus)
    loss = np.array([step.lm_loss for step in loop.train(spec, corpus)])
    late = loss[int(_LATE * cell.steps) :]
    return FloorRecord(
        cell=cell.name,
        recipe=recipe,
        replicate=replicate,
        parameters=cell.model.parameters,
        steps=cell.steps,
        late_mean=float(late.mean()),
        late_slope=float(np.polyfit(np.arange(len(late)), late, 1)[0] * 1000),
        part_means=[float(part.mean()) for part in np.array_split(loss, PARTS)],
        code_sha256=facts["code_sha256"],
        data_digest=facts["data_digest"],
        device_class=facts["device_class"],
        threads=int(facts["threads"]),
    )


def tau(late_means: list[float]) -> tuple[float, float, float]:
    """Standard deviation over replicates and its 95 % interval (chi-squared), in the unit of the
    means.
    """
    degrees = len(late_means) - 1
    deviation = float(np.std(late_means, ddof=1))
    low, high = (
        float(deviation * np.sqrt(degrees / stats.chi2.ppf(p, degrees))) for p in (0.975, 0.025)
    )
    return deviation, low, high


def ratio(baseline: list[float], candidate: list[float]) -> tuple[float, float, float]:
    """tau of the candidate over that of the baseline, each as a share of its loss, and the 95 %
    interval (F distribution).
    """
    value = tau(candidate)[0] / np.mean(candidate) / (tau(baseline)[0] / np.mean(baseline))
    above, below = len(candidate) - 1, len(baseline) - 1
    low, high = (float(value / np.sqrt(stats.f.ppf(p, above, below))) for p in (0.975, 0.025))
    return float(value), low, high


def table(rows: list[FloorRecord]) -> Iterator[str]:
    """Lines of Markdown: a row for every cell with at least four replicates of each recipe."""
    yield (
        "| cell | runs | late loss, fp8 | slope | tau fp8_current (95 %) | tau nvfp4 (95 %) | "
        "ratio (95 %) | gap nvfp4 - fp8 |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for cell in CELLS:
        arms = [
            {r.replicate: r for r in rows if (r.cell, r.recipe) == (cell.name, recipe)}
            for recipe in RECIPES
        ]
        both = sorted(set(arms[0]) & set(arms[1]))
        if len(both) < 4:
            continue
        means = [[arm[r].late_mean for r in both] for arm in arms]
        spreads = " | ".join("{:.4f} ({:.4f} to {:.4f})".format(*tau(arm)) for arm in means)
        slope = np.mean([record.late_slope for record in arms[0].values()])
        times = "{:.2f} ({:.2f} to {:.2f})".format(*ratio(means[0], means[1]))
        yield (
            f"| {cell.name} | {len(both)} + {len(both)} | {np.mean(means[0]):.3f} | {slope:+.3f} | "
            f"{spreads} | {times} | {np.mean(means[1]) - np.mean(means[0]):+.4f} |"
        )


def main() -> int:
    """Train, or print the table."""
    parser = argparse.ArgumentParser(description="The run-to-run noise by size and length.")
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument(
        "cell",
        nargs="?",
        choices=[cell.name for cell in CELLS],
        help="run this cell alone, so that each core can have its own",
    )
    options = parser.parse_args()
    if options.what == "run":
        run([cell for cell in CELLS if options.cell in {None, cell.name}])
    else:
        sys.stdout.write("\n".join(table(list(records()))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
