"""Trains forks of kept checkpoints, every GEMM with the arithmetic that was chosen: one program for
all forks of a question.

The loss of a fork is the mean of the second half of its steps, in nats; draws as in
`training.spec`.

The assumption that can fail: a fork's steps are few next to the schedule's, so that its loss is
that of the state it started from.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from parity_lab.forks import ForkRequest, fork_plan_from
from parity_lab.training.menu import Choice
from parity_lab.training.menu_layer import menu_decoder, menu_loss
from parity_lab.training.replays import Read, Replays, replayed
from parity_lab.training.subject import forked_arms
from training.arithmetic import random_bits
from training.device import describe
from training.forks import Fork
from training.segments import Arithmetic
from training.spec import RunSpec
from training.trainer import data, optimizer
from training.trainer.checkpoint import read_kept
from training.trainer.data import Corpus
from training.trainer.identity import identity, manifest
from training.trainer.model import Decoder
from training.trainer.run import TrainingRun
from training.trainer.step import Inputs, State
from workers.protocol import Message

BLOCK = 32  # steps that a fork's program computes at once


def train_forks(
    request: ForkRequest, folders: Path, read: Read, send: Callable[[Message], None]
) -> None:
    """Train the forks of a plan that the record lacks, after its replays, from checkpoints of the
    parents in `folders`, by id. `read` makes a specification of its document.
    """
    parents = [(read(spec), folders / parent) for parent, spec in request["parents"].items()]
    arms = {name: read(spec) for name, spec in request["arms"].items()}
    plan, results = fork_plan_from(request["plan"]), dict(request["results"])
    arithmetics, choices = forked_arms(arms, plan.fork_step, plan.fork_steps)
    checkpoints = ParentCheckpoints(
        parents, arithmetics, [*choices.values()], plan.fork_step, plan.fork_steps
    )
    spec = parents[0][0]
    send(
        {
            "kind": "manifest",
            "manifest": manifest(spec, checkpoints.corpus),
            "rounding": spec.rounding,
        }
    )
    replays = Replays(request["records"], folders, read, checkpoints.corpus)
    while (pending := plan.checked(results).pending) is not None:
        value: Any = replayed(replays, pending.replay, pending.draw, request["parents"], send)
        results[pending.key] = value
        send({"kind": "result", "key": pending.key, "value": value, "steps": pending.steps})
    for fork in plan.pending(results):
        value = checkpoints.fork(
            choices[fork.arm],
            plan.parents.index(fork.parent),
            fork.draw,
            lambda: send({"kind": "alive"}),
        )
        send({"kind": "result", "key": fork.key, "value": value, "steps": plan.fork_steps})


class NotFiniteError(Exception):
    """A measured loss is NaN or infinite."""

    code = "FORK_DIVERGED"


class ParentCheckpoints:
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
            like = TrainingRun(spec, self.corpus, fast_bf16=self._fast).state
            self._states[parent] = read_kept(folder, self._step, identity(spec, self.corpus), like)
        return self._states[parent]

    def fork(
        self, choice: Choice, parent: int, draw: int, alive: Callable[[], None] | None = None
    ) -> float:
        """The final loss of a fork of a parent."""
        spec = self._parents[parent][0]
        run = TrainingRun(
            spec,
            self.corpus,
            fast_bf16=self._fast,
            fork=Fork(parent=spec, step=self._step, draw=draw),
        )
        run.start_from(self.state(parent))
        values = forked(
            self._trained, run, run.state, choice, self._step, self._fork_steps, alive
        ).losses
        return finite(float(values[self._fork_steps // 2 :].mean()), f"the loss of fork {draw}")


def finite(value: float, what: str) -> float:
    """A measured value. Raises NotFiniteError for one that is NaN or infinite."""
    if not math.isfinite(value):
        raise NotFiniteError(
            f"{what} is {value}, expected a finite number; analyse an earlier checkpoint, or plan "
            "shorter forks"
        )
    return value


class Forked(NamedTuple):
    """The state after the steps of a fork, and their losses (steps,): mean cross entropy in
    nats.
    """

    state: State
    losses: npt.NDArray[np.float64]


def forked(
    model: Decoder,
    run: TrainingRun,
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
    if any(recipe.delayed for menu in menus for recipe in menu.recipes):
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
            random_bits.Key(inputs.run, number.astype(jnp.uint32)),
            jnp.asarray(inputs.settings.z_loss),
        )
        loss_and_gradient = jax.value_and_grad(
            lambda weights: menu_loss(
                model, weights, inputs.tokens[offset], key, state.scales.scale, choice, z_loss
            ),
            has_aux=True,
        )
        (_, lm_loss), gradient = loss_and_gradient(state.parameters)
        update = optimizer.apply(inputs.settings, state.parameters, state.moments, gradient, number)
        return state._replace(parameters=update.parameters, moments=update.state), losses.at[
            offset
        ].set(lm_loss)

    quiet = jnp.zeros(inputs.tokens.shape[0], jnp.float32)
    result: tuple[State, jax.Array] = jax.lax.fori_loop(0, inputs.steps, step, (state, quiet))
    return result
