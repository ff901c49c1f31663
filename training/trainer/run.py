"""One run: starts blocks of steps without waiting for them, and reads each while the next one runs.

What it answers: in which blocks are the steps of this run computed, and what does each step
report?

    start block n + 1  |  read block n, report its steps, save the state after it if due  |  start
                       block n + 2 ...

A block ends where the arithmetic switches and where a held-out loss or a checkpoint is due; a
watched step is a block of its own. Otherwise its length follows the update period of the pages.
The length does not affect any bit.

The assumption that can fail: a step takes about as long as the previous one. Only the timing of
the reports depends on it.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from training.arithmetic import delayed_scaling, random_bits
from training.arithmetic.linear import linear
from training.engines import transformer_engine
from training.forks import Fork
from training.segments import Segment
from training.spec import RunSpec
from training.step_values import PROJECTIONS, DivergedError, LayerStatistics, StepStats
from training.trainer import optimizer, step
from training.trainer.checkpoint import Checkpoints
from training.trainer.data import Corpus, batches, validation_batches
from training.trainer.model import Decoder, decoder, grouped, initial_parameters, nudged, ungrouped
from training.trainer.step import ROW, BlockOutput, Inputs, Sharing, State

_BLOCK_SECONDS = 0.4  # a live page is updated about twice per second
_MOST_STEPS = 64  # in a block
_PLAIN, _WATCHED, _COMPARED = range(3)  # kinds of steps
# in a block of several processes: their clocks differ, and they must start the same steps
_JOINT_STEPS = 8
_MOST_TOKENS = 1 << 22  # in a block, unless a single step has more
_BATCHES = 2  # hashed with a seed
_FORK_SEEDS = 1 << 31  # seeds are smaller


def data_seed(seed: int) -> int:
    """The uint32 that determines the order of a run's data (`training.trainer.data.batches`)."""
    return random_bits.integer_fold(_BATCHES, seed)


def rounding_words(seed: int, replicate: int) -> tuple[int, int]:
    """Returns the two words (uint32) that name a run to stochastic rounding; no two runs share
    both.
    """
    return seed, replicate


def fork_words(fork: Fork) -> tuple[int, int]:
    """Returns the words that name a fork to stochastic rounding: those of its parent for draw 0,
    else others.
    """
    parent = fork.parent
    if not fork.draw:
        return rounding_words(parent.seed, parent.replicate)
    return parent.seed | _FORK_SEEDS, random_bits.integer_fold(
        parent.replicate, fork.step, fork.draw
    )


def fork_state(fork: Fork, state: State) -> State:
    """Returns the state from which a fork starts: that of its parent for draw 0, else with weights
    moved by about one part in a million.
    """
    if not fork.draw:
        return state
    parent = fork.parent
    return state._replace(
        parameters=nudged(state.parameters, (parent.seed, parent.replicate, fork.step, fork.draw))
    )


class _Block(NamedTuple):
    """Steps that were started together: the first, their number and their output.

    `validation` is the loss after them if it is due, `snapshot` a copy of the state after them if
    it is to be saved, and `data_wait_seconds` the host's time per step for their tokens.
    """

    first: int
    steps: int
    output: BlockOutput
    watched: bool
    validation: jax.Array | None
    snapshot: State | None
    data_wait_seconds: float


class TrainingRun:
    """One run in progress: its state on the device and its compiled programs."""

    def __init__(
        self, spec: RunSpec, corpus: Corpus, *, fast_bf16: bool, fork: Fork | None = None
    ) -> None:
        self._spec = spec
        self._corpus = corpus
        self._sharing = Sharing(spec.gradient_accumulation, spec.devices)
        self._capacity = max(1, min(_MOST_STEPS, _MOST_TOKENS // spec.data.tokens_per_step))
        self._models = {part.first_step: self._decoder(part, fast_bf16) for part in spec.segments}
        self._data_seed = data_seed(spec.seed)
        self._fork = fork
        self._words = jnp.asarray(
            fork_words(fork) if fork else rounding_words(spec.seed, spec.replicate), jnp.uint32
        )
        self._settings = optimizer.settings(spec.schedule)
        self._stacked: Decoder | None = None
        """The model whose programs take `_state` as it is held; None: it is held block by block."""
        self._state = self._initial_state()
        self._held_out = None
        if spec.schedule.validation_every and len(corpus.validation):
            pieces = replace(
                spec.data,
                batch_size=spec.data.batch_size // (spec.gradient_accumulation * spec.devices),
            )
            # what fits in training fits here
            self._held_out = jnp.asarray(validation_batches(corpus, pieces))

    def _initial_state(self) -> State:
        spec = self._spec
        parameters = jax.device_put(initial_parameters(spec.model, spec.seed, spec.replicate))
        length = next(
            (
                model.delayed_scaling.history_length
                for model in self._models.values()
                if model.delayed
            ),
            0,
        )
        scales = delayed_scaling.initial_scales(spec.model.n_layers, len(PROJECTIONS), length)
        state = State(
            parameters, optimizer.initial_state(parameters, spec.schedule.optimizer), scales
        )
        return jax.device_put(state, self._sharing.everywhere) if spec.devices > 1 else state

    def _decoder(self, part: Segment, fast_bf16: bool) -> Decoder:
        layer = transformer_engine.linear if self._spec.engine == "transformer_engine" else linear
        return decoder(
            self._spec.model, part, fast_bf16=fast_bf16, remat=self._spec.remat, layer=layer
        )

    def _model_at(self, step: int) -> Decoder:
        return self._models[max(first for first in self._models if first <= step)]

    def _compile(self, number: int) -> None:
        """Compile the programs for the steps from this one on by running blocks of 0 steps, so that
        no step's time includes it.
        """
        for kind in self._kinds():
            self._start(number, 0, self._tokens(number, 0), kind).rows.block_until_ready()

    @property
    def state(self) -> State:
        """The state from which the next step starts, block by block."""
        return self._state if self._stacked is None else ungrouped(self._stacked, self._state)

    def start_from(self, state: State) -> None:
        """Start from the state of the fork's parent."""
        self._hold(fork_state(self._fork, state) if self._fork else state)

    def _hold(self, state: State) -> None:
        self._state, self._stacked = state, None

    def _stack(self, model: Decoder) -> None:
        """Hold the state as this model's programs take it. If they stacked it themselves, they
        would hold it twice.
        """
        if self._stacked is None or self._stacked.groups != model.groups:
            self._state, self._stacked = grouped(model, self.state), model

    def steps(self, checkpoints: Checkpoints | None = None) -> Iterator[StepStats]:
        """Train from the first step (of a fork, the first after its parent's), or from the newest
        checkpoint, to the last.
        """
        last = self._spec.schedule.steps
        first = 0
        if checkpoints:
            first, state = checkpoints.resume(self.state)
            self._hold(state)
        first = max(first, self._fork.step if self._fork else 0)
        for number in [first, *(start for start in self._models if start > first)]:
            self._compile(number)
        count = 1
        pending: _Block | None = None
        finished = time.perf_counter()
        while first < last or pending:
            following = None
            if first < last:
                following = self._dispatch(first, count, checkpoints)
                first += following.steps
            if pending:
                rows = np.asarray(pending.output.rows)[: pending.steps].tolist()
                now = time.perf_counter()
                step_seconds, finished = (now - finished) / pending.steps, now
                yield from self._stats(pending, rows, step_seconds)
                # only now, so that a checkpoint never holds a step that was not reported
                if checkpoints and pending.snapshot:
                    checkpoints.save(pending.first + pending.steps, pending.snapshot)
                if jax.process_count() == 1:
                    target = round(_BLOCK_SECONDS / step_seconds)
                else:
                    target = _JOINT_STEPS
                count = max(1, min(self._capacity, target))
            pending = following

    def _dispatch(self, first: int, count: int, checkpoints: Checkpoints | None) -> _Block:
        """Start a block of up to `count` steps without waiting for it."""
        saved = checkpoints.steps_until_due(first) if checkpoints else None
        kind = self._kind(first)
        schedule = self._spec.schedule
        steps_to_validation = self._until(schedule.validation_every, first)
        switch = min((start for start in self._models if start > first), default=schedule.steps)
        # a watched step is a block of its own
        steps_to_watched = 1 if kind else self._until(schedule.statistics_every, first)
        count = min(count, steps_to_validation, switch - first, steps_to_watched, saved or count)
        began = time.perf_counter()
        tokens = self._tokens(first, count)
        waited = (time.perf_counter() - began) / count
        output = self._start(first, count, tokens, kind)
        validation = snapshot = None
        if self._held_out is not None and steps_to_validation == count:
            validation = step.validation_loss(self._model_at(first), self._state, self._held_out)
        is_last = first + count == schedule.steps
        if checkpoints and (
            checkpoints.is_kept(first + count) if is_last else checkpoints.due(first + count)
        ):
            # the next block overwrites them; slices of stacked blocks are copies already
            leaves = set(map(id, jax.tree.leaves(self._state)))
            snapshot = jax.tree.map(
                lambda leaf: jnp.copy(leaf) if id(leaf) in leaves else leaf, self.state
            )
        return _Block(first, count, output, kind > _PLAIN, validation, snapshot, waited)

    def advance(self, first: int, count: int) -> BlockOutput:
        """Start `count` steps from step `first`, all watched if that one is; returns their output
        without waiting for it.
        """
        return self._start(first, count, self._tokens(first, count), self._kind(first))

    def _start(self, first: int, count: int, tokens: jax.Array, kind: int) -> BlockOutput:
        inputs = Inputs(tokens, jnp.int32(first), jnp.int32(count), self._words, self._settings)
        model = self._model_at(first)
        self._stack(model)
        output: BlockOutput
        self._state, output = step.block(
            model.watching(compared=kind == _COMPARED) if kind else model,
            self._sharing,
            self._state,
            inputs,
        )
        return output

    def inputs(self, first: int, count: int, capacity: int) -> Inputs:
        """The inputs of a block of `count` steps from step `first` in a program for `capacity`
        steps.
        """
        return Inputs(
            self._tokens(first, count, capacity),
            jnp.int32(first),
            jnp.int32(count),
            self._words,
            self._settings,
        )

    def _tokens(self, first: int, count: int, capacity: int | None = None) -> jax.Array:
        """Returns a block's tokens on the device; cutting them on the host lets the corpus be
        larger than the device's memory.
        """
        data = self._spec.data
        tokens = np.zeros(
            (capacity or self._capacity, data.batch_size, data.sequence_length + 1), np.int32
        )
        tokens[:count] = batches(self._corpus.train, data, self._data_seed, first, count)
        placed: jax.Array = jax.device_put(
            tokens, self._sharing.by_sequence if self._spec.devices > 1 else None
        )
        return placed

    def _until(self, every: int, first: int) -> int:
        """Steps from `first` up to the next multiple of `every` (0: never), or to the end of the
        run.
        """
        rest = self._spec.schedule.steps - first
        if every:
            return min(every - first % every, rest)
        return rest

    def _kind(self, first: int) -> int:
        """Whether a step is plain, watched (records the layers' statistics), or also compares their
        gradients.
        """
        schedule = self._spec.schedule
        if not schedule.statistics_every or first % schedule.statistics_every:
            return _PLAIN
        if schedule.gradients_every and first % schedule.gradients_every == 0:
            return _COMPARED
        return _WATCHED

    def _kinds(self) -> set[int]:
        """The kinds of steps that the run has: each is a program of its own."""
        schedule = self._spec.schedule
        kinds = {_PLAIN} if schedule.statistics_every != 1 else set()
        if schedule.statistics_every:
            kinds |= {_WATCHED} if schedule.gradients_every != schedule.statistics_every else set()
            kinds |= {_COMPARED} if schedule.gradients_every else set()
        return kinds

    def _stats(
        self, block: _Block, rows: list[list[float]], step_seconds: float
    ) -> Iterator[StepStats]:
        norms = (
            np.asarray(block.output.layer_grad_norms)[: block.steps]
            .reshape(block.steps, -1)
            .tolist()
        )
        for offset, row in enumerate(rows):
            number, values = block.first + offset, dict(zip(ROW, row, strict=True))
            last = offset == block.steps - 1
            yield StepStats(
                step=number,
                tokens=(number + 1) * self._spec.data.tokens_per_step,
                step_seconds=step_seconds,
                data_wait_seconds=block.data_wait_seconds,
                validation_loss=float(block.validation)
                if last and block.validation is not None
                else None,
                layer_grad_norms=tuple(norms[offset]),
                layers=_nested(np.asarray(block.output.statistics)) if block.watched else None,
                **values,
            )
            if not math.isfinite(values["loss"]):
                raise DivergedError(number)


def _nested(statistics: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> LayerStatistics:
    """(blocks, projections, columns) as tuples (layers, columns)."""
    return tuple(tuple(layer) for layer in statistics.reshape(-1, statistics.shape[-1]).tolist())
