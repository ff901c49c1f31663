"""Train the curves of examples/questions again: `python -m tools.make_question_curves
[fallback|frameworks|gradients ...]`.

All are runs of examples/demo.yaml's model, data and seed, shorter. About four minutes on two idle
cores. `frameworks` also writes build/start.npz, from which tools/torch_decoder.py trains PyTorch's
runs, in an environment of its own.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import yaml
from pydantic import TypeAdapter

from tools.make_example_curves import CHECKOUT, JOB, write_rows
from training.arithmetic.layer_statistics import COLUMNS
from training.spec import JobSpec, RunSpec
from training.step_values import StepStats, layer_names
from training.trainer import data, loop, model, optimizer
from training.trainer.run import data_seed

FOLDER = CHECKOUT / "examples" / "questions"
START = CHECKOUT / "build" / "start.npz"
SHORT, LONG, WATCHED_EVERY = 200, 300, 100  # steps
BF16_BLOCKS = {"blocks": ["1-2"], "recipe": "bf16"}
GRADIENTS: Mapping[str, Mapping[str, Any]] = {
    "mxfp8": {"recipe": "mxfp8"},
    "mxfp8-e5m2": {"recipe": "mxfp8", "switches": {"gradient_format": "e5m2"}},
    "fp8": {"recipe": "fp8_current"},
    "fp8-e4m3": {"recipe": "fp8_current", "switches": {"gradient_format": "e4m3"}},
}
LAYER_COLUMNS = ("grad/snr_db", "grad/underflow_share", "kernel_grad/snr_db")


def run_of(arm: Mapping[str, Any], replicate: int = 0, **schedule: int) -> RunSpec:
    """One run of the demo's model, by the keys of its arm and of its schedule."""
    job = yaml.safe_load(JOB.read_text(encoding="utf-8"))["job"]
    job |= {"keep_checkpoints": [], "baseline": {**arm, "replicates": replicate + 1}}
    job["schedule"] |= {"validation_every": 0, **schedule}
    job["candidates"] = [{"recipe": "f32"}]
    specs = TypeAdapter(JobSpec).validate_python(job).runs()
    return next(spec for _, spec in specs if spec.replicate == replicate)


def write_fallback() -> None:
    """bf16 and nvfp4, with a rerun of each, from weights that were moved by one part in a million
    as on another machine: `fell-back` is that of bf16. And an nvfp4 of whose three blocks two are
    in bf16.
    """
    for name, spec in {
        "bf16": run_of({"recipe": "bf16"}, steps=SHORT),
        "nvfp4": run_of({"recipe": "nvfp4"}, steps=SHORT),
        "nvfp4-again": run_of({"recipe": "nvfp4"}, replicate=1, steps=SHORT),
        "fell-back": run_of({"recipe": "bf16"}, replicate=1, steps=SHORT),
        "two-blocks": run_of({"recipe": "nvfp4", "overrides": [BF16_BLOCKS]}, steps=SHORT),
    }.items():
        write_rows(FOLDER / "fallback" / f"{name}.csv", map(_logged, loop.train(spec)))


def write_frameworks() -> None:
    """JAX's run, and what PyTorch's begin with: weights, batches and learning rates."""
    spec = run_of({"recipe": "bf16"}, steps=SHORT)
    columns = ("step", "loss", "learning_rate", "grad_norm")
    rows = ((*_logged(step), f"{step.grad_norm:.6f}") for step in loop.train(spec))
    write_rows(FOLDER / "frameworks" / "jax.csv", rows, columns)
    corpus, settings = data.load(spec.data), optimizer.settings(spec.schedule)
    START.parent.mkdir(exist_ok=True)
    np.savez(
        START,
        batches=data.batches(corpus.train, spec.data, data_seed(spec.seed), 0, SHORT),
        learning_rates=np.array(
            [optimizer.learning_rate(settings, jnp.int32(step)) for step in range(SHORT)]
        ),
        **dict(_weights(spec)),
    )


def write_gradients() -> None:
    """bf16, and four arms with gradients in E4M3 or E5M2; of these also what their watched steps
    say of each quantized layer's gradients.
    """
    layers: list[tuple[object, ...]] = []
    places = [COLUMNS.index(column) for column in LAYER_COLUMNS]
    for name, arm in {"bf16": {"recipe": "bf16"}, **GRADIENTS}.items():
        watched = WATCHED_EVERY if name in GRADIENTS else 0
        spec = run_of(arm, steps=LONG, statistics_every=watched, gradients_every=watched)
        rows = []
        for step in loop.train(spec):
            rows.append(_logged(step))
            for layer, values in zip(
                layer_names(spec.model.n_layers), step.layers or (), strict=False
            ):
                if np.isfinite(values[places[0]]):
                    layers.append((name, step.step, layer, *(f"{values[at]:.5g}" for at in places)))
        write_rows(FOLDER / "gradients" / f"{name}.csv", rows)
    write_rows(
        FOLDER / "gradients" / "layers.csv", layers, ("arm", "step", "layer", *LAYER_COLUMNS)
    )


def _logged(step: StepStats) -> tuple[object, ...]:
    return step.step, f"{step.lm_loss:.6f}", f"{step.learning_rate:.6g}"


def _weights(spec: RunSpec) -> Iterator[tuple[str, Any]]:
    """The initial weights by name; those of blocks are blocks.NUMBER.NAME."""
    for name, value in model.initial_parameters(spec.model, spec.seed, spec.replicate).items():
        if name != "blocks":
            yield name, value
            continue
        for number, block in enumerate(value):
            yield from ((f"blocks.{number}.{part}", weight) for part, weight in block.items())


PARTS = {
    "fallback": write_fallback,
    "frameworks": write_frameworks,
    "gradients": write_gradients,
}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
