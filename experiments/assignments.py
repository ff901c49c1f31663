"""What does it cost to compute these GEMMs in NVFP4? Full runs, forks and scores of mixed
assignments, with their noise.

    taskset -c 1 nice -n 15 python -m experiments.assignments run    # computes what
      assignments.jsonl does not hold yet; stop it at will
    python -m experiments.assignments list                           # what is on record

The baseline computes all linear layers in FP8 (`fp8_current`). An assignment computes some of eight
switches in NVFP4: block 0 or 1, times fprop, dgrad and wgrad of its MLP, and its attention
projections. Of this space of 2^8:

    grid      the 2^4 assignments that treat both blocks alike, each with 4 replicates
    ends      one switch alone in NVFP4, and all but one, each with 4 replicates
    forks     each of these assignments from the baseline's checkpoint (harm put in) and from that
              of everything in NVFP4 (harm taken out)
    noise     further runs of the baseline
    scores    what each switch does to the held-out loss and the gradients of fixed weights

Every result is one line of assignments.jsonl. `experiments.search` reads them. The assumption that
can fail: 0.1 million parameters and 600 steps exaggerate gaps; only how search methods compare
carries over, if anything does.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parity_lab.training.menu import Choice
from parity_lab.training.program import forked, gradients, losses, menu_decoder
from training.device import describe, trainer_facts
from training.segments import Arithmetic
from training.spec import Data, Fork, Model, RunSpec, Schedule
from training.trainer import data
from training.trainer.loop import Run
from training.trainer.step import State

RECORD = Path(__file__).with_suffix(".jsonl")
MODEL = Model(d_model=64, n_layers=2, n_heads=2, n_kv_heads=1, d_ff=192)
SWITCHES = tuple(
    f"{block}.{part}"
    for block in range(MODEL.n_layers)
    for part in ("mlp.fprop", "mlp.dgrad", "mlp.wgrad", "attention")
)
BASELINE, EVERYTHING = "0" * len(SWITCHES), "1" * len(SWITCHES)
# steps of a run, of a fork's parent, and of each mean of a fork's losses
STEPS, FORK_AT, PART = 600, 300, 20
REPLICATES, MORE_BASELINES = 4, 4
LATE = 0.8  # the late window of a full run starts here, as a share of its steps
_DATA = Data(batch_size=8, sequence_length=64)
_ATTENTION, _MLP = slice(0, 4), slice(4, 7)  # projections of a block
_SETTINGS = f"0.1M x {STEPS}, forks at {FORK_AT}, seed 0"
_BATCHES, _GRADIENT_BATCHES, _SEEDS = 8, 4, (1, 2, 3, 4)


def grid() -> tuple[str, ...]:
    """The assignments that treat both blocks alike, one bit for each switch: the 2^4."""
    half = len(SWITCHES) // MODEL.n_layers
    return tuple(f"{number:0{half}b}" * MODEL.n_layers for number in range(2**half))


def ends() -> tuple[str, ...]:
    """One switch alone, and all but one."""
    alone = [BASELINE[:at] + "1" + BASELINE[at + 1 :] for at in range(len(SWITCHES))]
    return (*alone, *(EVERYTHING[:at] + "0" + EVERYTHING[at + 1 :] for at in range(len(SWITCHES))))


def choice(assignment: str) -> Choice:
    """The arithmetic of every GEMM (blocks, projections, GEMMs): 0 is FP8, 1 is NVFP4."""
    chosen = np.zeros((MODEL.n_layers, 7, 3), np.int32)
    for name, bit in zip(SWITCHES, assignment, strict=True):
        block, part = name.split(".", 1)
        place = (
            (_ATTENTION, slice(None))
            if part == "attention"
            else (_MLP, ("fprop", "dgrad", "wgrad").index(part.removeprefix("mlp.")))
        )
        chosen[(int(block), *place)] = int(bit)
    return chosen


class Space:
    """The space in progress: its program, its parents' checkpoints, and the record."""

    def __init__(self) -> None:
        self._corpus = data.load(_DATA)
        self._fast = describe().fast_bf16
        self._model = menu_decoder(
            MODEL,
            (Arithmetic("fp8_current"), Arithmetic("nvfp4")),
            [choice(EVERYTHING)],
            fast_bf16=self._fast,
        )
        self._states: dict[tuple[str, int], State] = {}
        self._lines = list(records())
        self._about = {
            "settings": _SETTINGS,
            "code": trainer_facts({})["code_sha256"][:12],
            "device": describe().device_class,
        }

    def run(self) -> None:
        """Compute what the record lacks, what is needed most first."""
        self._replicates(grid(), range(REPLICATES - 1), (BASELINE, EVERYTHING))
        for replicate in range(REPLICATES + MORE_BASELINES):
            self.full_run(BASELINE, replicate)
        for replicate in range(REPLICATES):
            self.full_run(EVERYTHING, replicate)
        for origin in (BASELINE, EVERYTHING):
            self._scores(origin)
        self._replicates(ends(), range(2), (BASELINE,))
        self._replicates(grid(), range(REPLICATES), (BASELINE, EVERYTHING))
        self._replicates(ends(), range(REPLICATES), (BASELINE, EVERYTHING))

    def _replicates(
        self, assignments: Sequence[str], replicates: range, origins: Sequence[str]
    ) -> None:
        """A run of each assignment, and its forks from these origins, for each replicate."""
        for replicate in replicates:
            for assignment in assignments:
                self.full_run(assignment, replicate)
            for assignment in assignments:
                for origin in origins:
                    self.fork(assignment, origin, replicate)

    def full_run(self, assignment: str, replicate: int) -> float:
        """The mean loss (nats) of a run's late window, computed unless it is on record."""
        line = self._find("run", assignment=assignment, replicate=replicate)
        if line:
            return float(line["late_mean"])
        run = self._made(replicate)
        state, early = forked(self._model, run, run.state, choice(assignment), 0, FORK_AT)
        if assignment in {BASELINE, EVERYTHING}:
            self._states[assignment, replicate] = state
        late = forked(self._model, run, state, choice(assignment), FORK_AT, STEPS - FORK_AT).losses
        window = np.concatenate([early, late])[int(LATE * STEPS) :]
        self._write(
            "run", assignment=assignment, replicate=replicate, late_mean=float(window.mean())
        )
        return float(window.mean())

    def fork(
        self,
        assignment: str,
        origin: str,
        replicate: int,
        draw: int = 0,
        steps: int = STEPS - FORK_AT,
    ) -> list[float]:
        """Mean losses (nats) of a fork from the origin's checkpoint, by default to the end of the
        run, over parts of 20 steps.
        """
        line = self._find(
            "fork", assignment=assignment, origin=origin, replicate=replicate, draw=draw
        )
        if line:
            return list(line["parts"])
        number = 1 + 2 * (1000 * draw + int(assignment, 2)) + (origin == EVERYTHING)
        run = self._made(replicate, number)
        run.start_from(self._state(origin, replicate))
        values = forked(self._model, run, run.state, choice(assignment), FORK_AT, steps).losses
        parts = [float(value) for value in values.reshape(-1, PART).mean(axis=1)]
        self._write(
            "fork",
            assignment=assignment,
            origin=origin,
            replicate=replicate,
            draw=draw,
            parts=parts,
        )
        return parts

    def _state(self, origin: str, replicate: int) -> State:
        """The origin's state at the fork, computed again if this process does not have it."""
        if (origin, replicate) not in self._states:
            run = self._made(replicate)
            self._states[origin, replicate] = forked(
                self._model, run, run.state, choice(origin), 0, FORK_AT
            ).state
        return self._states[origin, replicate]

    def _scores(self, origin: str) -> None:
        """Of each switch alone, at the checkpoint of the first parent: held-out loss, and sums of
        its gradient's error (against FP8).
        """
        if self._find("scores", origin=origin):
            return
        state = self._state(origin, 0)
        assignments = (BASELINE, EVERYTHING, *ends())
        batches = data.validation_batches(self._corpus, _DATA)
        held_out = losses(self._model, state, batches[:_BATCHES], map(choice, assignments))
        sums = gradients(
            self._model,
            state,
            batches[:_GRADIENT_BATCHES],
            [*map(choice, assignments)],
            _SEEDS,
            0.0,
        )
        total = np.mean([each.sum(axis=(1, 2)) for each in sums], axis=0)
        values = {
            assignment: [float(loss.mean()), *row]
            for assignment, loss, row in zip(assignments, held_out, total.tolist(), strict=True)
        }
        self._write("scores", origin=origin, values=values)

    def _made(self, replicate: int, draw: int = 0) -> Run:
        spec = RunSpec(
            recipe="nvfp4",
            engine="emulated",
            model=MODEL,
            data=_DATA,
            schedule=Schedule(steps=STEPS, learning_rate=4e-3),
            layer_policy="all_linears",
            seed=0,
            replicate=replicate,
            devices=1,
        )
        return Run(
            spec,
            self._corpus,
            fast_bf16=self._fast,
            fork=Fork(parent=spec, step=FORK_AT, draw=draw) if draw else None,
        )

    def _find(self, kind: str, **values: Any) -> Mapping[str, Any] | None:
        wanted = {"kind": kind, **values}
        return next(
            (
                line
                for line in self._lines
                if all(line.get(name) == value for name, value in wanted.items())
            ),
            None,
        )

    def _write(self, kind: str, **values: Any) -> None:
        line = {**self._about, "kind": kind, **values}
        self._lines.append(line)
        with RECORD.open("a") as file:
            file.write(json.dumps(line) + "\n")
        sys.stdout.write(f"{kind} {json.dumps(values)[:110]}\n")
        sys.stdout.flush()


def records() -> Iterator[Mapping[str, Any]]:
    """The lines of these settings."""
    if RECORD.exists():
        yield from (
            line
            for line in map(json.loads, RECORD.read_text().splitlines())
            if line["settings"] == _SETTINGS
        )


def main() -> int:
    """Compute, or list what is on record."""
    parser = argparse.ArgumentParser(description="Full runs and forks of mixed assignments.")
    parser.add_argument("what", choices=["run", "list"])
    if parser.parse_args().what == "run":
        Space().run()
    kinds = [line["kind"] for line in records()]
    sys.stdout.write("".join(f"{kind}: {kinds.count(kind)}\n" for kind in dict.fromkeys(kinds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
