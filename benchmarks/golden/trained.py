"""Runs of the project's own trainer: honest reruns and resumes, and the same with a fault.

A small decoder (128 thousand parameters) learns bytes of this project's documents on the CPU. An
honest rerun begins from weights that were moved by one part in a million, which stands for the
other rounding of another machine; an honest resume goes on from a checkpoint on disk.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import Curve, curve_from_arrays
from training.forks import Fork
from training.spec import Data, Model, RunSpec, Schedule
from training.step_values import StepStats
from training.trainer import step
from training.trainer.checkpoint import Checkpointing, Checkpoints, read_kept
from training.trainer.data import Corpus, load
from training.trainer.identity import identity
from training.trainer.run import TrainingRun
from training.trainer.step import State

STEPS, SAVED = 100, 50
MODEL = Model(vocab_size=256, d_model=64, n_layers=2, n_heads=2, n_kv_heads=1, d_ff=128)
DATA = Data(source="parity_docs", sequence_length=64, batch_size=8)
SCHEDULE = Schedule(steps=STEPS, warmup_steps=10)
RECIPES = ("bf16", "fp8_delayed", "nvfp4")
RANDOM = frozenset({"nvfp4"})  # its gradients are rounded with random numbers
COLUMNS = ("learning_rate", "grad_norm", "clipped_grad_norm")

StateChange = Callable[[State, State], State]
"""The state that a resume starts from, of the saved state and that before step 0."""


def spec_of(
    recipe: str, seed: int, steps: int = STEPS, schedule: Mapping[str, float] | None = None
) -> RunSpec:
    """A run of the small model, with fields of its schedule changed."""
    changed: dict[str, Any] = {"steps": steps, **(schedule or {})}
    return RunSpec(
        recipe=recipe,
        engine="emulated",
        model=MODEL,
        data=DATA,
        schedule=replace(SCHEDULE, **changed),
        layer_policy="mlp_only",
        seed=seed,
        replicate=0,
        devices=1,
    )


def corpus() -> Corpus:
    """The bytes that all runs learn."""
    return load(DATA, MODEL.vocab_size)


class OffsetRun(TrainingRun):
    """A run that reads the batches of other steps: `offset` steps later, or those of another
    `data_seed`.
    """

    def __init__(
        self,
        spec: RunSpec,
        text: Corpus,
        fork: Fork | None = None,
        *,
        offset: int = 0,
        data_seed: int | None = None,
    ) -> None:
        super().__init__(spec, text, fast_bf16=False, fork=fork)
        self._offset = offset
        if data_seed is not None:
            self._data_seed = data_seed

    def _tokens(self, first: int, count: int, capacity: int | None = None) -> jax.Array:
        return super()._tokens(first + self._offset, count, capacity)


def curve_of(stats: Iterable[StepStats], recipe: str, first_step: int = 1) -> Curve:
    """The curve of a run's steps, numbered from 1, as a log with 5 decimals has it."""
    rows = list(stats)
    steps = np.array([row.step for row in rows]) + first_step
    losses = np.round([row.lm_loss for row in rows], 5)
    columns = {name: [getattr(row, name) for row in rows] for name in COLUMNS}
    return curve_from_arrays(steps, losses, columns=columns, recipe=recipe)


def trained(spec: RunSpec, text: Corpus) -> Curve:
    """The curve of a run from its first step."""
    return curve_of(OffsetRun(spec, text).steps(), spec.recipe)


@frozen(eq=False)
class Saved:
    """A run that was saved after `SAVED` steps: its curve, the saved state, as it was read from
    disk, one of ten steps before, and that before step 0.
    """

    spec: RunSpec
    curve: Curve
    state: State
    earlier: State
    initial: State


def saved_run(spec: RunSpec, text: Corpus) -> Saved:
    """Train a run, and read its checkpoints."""
    facts = identity(spec, text)
    with tempfile.TemporaryDirectory() as folder:
        plan = Checkpointing(folder=Path(folder), every_seconds=None, keep=(SAVED - 10, SAVED))
        checkpoints = Checkpoints(plan, facts)
        run = TrainingRun(spec, text, fast_bf16=False)
        initial = jax.tree.map(jnp.copy, run.state)
        curve = curve_of(run.steps(checkpoints), spec.recipe)
        checkpoints.close()
        earlier, state = (
            read_kept(Path(folder), step, facts, initial) for step in (SAVED - 10, SAVED)
        )
    return Saved(spec=spec, curve=curve, state=state, earlier=earlier, initial=initial)


def resumed(
    saved: Saved,
    text: Corpus,
    change: StateChange | None = None,
    *,
    draw: int = 0,
    offset: int = 0,
    data_seed: int | None = None,
) -> Curve:
    """The log of a run that was resumed from its checkpoint, which begins behind it. `draw` above 0
    moves the weights by one part in a million.
    """
    fork = Fork(parent=saved.spec, step=SAVED, draw=draw)
    run = OffsetRun(saved.spec, text, fork, offset=offset, data_seed=data_seed)
    state = saved.state if change is None else change(saved.state, saved.initial)
    run.start_from(jax.tree.map(jnp.copy, state))
    return curve_of(run.steps(), saved.spec.recipe)


def resumed_with_restarted_schedule(saved: Saved, text: Corpus) -> Curve:
    """The log of a resume that reads the right batches, but whose rate warms up again."""
    run = OffsetRun(saved.spec, text, offset=SAVED)
    run.start_from(jax.tree.map(jnp.copy, saved.state))
    steps = (row for row in run.steps() if row.step < STEPS - SAVED)
    return curve_of(steps, saved.spec.recipe, first_step=1 + SAVED)


@contextmanager
def scaled_gradients(scale: float) -> Iterator[None]:
    """Runs within it have gradients that are `scale` times too large, as where those of the parts
    of a batch are summed.
    """
    honest = step.apply

    def scaled(*arguments: Any) -> Any:
        settings, parameters, moments, gradient, number = arguments
        larger = jax.tree.map(lambda leaf: leaf * scale, gradient)
        return honest(settings, parameters, moments, larger, number)

    step.block.clear_cache()
    step.apply = scaled
    try:
        yield
    finally:
        step.apply = honest
        step.block.clear_cache()


START_FAULTS: Mapping[str, Mapping[str, float]] = {
    "rate 10 % higher": {"learning_rate": 1.1 * SCHEDULE.learning_rate},
    "rate 10 % lower": {"learning_rate": 0.9 * SCHEDULE.learning_rate},
    "rate 30 % lower": {"learning_rate": 0.7 * SCHEDULE.learning_rate},
    "warm-up of 15 steps": {"warmup_steps": 15},
    "second beta 0.999": {"beta2": 0.999},
    "second beta 0.9": {"beta2": 0.9},
    "first beta 0.8": {"beta1": 0.8},
    "no weight decay": {"weight_decay": 0.0},
    "weight decay of 1": {"weight_decay": 1.0},
    "clipping at 0.1": {"clip_norm": 0.1},
    "no clipping": {"clip_norm": 1e9},
    "rate falls to 30 %": {"final_fraction": 0.3},
}
"""Faults of a run from its first step, as changes of its schedule."""
