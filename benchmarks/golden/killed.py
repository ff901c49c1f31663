"""Resumes after a process was really killed: a child trains and saves every ten steps, SIGKILL ends
it somewhere after step 55, and a second child goes on from what is on disk, in the same log.

    python -m benchmarks.golden.killed FOLDER SEED [FAULT]    # the child
"""

import csv
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.golden.resume_faults import (
    OTHER_DATA_SEED,
    lost_count,
    lost_optimizer,
    one_layer_not_restored,
)
from benchmarks.golden.trained import COLUMNS, OffsetRun, StateChange, corpus, spec_of
from parity.comparing.arms import read_one
from parity.judging.curves.curve import Curve, curve_from_arrays
from training.step_values import StepStats
from training.trainer.checkpoint import Checkpointing, Checkpoints
from training.trainer.identity import identity

SAVED_EVERY, KILLED_AFTER = 10, 55
LOG = "log.csv"
HONEST = "none"
DATA_SEED_LOST = "data seed lost"
STATE_FAULTS: Mapping[str, StateChange] = {
    "optimizer state lost": lost_optimizer,
    "step count of Adam lost": lost_count,
    "one layer not restored": one_layer_not_restored,
}
FAULTS = (HONEST, *STATE_FAULTS, DATA_SEED_LOST)
_STEP_SECONDS, _MOST_SECONDS = 0.02, 600.0


def killed_log(seed: int, fault: str) -> tuple[Curve, int]:
    """The log of a run that was killed and resumed with a fault, and the step before the first
    resumed one.
    """
    with tempfile.TemporaryDirectory() as folder:
        _train(folder, seed, HONEST, kill=True)
        rows = _rows(folder)
        _train(folder, seed, fault, kill=False)
        resumed = int(_rows(folder)[len(rows)][0])
        return read_one(str(Path(folder) / LOG), "run", {}), resumed - 1


def loss_alone(log: Curve) -> Curve:
    """A log with its losses and those that the restart repeated, and nothing else."""
    before = log.replaced
    steps = log.steps if before is None else np.concatenate([before.steps, log.steps])
    loss = log.loss if before is None else np.concatenate([before.loss, log.loss])
    return curve_from_arrays(steps, loss, recipe=log.recipe)


def _train(folder: str, seed: int, fault: str, *, kill: bool) -> None:
    """Run a child to its end, or kill it. Raises RuntimeError where it ends otherwise."""
    command = [sys.executable, "-m", "benchmarks.golden.killed", folder, str(seed), fault]
    with subprocess.Popen(command) as child:
        ends = time.monotonic() + _MOST_SECONDS
        while kill and child.poll() is None and time.monotonic() < ends:
            if (rows := _rows(folder)) and int(rows[-1][0]) > KILLED_AFTER:
                os.kill(child.pid, signal.SIGKILL)
                break
            time.sleep(0.01)
        code = child.wait(_MOST_SECONDS)
    if code != (-signal.SIGKILL if kill else 0):
        raise RuntimeError(f"the child of seed {seed} with fault {fault!r} ended with {code}")


def _rows(folder: str) -> list[list[str]]:
    """The complete rows of the log, without its head."""
    path = Path(folder) / LOG
    if not path.exists():
        return []
    whole = path.read_text(encoding="ascii").rpartition("\n")[0]
    return [row for row in csv.reader(whole.splitlines()) if row[0] != "step"]


def _child(folder: Path, seed: int, fault: str) -> None:
    text, spec = corpus(), spec_of("bf16", seed)
    run = OffsetRun(spec, text, data_seed=OTHER_DATA_SEED if fault == DATA_SEED_LOST else None)
    plan = Checkpointing(folder=folder / "checkpoints", every_seconds=None, every_steps=SAVED_EVERY)
    checkpoints = _Faulty(plan, identity(spec, text), STATE_FAULTS.get(fault))
    log = folder / LOG
    is_new = not log.exists()
    with log.open("a", encoding="ascii") as file:
        if is_new:
            file.write(f"step,loss,{','.join(COLUMNS)}\n")
        for row in run.steps(checkpoints):
            file.write(_line(row))
            file.flush()
            time.sleep(_STEP_SECONDS)  # else all is over before anybody can kill it
    checkpoints.close()


def _line(row: StepStats) -> str:
    values = ",".join(f"{getattr(row, name):.6g}" for name in COLUMNS)
    return f"{row.step + 1},{row.lm_loss:.5f},{values}\n"


class _Faulty(Checkpoints):
    """Checkpoints that are restored with a fault."""

    def __init__(
        self, plan: Checkpointing, facts: Mapping[str, str], change: StateChange | None
    ) -> None:
        super().__init__(plan, facts)
        self._change = change

    def resume(self, state: object) -> tuple[int, object]:
        initial = jax.tree.map(jnp.copy, state)
        first, restored = super().resume(state)
        if first and self._change is not None:
            restored = self._change(restored, initial)
        return first, restored


def main(arguments: Sequence[str]) -> None:
    """Train as a child."""
    folder, seed, fault = arguments
    _child(Path(folder), int(seed), fault)


if __name__ == "__main__":
    main(sys.argv[1:])
