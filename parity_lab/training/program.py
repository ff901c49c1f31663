"""Takes a candidate apart at its kept checkpoints: one process and a few programs measure everything that an analysis needs."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from parity_lab.analysis import Measurement, MeasureRequest, Setup, next_measurement, setup_from
from parity_lab.search import Forks
from parity_lab.training.menu import Choice, Measured, Menu, MenuChannel, measured, menu_linear, menu_of
from training.arithmetic import formats
from training.arithmetic.recipes import layer_recipe, linear_recipe
from training.device import describe
from training.rules import PROJECTIONS, SpecError
from training.segments import Arithmetic, Segment
from training.spec import Fork, Model, RunSpec, check_fork_step
from training.trainer import data
from training.trainer import step as optimizer
from training.trainer.checkpoint import identity, read_kept
from training.trainer.data import Corpus
from training.trainer.loop import Run
from training.trainer.model import Decoder, Parameters, loss_and_lm_loss
from training.trainer.step import Inputs, State
from workers.protocol import Message, TrainRequest

# Measurements on fixed weights: the held-out loss, and the weight's gradients, under any choice of arithmetic for every GEMM.
#
# What it answers: how much of the forward loss does each unit cost at once, and how far does each move the gradient?
#
#     losses      loss[u, b]  of choice u on batch b                                 the same weights and tokens: no run noise
#     gradients   sums over seeds of g = dL/dW under choice u and r, its bf16 twin, on batch b:
#
#         reference   <r, r>              dot        mean <g, r>          own    mean <g, g>
#         error       mean <g - r, g - r> systematic the part of the error that does not average out over seeds, unbiased:
#                                         (|sum (g - r)|^2 - sum |g - r|^2) / (S (S - 1))
#
#     forks       the losses of the steps after a checkpoint, trained with choice u
#
# Sums are additive over layers and batches, so any ratio of them can be formed later (`parity_lab.effects`).
#
# The assumption that can fail: weights trained with a quantizer have adapted to it. What removing it gains now is not what training
# without it from the start would have gained; the forward part is an upper bound.

Weights = list[dict[str, jax.Array]]
Batches = npt.NDArray[np.int32]
BLOCK = 32  # steps that a fork's program computes at once
SUMS = ("reference", "dot", "own", "error", "systematic")
"""The columns of `gradients`."""


def menu_decoder(shape: Model, arithmetics: tuple[Arithmetic, ...], choices: Iterable[Choice], *, fast_bf16: bool) -> Decoder:
    """A decoder whose linear layers choose from these arithmetics by their numbers; number 0 is bf16.

    A layer in which every one of `choices` has 0 for all GEMMs is compiled with bf16 alone, because each branch takes time to compile.
    """
    recipes = tuple(layer_recipe((each, each, each), fast_bf16=fast_bf16) for each in arithmetics)
    menus: Any = (Menu(recipes=recipes[:1]), Menu(recipes=recipes))  # they are to a menu decoder what recipes are to another
    varied = np.any([choice != 0 for choice in choices], axis=(0, 3))
    layer: Any = menu_linear
    return Decoder(
        shape=shape,
        plain=linear_recipe("bf16", fast_bf16=fast_bf16),
        recipes=menus,
        layers=tuple(tuple(map(int, block)) for block in varied),
        layer=layer,
    )


def losses(model: Decoder, state: State, batches: Batches, choices: Iterable[Choice]) -> Iterator[npt.NDArray[np.float64]]:
    """For each choice the mean cross entropy (batches,) in nats of these weights; batches: int32 (batches, sequences, length + 1)."""
    tokens = jnp.asarray(batches)
    for choice in choices:
        yield np.asarray(_losses(model, state.parameters, state.scales.scale, tokens, jnp.asarray(choice)), np.float64)


def gradients(
    model: Decoder, state: State, batches: Batches, choices: Sequence[Choice], seeds: Sequence[int], z_loss: float
) -> Iterator[npt.NDArray[np.float64]]:
    """For each batch the sums (choices, blocks, projections, SUMS) over the weight of each layer.

    seeds: uint32 numbers, at least two, from which stochastic rounding draws. The program is compiled once; the loops are the host's.
    """
    if len(seeds) < 2:
        raise ValueError(f"{len(seeds)} seed, expected at least 2: the part of the error that averages out is seen between seeds only")
    fixed = (state.parameters, state.scales.scale)
    for tokens in jnp.asarray(batches):

        def gradient(choice: Choice, seed: int, tokens: jax.Array = tokens) -> Weights:
            own: Weights = _gradient(model, *fixed, tokens, jnp.asarray(choice), jnp.uint32(seed), jnp.float32(z_loss))
            return own

        reference = gradient(np.zeros_like(choices[0]), 0)
        of_choices = []
        for choice in choices:
            total = None
            for seed in seeds:
                total = _added(total, gradient(choice, seed), reference)
            of_choices.append(np.asarray(_mean_sums(total, reference, jnp.float32(len(seeds))), np.float64))
        yield np.stack(of_choices)


@partial(jax.jit, static_argnums=0)
def _losses(model: Decoder, parameters: Parameters, scale: jax.Array, batches: jax.Array, choice: jax.Array) -> jax.Array:
    def of_batch(tokens: jax.Array) -> jax.Array:
        return _loss(model, parameters, tokens, jnp.uint32(0), scale, choice, jnp.float32(0))[1]

    result: jax.Array = jax.lax.map(of_batch, batches)
    return result


def _loss(
    model: Decoder, parameters: Parameters, tokens: jax.Array, seed: jax.Array, scale: jax.Array, choice: jax.Array, z_loss: jax.Array
) -> tuple[jax.Array, jax.Array]:
    channels: Any = MenuChannel(scale, choice)
    return loss_and_lm_loss(model, parameters, tokens, seed, channels, z_loss)


class Forked(NamedTuple):
    """The state after the steps of a fork, and their losses (steps,): mean cross entropy in nats."""

    state: State
    losses: npt.NDArray[np.float64]


def forked(
    model: Decoder, run: Run, state: State, choice: Choice, first: int, steps: int, alive: Callable[[], None] | None = None
) -> Forked:
    """Train these steps of a run from a state, every GEMM with the arithmetic that was chosen: one program for all forks of a job.

    `run` has the data order, the schedule and the random numbers; `alive` is called after each block of steps.
    Raises ValueError for a run with delayed scaling, whose state lives in the channel that the choice takes.
    """
    if model_is_delayed(model):
        raise ValueError("a recipe has delayed scaling, expected none on the menu; fork such a run from its kept checkpoint")
    losses: list[npt.NDArray[np.float64]] = []
    for begin in range(first, first + steps, BLOCK):
        count = min(BLOCK, first + steps - begin)
        inputs = run.inputs(begin, count, BLOCK)
        state, lm_loss = _steps(model, state, jnp.asarray(choice), inputs)
        losses.append(np.asarray(lm_loss, np.float64)[:count])
        if alive is not None:
            alive()
    return Forked(state, np.concatenate(losses))


def model_is_delayed(model: Decoder) -> bool:
    """Whether a recipe on the menu needs the amaxes of earlier steps."""
    menus: Any = model.recipes
    return any(each.delayed for menu in menus for each in menu.recipes)


@partial(jax.jit, static_argnums=0)
def _steps(model: Decoder, state: State, choice: jax.Array, inputs: Inputs) -> tuple[State, jax.Array]:
    def step(offset: jax.Array, carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
        state, losses = carry
        number = inputs.first + offset
        seed, z_loss = formats.fold(inputs.salt, number), jnp.asarray(inputs.settings.z_loss)
        of_parameters = jax.value_and_grad(
            lambda own: _loss(model, own, inputs.tokens[offset], seed, state.scales.scale, choice, z_loss), has_aux=True
        )
        (_, lm_loss), gradient = of_parameters(state.parameters)
        update = optimizer.apply(inputs.settings, state.parameters, state.moments, gradient, number)
        return state._replace(parameters=update.parameters, moments=update.state), losses.at[offset].set(lm_loss)

    quiet = jnp.zeros(inputs.tokens.shape[0], jnp.float32)
    result: tuple[State, jax.Array] = jax.lax.fori_loop(0, inputs.steps, step, (state, quiet))
    return result


@partial(jax.jit, static_argnums=0)
def _gradient(
    model: Decoder, parameters: Parameters, scale: jax.Array, tokens: jax.Array, choice: jax.Array, seed: jax.Array, z_loss: jax.Array
) -> Weights:
    """The gradient of the loss for the weights of the linear layers."""
    whole = jax.grad(lambda own: _loss(model, own, tokens, seed, scale, choice, z_loss)[0])(parameters)
    return [{name: block[name] for name in PROJECTIONS} for block in whole["blocks"]]


class _Total(NamedTuple):
    """Over seeds: the summed error, a tree like the weights, and (blocks, projections) each: dot, own and squared error."""

    error: Weights
    dot: jax.Array
    own: jax.Array
    squared: jax.Array


@jax.jit
def _added(total: _Total | None, own: Weights, reference: Weights) -> _Total:
    error = jax.tree.map(jnp.subtract, own, reference)
    new = _Total(error, _dots(own, reference), _dots(own, own), _dots(error, error))
    return new if total is None else jax.tree.map(jnp.add, total, new)


@jax.jit
def _mean_sums(total: _Total, reference: Weights, count: jax.Array) -> jax.Array:
    systematic = (_dots(total.error, total.error) - total.squared) / (count * (count - 1))
    return jnp.stack([_dots(reference, reference), total.dot / count, total.own / count, total.squared / count, systematic], axis=-1)


def _dots(left: Weights, right: Weights) -> jax.Array:
    """Inner products (blocks, projections) of two trees of weights."""
    return jnp.stack([jnp.stack([jnp.sum(a[name] * b[name]) for name in PROJECTIONS]) for a, b in zip(left, right, strict=True)])


# What an analysis takes apart: the arithmetic of a candidate at a kept checkpoint, and what takes its place where a unit is off.
#
# Raises SpecError with the way out for what cannot be analysed. Standard library and numpy only, so that a server can refuse before
# anything is queued.

_AS_ARMS = "train each ablation as an arm of a job, with overrides"


def subject(candidate: RunSpec, baseline: RunSpec | None, step: int, steps: int) -> Measured:
    """What forks of the candidate can toggle in `steps` steps after step `step`, against the baseline's arithmetic (None: bf16)."""
    check_fork_step(candidate, step)
    if candidate.engine != "emulated":
        raise SpecError("why.engine", candidate.engine, "emulated, whose GEMMs can be chosen while the program runs", _AS_ARMS)
    if candidate.devices != 1:
        raise SpecError("why.devices", candidate.devices, "1: an analysis trains its forks on one device", _AS_ARMS)
    until = step + steps
    if steps < 1 or until > candidate.schedule.steps:
        most = candidate.schedule.steps - step
        raise SpecError("why.fork_steps", steps, f"1 to {most}: the run ends at step {candidate.schedule.steps}", "plan shorter forks")
    own = _segment(candidate, step, until, "candidate")
    off = None if baseline is None else _segment(baseline, step, until, "baseline")
    if any(each.recipe == "fp8_delayed" for *_, each in own.cells()):
        raise SpecError("why.candidate", candidate.label, "a recipe without delayed scaling", f"its nearest is fp8_current; or {_AS_ARMS}")
    if off is not None and any(each.recipe == "fp8_delayed" for *_, each in off.cells()):
        raise SpecError("why.against", "baseline", "a baseline without delayed scaling", "use against: bf16")
    try:
        return measured(own, candidate.model.n_layers, off)
    except ValueError as error:
        raise SpecError("why.candidate", candidate.label, "an arithmetic that differs", str(error)) from error


def policies(runs: Mapping[str, RunSpec], step: int, steps: int) -> tuple[tuple[Arithmetic, ...], Mapping[str, Choice]]:
    """The menu and the choices of forks that take the arithmetic of these runs for `steps` steps after step `step`.

    Raises SpecError for a run whose arithmetic a fork cannot take.
    """
    first = next(iter(runs.values()))
    check_fork_step(first, step)
    if first.engine != "emulated":
        raise SpecError("search.engine", first.engine, "emulated, whose GEMMs can be chosen while the program runs", _AS_ARMS)
    if first.devices != 1:
        raise SpecError("search.devices", first.devices, "1: a search trains its forks on one device", _AS_ARMS)
    if not 1 <= steps <= first.schedule.steps - step:
        raise SpecError("search.fork_steps", steps, f"1 to {first.schedule.steps - step}: the run ends at step {first.schedule.steps}")
    try:
        return menu_of({name: _segment(run, step, step + steps, f"policy {name}") for name, run in runs.items()}, first.model.n_layers)
    except ValueError as error:
        raise SpecError("search.switches", ", ".join(runs), "policies that one program can compute", str(error)) from error


def arithmetic(spec: RunSpec, step: int, steps: int, whose: str) -> Segment:
    """The arithmetic of a run in the `steps` steps after step `step`. Raises SpecError if it changes within them."""
    return _segment(spec, step, step + steps, whose)


def _segment(spec: RunSpec, step: int, until: int, whose: str) -> Segment:
    """The arithmetic of these steps; SpecError if it changes within them."""
    change = next((each.first_step for each in spec.segments if step < each.first_step < until), None)
    if change is not None:
        remedy = f"plan forks of at most {change - step} steps, or another checkpoint"
        raise SpecError(
            "why.fork_steps", until - step, f"steps in which the {whose}'s arithmetic does not change (it does at {change})", remedy
        )
    return max((each for each in spec.segments if each.first_step <= step), key=lambda each: each.first_step)


# Takes a candidate apart at its kept checkpoints: one process and a few programs measure everything that an analysis needs.
#
# What it answers: what is the held-out loss, the gradient, or the end of a fork, with these units on and the others off?
#
#     losses      (batches,) nats, of the first parent's weights on the first held-out batches
#     gradients   for one held-out batch the sums of `parity_lab.training.program` of all units and of each alone, against bf16
#     fork        the mean loss of the second half of a fork's steps, nats; draws as in `training.spec`
#
# The assumption that can fail: a fork's steps are few next to the schedule's, so that its loss is that of the state it started from.

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


# One analysis, or the forks of a search, in a training process: measures what the record lacks and sends each result as it comes.

Read = Callable[[Any], RunSpec]


class ForksTellNothingError(Exception):
    """The noise of the forks cannot be estimated."""

    code = "FORKS_TELL_NOTHING"


def measure(request: TrainRequest, candidate: RunSpec, read: Read, send: Callable[[Message], None]) -> None:
    """Measure everything that the results on record lack. `read` makes a specification of its document."""
    folders = Path(request["checkpoints"]["folder"]).parent
    analyse(cast("MeasureRequest", request["measure"]), candidate, folders, read, send)


def analyse(request: MeasureRequest, candidate: RunSpec, folders: Path, read: Read, send: Callable[[Message], None]) -> None:
    """Measure everything that `request.results` lacks, from checkpoints of the parents in `folders`, by id."""
    from training.trainer.checkpoint import manifest  # noqa: PLC0415 (the core must be set before jax counts the processors)

    parents = [(read(spec), folders / parent) for parent, spec in request["parents"].items()]
    if request["policies"] is not None:
        _train_forks(request, parents, {name: read(spec) for name, spec in request["policies"].items()}, send)
        return
    setup, results = setup_from(request["setup"]), dict(request["results"])
    baseline = None if request["baseline"] is None else read(request["baseline"])
    program = Program(parents, candidate, baseline, setup.fork_step, setup.fork_steps)
    send({"kind": "manifest", "manifest": manifest(candidate, program.corpus), "rounding": candidate.rounding})
    while (wanted := _next(setup, results)) is not None:
        value = _value(program, setup, wanted, lambda: send({"kind": "alive"}))
        results[wanted.key] = value
        send({"kind": "result", "key": wanted.key, "value": value, "steps": wanted.steps})


def _train_forks(
    request: MeasureRequest, parents: Sequence[tuple[RunSpec, Path]], runs: Mapping[str, RunSpec], send: Callable[[Message], None]
) -> None:
    """Train the forks of a search that the record lacks: one program computes them all."""
    from training.trainer.checkpoint import manifest  # noqa: PLC0415

    forks = Forks.read(request["setup"])
    menu, choices = policies(runs, forks.fork_step, forks.fork_steps)
    program = Checkpoints(parents, menu, [*choices.values()], forks.fork_step, forks.fork_steps)
    spec = parents[0][0]
    send({"kind": "manifest", "manifest": manifest(spec, program.corpus), "rounding": spec.rounding})
    for each in forks.forks:
        if each.key not in request["results"]:
            value = program.fork(choices[each.policy], forks.parents.index(each.parent), each.draw, lambda: send({"kind": "alive"}))
            send({"kind": "result", "key": each.key, "value": value, "steps": forks.fork_steps})


def _next(setup: Setup, results: dict[str, Any]) -> Measurement | None:
    try:
        return next_measurement(setup, results)
    except ValueError as error:
        raise ForksTellNothingError(str(error)) from error


def _value(program: Program, setup: Setup, wanted: Measurement, alive: Callable[[], None]) -> Any:
    if wanted.kind == "gradients":
        return program.gradients(wanted.batch, setup.seeds)
    if wanted.ingredient is not None:
        choice = program.without_ingredient(wanted.ingredient)
    else:
        choice = program.without(wanted.units) if wanted.way == "without" else program.alone(wanted.units)
    if wanted.kind == "instant":
        return program.losses(choice, setup.batches)
    return program.fork(choice, wanted.parent, wanted.draw, alive)
