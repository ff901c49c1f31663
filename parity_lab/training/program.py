"""Takes a candidate apart at its kept checkpoints: one process and a few programs measure
everything that an analysis needs.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from parity.structure import frozen
from parity_lab.analysis import (
    Measurement,
    MeasureRequest,
    RecordRequest,
    Setup,
    Way,
    next_measurement,
    setup_from,
)
from parity_lab.effects import SUMS
from parity_lab.replay import WINDOW, Replay, ReplayResult, check
from parity_lab.search import Forks
from parity_lab.training.menu import Choice, assignments, changed, subject
from training.arithmetic import formats
from training.arithmetic.linear import (
    DGRAD,
    PANEL,
    WGRAD,
    finished,
    operand_of,
    product,
    transposed,
)
from training.arithmetic.quantize import Operand, Quantizer
from training.arithmetic.recipes import LinearRecipe, layer_recipe, linear_recipe
from training.device import describe
from training.rules import PROJECTIONS, DivergedError
from training.segments import Arithmetic
from training.spec import Fork, Model, RunSpec
from training.trainer import data
from training.trainer import step as optimizer
from training.trainer.checkpoint import (
    CheckpointNotFoundError,
    CheckpointRefusedError,
    identity,
    manifest,
    read_kept,
)
from training.trainer.data import Corpus
from training.trainer.loop import Run
from training.trainer.model import Decoder, Parameters, loss_and_lm_loss
from training.trainer.step import Inputs, State
from workers.protocol import Message, TrainRequest

Read = Callable[[Any], RunSpec]

# A linear layer whose arithmetic is chosen while the program runs: one compilation measures every
# GEMM.
#
# What it answers: what are y, dx and dw if fprop, dgrad and wgrad of this layer each take the
# recipe of this number of a menu?
#
#     static    a recipe is compiled in: as many programs as units, and compiling is what costs on
#               small models
#     menu      the numbers (3,) are an argument; a branch computes the operands of the recipe that
#               was chosen, and no other
#
# The operands of a GEMM come from its own recipe, as in `training.arithmetic.recipes.layer_recipe`,
# and what is done with them is the code of `training.arithmetic.linear`. A test compares losses and
# gradients of the two to the bit.
#
# The assumption that can fail: XLA may fuse what surrounds a layer in another way, and then last
# bits may differ. Within one program they do not, so differences between units are free of that.


@frozen
class Menu:
    """The recipes from which every GEMM chooses one by its number. Hashable; it takes the place of
    a layer's recipe in a `Decoder`.
    """

    recipes: tuple[LinearRecipe, ...]

    def __post_init__(self) -> None:
        kinds = {(each.activations, each.products) for each in self.recipes}
        if len(kinds) != 1:
            raise ValueError(
                f"a menu has recipes of the types {sorted(kinds)}, expected one; f32 changes the "
                "whole model"
            )

    @property
    def quantized(self) -> bool:
        """True: the engine computes the layer, whatever is chosen."""
        return True

    @property
    def activations(self) -> str:
        """The type of the layer's inputs and outputs."""
        return self.recipes[0].activations


class MenuChannel(NamedTuple):
    """What a layer gets in addition to its operands: scales of delayed scaling (..., 3), and the
    recipes of its GEMMs, int32 (..., 3).
    """

    scale: jax.Array
    choice: jax.Array


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def menu_linear(
    menu: Menu, x_MK: jax.Array, w_KN: jax.Array, key: formats.Key, channel: MenuChannel
) -> jax.Array:
    """Returns y (M, N) = x (M, K) w (K, N) with the recipes that `channel.choice` names; arguments
    as for `linear`.
    """
    y_MN: jax.Array = _forward(menu, x_MK, w_KN, key, channel)[0]
    return y_MN


# Compiled functions of their own, as in `linear`, so that layers of one shape and menu are traced
# once.
@partial(jax.jit, static_argnums=0)
def _forward(
    menu: Menu, x_MK: jax.Array, w_KN: jax.Array, key: formats.Key, channel: MenuChannel
) -> tuple[jax.Array, Any]:
    fprop, dgrad, wgrad = channel.choice
    x_scale, w_scale, g_scale = channel.scale
    x = _chosen(menu, fprop, "fprop_x", x_MK, 1, x_scale)
    w = _chosen(menu, fprop, "fprop_w", w_KN, 0, w_scale)
    y_MN = finished(product(x.value, w.value), x, w, x_MK.dtype)
    saved_x = _chosen(menu, wgrad, "wgrad_x", x_MK, 0, x_scale)
    saved_w = _chosen(menu, dgrad, "dgrad_w", w_KN, 1, w_scale)
    return y_MN, (saved_x, saved_w, key, g_scale, dgrad, wgrad)


@partial(jax.jit, static_argnums=0)
def _backward(menu: Menu, saved: Any, g_MN: jax.Array) -> tuple[jax.Array, jax.Array, None, None]:
    x, w, key, scale, dgrad, wgrad = saved
    g = _chosen(menu, dgrad, "dgrad_g", g_MN, 1, scale, key.numbered(DGRAD, 2))
    dx_MK = finished(product(g.value, w.value, transpose_b=True), g, w, g_MN.dtype)
    g = _chosen(menu, wgrad, "wgrad_g", g_MN, 0, scale, key.numbered(WGRAD, 2))
    # as in `linear`: the narrower of the two is transposed
    if g_MN.shape[1] < x.value.shape[1] and g_MN.shape[1] % PANEL == 0:
        return (
            dx_MK,
            transposed(finished(product(transposed(g.value), x.value), g, x, g_MN.dtype)),
            None,
            None,
        )
    return (
        dx_MK,
        finished(
            product(transposed(x.value), g.value), x._replace(factor=x.factor.T), g, g_MN.dtype
        ),
        None,
        None,
    )


menu_linear.defvjp(_forward, _backward)


def _chosen(
    menu: Menu,
    choice: jax.Array,
    name: str,
    x: jax.Array,
    axis: int,
    scale: jax.Array,
    key: formats.Key | None = None,
) -> Operand:
    """The operand of this name under the recipe of this number; equal quantizers share a branch."""
    quantizers: list[Quantizer | None] = [getattr(each, name) for each in menu.recipes]
    different = list(dict.fromkeys(quantizers))
    by_row = any(each is not None and each.row_scaled for each in different)
    branches = [_branch(menu.recipes[0], each, x.shape, axis, by_row) for each in different]
    if len(branches) == 1:
        return branches[0](x, scale, key)
    number = jnp.asarray([different.index(each) for each in quantizers], jnp.int32)[choice]
    operand: Operand = jax.lax.switch(number, branches, x, scale, key)
    return operand


def _branch(
    recipe: LinearRecipe,
    quantizer: Quantizer | None,
    shape: tuple[int, ...],
    axis: int,
    by_row: bool,
) -> Callable[[jax.Array, jax.Array, formats.Key | None], Operand]:
    """Computes one operand; with a factor for each row (or column) if another branch has one."""
    factor_shape = (1, shape[1]) if axis == 0 else (shape[0], 1)

    def operand(x: jax.Array, scale: jax.Array, key: formats.Key | None) -> Operand:
        result = operand_of(recipe, quantizer, x, axis, scale, key)
        if by_row:
            return result._replace(factor=jnp.broadcast_to(result.factor, factor_shape))
        return result

    return operand


# Measurements on fixed weights: the held-out loss, and the weight's gradients, under any choice of
# arithmetic for every GEMM.
#
# What it answers: how much of the forward loss does each GEMM cost at once, and how far does each
# move the gradient?
#
#     losses      loss[u, b]  of choice u on batch b                                 the same
#                 weights and tokens: no run-to-run noise
#     gradients   sums over seeds of g = dL/dW under choice u and r, its bf16 twin, on batch b:
#
#         reference   <r, r>              dot        mean <g, r>          own    mean <g, g>
#         error       mean <g - r, g - r> systematic the part of the error that does not average out
#                     over seeds, unbiased:
#                                         (|sum (g - r)|^2 - sum |g - r|^2) / (S (S - 1))
#
#     forks       the losses of the steps after a checkpoint, trained with choice u
#
# Sums are additive over layers and batches, so any ratio of them can be formed later
# (`parity_lab.effects`).
#
# The assumption that can fail: weights trained with a quantizer have adapted to it. What removing
# it gains now is not what training without it from the start would have gained; the forward part is
# an upper bound.

Weights = list[dict[str, jax.Array]]
Batches = npt.NDArray[np.int32]
BLOCK = 32  # steps that a fork's program computes at once


def menu_decoder(
    shape: Model, arithmetics: tuple[Arithmetic, ...], choices: Iterable[Choice], *, fast_bf16: bool
) -> Decoder:
    """A decoder whose linear layers choose from these arithmetics by their numbers; number 0 is
    bf16.

    A layer in which every one of `choices` has 0 for all GEMMs is compiled with bf16 alone, because
    each branch takes time to compile.
    """
    recipes = tuple(layer_recipe((each, each, each), fast_bf16=fast_bf16) for each in arithmetics)
    # they are to a menu decoder what recipes are to another
    menus: Any = (Menu(recipes=recipes[:1]), Menu(recipes=recipes))
    varied = np.any([choice != 0 for choice in choices], axis=(0, 3))
    layer: Any = menu_linear
    return Decoder(
        shape=shape,
        plain=linear_recipe("bf16", fast_bf16=fast_bf16),
        recipes=menus,
        layers=tuple(tuple(map(int, block)) for block in varied),
        layer=layer,
    )


def losses(
    model: Decoder, state: State, batches: Batches, choices: Iterable[Choice]
) -> Iterator[npt.NDArray[np.float64]]:
    """For each choice the mean cross entropy (batches,) in nats of these weights; batches: int32
    (batches, sequences, length + 1).
    """
    tokens = jnp.asarray(batches)
    for choice in choices:
        yield np.asarray(
            _losses(model, state.parameters, state.scales.scale, tokens, jnp.asarray(choice)),
            np.float64,
        )


def gradients(
    model: Decoder,
    state: State,
    batches: Batches,
    choices: Sequence[Choice],
    seeds: Sequence[int],
    z_loss: float,
) -> Iterator[npt.NDArray[np.float64]]:
    """For each batch the sums (choices, blocks, projections, SUMS) over the weight of each layer.

    seeds: uint32 numbers, at least two, from which stochastic rounding draws. The program is
    compiled once; the loops are the host's.
    """
    if len(seeds) < 2:
        raise ValueError(
            f"{len(seeds)} seed, expected at least 2: the part of the error that averages out is "
            "seen between seeds only"
        )
    weight = jnp.float32(z_loss)
    for tokens in jnp.asarray(batches):
        gradient = partial(_gradient, model, state.parameters, state.scales.scale, tokens)
        reference = gradient(jnp.zeros_like(choices[0]), formats.key(), weight)
        of_choices = []
        for choice in choices:
            total = None
            for seed in seeds:
                total = _added(
                    total,
                    gradient(jnp.asarray(choice), formats.key(run=(0, seed)), weight),
                    reference,
                )
            of_choices.append(
                np.asarray(_mean_sums(total, reference, jnp.float32(len(seeds))), np.float64)
            )
        yield np.stack(of_choices)


@partial(jax.jit, static_argnums=0)
def _losses(
    model: Decoder, parameters: Parameters, scale: jax.Array, batches: jax.Array, choice: jax.Array
) -> jax.Array:
    def of_batch(tokens: jax.Array) -> jax.Array:
        return _loss(model, parameters, tokens, formats.key(), scale, choice, jnp.float32(0))[1]

    result: jax.Array = jax.lax.map(of_batch, batches)
    return result


def _loss(
    model: Decoder,
    parameters: Parameters,
    tokens: jax.Array,
    key: formats.Key,
    scale: jax.Array,
    choice: jax.Array,
    z_loss: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    channels: Any = MenuChannel(scale, choice)
    return loss_and_lm_loss(model, parameters, tokens, key, channels, z_loss)


class Forked(NamedTuple):
    """The state after the steps of a fork, and their losses (steps,): mean cross entropy in
    nats.
    """

    state: State
    losses: npt.NDArray[np.float64]


def forked(
    model: Decoder,
    run: Run,
    state: State,
    choice: Choice,
    first: int,
    steps: int,
    alive: Callable[[], None] | None = None,
) -> Forked:
    """Train these steps of a run from a state, every GEMM with the arithmetic that was chosen: one
    program for all forks of a job.

    `run` has the data order, the schedule and the random numbers; `alive` is called after each
    block of steps. Raises ValueError for a run with delayed scaling, whose state lives in the
    channel that the choice takes.
    """
    menus: Any = model.recipes
    if any(each.delayed for menu in menus for each in menu.recipes):
        raise ValueError(
            "a recipe has delayed scaling, expected none on the menu; fork such a run from its "
            "kept checkpoint"
        )
    losses: list[npt.NDArray[np.float64]] = []
    for begin in range(first, first + steps, BLOCK):
        count = min(BLOCK, first + steps - begin)
        inputs = run.inputs(begin, count, BLOCK)
        state, lm_loss = _steps(model, state, jnp.asarray(choice), inputs)
        losses.append(np.asarray(lm_loss, np.float64)[:count])
        if alive is not None:
            alive()
    return Forked(state, np.concatenate(losses))


@partial(jax.jit, static_argnums=0)
def _steps(
    model: Decoder, state: State, choice: jax.Array, inputs: Inputs
) -> tuple[State, jax.Array]:
    def step(offset: jax.Array, carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
        state, losses = carry
        number = inputs.first + offset
        key, z_loss = (
            formats.Key(inputs.run, number.astype(jnp.uint32)),
            jnp.asarray(inputs.settings.z_loss),
        )
        of_parameters = jax.value_and_grad(
            lambda own: _loss(
                model, own, inputs.tokens[offset], key, state.scales.scale, choice, z_loss
            ),
            has_aux=True,
        )
        (_, lm_loss), gradient = of_parameters(state.parameters)
        update = optimizer.apply(inputs.settings, state.parameters, state.moments, gradient, number)
        return state._replace(parameters=update.parameters, moments=update.state), losses.at[
            offset
        ].set(lm_loss)

    quiet = jnp.zeros(inputs.tokens.shape[0], jnp.float32)
    result: tuple[State, jax.Array] = jax.lax.fori_loop(0, inputs.steps, step, (state, quiet))
    return result


@partial(jax.jit, static_argnums=0)
def _gradient(
    model: Decoder,
    parameters: Parameters,
    scale: jax.Array,
    tokens: jax.Array,
    choice: jax.Array,
    key: formats.Key,
    z_loss: jax.Array,
) -> Weights:
    """The gradient of the loss for the weights of the linear layers."""
    whole = jax.grad(lambda own: _loss(model, own, tokens, key, scale, choice, z_loss)[0])(
        parameters
    )
    return [{name: block[name] for name in PROJECTIONS} for block in whole["blocks"]]


class _Total(NamedTuple):
    """Over seeds: the summed error, a tree like the weights, and (blocks, projections) each: dot,
    own and squared error.
    """

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
    return jnp.stack(
        [
            _dots(reference, reference),
            total.dot / count,
            total.own / count,
            total.squared / count,
            systematic,
        ],
        axis=-1,
    )


def _dots(left: Weights, right: Weights) -> jax.Array:
    """Inner products (blocks, projections) of two trees of weights."""
    return jnp.stack(
        [
            jnp.stack([jnp.sum(a[name] * b[name]) for name in PROJECTIONS])
            for a, b in zip(left, right, strict=True)
        ]
    )


# Takes a candidate apart at its kept checkpoints: one process and a few programs measure everything
# that an analysis needs.
#
# What it answers: what is the held-out loss, the gradient, or the end of a fork, with these GEMMs
# on and the others off?
#
#     losses      (batches,) nats, of the first parent's weights on the first held-out batches
#     gradients   for one held-out batch the sums above, of all GEMMs and of each alone, against
#                 bf16
#     fork        the mean loss of the second half of a fork's steps, nats; draws as in
#                 `training.spec`
#
# The assumption that can fail: a fork's steps are few next to the schedule's, so that its loss is
# that of the state it started from.

_SEED = 0x5EED  # the first of the numbers from which the gradient split rounds


class NotFiniteError(Exception):
    """A measured loss is NaN or infinite."""

    code = "FORK_DIVERGED"


class HeldOutMissingError(Exception):
    """The data have too few held-out batches for an interval."""

    code = "HELD_OUT_MISSING"


class Checkpoints:
    """The kept checkpoints of some runs, their data, and the one program that trains their forks
    under any choice from a menu.
    """

    def __init__(
        self,
        parents: Sequence[tuple[RunSpec, Path]],
        arithmetics: tuple[Arithmetic, ...],
        choices: Sequence[Choice],
        step: int,
        fork_steps: int,
        corpus: Corpus | None = None,
    ) -> None:
        """`parents` are specifications of runs with the folders of their checkpoints; a fork
        combines what `choices` have in each GEMM.

        Raises CheckpointNotFoundError and CheckpointRefusedError as for forks.
        """
        self._parents, self._step, self._fork_steps = parents, step, fork_steps
        first = parents[0][0]
        self.corpus = data.load(first.data, first.model.vocab_size) if corpus is None else corpus
        data.check_vocabulary(self.corpus, first.model.vocab_size)
        self._fast = describe().fast_bf16
        self._trained = menu_decoder(first.model, arithmetics, choices, fast_bf16=self._fast)
        self._states: dict[int, State] = {}

    def state(self, parent: int) -> State:
        """The state of a parent at the checkpoint."""
        if parent not in self._states:
            spec, folder = self._parents[parent]
            like = Run(spec, self.corpus, fast_bf16=self._fast).state
            self._states[parent] = read_kept(folder, self._step, identity(spec, self.corpus), like)
        return self._states[parent]

    def fork(
        self, choice: Choice, parent: int, draw: int, alive: Callable[[], None] | None = None
    ) -> float:
        """The final loss of a fork of a parent."""
        spec = self._parents[parent][0]
        run = Run(
            spec,
            self.corpus,
            fast_bf16=self._fast,
            fork=Fork(parent=spec, step=self._step, draw=draw),
        )
        run.start_from(self.state(parent))
        values = forked(
            self._trained, run, run.state, choice, self._step, self._fork_steps, alive
        ).losses
        return _finite(float(values[self._fork_steps // 2 :].mean()), f"the loss of fork {draw}")


class Program(Checkpoints):
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
        taken = 1 + int(max(self._measured.own.max(), self._measured.off.max()))
        both = (self._measured.own, self._measured.off)
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
            "batches of "
            f"{spec.data.tokens_per_step}; set data.validation_fraction and train again"
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
        return [_finite(float(value), "a held-out loss") for value in values]

    def gradients(self, batch: int, seeds: int) -> dict[str, list[float]]:
        """For a held-out batch the sums (SUMS) over all layers: of `all` units, and of each alone
        with bf16 everywhere else.
        """
        own = self._measured.own
        choices = [
            own,
            *(changed(np.zeros_like(own), [unit], own) for unit in self._measured.units),
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
            name: [_finite(float(value), "a gradient") for value in row]
            for name, row in zip(names, by_choice, strict=True)
        }


def _finite(value: float, what: str) -> float:
    if not math.isfinite(value):
        raise NotFiniteError(
            f"{what} is {value}, expected a finite number; analyse an earlier checkpoint, or plan "
            "shorter forks"
        )
    return value


# Trains recorded steps again, by the trainer itself: its own program, arithmetic and random
# numbers.
#
# What it answers: does the record of a run follow from its specification? (`parity_lab.replay`)
#
# Equal bits are expected where the manifest is that of the record, on CPUs; no GPU has been tried.

_FIRST_RERUN = 1 << 20  # replicates of reruns from step 0; those of a job count from 0


class Replays:
    """Runs on record by id: their specifications, manifests and losses, and the folders of their
    kept checkpoints.
    """

    def __init__(
        self, records: Mapping[str, RecordRequest], folders: Path, read: Read, corpus: Corpus
    ) -> None:
        self._records, self._folders, self._corpus = records, folders, corpus
        self._specs = {run: read(record["spec"]) for run, record in records.items()}
        self._machine = describe()

    def replay(self, wanted: Replay, alive: Callable[[], None]) -> ReplayResult:
        """Train the steps again, to the end of the window in which one differs from the record."""
        losses = self._records[wanted.run]["losses"][str(wanted.first)][: wanted.steps]
        result: ReplayResult = {
            "compared": 0,
            "departs": None,
            "by": None,
            "first": 0.0,
            "mean": 0.0,
            "exact": self._is_exact(wanted.run),
            "missing": None,
        }
        total = 0.0
        for loss, own in zip(losses, self._losses(wanted, 0, alive), strict=False):
            difference = loss - own
            if difference != 0.0 and result["departs"] is None:  # NaN differs from 0 too
                result["departs"], result["by"] = wanted.first + result["compared"], difference
            total += difference
            result["compared"] += 1
            if result["compared"] == 1:
                result["first"] = difference
            if result["compared"] == wanted.window:
                result["mean"] = total / wanted.window
            if result["departs"] is not None and result["compared"] >= wanted.window:
                break
        if not all(map(math.isfinite, (result["by"] or 0.0, result["first"], result["mean"]))):
            result |= {"by": None, "first": 0.0, "mean": 0.0}
        return result

    def rerun(self, wanted: Replay, draw: int, alive: Callable[[], None]) -> dict[str, float]:
        """How far the record is from the same steps with other random numbers: at the first step,
        and in the mean over the window.
        """
        losses = self._records[wanted.run]["losses"][str(wanted.first)][: wanted.window]
        differences = [
            loss - own for loss, own in zip(losses, self._losses(wanted, draw, alive), strict=False)
        ]
        return {"first": differences[0], "mean": sum(differences) / len(differences)}

    def _losses(self, wanted: Replay, draw: int, alive: Callable[[], None]) -> Iterator[float]:
        """The losses from step `first` on, with the random numbers of a draw; those of the run for
        draw 0.
        """
        spec = self._specs[wanted.run]
        fork = Fork(parent=spec, step=wanted.first, draw=draw) if wanted.first else None
        own = replace(spec, replicate=_FIRST_RERUN + draw) if draw and fork is None else spec
        run = Run(own, self._corpus, fast_bf16=self._machine.fast_bf16, fork=fork)
        if fork is not None:
            folder = self._folders / wanted.run
            run.start_from(read_kept(folder, wanted.first, identity(spec, self._corpus), run.state))
        try:
            for number, step in enumerate(run.steps()):
                if number % WINDOW == 0:
                    alive()
                yield step.lm_loss
        except DivergedError:
            yield math.nan

    def _is_exact(self, run: str) -> bool:
        return self._machine.platform == "cpu" and self._records[run]["manifest"] == manifest(
            self._specs[run], self._corpus
        )


# One analysis, or the forks of a search, in a training process: measures what the record lacks and
# sends each result as it comes.


class ForksTellNothingError(Exception):
    """The noise of the forks cannot be estimated."""

    code = "FORKS_TELL_NOTHING"


def measure(
    request: TrainRequest, candidate: RunSpec, read: Read, send: Callable[[Message], None]
) -> None:
    """Measure everything that the results on record lack. `read` makes a specification of its
    document.
    """
    folders = Path(request["checkpoints"]["folder"]).parent
    analyse(cast("MeasureRequest", request["measure"]), candidate, folders, read, send)


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
    if request["assignments"] is not None:
        _train_forks(request, folders, read, send)
        return
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
    while (wanted := _next(setup, results)) is not None:
        if wanted.replay is not None:
            value: Any = _replayed(replays, wanted.replay, wanted.draw, request["parents"], send)
        else:
            value = _value(program, setup, wanted, lambda: send({"kind": "alive"}))
        results[wanted.key] = value
        send({"kind": "result", "key": wanted.key, "value": value, "steps": wanted.steps})


def _replayed(
    replays: Replays,
    replay: Replay,
    draw: int,
    forked: Collection[str],
    send: Callable[[Message], None],
) -> Any:
    """The result of a replay or, with a draw, of a rerun; `missing` for a checkpoint that cannot be
    used, which the `forked` runs need.
    """

    def alive() -> None:
        send({"kind": "alive"})

    if draw:
        return replays.rerun(replay, draw, alive)
    try:
        return replays.replay(replay, alive)
    except (CheckpointNotFoundError, CheckpointRefusedError) as error:
        if replay.run in forked:
            raise
        nothing = {
            "compared": 0,
            "departs": None,
            "by": None,
            "first": 0.0,
            "mean": 0.0,
            "exact": False,
        }
        return {**nothing, "missing": str(error)}


def _train_forks(
    request: MeasureRequest, folders: Path, read: Read, send: Callable[[Message], None]
) -> None:
    """Train the forks of a search that the record lacks, after its replays: one program computes
    them all.
    """
    parents = [(read(spec), folders / parent) for parent, spec in request["parents"].items()]
    runs = {name: read(spec) for name, spec in (request["assignments"] or {}).items()}
    forks = Forks.read(request["setup"])
    menu, choices = assignments(runs, forks.fork_step, forks.fork_steps)
    program = Checkpoints(parents, menu, [*choices.values()], forks.fork_step, forks.fork_steps)
    spec = parents[0][0]
    send(
        {"kind": "manifest", "manifest": manifest(spec, program.corpus), "rounding": spec.rounding}
    )
    results = dict(request["results"])
    replays = Replays(request["records"], folders, read, program.corpus)
    while (wanted := check(forks.replays, results, accept_noise=True).pending) is not None:
        value: Any = _replayed(replays, wanted.replay, wanted.draw, request["parents"], send)
        results[wanted.key] = value
        send({"kind": "result", "key": wanted.key, "value": value, "steps": wanted.steps})
    for each in () if check(forks.replays, results, accept_noise=True).ends_it else forks.forks:
        if each.key not in request["results"]:
            value = program.fork(
                choices[each.assignment],
                forks.parents.index(each.parent),
                each.draw,
                lambda: send({"kind": "alive"}),
            )
            send({"kind": "result", "key": each.key, "value": value, "steps": forks.fork_steps})


def _next(setup: Setup, results: dict[str, Any]) -> Measurement | None:
    try:
        return next_measurement(setup, results)
    except ValueError as error:
        raise ForksTellNothingError(str(error)) from error


def _value(program: Program, setup: Setup, wanted: Measurement, alive: Callable[[], None]) -> Any:
    if wanted.kind == "gradients":
        return program.gradients(wanted.batch, setup.seeds)
    choice = program.choice(wanted.way, wanted.units, wanted.ingredient)
    if wanted.kind == "instant":
        return program.losses(choice, setup.batches)
    return program.fork(choice, wanted.parent, wanted.draw, alive)
