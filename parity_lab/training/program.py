"""Takes a candidate apart at its kept checkpoints: one process and a few programs measure
everything that an analysis needs.

What it answers: what is the held-out loss, the gradient, or the end of a fork, with these GEMMs
on and the others off?

    losses      (batches,) nats, of the first parent's weights on the first held-out batches
    gradients   for one held-out batch the sums of `fixed_weights`, of all GEMMs and of each
                alone, against bf16
    fork        the loss of `forks`
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from parity_lab.analysis import Measurement, Way, next_measurement
from parity_lab.analysis_plan import MeasureRequest, Setup, setup_from
from parity_lab.gradient_error import SUMS
from parity_lab.training.fixed_weights import gradients, losses
from parity_lab.training.forks import ParentCheckpoints, finite
from parity_lab.training.menu import Choice, changed
from parity_lab.training.menu_layer import menu_decoder
from parity_lab.training.replays import Read, Replays, replayed
from parity_lab.training.subject import subject
from training.spec import RunSpec
from training.trainer import data
from training.trainer.data import Corpus
from training.trainer.identity import manifest
from workers.protocol import Message

_SEED = 0x5EED  # the first of the numbers from which the gradient split rounds


class HeldOutMissingError(Exception):
    """The data have too few held-out batches for an interval."""

    code = "HELD_OUT_MISSING"


class ForksTellNothingError(Exception):
    """The noise of the forks cannot be estimated."""

    code = "FORKS_TELL_NOTHING"


def analyse(
    request: MeasureRequest,
    candidate: RunSpec,
    folders: Path,
    read: Read,
    send: Callable[[Message], None],
) -> None:
    """Measure everything that `request.results` lacks, from checkpoints of the parents in
    `folders`, by id.
    """
    parents = [(read(spec), folders / parent) for parent, spec in request["parents"].items()]
    setup, results = setup_from(request["setup"]), dict(request["results"])
    baseline = None if request["baseline"] is None else read(request["baseline"])
    program = Program(parents, candidate, baseline, setup.fork_step, setup.fork_steps)
    send(
        {
            "kind": "manifest",
            "manifest": manifest(candidate, program.corpus),
            "rounding": candidate.rounding,
        }
    )
    replays = Replays(request["records"], folders, read, program.corpus)
    while (pending := _next(setup, results)) is not None:
        if pending.replay is not None:
            value: Any = replayed(replays, pending.replay, pending.draw, request["parents"], send)
        else:
            value = _value(program, setup, pending, lambda: send({"kind": "alive"}))
        results[pending.key] = value
        send({"kind": "result", "key": pending.key, "value": value, "steps": pending.steps})


class Program(ParentCheckpoints):
    """What the GEMMs of a candidate do at these checkpoints: held-out losses and gradients besides
    forks.
    """

    def __init__(
        self,
        parents: Sequence[tuple[RunSpec, Path]],
        candidate: RunSpec,
        baseline: RunSpec | None,
        step: int,
        fork_steps: int,
        corpus: Corpus | None = None,
    ) -> None:
        """`parents` are runs of the baseline or of the candidate; `baseline` None: bf16. Raises
        SpecError for what cannot be analysed.
        """
        self._measured = subject(candidate, baseline, step, fork_steps)
        self._units = {unit.name: unit for unit in self._measured.units}
        menu = self._measured.arithmetics
        # Only held-out losses are measured without an ingredient; those arithmetics come last, and
        # fewer branches compile faster.
        taken = 1 + int(max(self._measured.on.max(), self._measured.off.max()))
        both = (self._measured.on, self._measured.off)
        super().__init__(parents, menu[:taken], both, step, fork_steps, corpus)
        self._model = menu_decoder(candidate.model, menu, both, fast_bf16=self._fast)

    @cached_property
    def _held_out(self) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
        spec = self._parents[0][0]
        if len(self.corpus.validation) > spec.data.sequence_length + 1:
            batches = data.validation_batches(self.corpus, spec.data)
            if len(batches) > 1:
                return batches
        raise HeldOutMissingError(
            f"the data have {len(self.corpus.validation)} held-out tokens, expected at least 2 "
            f"batches of {spec.data.tokens_per_step}; set data.validation_fraction and train again"
        )

    def choice(self, way: Way, units: Sequence[str], ingredient: str | None = None) -> Choice:
        """The candidate's arithmetic without these GEMMs, everything off but these (`alone`), or
        without an ingredient.
        """
        if ingredient is not None:
            return self._measured.ingredients[ingredient]
        take = self._measured.without if way == "without" else self._measured.alone
        return take([self._units[name] for name in units])

    def losses(self, choice: Choice, batches: int) -> list[float]:
        """The held-out losses of the first parent's weights under a choice."""
        values = next(losses(self._model, self.state(0), self._held_out[:batches], [choice]))
        return [finite(float(value), "a held-out loss") for value in values]

    def gradients(self, batch: int, seeds: int) -> dict[str, list[float]]:
        """For a held-out batch the sums (SUMS) over all layers: of `all` units, and of each alone
        with bf16 everywhere else.
        """
        choice = self._measured.on
        choices = [
            choice,
            *(changed(np.zeros_like(choice), [unit], choice) for unit in self._measured.units),
        ]
        at = batch % len(self._held_out)
        z_loss = self._parents[0][0].schedule.z_loss
        numbers = range(_SEED, _SEED + seeds)
        sums = next(
            gradients(
                self._trained, self.state(0), self._held_out[at : at + 1], choices, numbers, z_loss
            )
        )
        by_choice = sums.reshape(len(choices), -1, len(SUMS)).sum(axis=1)
        names = ["all", *self._units]
        return {
            name: [finite(float(value), "a gradient") for value in row]
            for name, row in zip(names, by_choice, strict=True)
        }


def _next(setup: Setup, results: dict[str, Any]) -> Measurement | None:
    try:
        return next_measurement(setup, results)
    except ValueError as error:
        raise ForksTellNothingError(str(error)) from error


def _value(
    program: Program, setup: Setup, measurement: Measurement, alive: Callable[[], None]
) -> Any:
    if measurement.kind == "gradients":
        return program.gradients(measurement.batch, setup.seeds)
    choice = program.choice(measurement.way, measurement.units, measurement.ingredient)
    if measurement.kind == "instant":
        return program.losses(choice, setup.batches)
    return program.fork(choice, measurement.parent, measurement.draw, alive)
