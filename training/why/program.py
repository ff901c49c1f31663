"""Takes a candidate apart at its kept checkpoints: one process and a few programs measure everything that an analysis needs.

What it answers: what is the held-out loss, the gradient, or the end of a fork, with these units on and the others off?

    losses      (batches,) nats, of the first parent's weights on the first held-out batches
    gradients   for one held-out batch the sums of `training.why.measure` of all units and of each alone, against bf16
    fork        the mean loss of the second half of a fork's steps, nats; draws as in `training.forks`

The assumption that can fail: a fork's steps are few next to the schedule's, so that its loss is that of the state it started from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from training.device import describe
from training.forks import Fork
from training.segments import Arithmetic
from training.spec import RunSpec
from training.trainer import data
from training.trainer.checkpoint import read_kept
from training.trainer.data import Corpus
from training.trainer.fingerprint import identity
from training.trainer.run import Run
from training.trainer.step import State
from training.why.measure import SUMS, forked, gradients, losses, menu_decoder
from training.why.subject import subject
from training.why.units import Choice

_SEED = 0x5EED  # the first of the numbers from which the gradient split rounds


class NotFiniteError(Exception):
    """A measured loss is NaN or infinite."""

    code = "FORK_DIVERGED"


class HeldOutMissingError(Exception):
    """The data have too few held-out batches for an interval."""

    code = "HELD_OUT_MISSING"


class Checkpoints:
    """The kept checkpoints of some runs, and the one program that trains their forks under any choice from a menu."""

    def __init__(
        self,
        parents: Sequence[tuple[RunSpec, Path]],
        arithmetics: tuple[Arithmetic, ...],
        choices: Sequence[Choice],
        step: int,
        fork_steps: int,
        corpus: Corpus | None = None,
    ) -> None:
        """`parents` are specifications of runs with the folders of their checkpoints; a fork combines what `choices` have in each GEMM.

        Raises CheckpointNotFoundError and CheckpointRefusedError as for forks.
        """
        self._parents, self._step, self._fork_steps = parents, step, fork_steps
        first = parents[0][0]
        self._corpus = data.load(first.data) if corpus is None else corpus
        data.check_vocabulary(self._corpus, first.model.vocab_size)
        self._fast = describe().fast_bf16
        self._trained = menu_decoder(first.model, arithmetics, choices, fast_bf16=self._fast)
        self._states: dict[int, State] = {}

    @property
    def corpus(self) -> Corpus:
        """The data of the candidate's runs."""
        return self._corpus

    def state(self, parent: int) -> State:
        """The state of a parent at the checkpoint."""
        if parent not in self._states:
            spec, folder = self._parents[parent]
            like = Run(spec, self._corpus, fast_bf16=self._fast).state
            self._states[parent] = read_kept(folder, self._step, identity(spec, self._corpus), like)
        return self._states[parent]

    def fork(self, choice: Choice, parent: int, draw: int, alive: Callable[[], None] | None = None) -> float:
        """The final loss of a fork of a parent."""
        spec = self._parents[parent][0]
        run = Run(spec, self._corpus, fast_bf16=self._fast, fork=Fork(parent=spec, step=self._step, draw=draw))
        run.start_from(self.state(parent))
        values = forked(self._trained, run, run.state, choice, self._step, self._fork_steps, alive).losses
        return _finite(float(values[self._fork_steps // 2 :].mean()), f"the loss of fork {draw}")


class Program(Checkpoints):
    """What the units of a candidate do at these checkpoints: held-out losses and gradients besides forks."""

    def __init__(
        self,
        parents: Sequence[tuple[RunSpec, Path]],
        candidate: RunSpec,
        baseline: RunSpec | None,
        step: int,
        fork_steps: int,
        corpus: Corpus | None = None,
    ) -> None:
        """`parents` are runs of the baseline or of the candidate; `baseline` None: bf16. Raises SpecError for what cannot be analysed."""
        self._measured = subject(candidate, baseline, step, fork_steps)
        self._units = {unit.name: unit for unit in self._measured.units}
        menu = self._measured.arithmetics
        # Only held-out losses are measured without an ingredient; those arithmetics come last, and fewer branches compile faster.
        taken = 1 + int(max(self._measured.own.max(), self._measured.off.max()))
        both = (self._measured.own, self._measured.off)
        super().__init__(parents, menu[:taken], both, step, fork_steps, corpus)
        self._model = menu_decoder(candidate.model, menu, both, fast_bf16=self._fast)

    @cached_property
    def _held_out(self) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
        spec = self._parents[0][0]
        if len(self._corpus.validation) > spec.data.sequence_length + 1:
            batches = data.validation_batches(self._corpus, spec.data)
            if len(batches) > 1:
                return batches
        raise HeldOutMissingError(
            f"the data have {len(self._corpus.validation)} held-out tokens, expected at least 2 batches of "
            f"{spec.data.tokens_per_step}; set data.validation_fraction and train again"
        )

    def without(self, units: Sequence[str]) -> Choice:
        """The candidate's arithmetic with these units off."""
        return self._measured.without([self._units[name] for name in units])

    def alone(self, units: Sequence[str]) -> Choice:
        """Everything off but these units."""
        return self._measured.alone([self._units[name] for name in units])

    def without_ingredient(self, name: str) -> Choice:
        """The candidate's arithmetic without an ingredient."""
        return self._measured.ingredients[name]

    def losses(self, choice: Choice, batches: int) -> list[float]:
        """The held-out losses of the first parent's weights under a choice."""
        values = next(losses(self._model, self.state(0), self._held_out[:batches], [choice]))
        return [_finite(float(value), "a held-out loss") for value in values]

    def gradients(self, batch: int, seeds: int) -> dict[str, list[float]]:
        """For a held-out batch the sums (SUMS) over all layers: of `all` units, and of each alone with bf16 everywhere else."""
        choices = [self._measured.own]
        for unit in self._units.values():
            choice = np.zeros_like(self._measured.own)
            choice[unit.place] = self._measured.own[unit.place]
            choices.append(choice)
        at = batch % len(self._held_out)
        z_loss = self._parents[0][0].schedule.z_loss
        numbers = range(_SEED, _SEED + seeds)
        sums = next(gradients(self._trained, self.state(0), self._held_out[at : at + 1], choices, numbers, z_loss))
        by_choice = sums.reshape(len(choices), -1, len(SUMS)).sum(axis=1)
        names = ["all", *self._units]
        return {name: [_finite(float(value), "a gradient") for value in row] for name, row in zip(names, by_choice, strict=True)}


def _finite(value: float, what: str) -> float:
    if not math.isfinite(value):
        raise NotFiniteError(f"{what} is {value}, expected a finite number; analyse an earlier checkpoint, or plan shorter forks")
    return value
