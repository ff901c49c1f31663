"""Training as a generator: the caller pulls steps, and stops a run by stopping to pull.

What it answers: what did every step of this run do, and on what exactly did it run?

Steps run in blocks inside one compiled program; a block's numbers are read while the next one runs. Everything that
differs between the runs of one recipe and shape (seed, salt, schedule, corpus, number of steps in a block) is an argument
of that program, so JAX's persistent cache compiles it once. The same thread count gives the same bits in every process;
the length of a block does not touch them.

The assumption that can fail: that a step takes about as long as the one before; only the rhythm of the yields hangs on it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import math
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from training import data as data_module
from training import delayed, optimizer, random_bits
from training import device as device_module
from training import model as model_module
from training.checkpoint import Checkpointing, Checkpoints
from training.data import Corpus
from training.linear import quiet_channel
from training.model import Decoder
from training.spec import RunSpec
from training.statistics import StepStats
from training.switches import NO_SWITCHES, label, not_te_parity

_CAPACITY = 64  # steps in a block, at most
_BLOCK_SECONDS = 0.4  # a live page wants news twice a second
_ROUNDING, _BATCHES = 1, 2  # what a seed is used for
_ARMS_OWN = ("recipe", "switches", "bf16_from_step", "bf16_scope", "seed", "replicate")  # what may differ between the runs of a pair
_NOT_BITS = ("JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE", "JAX_ENABLE_COMPILATION_CACHE")


class RecipeRefusedError(Exception):
    """This machine or this trainer cannot run the recipe; the message says why. Nothing else is run instead."""

    code = "RECIPE_REFUSED"


class DivergedError(Exception):
    """The loss became NaN or infinite at `step`; that step was yielded before."""

    code = "DIVERGED"

    def __init__(self, step: int) -> None:
        self.step = step
        super().__init__(f"loss of step {step} is not finite, expected a number; lower schedule.learning_rate, or take it as the result")


class OutOfMemoryError(Exception):
    """The device has not enough memory for the run."""

    code = "OUT_OF_MEMORY"


class _State(NamedTuple):
    """What a step changes: parameters, the optimizer's moments, and the scales of delayed scaling."""

    parameters: Any
    moments: Any
    scales: delayed.Scales


class _Inputs(NamedTuple):
    """What a run brings to the compiled program beside its state."""

    corpus: jax.Array
    data_seed: jax.Array
    salt: jax.Array
    settings: optimizer.Settings


class _Row(NamedTuple):
    """The numbers of one step as they come from the device, in the order of the columns."""

    loss: float
    lm_loss: float
    learning_rate: float
    grad_norm: float
    clipped_grad_norm: float
    param_norm: float
    update_norm: float
    nonfinite_inputs: float


def rounding_salt(seed: int, replicate: int) -> int:
    """The uint32 that every stochastic rounding of a run starts from: a hash of seed and replicate."""
    return random_bits.integer_fold(_ROUNDING, seed, replicate)


def train(spec: RunSpec, corpus: Corpus | None = None, *, checkpointing: Checkpointing | None = None) -> Iterator[StepStats]:
    """Train the run step by step; stop iterating to cancel it.

    With `checkpointing` the run goes on from the newest intact checkpoint that it allows: the first step that is yielded says
    from where, and every later one is to the bit what the uninterrupted run would have yielded.

    Raises CheckpointRefusedError where that was made by another run, RecipeRefusedError before the first step where the
    machine cannot run the recipe, the errors of `training.data.load` where the data cannot be read, OutOfMemoryError where
    the device is too small, and DivergedError after the first step whose loss is not finite.
    """
    device = device_module.describe()
    ok, reason = device_module.can_run(spec.engine, spec.recipe, device)
    if not ok:
        raise RecipeRefusedError(f"recipe {spec.recipe} on engine {spec.engine} is refused: {reason}")
    corpus = data_module.load(spec.data) if corpus is None else corpus
    data_module.check_vocabulary(corpus, spec.model.vocab_size)
    checkpoints = Checkpoints(checkpointing, identity(spec, corpus)) if checkpointing is not None else None
    try:
        yield from Run(spec, corpus, fast_bf16=device.fast_bf16).steps(checkpoints)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise OutOfMemoryError(
            f"{spec.model.parameters:,} parameters with {spec.data.tokens_per_step:,} tokens a step do not fit into the memory of "
            f"{device.device_class} ({device.memory_bytes / 2**30:.0f} GiB); reduce data.batch_size, data.sequence_length or the model"
        ) from error
    finally:
        if checkpoints is not None:
            checkpoints.close()


class _Block(NamedTuple):
    """Steps that were started together: the first, their number, their rows (capacity, columns) on the device, the validation
    loss after them where one is due, and a copy of the state after them where that is to be saved."""

    first: int
    steps: int
    rows: jax.Array
    validation: jax.Array | None
    snapshot: _State | None


class Run:
    """One run in progress: its state on the device, its compiled programs, and where it stands."""

    def __init__(self, spec: RunSpec, corpus: Corpus, *, fast_bf16: bool) -> None:
        self._spec = spec
        self._model = self._decoder(fast_bf16)
        self._switch = spec.bf16_from_step if spec.bf16_from_step is not None else spec.schedule.steps
        self._last_model = self._decoder(fast_bf16, late=True) if spec.bf16_from_step is not None else self._model
        self._inputs = _Inputs(
            corpus=jax.device_put(corpus.train),
            data_seed=jnp.uint32(random_bits.integer_fold(_BATCHES, spec.seed)),
            salt=jnp.uint32(rounding_salt(spec.seed, spec.replicate)),
            settings=optimizer.settings(spec.schedule),
        )
        parameters = jax.device_put(model_module.initial_parameters(spec.model, spec.seed, spec.replicate))
        length = delayed.HISTORY_LENGTH if self._model.quantized.delayed else 0
        scales = delayed.initial_scales(spec.model.n_layers, len(model_module.PROJECTIONS), length)
        self._state = _State(parameters, optimizer.initial_state(parameters), scales)
        self._held_out = None
        if spec.schedule.validation_every and len(corpus.validation):
            self._held_out = jnp.asarray(data_module.validation_batches(corpus, spec.data))

    def _decoder(self, fast_bf16: bool, *, late: bool = False) -> Decoder:
        """The model of the run, or that of the steps after its switch to bf16."""
        spec = self._spec
        bf16_all = late and spec.bf16_scope == "all"
        return model_module.decoder(
            spec.model,
            "bf16" if bf16_all else spec.recipe,
            spec.layer_policy,
            fast_bf16=fast_bf16,
            switches=NO_SWITCHES if bf16_all else spec.switches,
            keep_first=spec.keep_first,
            keep_last=spec.keep_last,
            projections=spec.projections,
            bf16_forward=late and spec.bf16_scope == "forward",
        )

    def _model_at(self, step: int) -> Decoder:
        return self._model if step < self._switch else self._last_model

    def steps(self, checkpoints: Checkpoints | None = None) -> Iterator[StepStats]:
        """Train from the first step, or from the newest checkpoint, to the last."""
        last = self._spec.schedule.steps
        first, self._state = checkpoints.resume(self._state) if checkpoints else (0, self._state)
        for step in {first, max(first, min(self._switch, last - 1))}:
            self.advance(step, 0).block_until_ready()  # a block of no steps: compiles, so that no step's time contains it
        count = 1
        pending: _Block | None = None
        finished = time.perf_counter()
        while first < last or pending:
            following = None
            if first < last:
                following = self._dispatch(first, count, checkpoints)
                first += following.steps
            if pending:
                rows = np.asarray(pending.rows)[: pending.steps]
                now = time.perf_counter()
                step_seconds, finished = (now - finished) / pending.steps, now
                yield from self._stats(pending, rows, step_seconds)
                if checkpoints and pending.snapshot:  # only now: a checkpoint holds no step that was not told
                    checkpoints.save(pending.first + pending.steps, pending.snapshot)
                count = max(1, min(_CAPACITY, round(_BLOCK_SECONDS / step_seconds)))
            pending = following

    def _dispatch(self, first: int, count: int, checkpoints: Checkpoints | None) -> _Block:
        """Start a block of up to `count` steps without waiting for it."""
        saved = checkpoints.steps_until_due(first) if checkpoints else None
        count = min(count, self._until_validation(first), self._until_switch(first), saved or count)
        validation = snapshot = None
        rows = self.advance(first, count)
        if self._held_out is not None and self._until_validation(first) == count:
            validation = _validation_loss(self._model_at(first), self._state, self._held_out)
        if checkpoints and first + count < self._spec.schedule.steps and checkpoints.due(first + count):
            snapshot = jax.tree.map(jnp.copy, self._state)  # the next block overwrites the state
        return _Block(first, count, rows, validation, snapshot)

    def advance(self, first: int, count: int) -> jax.Array:
        """Start `count` steps from step `first` and return their rows (capacity, columns) without waiting for them."""
        data = self._spec.data
        shape = (data.batch_size, data.sequence_length)
        rows: jax.Array
        self._state, rows = _block(self._model_at(first), *shape, self._state, self._inputs, jnp.int32(first), jnp.int32(count))
        return rows

    def _until_switch(self, first: int) -> int:
        """Steps from `first` up to the switch of recipes, or to the end where that has passed."""
        return self._switch - first if first < self._switch else self._spec.schedule.steps - first

    def _until_validation(self, first: int) -> int:
        """Steps from `first` up to and including the next one after which validation is due."""
        schedule = self._spec.schedule
        if not schedule.validation_every:
            return schedule.steps - first
        return min(schedule.validation_every - first % schedule.validation_every, schedule.steps - first)

    def _stats(self, block: _Block, rows: np.ndarray[Any, Any], step_seconds: float) -> Iterator[StepStats]:
        for offset, row in enumerate(rows):
            step = block.first + offset
            values = _Row(*(float(value) for value in row))
            yield StepStats(
                step=step,
                tokens=(step + 1) * self._spec.data.tokens_per_step,
                step_seconds=step_seconds,
                validation_loss=float(block.validation) if block.validation is not None and offset == len(rows) - 1 else None,
                **values._asdict(),
            )
            if not math.isfinite(values.loss):
                raise DivergedError(step)


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=(3,))
def _block(
    model: Decoder, batch_size: int, length: int, state: _State, inputs: _Inputs, first: jax.Array, count: jax.Array
) -> tuple[_State, jax.Array]:
    """`count` training steps from step `first`: the new state and a row of numbers for each (capacity, columns)."""

    def step(offset: jax.Array, carry: tuple[_State, jax.Array]) -> tuple[_State, jax.Array]:
        state, rows = carry
        number = first + offset
        tokens = data_module.batch(inputs.corpus, inputs.data_seed, number, batch_size, length)
        value_and_grad = jax.value_and_grad(model_module.loss_and_lm_loss, argnums=(1, 4), has_aux=True)
        seed = random_bits.fold(inputs.salt, number)
        channels = quiet_channel(*state.scales.scale.shape[:2])._replace(scale=state.scales.scale)
        (loss, lm_loss), (gradient, channel) = value_and_grad(
            model, state.parameters, tokens, seed, channels, jnp.asarray(inputs.settings.z_loss)
        )
        update = optimizer.apply(inputs.settings, state.parameters, state.moments, gradient, number)
        norms = (update.learning_rate, update.grad_norm, update.clipped_grad_norm, update.param_norm, update.update_norm)
        row = jnp.stack([loss, lm_loss, *norms, jnp.sum(channel.report[..., 3])])
        state = _State(update.parameters, update.state, delayed.update(state.scales, channel.report[..., :3]))
        return state, rows.at[offset].set(row)

    rows = jnp.zeros((_CAPACITY, len(_Row._fields)), jnp.float32)
    result: tuple[_State, jax.Array] = jax.lax.fori_loop(0, count, step, (state, rows))
    return result


@partial(jax.jit, static_argnums=0)
def _validation_loss(model: Decoder, state: _State, batches: jax.Array) -> jax.Array:
    """Mean cross entropy over held-out batches, with the recipe's own forward pass."""
    channels = quiet_channel(*state.scales.scale.shape[:2])._replace(scale=state.scales.scale)

    def one(tokens: jax.Array) -> jax.Array:
        return model_module.loss_and_lm_loss(model, state.parameters, tokens, jnp.uint32(0), channels, jnp.float32(0))[1]

    return jnp.mean(jax.lax.map(one, batches))


def manifest(spec: RunSpec, corpus: Corpus) -> dict[str, str]:
    """What a run's fingerprint holds beside recipe (and its switch), seed and replicate: equal manifests may be paired."""
    device = device_module.describe()
    shared = {name: value for name, value in dataclasses.asdict(spec).items() if name not in _ARMS_OWN}
    facts = {
        "code_sha256": source_digest(),
        "data_digest": corpus.digest,
        "device_class": device.device_class,
        "engine": spec.engine,
        "fast_bf16": str(device.fast_bf16).lower(),
        "layer_policy": spec.layer_policy,
        "spec_sha256": hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest(),
        "threads": str(device.threads),
        "trainer_version": _trainer_version(),
    }
    reason = not_te_parity(spec.recipe, spec.switches)
    if reason is not None:  # a key of the recipe's own: what only one arm says can't confound a pair
        facts[f"not_te_parity.{label(spec.recipe, spec.switches)}"] = reason
    facts |= {f"version.{name}": version for name, version in device.versions.items()}
    facts |= {f"env.{name}": value for name, value in os.environ.items() if _decides_bits(name)}
    return dict(sorted(facts.items()))


def identity(spec: RunSpec, corpus: Corpus) -> dict[str, str]:
    """Everything that decides the bits of a run, flat: its specification and its manifest."""
    facts = manifest(spec, corpus)
    del facts["spec_sha256"]  # said below, field by field
    for name, value in dataclasses.asdict(spec).items():
        parts = {f"{name}.{part}": each for part, each in value.items()} if isinstance(value, dict) else {name: value}
        facts |= {part: str(each) for part, each in parts.items()}
    return facts


def source_digest() -> str:
    """sha256 over the names and contents of the trainer's own sources."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _trainer_version() -> str:
    try:
        return importlib.metadata.version("parity")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _decides_bits(name: str) -> bool:
    return name == "XLA_FLAGS" or name.startswith("NVTE_") or (name.startswith("JAX_") and not name.startswith(_NOT_BITS))
